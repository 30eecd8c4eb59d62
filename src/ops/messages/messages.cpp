// send_receive, and the gather and scatter of one root.
#include "weft/messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "ops/messages/message_kernels.hpp"
#include "protocol/channel.hpp"

namespace weft {
namespace {

using detail::Extent;
using detail::GroupState;
using detail::require;

constexpr int kMostThreads = 512;
constexpr std::size_t kNoted = 8;  // messages of a call whose words peers find

struct MessagesWords {
  static constexpr std::string_view kKind = "send_receive";
  std::uint32_t sends, receives;
  std::uint64_t bytes;  // of all, or of the only one
  int peer;             // of the only one
  std::uint32_t tag;
  bool direct;
  std::string text() const {
    if (sends + receives == 1) {
      return fmt::format("{} {} bytes {} rank {}{} tag {}", sends == 1 ? "send" : "receive", bytes,
                         sends == 1 ? "to" : "from", peer, detail::carrier(direct), tag);
    }
    return fmt::format("send_receive {} sends and {} receives of {} bytes{}", sends, receives, bytes,
                       detail::carrier(direct));
  }
};

// The words of a message for a rank that has expected another one.
struct MessageWords {
  static constexpr std::string_view kKind = "message";
  std::uint64_t bytes;
  std::uint32_t tag;
  std::string text() const { return fmt::format("a message of {} bytes tag {}", bytes, tag); }
};

// One message as the call sees it: `peer` is a rank of the group.
struct Part {
  Extent data;
  int peer;
  std::uint32_t tag;
  bool sends;
  std::uint32_t number;  // among those of its pair and direction
  std::uint32_t name;    // that both ranks compare
};

// The thread keeps this memory, so that only its largest call takes some.
std::vector<Part>& spare_parts() {
  thread_local std::vector<Part> parts;
  return parts;
}

// A call of gather, scatter or send_receive: messages through the communicator's mail.
class MessageCall : public detail::GroupCall {
 public:
  // Peers that take part in a rejected call are not known to the ranks that do not.
  static constexpr bool kPeersWait = false;

  MessageCall(const Group& caller, Stream stream, const Launch& launch)
      : GroupCall(caller, stream, launch), launch_(launch), group_state_(&GroupCall::channel()), many_(spare_parts()) {
    many_.clear();
    use_channel(group_state_->communicator().mail());
  }

  bool wants_nccl() const { return false; }
  detail::NcclPlan by_nccl() const {
    thread_local std::vector<detail::NcclMessage> all;  // kept, as spare_parts()
    all.clear();
    for (const Part& part : parts())
      all.push_back({part.peer, const_cast<void*>(part.data.data), part.data.row_bytes, part.sends});
    return {.name = name(), .work = detail::NcclMessages{all}};
  }

  detail::CallName plan(bool) {
    const detail::CallName call = name();
    group_state_->remember(call);
    for (const Part& part : parts().first(std::min(count_, kNoted))) {
      members().communicator().board().note(static_cast<std::uint32_t>(channel().id()),
                                            {part.name, MessageWords{.bytes = part.data.row_bytes, .tag = part.tag}});
    }
    return call;
  }

  // A step for each wave().
  template <class Run>
  void each_step(Run run) const {
    const auto kernel = detail::find_kernel(detail::MessagesQuery{});
    for (std::uint32_t turn = 0, left = static_cast<std::uint32_t>(count_); left != 0; ++turn) {
      for (std::uint32_t peers = 0; peers <= most_peers(); ++peers) {
        const detail::MessagesWork work = wave(turn, peers);
        if (work.queues == 0) continue;
        left -= work.begin[work.queues];
        run({.call = {}, .bound = kernel.with(work), .blocks = blocks_for(work), .threads = threads_for(work)});
      }
    }
  }

 protected:
  GroupState& members() const { return *group_state_; }
  void add(const char* name, int peer, const void* data, std::size_t bytes, std::uint32_t tag, bool sends) {
    const auto before =
        std::ranges::count_if(parts(), [&](const Part& p) { return p.sends == sends && p.peer == peer; });
    const Part part{.data = {name, data, 1, bytes, bytes},
                    .peer = peer,
                    .tag = tag,
                    .sends = sends,
                    .number = static_cast<std::uint32_t>(before),
                    .name = detail::fingerprint("message", bytes, tag, members().id())};
    if (count_ == few_.size()) many_.assign(few_.begin(), few_.end());
    if (count_ < few_.size()) {
      few_[count_] = part;
    } else {
      many_.push_back(part);
    }
    ++count_;
  }
  void check_parts() const;

 private:
  std::span<const Part> parts() const {
    return many_.empty() ? std::span<const Part>(few_).first(count_) : std::span<const Part>(many_);
  }
  int world_rank(int peer) const { return members().members()[static_cast<std::size_t>(peer)]; }
  detail::CallName name() const;

  // Messages that one kernel moves: all, if there is room. Else those of part `turn` of every queue, between ranks that
  // add up to one of a dozen numbers `peers` (modulo the world's size). Both ranks of a pair find the same order, by
  // numbers and then by pairs. So of all messages that wait the first one in that order is always under way.
  detail::MessagesWork wave(std::uint32_t turn, std::uint32_t peers) const;
  std::uint32_t most_in_queue() const;
  bool fits_one() const { return count_ <= detail::kMostMessages; }
  std::uint32_t most_peers() const {
    return fits_one() ? 0 : (static_cast<std::uint32_t>(channel().size()) - 1) / detail::kMostPeersAtOnce;
  }
  std::uint64_t longest(const detail::MessagesWork& work) const {
    std::uint64_t most = 0;
    for (std::uint32_t i = 0; i < work.begin[work.queues]; ++i) most = std::max(most, work.message[i].bytes);
    return most;
  }
  // A block for every second slot of a queue, if its messages are so long, and while there are blocks: it fills one
  // slot while the other one's chunk is under way.
  int blocks_for(const detail::MessagesWork& work) const {
    if (launch_.blocks != 0) return launch_.blocks;
    const detail::RegionLayout& layout = channel().layout();
    const std::uint64_t chunk = layout.pipeline_packs * sizeof(detail::Pack), one = 1;
    const auto most = static_cast<std::uint64_t>(std::max(members().communicator().max_blocks(launch_) - 1, 1));
    const std::uint64_t chunks = std::max((longest(work) + chunk - 1) / chunk, one);
    const std::uint64_t lanes =
        std::bit_floor(std::min({std::max(most / work.queues, one), std::max(layout.pipeline_slots / 2, one), chunks}));
    return detail::whole_pairs(static_cast<int>(std::min(lanes * work.queues, most)) + 1, launch_);
  }
  int threads_for(const detail::MessagesWork& work) const {
    if (launch_.threads != 0) return launch_.threads;
    return longest(work) <= 2048 ? 128 : kMostThreads;
  }

  Launch launch_;
  GroupState* group_state_;
  // `many_` has all parts of a call with more than usual.
  std::array<Part, detail::kMostMessages> few_;
  std::vector<Part>& many_;
  std::size_t count_ = 0;
};

void MessageCall::check_parts() const {
  constexpr std::size_t most = std::size_t{1} << 46;
  const GroupState& group = members();
  detail::check_launch(group, launch_, kMostThreads);
  group.communicator().fabric().check_stream(stream());
  std::size_t to_itself = 0, from_itself = 0;
  for (const Part& part : parts()) {
    require(part.peer >= 0 && part.peer < group.size(), "{}.peer: {} is not a rank of the group, 0 … {}",
            part.data.name, part.peer, group.size() - 1);
    require(part.data.row_bytes <= most, "{}.bytes: {} is not between 0 and 2^46", part.data.name, part.data.row_bytes);
    if (part.data.row_bytes != 0) {
      require(part.data.data != nullptr, "{}.data: null, with {} bytes", part.data.name, part.data.row_bytes);
      detail::check_buffer(group, part.data.name, part.data.data);
    }
    if (part.peer == group.rank()) ++(part.sends ? to_itself : from_itself);
    if (part.sends) continue;
    for (const Part& other : parts()) {
      require(&part == &other || !detail::spans_meet(part.data, other.data),
              "receive.data: {} bytes from rank {} share memory with another message of the call", part.data.row_bytes,
              part.peer);
    }
  }
  require(to_itself == from_itself,
          "send.peer: {} messages to this rank itself, and {} receives from it, are not as many in one call", to_itself,
          from_itself);
}

detail::CallName MessageCall::name() const {
  MessagesWords words{.sends = 0, .receives = 0, .bytes = 0, .peer = 0, .tag = 0, .direct = channel().direct()};
  std::uint32_t fingerprint = 0;
  for (const Part& part : parts()) {
    ++(part.sends ? words.sends : words.receives);
    words.bytes += part.data.row_bytes;
    words.peer = part.peer;
    words.tag = part.tag;
    fingerprint = detail::fingerprint("messages", fingerprint, part.name, part.sends, part.peer);
  }
  return {fingerprint, words};
}

std::uint32_t MessageCall::most_in_queue() const {
  if (fits_one()) return detail::kMostMessages;
  if (most_peers() != 0) return 1;
  const auto queues = static_cast<std::uint32_t>(std::ranges::count(parts(), 0u, &Part::number));
  return detail::kMostMessages / std::max(queues, 1u);
}

detail::MessagesWork MessageCall::wave(std::uint32_t turn, std::uint32_t peers) const {
  detail::MessagesWork work{};
  const auto size = static_cast<std::uint32_t>(channel().size());
  const std::uint32_t most = most_in_queue();
  std::uint8_t count = 0;
  for (const bool sends : {true, false}) {
    for (const Part& head : parts()) {
      const auto peer = static_cast<std::uint32_t>(world_rank(head.peer));
      const std::uint32_t colour = (static_cast<std::uint32_t>(channel().rank()) + peer) % size;
      if (head.sends != sends || head.number != 0) continue;
      if (!fits_one() && colour / detail::kMostPeersAtOnce != peers) continue;
      for (const Part& part : parts()) {
        if (part.sends != sends || part.peer != head.peer || part.number / most != turn) continue;
        work.message[count++] = {const_cast<void*>(part.data.data), part.data.row_bytes, peer, part.name};
      }
      if (count == work.begin[work.queues]) continue;
      work.begin[++work.queues] = count;
      if (sends) work.sends = work.queues;
    }
  }
  return work;
}

class SendReceive : public MessageCall {
 public:
  static constexpr const char* kRange = "weft::send_receive";
  SendReceive(const Group& caller, const SendReceiveArgs& args)
      : MessageCall(caller, args.stream, args.launch), args_(args) {}

  void check() {
    const auto check_number = [](const char* name, std::size_t number) {
      const std::size_t most = kMaxMessages;
      require(number <= most, "{}: {} is not between 0 and {}", name, number, most);
    };
    check_number("sends", args_.sends.size());
    check_number("receives", args_.receives.size());
    for (const Send& m : args_.sends) add("send", m.peer, m.data, m.bytes, m.tag, true);
    for (const Receive& m : args_.receives) add("receive", m.peer, m.data, m.bytes, m.tag, false);
    check_parts();
  }

 private:
  const SendReceiveArgs& args_;
};

// Rows of one root: `kGathers`, or scatters.
template <class Args, bool kGathers>
class Rooted : public MessageCall {
 public:
  static constexpr const char* kRange = kGathers ? "weft::gather" : "weft::scatter";
  Rooted(const Group& caller, const Args& args) : MessageCall(caller, args.stream, args.launch), args_(args) {}

  void check() {
    const GroupState& group = members();
    detail::check_root(group, args_.root);
    detail::check_size("bytes", args_.bytes);
    // The root's tensor has every rank's part, the other one this rank's.
    const char* const whole_name = kGathers ? "output" : "input";
    const char* const own_name = kGathers ? "input" : "output";
    const auto* const whole = static_cast<const std::byte*>(kGathers ? args_.output : args_.input);
    const auto* const own = static_cast<const std::byte*>(kGathers ? args_.input : args_.output);
    const auto part_of = [&](int rank) { return whole + static_cast<std::size_t>(rank) * args_.bytes; };
    const bool is_root = group.rank() == args_.root;
    if (is_root) check_tensor(whole_name, whole);
    const bool in_place = is_root && own == part_of(group.rank());
    if (!in_place) check_tensor(own_name, own);
    const std::uint32_t tag = detail::fingerprint(kRange, args_.root, args_.tag);
    for (int peer = 0; is_root && peer < group.size(); ++peer) {
      if (peer != group.rank() || !in_place) add(whole_name, peer, part_of(peer), args_.bytes, tag, !kGathers);
    }
    if (!in_place) add(own_name, args_.root, own, args_.bytes, tag, kGathers);
    check_parts();
  }

 private:
  void check_tensor(const char* name, const void* data) const {
    require(data != nullptr || args_.bytes == 0, "{}: null, with {} bytes for each rank", name, args_.bytes);
  }

  const Args& args_;
};

}  // namespace

void send_receive(const Group& caller, const SendReceiveArgs& args) {
  SendReceive call(caller, args);
  detail::make_call(call);
}

void gather(const Group& caller, const GatherArgs& args) {
  Rooted<GatherArgs, true> call(caller, args);
  detail::make_call(call);
}

void scatter(const Group& caller, const ScatterArgs& args) {
  Rooted<ScatterArgs, false> call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
