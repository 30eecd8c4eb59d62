#include "base/call_words.hpp"

#include <algorithm>
#include <vector>

namespace weft::detail {
namespace {

constexpr std::uint32_t kText = 1;  // the numbers are the words

struct Kind {
  std::uint32_t number;
  std::size_t size;
  std::string (*say)(const void*);
};

// Grows while the program, or a library that it loads, starts.
std::vector<Kind>& kinds() {
  static auto* const all = new std::vector<Kind>;  // never destroyed: a thread may wait in a call during exit
  return *all;
}

const Kind* find_kind(std::uint32_t number) {
  const auto found = std::ranges::find(kinds(), number, &Kind::number);
  return found == kinds().end() ? nullptr : &*found;
}

}  // namespace

std::uint32_t CallWords::enroll(std::string_view kind, std::size_t size, Say say) {
  const std::uint32_t number = fingerprint(NameHash(kind), size);
  if (find_kind(number) != nullptr) return number;  // e.g. two libraries of a program each have a copy of Weft
  kinds().push_back({.number = number, .size = size, .say = say});
  return number;
}

CallWords::CallWords(std::string_view text)
    : kind_(kText), size_(static_cast<std::uint32_t>(std::min(text.size(), kMostBytes))) {
  std::memcpy(numbers_, text.data(), size_);
}

CallWords::CallWords(std::uint32_t kind, const void* numbers, std::size_t size)
    : kind_(kind), size_(static_cast<std::uint32_t>(std::min(size, kMostBytes))) {
  std::memcpy(numbers_, numbers, size_);
}

std::string CallWords::text() const {
  if (kind_ == kText) return {reinterpret_cast<const char*>(numbers_), size_};
  const Kind* const kind = find_kind(kind_);
  return kind != nullptr && kind->size == size_ ? kind->say(numbers_) : std::string();
}

}  // namespace weft::detail
