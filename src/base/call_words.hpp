// A call is kept as numbers. One that succeeds costs a copy of them. They become words where a fault, the flight
// recorder or a peer asks.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/fingerprint.hpp"

namespace weft::detail {

// A plain struct without pointers: the numbers of one kind of calls. `kKind`: a name that no other such struct has.
template <class T>
concept CallNumbers = std::is_trivially_copyable_v<T> && requires(const T& numbers) {
  { T::kKind } -> std::convertible_to<std::string_view>;
  { numbers.text() } -> std::same_as<std::string>;
};

class CallWords {
 public:
  static constexpr std::size_t kMostBytes = 232;

  CallWords() = default;
  // Another process with the same program can word them, too.
  template <CallNumbers Numbers>
  CallWords(const Numbers& numbers) : kind_(kRegistered<Numbers>), size_(sizeof(numbers)) {
    static_assert(sizeof(Numbers) <= kMostBytes);
    std::memcpy(numbers_, &numbers, sizeof(numbers));
  }
  // Words as they are; text that is too long is cut.
  explicit CallWords(std::string_view text);
  // From the words that another process has written. Numbers of a kind that this program does not know have no text.
  CallWords(std::uint32_t kind, const void* numbers, std::size_t size);
  CallWords(const CallWords& other) { *this = other; }
  CallWords& operator=(const CallWords& other) {
    if (this == &other) return *this;
    kind_ = other.kind_;
    size_ = other.size_;
    std::memcpy(numbers_, other.numbers_, size_);
    return *this;
  }

  std::uint32_t kind() const { return kind_; }
  const void* numbers() const { return numbers_; }
  std::size_t size() const { return size_; }
  std::string text() const;

 private:
  using Say = std::string (*)(const void* numbers);
  static std::uint32_t enroll(std::string_view kind, std::size_t size, Say say);
  template <class Numbers>
  static std::string say(const void* bytes) {
    Numbers numbers{};
    std::memcpy(&numbers, bytes, sizeof(numbers));
    return numbers.text();
  }
  // Enrolled when the program starts, because a peer's call may be of a kind that this rank has never made.
  template <class Numbers>
  inline static const std::uint32_t kRegistered = enroll(Numbers::kKind, sizeof(Numbers), &say<Numbers>);

  std::uint32_t kind_ = 0;
  std::uint32_t size_ = 0;
  alignas(8) std::byte numbers_[kMostBytes];  // the first `size_` of them
};

}  // namespace weft::detail
