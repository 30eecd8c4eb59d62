// Sanitizers make code ten times slower, so tests with many repetitions make fewer of them.
#pragma once

#include <vector>

namespace weft::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

constexpr int repeated(int times) {
  return kSanitized ? times / 10 : times;
}

// Worlds of these sizes. Under sanitizers only the small ones: large ones run the same code on more threads than cores.
inline std::vector<int> world_sizes(std::vector<int> sizes) {
  if (kSanitized) std::erase_if(sizes, [](int size) { return size > 5; });
  return sizes;
}

}  // namespace weft::test
