// Sanitizers make code ten times slower: tests that repeat much repeat less under them.
#pragma once

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

}  // namespace weft::test
