// Exceptions of Python's functions that the library calls where no thread of Python's runs.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

#include "threads.hpp"

namespace weft::python {

// Peers are told its type and the first line of its text.
class Raised : public std::exception {
 public:
  explicit Raised(nb::python_error&& error) : error_(std::move(error)) {
    const std::string type = nb::str(error_.type().attr("__name__")).c_str(), text = nb::str(error_.value()).c_str();
    text_ = fmt::format("{}: {}", type, text.substr(0, text.find('\n')));
  }
  const char* what() const noexcept override { return text_.c_str(); }
  nb::python_error& error() { return error_; }

 private:
  nb::python_error error_;
  std::string text_;
};
template <class Call>
void raising(Call call) {
  const Locked locked;
  try {
    call();
  } catch (nb::python_error& error) {
    throw Raised(std::move(error));
  }
}
// Makes a call of the library; an exception of a function leaves it as it was.
template <class Call>
void passing_on(Call call) {
  try {
    call();
  } catch (Raised& raised) {
    throw nb::python_error(std::move(raised.error()));
  }
}

}  // namespace weft::python
