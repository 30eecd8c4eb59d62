// A pseudo-terminal for tests.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace weft::cli {

// Replaces stderr by a terminal for its own lifetime. Tests can read the drawn text.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_GE(master_, 0);
    EXPECT_EQ(grantpt(master_), 0);
    EXPECT_EQ(unlockpt(master_), 0);
    slave_ = ::open(ptsname(master_), O_RDWR | O_NOCTTY);
    EXPECT_GE(slave_, 0);
    resize(columns);
    std::fflush(stderr);
    before_ = dup(STDERR_FILENO);
    dup2(slave_, STDERR_FILENO);
  }
  ~Terminal() {
    std::fflush(stderr);
    dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(slave_);
    ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void resize(unsigned short columns) const {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(ioctl(slave_, TIOCSWINSZ, &size), 0);
  }
  // The text drawn since the last call.
  std::string read() const {
    std::fflush(stderr);
    char text[4096];
    const ssize_t bytes = ::read(master_, text, sizeof(text));
    return {text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
  }

 private:
  int master_, slave_ = -1, before_ = -1;
};

}  // namespace weft::cli
