#include "models/model_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.hpp"
#include "models/presets.hpp"
#include "rendezvous/environment.hpp"
#include "weft/error.hpp"

namespace weft::cli {

void ModelChoice::add_to(CLI::App& app, const std::string& option, const std::string& what) {
  const auto known = [](const std::string& name) -> std::string {
    try {
      static_cast<void>(preset(name));
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  preset_ = app.add_option(option, model_, fmt::format("{}: {}", what, fmt::join(preset_names(), ", ")))->check(known);
  if (!model_.empty()) preset_->capture_default_str();
  config_ = app.add_option("--config", config_file_, "… or a Hugging Face config.json, or its folder");
  config_->excludes(preset_);
}

void ModelChoice::excludes(CLI::Option* other) const {
  preset_->excludes(other);
  config_->excludes(other);
}

ModelShape ModelChoice::shape() const {
  ModelShape shape = config_->count() == 0 ? preset(model_) : shape_from_config(config_file_);
  if (detail::read_launch_environment(detail::environment_variable).rank == 0)
    for (const auto& warning : shape.warnings) detail::logger().warn("{}", warning);
  return shape;
}

ModelShape ModelChoice::shape_with_experts() const {
  ModelShape shape = this->shape();
  require_experts((config_->count() == 0 ? preset_ : config_)->get_name(), shape);
  return shape;
}

}  // namespace weft::cli
