// Messages between two ranks, and the gather and scatter of one root.
#include <limits>

#include "binding.hpp"
#include "operations.hpp"

namespace weft::python {

namespace {

template <class T>
T number_in(const std::string& argument, const char* what, nb::handle given) {
  T number = {};
  const nb::object index = nb::steal(PyNumber_Index(given.ptr()));
  if (!index.is_valid()) PyErr_Clear();
  if (!index.is_valid() || !nb::try_cast<T>(index, number))
    reject_type(fmt::format("{}: {} is {}; it must be an integer of {} … {}", argument, what, nb::repr(given).c_str(),
                            std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  return number;
}

// Messages of one direction, each (tensor, peer) or (tensor, peer, tag).
template <class Message>
std::vector<Message> messages_of(const char* list, nb::handle given, Tensors& tensors, Access access) {
  std::vector<Message> messages;
  for (const nb::handle one : nb::iter(given)) {
    const std::string argument = fmt::format("{}[{}]", list, messages.size());
    const bool is_tuple = nb::isinstance<nb::tuple>(one);
    const std::size_t length = is_tuple ? nb::len(one) : 0;
    if (length != 2 && length != 3)
      reject_type(
          fmt::format("{} is {}; it must be (tensor, peer) or (tensor, peer, tag)", argument, nb::repr(one).c_str()));
    const Tensor& tensor = tensors.taken(argument.c_str(), one[0], access);
    const int peer = number_in<int>(argument, "peer", one[1]);
    const std::uint32_t tag = length == 3 ? number_in<std::uint32_t>(argument, "tag", one[2]) : 0;
    messages.push_back(message_of<Message>(argument.c_str(), tensor, peer, tag));
  }
  return messages;
}

// Makes a call of the messages that `fill` adds.
struct Messages {
  std::vector<Send> sends;
  std::vector<Receive> receives;
};
template <class Fill>
void make_messages(const PyGroup& self, const CallOptions& options, Fill&& fill) {
  Messages messages;
  const auto build = [&](Tensors& tensors) {
    fill(tensors, messages);
    return SendReceiveArgs{.sends = messages.sends, .receives = messages.receives};
  };
  make_untold_call(self, options, build, weft::send_receive);
}

void send_receive(const PyGroup& self, nb::handle sends, nb::handle receives, nb::handle stream, int blocks,
                  int threads, int cluster) {
  make_messages(self, {stream, 0, blocks, threads, cluster}, [&](Tensors& tensors, Messages& messages) {
    messages.sends = messages_of<Send>("sends", sends, tensors, Access::read);
    messages.receives = messages_of<Receive>("receives", receives, tensors, Access::write);
  });
}

void send(const PyGroup& self, nb::handle tensor, int peer, nb::handle stream, std::uint32_t tag, int blocks,
          int threads, int cluster) {
  make_messages(self, {stream, tag, blocks, threads, cluster}, [&](Tensors& tensors, Messages& messages) {
    messages.sends = {message_of<Send>("tensor", tensors.input("tensor", tensor), peer, tag)};
  });
}

void receive(const PyGroup& self, nb::handle tensor, int peer, nb::handle stream, std::uint32_t tag, int blocks,
             int threads, int cluster) {
  make_messages(self, {stream, tag, blocks, threads, cluster}, [&](Tensors& tensors, Messages& messages) {
    messages.receives = {message_of<Receive>("tensor", tensors.output("tensor", tensor), peer, tag)};
  });
}

void gather(const PyGroup& self, nb::handle output, nb::handle input, int root, nb::handle stream, std::uint32_t tag,
            int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    const Group& group = tensors.group;
    const bool at_root = group.rank() == root;
    const auto out = at_root ? tensors.optional("output", output, Access::write) : std::nullopt;
    GatherArgs args = gather_args(of_root("output", at_root, out), tensors.input("input", input), group.size());
    args.root = root;
    return args;
  };
  make_untold_call(self, {stream, tag, blocks, threads, cluster}, build, weft::gather);
}

void scatter(const PyGroup& self, nb::handle output, nb::handle input, int root, nb::handle stream, std::uint32_t tag,
             int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    const Group& group = tensors.group;
    const bool at_root = group.rank() == root;
    const auto in = at_root ? tensors.optional("input", input, Access::read) : std::nullopt;
    ScatterArgs args = scatter_args(tensors.output("output", output), of_root("input", at_root, in), group.size());
    args.root = root;
    return args;
  };
  make_untold_call(self, {stream, tag, blocks, threads, cluster}, build, weft::scatter);
}

}  // namespace

void bind_messages(nb::class_<PyGroup>& group) {
  group
      .def("send", send, nb::arg("tensor"), nb::arg("peer"), nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def send(self, tensor: object, peer: int, *, stream: object = None, tag: int = 0, "
                   "blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
Sends a tensor to rank `peer` of the group, which receives it. The other ranks take no part.

tensor: elements side by side, of any shape and type, and as many bytes as the receiver has. The call may end
before the receive begins, as buffers take a part of it; programs should not count on it.
tag: compared with the receiver's. If sizes, tags or groups differ, the receive ends
with Errc.mismatch, and the send or a later call of the sender with Errc.peer_failed.

Calls that are rejected tell no other rank: one that waits for the message ends by its deadline.)doc")
      .def("receive", receive, nb::arg("tensor"), nb::arg("peer"), nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def receive(self, tensor: object, peer: int, *, stream: object = None, tag: int = 0, "
                   "blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           "tensor = what rank `peer` of the group sends. Everything else is as in send().")
      .def("send_receive", send_receive, nb::arg("sends") = nb::make_tuple(), nb::arg("receives") = nb::make_tuple(),
           nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::arg("cluster") = 0,
           nb::sig("def send_receive(self, sends: collections.abc.Iterable[tuple[object, int] | "
                   "tuple[object, int, int]] = (), receives: collections.abc.Iterable[tuple[object, int] | "
                   "tuple[object, int, int]] = (), *, stream: object = None, blocks: int = 0, threads: int = 0, "
                   "cluster: int = 0) "
                   "-> None"),
           R"doc(
Sends and receives messages, all at once: none waits for another one, unless both go the same way between two ranks.

sends, receives: (tensor, peer) or (tensor, peer, tag) each, up to 256; the tag is 0 unless it is given. The k-th send
to a rank belongs to the k-th receive there, whatever the call. A message to this rank itself needs both in one call.
Tensors, sizes, tags and errors are as in send(). No tensor that receives shares a byte with another one.)doc")
      .def("gather", gather, nb::arg("output").none(), nb::arg("input"), nb::kw_only(), nb::arg("root") = 0,
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::arg("cluster") = 0,
           nb::sig("def gather(self, output: object, input: object, *, root: int = 0, stream: object = None, "
                   "tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
output = on rank `root` of the group, the inputs of all ranks, in rank order, bit for bit.

input: elements side by side, of any shape and type, as many on every rank. On the root it may be its place in `output`.
output: size times as many elements of this type, side by side. Other ranks may give None, and nothing is written there.

Each rank but the root sends one message, under the rules of send(). So ranks that are rejected tell no other one.)doc")
      .def("scatter", scatter, nb::arg("output"), nb::arg("input") = nb::none(), nb::kw_only(), nb::arg("root") = 0,
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::arg("cluster") = 0,
           nb::sig("def scatter(self, output: object, input: object = None, *, root: int = 0, stream: object = None, "
                   "tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
output = this rank's part of the input of rank `root` of the group, bit for bit.

output: elements side by side, of any shape and type, as many on every rank. On the root it may be its place in `input`.
input: on the root, size times as many elements of this type, side by side. It is not read on other ranks, which may
give None. Messages are as in gather().)doc");
}

}  // namespace weft::python
