// Group: what ranks know of each other, and how a caller sees a fault.
#include "binding.hpp"

namespace weft::python {

nb::class_<PyGroup> bind_group(nb::module_& module) {
  nb::class_<PyGroup> group(module, "Group", R"doc(
Ranks that make collective calls together: all of a communicator (Communicator.world), or a part (Communicator.split).

Every rank makes the same calls in the same order, from one thread at a time. Different groups may be used from
different threads; status(), check() and the properties from any thread at any time.

Outputs come before inputs, as in torch.distributed. A tensor is anything with DLPack, the CUDA array interface or the
buffer protocol, or a weft.Tensor. On CPU ranks it lies in host memory, and a call is complete when it returns; other
threads of Python run while it waits. On GPUs it lies in device memory, and a call is enqueued on `stream` and returns:
None is CUDA's default stream, else an address, torch's stream, or an object with __cuda_stream__. Tensors must then
stay until the call has run. CUDA graphs capture calls.

All calls have these parameters:

stream: as above; None on CPU ranks.
tag: a number that ranks compare, such as the layer's. It finds calls that went out of step.
blocks, threads: the grid on GPUs; `blocks` is also the most SMs that the call takes. 0: chosen by size.
cluster: 2: on GPUs blocks start in clusters of two, and `blocks` is even; 1: single blocks; 0: as Weft likes.

A call that is rejected (invalid_argument) raises weft.Error, and nothing was sent. On CPU ranks a fault is raised by the
call that meets it; on GPUs status() and check() tell it. A fault ends the communicator on every rank.)doc");
  group
      .def_prop_ro(
          "rank", [](const PyGroup& self) { return self->rank(); }, "This rank's place: 0 … size − 1.")
      .def_prop_ro(
          "size", [](const PyGroup& self) { return self->size(); }, "Number of ranks.")
      .def_prop_ro(
          "members",
          [](const PyGroup& self) {
            const auto members = self->members();
            return std::vector<int>(members.begin(), members.end());
          },
          "The world rank of each member, ascending.")
      .def_prop_ro(
          "cuda_device", [](const PyGroup& self) { return self->cuda_device(); },
          "The number of this rank's GPU; −1 on CPU ranks.")
      .def_prop_ro(
          "device", [](const PyGroup& self) { return word_of(self->device()); }, "\"cpu\" or \"cuda\".")
      .def_prop_ro(
          "tuning", [](const PyGroup& self) { return self->tuning(); },
          "The tuning table that serves all-reduces, and if it was made for other ranks, why it does. Tables of other "
          "operations follow.")
      .def(
          "check", [](const PyGroup& self) { self->check(); },
          "Raises weft.Error if status() is not None. The message ends with the last calls of the group that failed.")
      .def(
          "recent_calls",
          [](const PyGroup& self) {
            nb::list calls;
            for (const CallRecord& call : self->recent_calls()) {
              const std::chrono::duration<double> since_epoch = call.time.time_since_epoch();
              calls.append(record("CallRecord")(call.number, call.operation, since_epoch.count()));
            }
            return calls;
          },
          nb::sig("def recent_calls(self) -> list[weft._records.CallRecord]"),
          "The last calls made on this group, oldest first, 32 at most. Replays of CUDA graphs are not among them.")
      .def(
          "status",
          [](const PyGroup& self) {
            const std::optional<Fault> fault = self->status();
            return fault ? fault_of(*fault) : nb::none();
          },
          nb::sig("def status(self) -> weft._records.Fault | None"),
          "The first fault that this rank has seen, without waiting; None while all is well. On GPUs, calls that have "
          "not run cannot have failed: after a synchronised stream the answer is final.")
      .def("__repr__", [](const PyGroup& self) {
        return fmt::format("weft.Group(rank {} of {}, {})", self->rank(), self->size(), name(self->device()));
      });
  return group;
}

}  // namespace weft::python
