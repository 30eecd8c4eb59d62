// torch's operators for messages, and the gather and scatter of one root. A tensor that is sent seems to change: its
// call may write nothing here, and a compiler drops one that changes nothing.
#include "torch_call.hpp"
#include "torch_module.hpp"

namespace weft::python::torch {

namespace {

// A rank that waits for more than this call ends by its deadline.
template <class Build, class Make>
void make_untold(const Group& group, Build&& build, Make&& make_it) {
  make(group, build, make_it, [](const char*, Stream) {});
}

template <class Message>
Message checked_message(const Group& group, const char* argument, const Tensor& tensor, std::int64_t peer,
                        std::int64_t tag) {
  check_device(group, tensor);
  return message_of<Message>(argument, tensor, rank_of(peer), static_cast<std::uint32_t>(tag));
}

// send(Tensor(a!) tensor, int group, int peer, int options) -> (), and receive.
template <class Message>
void one_message(Stack& stack) {
  const Tensor tensor = stack.tensor();
  const Group group = stack.group();
  Message message;
  make_untold(
      group,
      [&] {
        SendReceiveArgs args;
        const std::int64_t peer = stack.integer();
        const PackedOptions options = set_options(args, stack);
        message = checked_message<Message>(group, "tensor", tensor, peer, options.tag());
        if constexpr (std::is_same_v<Message, Send>) {
          args.sends = {&message, 1};
        } else {
          args.receives = {&message, 1};
        }
        return args;
      },
      weft::send_receive);
}

// send_receive(Tensor(a!)[] receives, Tensor(b!)[] sends, int[] numbers, int group, int options) -> (): numbers are the
// peer and the tag of each message that is received, then of each that is sent.
void send_receive(Stack& stack) {
  const std::vector<Tensor> to = stack.tensors(), from = stack.tensors();
  const std::vector<std::int64_t> numbers = stack.integers();
  const Group group = stack.group();
  std::vector<Receive> receives;
  std::vector<Send> sends;
  make_untold(
      group,
      [&] {
        const std::size_t wanted = 2 * (to.size() + from.size());
        if (numbers.size() != wanted) reject(fmt::format("numbers: {}; it must have {}", numbers.size(), wanted));
        const std::int64_t* next = numbers.data();
        for (const Tensor& tensor : to) {
          receives.push_back(checked_message<Receive>(group, "receives", tensor, next[0], next[1]));
          next += 2;
        }
        for (const Tensor& tensor : from) {
          sends.push_back(checked_message<Send>(group, "sends", tensor, next[0], next[1]));
          next += 2;
        }
        SendReceiveArgs args{.sends = sends, .receives = receives};
        set_options(args, stack);
        return args;
      },
      weft::send_receive);
}

// gather(Tensor(a!)? output, Tensor(b!) input, int group, int root, int options) -> ()
void gather(Stack& stack) {
  const std::optional<Tensor> out = stack.optional();
  const Tensor in = stack.tensor();
  const Group group = stack.group();
  make_untold(
      group,
      [&] {
        const int root = stack.rank();
        const Tensor* const result = checked_of_root("output", group, root, out);
        check_device(group, in);
        GatherArgs args = gather_args(result, in, static_cast<std::size_t>(group.size()));
        args.root = root;
        set_options(args, stack);
        return args;
      },
      weft::gather);
}

// scatter(Tensor(a!) output, Tensor? input, int group, int root, int options) -> ()
void scatter(Stack& stack) {
  const Tensor out = stack.tensor();
  const std::optional<Tensor> in = stack.optional();
  const Group group = stack.group();
  make_untold(
      group,
      [&] {
        const int root = stack.rank();
        const Tensor* const parts = checked_of_root("input", group, root, in);
        check_device(group, out);
        ScatterArgs args = scatter_args(out, parts, static_cast<std::size_t>(group.size()));
        args.root = root;
        set_options(args, stack);
        return args;
      },
      weft::scatter);
}

}  // namespace

const std::vector<Operator>& message_operators() {
  static const std::vector<Operator> all = {
      {"send", "(Tensor(a!) tensor, int group, int peer, int options) -> ()", kernel<one_message<Send>>},
      {"receive", "(Tensor(a!) tensor, int group, int peer, int options) -> ()", kernel<one_message<Receive>>},
      {"send_receive", "(Tensor(a!)[] receives, Tensor(b!)[] sends, int[] numbers, int group, int options) -> ()",
       kernel<send_receive>},
      {"gather", "(Tensor(a!)? output, Tensor(b!) input, int group, int root, int options) -> ()", kernel<gather>},
      {"scatter", "(Tensor(a!) output, Tensor? input, int group, int root, int options) -> ()", kernel<scatter>},
  };
  return all;
}

}  // namespace weft::python::torch
