// Exceptions of others, such as std::bad_alloc, never leave the library: weft::Error is the only type that callers see.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "weft/error.hpp"

namespace weft::detail {

// Throws `error` as it is where it is one of Weft's, else as Errc::system with its text.
[[noreturn]] inline void rethrow_as_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(Errc::system, "out of memory");
  } catch (const std::exception& foreign) {
    throw Error(Errc::system, foreign.what());
  } catch (...) {
    throw Error(Errc::system, "an exception of unknown type");
  }
}

// What `body` returns, or an Error.
template <class Body>
decltype(auto) with_errors_only(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    rethrow_as_error(std::current_exception());
  }
}

}  // namespace weft::detail
