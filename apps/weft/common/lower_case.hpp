#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace weft::cli {

// Changes ASCII letters only.
inline std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return out;
}

}  // namespace weft::cli
