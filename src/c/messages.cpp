// Messages, and the gather and scatter that are made of them.
#include <algorithm>
#include <vector>

#include "c/collectives.hpp"

namespace weft::c {

namespace {

void message_fields(auto& c, auto& cpp, auto copy) {
  copy(c.peer, cpp.peer);
  copy(c.data, cpp.data);
  copy(c.bytes, cpp.bytes);
  copy(c.tag, cpp.tag);
}

void rooted_fields(auto& c, auto& cpp, auto copy) {
  copy(c.input, cpp.input);
  copy(c.output, cpp.output);
  copy(c.bytes, cpp.bytes);
  copy(c.root, cpp.root);
  launch_fields(c, cpp, copy);
}

}  // namespace

template <>
struct Mirror<weft_outgoing_message> {
  using Cpp = Send;
  static constexpr const char* name = "weft_outgoing_message";
  static constexpr std::size_t least = sizeof(weft_outgoing_message);
  static void fields(auto& c, auto& cpp, auto copy) { message_fields(c, cpp, copy); }
};

template <>
struct Mirror<weft_incoming_message> {
  using Cpp = Receive;
  static constexpr const char* name = "weft_incoming_message";
  static constexpr std::size_t least = sizeof(weft_incoming_message);
  static void fields(auto& c, auto& cpp, auto copy) { message_fields(c, cpp, copy); }
};

template <>
struct Mirror<weft_send_receive_args> {
  using Cpp = SendReceiveArgs;
  static constexpr const char* name = "weft_send_receive_args";
  static constexpr std::size_t least = offsetof(weft_send_receive_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) { launch_fields(c, cpp, copy); }  // besides the messages
};

template <>
struct Mirror<weft_gather_args> {
  using Cpp = GatherArgs;
  static constexpr const char* name = "weft_gather_args";
  static constexpr std::size_t least = offsetof(weft_gather_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) { rooted_fields(c, cpp, copy); }
};

template <>
struct Mirror<weft_scatter_args> {
  using Cpp = ScatterArgs;
  static constexpr const char* name = "weft_scatter_args";
  static constexpr std::size_t least = offsetof(weft_scatter_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) { rooted_fields(c, cpp, copy); }
};

namespace {

// Messages of one direction. The call rejects too many of them before it looks at any.
template <class T>
std::span<const typename Mirror<T>::Cpp> messages_of(const char* name, const T* first, std::size_t count,
                                                     std::vector<typename Mirror<T>::Cpp>& messages) {
  messages.resize(std::min(count, kMaxMessages));
  if (count == messages.size()) translate(name, first, std::span(messages));
  return {messages.data(), count};
}

}  // namespace
}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_outgoing_message_init(weft_outgoing_message* message, size_t size) {
  return init(message, size);
}
weft_code weft_incoming_message_init(weft_incoming_message* message, size_t size) {
  return init(message, size);
}

weft_code weft_send_receive_args_init(weft_send_receive_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_send_receive(const weft_group* group, const weft_send_receive_args* args) {
  return guarded([&] {
    const weft_send_receive_args full = whole(args);
    weft::SendReceiveArgs cpp = cpp_of(full);
    // The thread keeps this memory, so that only its largest call takes some.
    thread_local std::vector<weft::Send> sends;
    thread_local std::vector<weft::Receive> receives;
    cpp.sends = messages_of("sends", full.sends, full.send_count, sends);
    cpp.receives = messages_of("receives", full.receives, full.receive_count, receives);
    weft::send_receive(at("group", group).group, cpp);
  });
}

weft_code weft_send(const weft_group* group, const weft_outgoing_message* message, weft_stream stream) {
  return guarded([&] { weft::send(at("group", group).group, cpp_of(whole(message)), stream); });
}
weft_code weft_receive(const weft_group* group, const weft_incoming_message* message, weft_stream stream) {
  return guarded([&] { weft::receive(at("group", group).group, cpp_of(whole(message)), stream); });
}

weft_code weft_gather_args_init(weft_gather_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_gather(const weft_group* group, const weft_gather_args* args) {
  return call(weft::gather, group, args);
}

weft_code weft_scatter_args_init(weft_scatter_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_scatter(const weft_group* group, const weft_scatter_args* args) {
  return call(weft::scatter, group, args);
}

}  // extern "C"
