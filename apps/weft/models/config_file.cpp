#include "models/config_file.hpp"

#include <fmt/format.h>
#include <cerrno>
#include <cstring>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "weft/error.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMostDepth = 100;  // far above every model; code that reads a value recurses as deep as the value

struct Readable {
  std::string text;       // NaN, Infinity and -Infinity outside of strings get quotes
  std::size_t depth = 0;  // of objects and lists, judged by brackets
};

Readable readable(std::string_view text) {
  Readable out;
  std::size_t depth = 0;
  bool in_string = false;
  while (!text.empty()) {
    std::size_t length = 1;
    if (in_string && text.front() == '\\') length = std::min<std::size_t>(2, text.size());
    if (text.front() == '"') in_string = !in_string;
    bool word = false;
    for (const std::string_view special : {"NaN", "Infinity", "-Infinity"}) {
      if (in_string || !text.starts_with(special)) continue;
      word = true;
      length = special.size();
    }
    if (!in_string && (text.front() == '{' || text.front() == '[')) out.depth = std::max(out.depth, ++depth);
    if (!in_string && (text.front() == '}' || text.front() == ']') && depth != 0) --depth;
    if (word) out.text += '"';
    out.text += text.substr(0, length);
    if (word) out.text += '"';
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace

json parse_config(std::string_view text, const std::string& file) {
  const Readable read = readable(text);
  if (read.depth > kMostDepth)
    throw Error(Errc::invalid_argument, fmt::format("{}: objects and lists are nested {} deep, must be {} at most",
                                                    file, read.depth, kMostDepth));
  try {
    return json::parse(read.text);
  } catch (const json::exception& error) {
    throw Error(Errc::invalid_argument, fmt::format("\"{}\" is not valid JSON: {}", file, error.what()));
  }
}

std::filesystem::path config_path(const std::filesystem::path& given) {
  std::error_code unknown;  // read_config() reports the error
  return std::filesystem::is_directory(given, unknown) ? given / "config.json" : given;
}

json read_config(const std::filesystem::path& file) {
  errno = 0;
  std::ifstream in(file);
  in.peek();  // opening a folder succeeds, and reading it fails
  if (!in.is_open() || in.bad())
    throw Error(Errc::invalid_argument, fmt::format("cannot read \"{}\": {}", file.string(), std::strerror(errno)));
  return parse_config(std::string(std::istreambuf_iterator<char>(in), {}), file.string());
}

}  // namespace weft::cli
