#include "c/boundary.hpp"

#include <algorithm>
#include <string>

namespace weft::c {
namespace {

struct LastError {
  Fault fault;
  std::string message;
  weft_fault record = {};
};

LastError& last_error() {
  thread_local LastError last;
  return last;
}

}  // namespace

weft_fault record_of(const Fault& fault) {
  return {.size = sizeof(weft_fault),
          .code = static_cast<weft_code>(fault.code),
          .rank = fault.rank,
          .peer = fault.peer,
          .reporter = fault.reporter,
          .reported = static_cast<weft_code>(fault.reported),
          .epoch_wanted = fault.epoch_wanted,
          .epoch_seen = fault.epoch_seen,
          .operation = fault.operation.c_str(),
          .theirs = fault.theirs.c_str(),
          .reason = fault.reason.c_str()};
}

weft_code keep(const Fault& fault, const char* message) noexcept {
  LastError& last = last_error();
  try {
    last.message = message;
    last.fault = fault;
  } catch (...) {
    // Without memory for the texts there is the code alone.
    last.message.clear();
    last.fault = {};
    last.fault.code = fault.code;
  }
  return static_cast<weft_code>(last.fault.code);
}

weft_code keep_foreign(const char* message) noexcept {
  Fault fault;
  fault.code = Errc::system;
  return keep(fault, message);
}

void check_size(const char* name, std::size_t size, std::size_t least, std::size_t most) {
  if (size >= least && size <= most) return;
  throw Error(Errc::invalid_argument, fmt::format("{}.size: {} is not between {} and {}{}", name, size, least, most,
                                                  size > most ? ": the library is older than the header" : ""));
}

void give_text(std::string_view whole, char* text, std::size_t capacity, std::size_t* length) {
  if (capacity != 0) {
    const std::size_t copied = std::min(whole.size(), capacity - 1);
    std::memcpy(&at("text", text), whole.data(), copied);
    text[copied] = 0;
  }
  if (length != nullptr) *length = whole.size();
}

}  // namespace weft::c

extern "C" {

const weft_fault* weft_last_fault() {
  weft::c::LastError& last = weft::c::last_error();
  last.record = weft::c::record_of(last.fault);
  return &last.record;
}

const char* weft_last_message() {
  return weft::c::last_error().message.c_str();
}

}  // extern "C"
