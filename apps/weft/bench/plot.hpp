// Pictures of a benchmark's report, drawn by bench/plot.py, which is installed beside this program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft::cli {

// Throws where no picture could be drawn, so that it is said before minutes of measuring: Errc::invalid_argument for a
// file name that is no .png, .svg or .pdf, Errc::unsupported where python3, matplotlib or the script is missing, with
// what to install.
void check_plotting(const std::string& file);

// Throws Errc::system with what the script said.
void plot(const nlohmann::json& report, const std::string& file);

}  // namespace weft::cli
