// The boundary between C and C++: no exception crosses it, and a thread may ask for what the last one said.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <span>
#include <string_view>

#include "weft/c/error.h"
#include "weft/error.hpp"

namespace weft::c {

// Keeps an error for weft_last_fault() and weft_last_message(). Returns its code.
weft_code keep(const Fault& fault, const char* message) noexcept;
// Keeps an exception that is not Weft's.
weft_code keep_foreign(const char* message) noexcept;
// A record of the fault with texts that belong to the fault.
weft_fault record_of(const Fault& fault);

// Runs the body of a function of the interface.
template <class Body>
weft_code guarded(Body&& body) noexcept {
  try {
    body();
    return WEFT_OK;
  } catch (const Error& error) {
    return keep(error.fault(), error.what());
  } catch (const std::exception& error) {
    return keep_foreign(error.what());
  } catch (...) {
    return keep_foreign("an exception without a message");
  }
}

// Follows a pointer of the caller's: to an argument, a handle, or the place of a result.
template <class T>
T& at(const char* name, T* pointer) {
  if (pointer == nullptr) throw Error(Errc::invalid_argument, fmt::format("{}: null", name));
  return *pointer;
}

// A tensor or table of the caller's.
template <class T>
std::span<T> span_at(const char* name, T* first, std::size_t count) {
  return count == 0 ? std::span<T>() : std::span<T>(&at(name, first), count);
}

// Throws unless this library knows structs of that size.
void check_size(const char* name, std::size_t size, std::size_t least, std::size_t most);

// Writes as much of a struct as the caller's header has.
template <class T>
void give(const char* name, T* given, const T& full) {
  const std::size_t size = at(name, given).size;
  check_size(name, size, sizeof size, sizeof full);
  std::memcpy(given, &full, size);
  given->size = size;
}

// Gives a text as weft/c.h says.
void give_text(std::string_view whole, char* text, std::size_t capacity, std::size_t* length);

}  // namespace weft::c
