// Weft's exception in Python, and the record of a fault.
#include "binding.hpp"

namespace weft::python {

nb::object record(const char* name) {
  return nb::module_::import_("weft._records").attr(name);
}

nb::object fault_of(const Fault& fault) {
  return record("Fault")(fault.code, fault.rank, fault.peer, fault.reporter, fault.reported, fault.epoch_wanted,
                         fault.epoch_seen, fault.operation, fault.theirs, fault.reason);
}

namespace {

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    try {
      const nb::object type = record("Error");
      PyErr_SetObject(type.ptr(), type(error.what(), fault_of(error.fault())).ptr());
    } catch (nb::python_error& interrupt) {  // a signal's handler has raised, KeyboardInterrupt for example
      interrupt.restore();
    }
  }
}

}  // namespace

void bind_errors(nb::module_& module) {
  nb::enum_<Errc>(module, "Errc", nb::is_arithmetic(), "Why a call failed or was rejected (weft/error.hpp).")
      .value("ok", Errc::ok, "Nothing happened.")
      .value("invalid_argument", Errc::invalid_argument,
             "Rejected: an argument is outside its range. The message has its name, value and range.")
      .value("timeout", Errc::timeout,
             "A wait outlasted the deadline: `peer` is late, stopped, or never made this call.")
      .value("mismatch", Errc::mismatch, "`peer` made a different call, found other counts, or rejected the call.")
      .value("peer_died", Errc::peer_died, "The process of `peer` is gone.")
      .value("peer_failed", Errc::peer_failed, "Another rank, `reporter`, found a failure and ended the communicator.")
      .value("aborted", Errc::aborted, "abort() was called, here or on `peer`.")
      .value("overlap", Errc::overlap,
             "Two calls of one group ran at the same time, on unordered streams or in threads.")
      .value("released", Errc::released, "The memory is released (release() without acquire()).")
      .value("rendezvous", Errc::rendezvous, "Creation failed: ranks did not meet, or disagree about the world.")
      .value("unsupported", Errc::unsupported, "Not possible on this machine, or in this build.")
      .value("system", Errc::system, "The operating system, CUDA or NCCL refused a call.")
      .value("in_flight", Errc::in_flight, "Too many dispatches or sends at a time.")
      .value("overflow", Errc::overflow, "An expert has no room for all its rows.")
      .value("capacity", Errc::capacity, "Counts on the device are negative, or more than a call has room for.");
  nb::register_exception_translator(translate);
}

}  // namespace weft::python
