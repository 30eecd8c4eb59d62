// Weft's shared memory that this process has mapped.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace weft::test {

// The number of windows of exactly `bytes` bytes.
inline std::size_t mapped_windows(std::size_t bytes) {
  std::ifstream maps("/proc/self/maps");
  std::size_t found = 0;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    if (line.find("/memfd:weft") != std::string::npos && end - begin == bytes) ++found;
  }
  return found;
}

}  // namespace weft::test
