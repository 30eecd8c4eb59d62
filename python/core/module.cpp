// weft._core: the C++ interface in Python. It knows neither torch nor NumPy.
#include "binding.hpp"
#include "weft/c/types.h"

namespace {

// The package's parts lie in one wheel, but an environment can mix them: a library of another version has other
// structs.
void compare_versions() {
  const std::string_view library = weft_version(), package = WEFT_PACKAGE_VERSION;
  if (library == package) return;
  throw nanobind::import_error(
      fmt::format("the package weft {} found libweft {}; install both from one wheel", package, library).c_str());
}

}  // namespace

NB_MODULE(_core, module) {
  using namespace weft::python;
  compare_versions();
  // A program may end with live communicators: the library ends with it.
  nb::set_leak_warnings(false);
  module.def(
      "version", [] { return std::string(weft_version()); }, "The version of libweft, \"0.1.0\".");
  bind_words(module);
  bind_errors(module);
  bind_tensor(module);
  nb::class_<PyGroup> group = bind_group(module);
  bind_communicator(module);
  bind_collectives(group);
  bind_messages(group);
  bind_ragged(module, group);
  bind_fused(module, group);
  bind_exchange(module);
  bind_layer(module);
  bind_memory(module);
  bind_recording(module);
  bind_parallel(module);
  bind_torch(module);
}
