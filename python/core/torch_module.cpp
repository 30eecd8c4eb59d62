#include "torch_module.hpp"

#include <span>

#include "binding.hpp"
#include "exchange_args.hpp"
#include "known_types.hpp"
#include "torch_call.hpp"

namespace weft::python {

namespace {

// For a call by weft.Group: the current stream's address, 0 on CPU ranks; nothing if torch must see the call.
std::optional<std::uintptr_t> direct_stream(int cuda_device, nb::handle x, nb::handle y) {
  if (!is_plain_and_unwatched(x, y)) return std::nullopt;
  return reinterpret_cast<std::uintptr_t>(torch::current_stream(cuda_device));
}

// Operators take numbers for words.
nb::list list_of(std::span<const std::string_view> words) {
  nb::list all;
  for (const std::string_view word : words) all.append(nb::str(word.data(), word.size()));
  return all;
}

}  // namespace

void bind_torch(nb::module_& module) {
  module.def("_torch_define", torch::define_operators,
             "Defines torch.ops.weft; once in a process, after import torch.");
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
  module.def("_torch_words", [] {
    return nb::make_tuple(list_of(kWords<ReduceOp>), list_of(kWords<Algorithm>), list_of(kWords<Sharding>),
                          list_of(kWords<Padding>), list_of(kWords<Fp8Scaling>), list_of(kWords<ScaleType>),
                          list_of(kDispatchOutputs));
  });
  module.def("_torch_direct_stream", direct_stream, nb::arg("cuda_device"), nb::arg("x").none(),
             nb::arg("y").none() = nb::none());
  module.def("_torch_check", [] {
    if (const std::optional<Error> error = torch::take_last_error()) throw Error(*error);
  });
}

}  // namespace weft::python
