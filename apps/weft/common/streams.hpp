// What goes to stdout arrives, or the program fails.
#pragma once

#include <string_view>

namespace weft::cli {

// Takes the places of standard streams that are closed, lest a file or a socket gets one of them and what is printed.
// Writing there goes on failing.
void hold_standard_streams();

// Writes to stdout and waits for it. Throws Errc::system.
void write_stdout(std::string_view text);

// The exit code of a run that would end with `code`: 1 instead of 0 where something that was printed is lost, which it
// says on stderr.
int finish_stdout(int code);

}  // namespace weft::cli
