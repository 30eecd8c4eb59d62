// The memory of a communicator's ranks, laid out as in production: windows with a region per group, the state that only
// a rank itself touches, and the words for the host.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/channel.hpp"
#include "sim/machine.hpp"
#include "sim/regions.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

class World {
 public:
  static constexpr std::uint64_t kIdleNs = 10'000;  // step of the clock when no thread can go on

  // The layout of a set-up; no memory yet.
  explicit World(const Setup& setup);

  struct Stream {
    unsigned rank;
    unsigned blocks, threads;  // of its largest launch
    unsigned first_thread;
    std::vector<unsigned> calls;  // indices into setup.calls
    bool host = false;            // no call: a thread of the rank's host
  };
  const Regions& exchange() const { return *exchange_; }  // of a set-up with an exchange
  const std::vector<std::vector<unsigned>>& groups() const { return groups_; }
  const std::vector<Stream>& streams() const { return streams_; }
  // Whether the group is a channel of messages (protocol/mail.hpp).
  bool is_mail(unsigned group) const;
  unsigned group_rank(unsigned group, unsigned rank) const;
  bool takes_part(unsigned call, unsigned rank) const;
  // The generation in a call's arguments, and whether the windows have another one by the time it runs.
  std::uint32_t generation(unsigned call) const;
  bool stale(unsigned call) const { return generation(call) != generation_at(call); }
  // The generation of the windows after a call, or after the hosts' act in its place.
  std::uint32_t generation_at(unsigned call) const { return generations_[call]; }
  Grid grid(unsigned call, unsigned rank) const;
  Machine::Args machine_args() const;
  std::vector<std::string> thread_names() const;

  // Writes the initial state into the machine's memory and builds the channels.
  void build(Memory& memory);
  detail::Channel& channel(unsigned group, unsigned rank) { return channels_[group * setup_.ranks + rank]; }
  detail::LocalState* local(unsigned group, unsigned rank) const;

  // At the end of a run without faults: the first error, or an empty string.
  std::string check_rest(Memory& memory) const;
  std::uint64_t stores_to_window(const Memory& memory, unsigned rank) const;
  std::uint64_t stores_to_symmetric(const Memory& memory, unsigned rank) const;
  std::uint64_t* header(unsigned group, unsigned rank, std::size_t index) const;  // of bank × size + sender
  std::byte* symmetric(unsigned rank) const;                                      // its part of the symmetric memory
  std::uint32_t* claim_word(unsigned rank, detail::FaultKind kind) const;
  std::uint32_t* abort_word(unsigned rank) const;
  std::uint32_t* meeting_word(unsigned rank) const;
  std::uint32_t* poison_word(unsigned rank) const;
  std::uint32_t* event_word(unsigned call, unsigned rank) const;  // 1 when the call has ended there
  detail::FaultRecord* record(unsigned rank, detail::FaultKind kind) const;
  // The first fault of its kind that a rank has recorded.
  std::optional<detail::FaultRecord> fault(Memory& memory, unsigned rank,
                                           detail::FaultKind kind = detail::kEnding) const;

 private:
  std::size_t window_offset(unsigned rank) const { return rank * rank_bytes_; }
  std::size_t region_offset(unsigned group, unsigned rank) const;
  std::size_t local_offset(unsigned group, unsigned rank) const;
  std::size_t host_offset(unsigned rank) const;
  bool ends_released(unsigned rank) const;
  // An exchange that begins near the end of its epochs has been used before.
  bool has_old_records() const { return setup_.has_exchange() && setup_.start_epoch != 0; }
  void name_region(Memory& memory, unsigned group, unsigned rank) const;

  Setup setup_;
  std::shared_ptr<const Regions> exchange_;
  std::vector<std::vector<unsigned>> groups_;
  std::vector<Stream> streams_;
  std::vector<std::uint32_t> generations_;  // by call: generation_at()
  unsigned thread_count_ = 0, most_blocks_ = 0;
  std::vector<detail::RegionLayout> layouts_;
  detail::MultimemLayout multimem_{};  // of the only group of its set-ups
  std::size_t rank_bytes_ = 0, state_offset_ = 0;
  std::byte* base_ = nullptr;
  std::vector<detail::Channel> channels_;
};

}  // namespace weft::sim
