#include "torch_module.hpp"

#include "binding.hpp"
#include "known_types.hpp"
#include "torch_call.hpp"

namespace weft::python {

namespace {

// Whether a call with this tensor is no direct one.
bool must_see(nb::handle tensor) {
  return !is_plain_torch_tensor(tensor) || is_watched_by_torch();
}

}  // namespace

void bind_torch(nb::module_& module) {
  module.def(
      "_torch_define",
      [] {
        torch::define_operators();
        return torch::knows_gradients();
      },
      "Defines torch.ops.weft; once in a process, after import torch. True: operators refuse gradients.");
  module.def(
      "_torch_add_group", [](const PyGroup& group) { return torch::add_group(*group); }, nb::arg("group"));
  module.def(
      "_torch_remove_group", [](std::int64_t number) { waiting([&] { torch::remove_group(number); }); },
      nb::arg("number"));
  module.def(
      "_torch_add_exchange", [](const PyExchange& of) { return torch::add_exchange(of->exchange, of->group); },
      nb::arg("exchange"));
  module.def(
      "_torch_remove_exchange", [](std::int64_t number) { waiting([&] { torch::remove_exchange(number); }); },
      nb::arg("number"));
  if (torch_stream == nullptr) torch_stream = nb::module_::import_("builtins").attr("object")().release().ptr();
  module.attr("_torch_stream") = nb::borrow(torch_stream);
  nb::exception<Watched>(module, "_Watched");
  module.def("_torch_must_see", must_see, nb::arg("tensor"), nb::sig("def _torch_must_see(tensor: object) -> bool"));
  module.def("_torch_check", [] {
    if (const std::optional<Error> error = torch::take_last_error()) throw Error(*error);
  });
}

}  // namespace weft::python
