#include "torch_module.hpp"

#include "binding.hpp"

namespace weft::python {

namespace {

// Operators take numbers for words.
template <class E>
nb::list words() {
  nb::list all;
  for (const std::string_view word : kWords<E>) all.append(nb::str(word.data(), word.size()));
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
  module.def("_torch_words", [] {
    return nb::make_tuple(words<ReduceOp>(), words<Algorithm>(), words<Sharding>(), words<Padding>(),
                          words<Fp8Scaling>(), words<ScaleType>());
  });
  module.def("_torch_check", [] {
    if (const std::optional<Error> error = torch::take_last_error()) throw Error(*error);
  });
}

}  // namespace weft::python
