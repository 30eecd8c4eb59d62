#include "common/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace weft::cli {
namespace {

constexpr std::size_t kUsualColumns = 80;

// Asked each time, since users resize terminals.
std::size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kUsualColumns;
}

}  // namespace

std::string_view fitted(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0;
  for (std::size_t taken = 0; bytes < text.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(text[bytes]) & 0xc0) != 0x80;  // a character of UTF-8
    if (begins && taken++ == columns) break;
  }
  return text.substr(0, bytes);
}

Progress::Progress(std::size_t total, bool wanted) : total_(total), shown_(wanted && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  clear();
}

void Progress::step(std::string_view what) {
  ++done_;
  draw(what);
}

void Progress::note(std::string_view what) {
  draw(what);
}

void Progress::draw(std::string_view what) const {
  constexpr std::size_t width = 30;
  if (!shown_) return;
  const std::size_t filled = total_ == 0 ? width : std::min(width, (done_ - 1) * width / total_);
  const std::string line =
      fmt::format("[{}{}] {}/{} {}", std::string(filled, '#'), std::string(width - filled, '.'), done_, total_, what);
  fmt::print(stderr, "\r\x1b[K{}", fitted(line, terminal_columns() - 1));  // a full line wraps on some terminals
  std::fflush(stderr);
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);  // not fmt::print: that may throw, and this runs in the destructor
  std::fflush(stderr);
}

}  // namespace weft::cli
