#include "binding.hpp"
#include "torch_call.hpp"

namespace weft::python {

namespace {

std::uintptr_t address_in(nb::handle given) {
  std::uintptr_t address = 0;
  if (nb::isinstance<nb::bool_>(given) || !nb::try_cast(given, address, false))
    reject_type(fmt::format("stream: {} is no address", nb::repr(given).c_str()));
  return address;
}

std::uintptr_t address_of(nb::handle given) {
  if (nb::isinstance<nb::int_>(given)) return address_in(given);
  if (nb::hasattr(given, "cuda_stream")) return address_in(given.attr("cuda_stream"));  // torch
  if (!nb::hasattr(given, "__cuda_stream__"))
    reject_type("stream must be None, an address, or an object with __cuda_stream__ or cuda_stream");
  nb::tuple version_and_address;  // cuda.core's protocol
  const nb::object answer = given.attr("__cuda_stream__")();
  if (!nb::try_cast(answer, version_and_address, false) || version_and_address.size() != 2)
    reject_type(fmt::format("stream: __cuda_stream__ gave {}, not (version, address)", nb::repr(answer).c_str()));
  return address_in(version_and_address[1]);
}

}  // namespace

Stream stream_of(nb::handle given, const Group& group) {
  if (given.ptr() == torch_stream) return torch::current_stream(group.cuda_device());
  return given.is_none() ? nullptr : reinterpret_cast<Stream>(address_of(given));
}

}  // namespace weft::python
