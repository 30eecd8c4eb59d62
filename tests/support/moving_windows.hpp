// Controls the place of CPU ranks' windows after release() and acquire(). mmap alone would mostly give the same
// addresses again, and tests would pass by luck. In these executables windows always move. While a WindowsStay lives,
// they return to their old place. (The linker redirects mmap and munmap: cmake/tests.cmake.)
#pragma once

namespace weft::test {

class WindowsStay {
 public:
  WindowsStay();
  ~WindowsStay();
  WindowsStay(const WindowsStay&) = delete;
  WindowsStay& operator=(const WindowsStay&) = delete;
  // Except for the window that was here: another mapping takes its place.
  static void take(const void* place);
};

}  // namespace weft::test
