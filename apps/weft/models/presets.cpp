#include "models/presets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/lower_case.hpp"
#include "models/config_file.hpp"
#include "models/model_files.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

struct Preset {
  ModelShape shape;
  std::string model;  // its own name, through plain()
};

// Removes the organisation and changes to lower case.
std::string plain(std::string_view name) {
  return lower_case(name.substr(name.rfind('/') + 1));  // npos + 1 is 0
}

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    std::vector<Preset> made;
    for (const auto& [path, text] : detail::kModelFiles) {
      const std::string file(path);
      const nlohmann::json config = parse_config(text, file);
      made.push_back({shape_from_json(config, std::filesystem::path(file).stem().string(), file),
                      plain(config.at("_name_or_path").get<std::string>())});
    }
    return made;
  }();
  return all;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& one : presets()) names.push_back(one.shape.name);
  return names;
}

ModelShape preset(std::string_view name) {
  const std::string wanted = plain(name);
  for (const auto& one : presets())
    if (one.shape.name == wanted || one.model == wanted) return one.shape;
  throw Error(Errc::invalid_argument,
              fmt::format("model \"{}\" is not known; presets: {} (or --config path/config.json)", name,
                          fmt::join(preset_names(), ", ")));
}

}  // namespace weft::cli
