// Output to stdout arrives, or the program fails.
#pragma once

#include <string_view>

namespace weft::cli {

// Opens something in place of each standard stream that is closed, so that no file or socket gets its number and
// receives output. Writing there still fails.
void hold_standard_streams();

// Writes to stdout and waits for it. Throws Errc::system.
void write_stdout(std::string_view text);

// Flushes stdout and returns the exit code. If printed output is lost, says so on stderr and returns 1 instead of 0.
int finish_stdout(int code);

}  // namespace weft::cli
