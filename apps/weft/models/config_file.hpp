// Reading a Hugging Face config.json.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace weft::cli {

// transformers writes NaN and Infinity, which JSON does not have. They are read as strings, so only a use of such a
// field fails. Errors (Errc::invalid_argument) name `file`.
nlohmann::json parse_config(std::string_view text, const std::string& file);

// The path of config.json if `given` is a model's folder.
std::filesystem::path config_path(const std::filesystem::path& given);
nlohmann::json read_config(const std::filesystem::path& file);

}  // namespace weft::cli
