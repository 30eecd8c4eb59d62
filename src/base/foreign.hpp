// Foreign exceptions, such as std::bad_alloc, never leave the library: callers only see weft::Error.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "weft/error.hpp"

namespace weft::detail {

// Throws Weft's own errors unchanged, others as Errc::system with their text.
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

// Returns the result of `body`, or throws an Error.
template <class Body>
decltype(auto) with_errors_only(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    rethrow_as_error(std::current_exception());
  }
}

}  // namespace weft::detail
