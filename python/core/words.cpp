// All words of the binding, by the names of their types.
#include "words.hpp"

#include <span>

#include "binding.hpp"
#include "exchange_args.hpp"

namespace weft::python {

namespace {

nb::list list_of(std::span<const std::string_view> words) {
  nb::list all;
  for (const std::string_view word : words) all.append(nb::str(word.data(), word.size()));
  return all;
}

template <class... E>
nb::dict words_of() {
  nb::dict all;
  ((all[kWords<E>.name.text] = list_of(kWords<E>.words)), ...);
  all["DispatchOutput"] = list_of(kDispatchOutputs);
  return all;
}

}  // namespace

void bind_words(nb::module_& module) {
  module.def("_words",
             words_of<Device, ReduceOp, Algorithm, Padding, Sharding, Fp8Scaling, ScaleType, RowType, RowCast,
                      RowLayout, ScaleOrder, RowPath, LayerSchedule, Overflow, DataType>,
             nb::sig("def _words() -> dict[str, list[str]]"),
             "Words for the values of each enumeration, in their order. weft._words is compared with them.");
}

}  // namespace weft::python
