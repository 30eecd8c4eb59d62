// SymmetricMemory: memory of every rank that all its peers reach.
#include "binding.hpp"

namespace weft::python {

namespace {

struct Symmetric {
  SymmetricMemory memory;
  Group world;
};
using PySymmetric = Owned<Symmetric>;

// A tensor in this rank's part. It is gone with the memory, not with the last view.
nb::object tensor_in(nb::handle self, const std::vector<std::int64_t>& shape, const char* type, std::size_t offset) {
  const Symmetric& of = *nb::cast<const PySymmetric&>(self);
  Tensor tensor;
  tensor.type = type_of(type);
  tensor.dimensions = static_cast<int>(shape.size());
  if (shape.size() > Tensor::kMostDimensions)
    reject(fmt::format("shape: {} dimensions; at most {}", shape.size(), Tensor::kMostDimensions));
  std::size_t bytes = tensor.item();
  std::int64_t stride = 1;
  for (int i = tensor.dimensions - 1; i >= 0; --i) {
    if (shape[i] < 0 || (shape[i] != 0 && bytes > of.memory.bytes() / static_cast<std::size_t>(shape[i]) + 1))
      reject(fmt::format("shape: length {}; the memory has {} bytes", shape[i], of.memory.bytes()));
    tensor.shape[i] = shape[i];
    tensor.strides[i] = stride;
    stride *= shape[i];
    bytes *= static_cast<std::size_t>(shape[i]);
  }
  if (offset > of.memory.bytes() || bytes > of.memory.bytes() - offset)
    reject(fmt::format("shape: {} bytes from byte {}; the memory has {}", bytes, offset, of.memory.bytes()));
  if (offset % tensor.item() != 0)
    reject(fmt::format("offset is {}; it must be a multiple of {}", offset, tensor.item()));
  const bool cuda = of.world.device() == Device::cuda;
  if (cuda) tensor.device = {nb::device::cuda::value, of.world.cuda_device()};
  if (!cuda) tensor.device = {nb::device::cpu::value, 0};
  tensor.data = static_cast<char*>(of.memory.data()) + offset;
  tensor.owner = nb::borrow(self);
  return nb::cast(std::move(tensor));
}

}  // namespace

void bind_memory(nb::module_& module) {
  nb::class_<PySymmetric>(module, "SymmetricMemory", R"doc(
As many bytes on every rank of a communicator, which all peers reach. If outputs of gathers lie in it, at the same place
on every rank, large messages go straight to their final place.

The memory is taken until free(), or until the communicator's end.)doc")
      .def_static(
          "allocate",
          [](const PyCommunicator& communicator, std::size_t bytes) {
            return PySymmetric(Symmetric{waiting([&] { return SymmetricMemory::allocate(*communicator, bytes); }),
                                         communicator->world()});
          },
          nb::arg("communicator"), nb::arg("bytes"),
          "Collective over the whole communicator, while no call of its groups runs. Contents are undefined.")
      .def(
          "free", [](const PySymmetric& self) { waiting([&] { self->memory.free(); }); },
          "Gives the memory back on all ranks; collective like allocate(). No view of it may be used afterwards.")
      .def_prop_ro(
          "bytes", [](const PySymmetric& self) { return self->memory.bytes(); },
          "Bytes of each rank's part, as allocate() was given.")
      .def_prop_ro(
          "data_ptr", [](const PySymmetric& self) { return reinterpret_cast<std::uintptr_t>(self->memory.data()); },
          "The address of this rank's part. release() takes it away; acquire() may bring another one.")
      .def(
          "peer",
          [](const PySymmetric& self, int rank) { return reinterpret_cast<std::uintptr_t>(self->memory.peer(rank)); },
          nb::arg("rank"), "The address from which this rank reaches the part of world rank `rank`; 0: it cannot.")
      .def("tensor", tensor_in, nb::arg("shape"), nb::arg("dtype"), nb::arg("offset") = 0,
           nb::sig("def tensor(self, shape: collections.abc.Sequence[int], dtype: str, offset: int = 0) -> Tensor"),
           R"doc(
A view of this rank's part from byte `offset` on. np.from_dlpack and torch.from_dlpack make an array of it. After free(),
or release() of the communicator, no view and no array of it may be used.)doc");
}

}  // namespace weft::python
