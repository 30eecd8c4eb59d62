#include "common/streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "weft/error.hpp"

namespace weft::cli {

void hold_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    const int other = ::open("/dev/null", O_RDONLY);  // open() returns the lowest free number
    if (other >= 0 && other != stream) ::close(other);
  }
}

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error(Errc::system, fmt::format("stdout cannot be written: {}", std::strerror(errno)));
}

int finish_stdout(int code) {
  errno = 0;
  std::cout.flush();
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  const int reason = errno;
  if (lost) __fpurge(stdout);  // it must not arrive later
  std::clearerr(stdout);
  std::cout.clear();
  if (!lost || code != 0) return code;
  // The write that failed may lie further back.
  std::fputs(fmt::format("weft: not all of the output could be written to stdout{}{}\n", reason != 0 ? ": " : "",
                         reason != 0 ? std::strerror(reason) : "")
                 .c_str(),
             stderr);
  return 1;
}

}  // namespace weft::cli
