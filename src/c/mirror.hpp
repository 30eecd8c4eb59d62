// Structs of the C interface as mirrors of C++ structs. A mirror names each pair of fields once: arguments go from C to
// C++ by it, and defaults from C++ to C.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "c/boundary.hpp"
#include "c/handles.hpp"

namespace weft::c {

// A specialisation for the struct T has the members below. T ends with its last field, without padding: a later field
// there would not change its size, which alone tells versions apart.
//   Cpp                     the C++ struct
//   name                    of T
//   least                   the end of the last field that every caller has, in bytes
//   fields(c, cpp, copy)    calls `copy` with each pair of fields
template <class T>
struct Mirror;

// Enumerations of C++ have a byte. A number that it cannot hold becomes one that is no enumerator either.
template <class Enum>
Enum enumerator(std::int32_t value) {
  return static_cast<Enum>(value < 0 || value > UINT8_MAX ? UINT8_MAX : value);
}

struct ToCpp {
  template <class From, class To>
  void operator()(const From& from, To& to) const {
    if constexpr (std::is_enum_v<To>) {
      to = enumerator<To>(from);
    } else if constexpr (std::is_same_v<To, bool>) {
      to = from != 0;
    } else if constexpr (std::is_same_v<To, std::string>) {
      to = from == nullptr ? "" : from;
    } else if constexpr (std::is_same_v<To, std::chrono::nanoseconds>) {
      to = To(from);
    } else {
      static_assert(std::is_same_v<From, To>);
      to = from;
    }
  }
};

struct ToC {
  template <class To, class From>
  void operator()(To& to, const From& from) const {
    if constexpr (std::is_enum_v<From>) {
      to = static_cast<To>(from);
    } else if constexpr (std::is_same_v<From, std::string>) {
      to = from.empty() ? nullptr : from.c_str();
    } else if constexpr (std::is_same_v<From, std::chrono::nanoseconds>) {
      to = from.count();
    } else {
      to = from;
    }
  }
};

template <class T>
void check_size(std::size_t size) {
  check_size(Mirror<T>::name, size, Mirror<T>::least, sizeof(T));
}

// The struct with the defaults of C++.
template <class T>
T defaults() {
  T mirror = {};
  const typename Mirror<T>::Cpp cpp = {};
  Mirror<T>::fields(mirror, cpp, ToC());
  mirror.size = sizeof(T);
  return mirror;
}

template <class T>
weft_code init(T* given, std::size_t size) noexcept {
  return guarded([&] {
    static_cast<void>(at(Mirror<T>::name, given));
    // A call refuses it for the same reason, so init's error may be ignored.
    if (size >= sizeof(given->size)) given->size = size;
    check_size<T>(size);
    give(Mirror<T>::name, given, defaults<T>());
  });
}

// A struct of the caller's, with the defaults where an older one ends.
template <class T>
T whole(const T* given) {
  const std::size_t size = at(Mirror<T>::name, given).size;
  check_size<T>(size);
  if (size == sizeof(T)) return *given;
  T full = defaults<T>();
  std::memcpy(&full, given, size);
  return full;
}

template <class T>
typename Mirror<T>::Cpp cpp_of(const T& full) {
  typename Mirror<T>::Cpp cpp;
  Mirror<T>::fields(full, cpp, ToCpp());
  return cpp;
}
// An optional struct: null stands for the defaults.
template <class T>
typename Mirror<T>::Cpp cpp_or_defaults(const T* given) {
  return given == nullptr ? typename Mirror<T>::Cpp{} : cpp_of(whole(given));
}

// A table of the caller's structs, all of the first one's `size`, as far as `all` has room.
template <class T>
void translate(const char* name, const T* first, std::span<typename Mirror<T>::Cpp> all) {
  if (all.empty()) return;
  const std::size_t size = at(name, first).size;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const T* const given = reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(first) + i * size);
    if (given->size != size)
      throw Error(Errc::invalid_argument, fmt::format("{}[{}].size: {} is not {}", name, i, given->size, size));
    all[i] = cpp_of(whole(given));
  }
}

// A function that makes one call on a group.
template <class T>
weft_code call(void (*function)(const Group&, const typename Mirror<T>::Cpp&), const weft_group* group,
               const T* args) noexcept {
  return guarded([&] { function(at("group", group).group, cpp_of(whole(args))); });
}

}  // namespace weft::c
