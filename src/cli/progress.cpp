#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace weft::cli {

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
  fmt::print(stderr, "\r\x1b[K[{}{}] {}/{} {}", std::string(filled, '#'), std::string(width - filled, '.'), done_,
             total_, what);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);  // not fmt::print: that may throw, and this runs in the destructor
  std::fflush(stderr);
}

}  // namespace weft::cli
