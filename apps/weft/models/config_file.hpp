// Reading a Hugging Face config.json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace weft::cli {

// transformers writes NaN and Infinity, which JSON does not have: read as strings, they trouble only the field that
// they are in. `file` is named in errors: Errc::invalid_argument.
nlohmann::json parse_config(std::string_view text, const std::string& file);

// A model's folder stands for its config.json.
std::filesystem::path config_path(const std::filesystem::path& given);
nlohmann::json read_config(const std::filesystem::path& file);

}  // namespace weft::cli
