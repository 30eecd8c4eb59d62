// Pictures of a benchmark's report, drawn by bench/plot.py, which is installed beside this program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft::cli {

// Throws, before minutes of measuring, if no picture could be drawn. Errc::invalid_argument: the file name is no .png,
// .svg or .pdf. Errc::unsupported: python3, matplotlib or the script is missing; the message says what to install.
void check_plotting(const std::string& file);

// Throws Errc::system with the script's message.
void plot(const nlohmann::json& report, const std::string& file);

}  // namespace weft::cli
