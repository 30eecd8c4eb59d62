// Where windows of CPU ranks lie after release() and acquire(). Without help it is up to mmap, and it mostly gives the
// same addresses again: tests would pass by its luck. In these executables windows always move, and come back to where
// they were while a WindowsStay lives (the linker leads mmap and munmap here: cmake/tests.cmake).
#pragma once

namespace weft::test {

class WindowsStay {
 public:
  WindowsStay();
  ~WindowsStay();
  WindowsStay(const WindowsStay&) = delete;
  WindowsStay& operator=(const WindowsStay&) = delete;
  // But for the one that has gone from here: its place is taken.
  static void take(const void* place);
};

}  // namespace weft::test
