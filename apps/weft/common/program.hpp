// The whole program for main(), which is compiled twice and needs no parser of options.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

// Returns exit code 0, 1 or 2 (bad usage). `arguments` leaves out the program's name.
int run_program(const std::vector<std::string>& arguments);

}  // namespace weft::cli
