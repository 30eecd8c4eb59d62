#include "binding.hpp"

namespace weft::python {

namespace {

// A recording, and what its calls were given: their memory stays as long.
struct PyRecording {
  std::vector<Tensor> tensors;
  Owned<Recording> recording;
};

PyRecording captured(const PyCommunicator& communicator, const nb::callable& calls) {
  std::vector<Tensor> tensors;
  std::vector<Tensor>* const outer = std::exchange(recorded_tensors, &tensors);
  const auto restore = [&](std::vector<Tensor>**) { recorded_tensors = outer; };
  const std::unique_ptr<std::vector<Tensor>*, decltype(restore)> at_the_end(&recorded_tensors, restore);
  Recording recording = Recording::capture(*communicator, [&] { calls(); });
  return {std::move(tensors), std::move(recording)};
}

}  // namespace

void bind_recording(nb::module_& module) {
  nb::class_<PyRecording>(module, "Recording", R"doc(
Calls that one CPU rank has planned and will make again: the counterpart of a captured CUDA graph.

It keeps the tensors of its calls.)doc")
      .def_static(
          "capture", captured, nb::arg("communicator"), nb::arg("calls"),
          nb::sig("def capture(communicator: Communicator, calls: collections.abc.Callable[[], object]) -> Recording"),
          R"doc(
Runs `calls` in this thread. Collective calls that it makes on the communicator's groups are checked, planned and kept,
not made. An exception that leaves `calls` is passed on. On GPUs: Errc.unsupported; capture a CUDA graph instead.)doc")
      .def(
          "replay", [](const PyRecording& self) { waiting([&] { self.recording->replay(); }); },
          "Makes the calls, in order, with the present contents of their tensors.")
      .def("__len__", [](const PyRecording& self) { return self.recording->size(); });
}

}  // namespace weft::python
