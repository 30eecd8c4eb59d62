#include "binding.hpp"
#include "raised.hpp"

namespace weft::python {

namespace {

// A recording, and what it needs: memory of its calls' tensors, functions of its layers.
struct PyRecording {
  Recorded recorded;
  Owned<Recording> recording;
};

PyRecording captured(const PyCommunicator& communicator, const nb::callable& calls) {
  Recorded kept;
  Recorded* const outer = std::exchange(recorded, &kept);
  const auto restore = [&](Recorded**) { recorded = outer; };
  const std::unique_ptr<Recorded*, decltype(restore)> at_the_end(&recorded, restore);
  Recording recording = Recording::capture(*communicator, [&] { calls(); });
  return {std::move(kept), std::move(recording)};
}

void replay(const PyRecording& self) {
  if (recorded != nullptr) recorded->objects.push_back(nb::find(self));
  waiting([&] { passing_on([&] { self.recording->replay(); }); });
}

// Functions often have their recording.
PyType_Slot seen_by_the_collector[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(+[](PyObject* self, visitproc visit, void* arg) {
       Py_VISIT(Py_TYPE(self));
       if (!nb::inst_ready(self)) return 0;
       const Recorded& of = nb::inst_ptr<PyRecording>(self)->recorded;
       for (const nb::object& object : of.objects) Py_VISIT(object.ptr());
       for (const Tensor& tensor : of.tensors) Py_VISIT(tensor.owner.ptr());
       return 0;
     })},
    {Py_tp_clear, reinterpret_cast<void*>(+[](PyObject* self) {
       if (nb::inst_ready(self)) static_cast<void>(std::exchange(nb::inst_ptr<PyRecording>(self)->recorded, {}));
       return 0;
     })},
    {0, nullptr}};

}  // namespace

void bind_recording(nb::module_& module) {
  nb::class_<PyRecording>(module, "Recording", nb::type_slots(seen_by_the_collector), R"doc(
Calls that one CPU rank has planned and will make again: the counterpart of a captured CUDA graph.

It keeps the tensors of its calls, and the functions of layers.)doc")
      .def_static(
          "capture", captured, nb::arg("communicator"), nb::arg("calls"),
          nb::sig("def capture(communicator: Communicator, calls: collections.abc.Callable[[], object]) -> Recording"),
          R"doc(
Runs `calls` in this thread. Collective calls that it makes on the communicator's groups are checked, planned and kept,
not made. An exception that leaves `calls` is passed on. On GPUs: Errc.unsupported; capture a CUDA graph instead.)doc")
      .def("replay", replay, R"doc(
Makes the calls, in order, with the present contents of their tensors. Functions of layers are called again; an exception
of theirs is passed on, and later calls are not made.)doc")
      .def("__len__", [](const PyRecording& self) { return self.recording->size(); });
}

}  // namespace weft::python
