// The state behind the public handles.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/call_board.hpp"
#include "comm/pairs.hpp"
#include "comm/tenant.hpp"
#include "comm/wait_watch.hpp"
#include "fabric/fabric.hpp"
#include "fabric/origin.hpp"
#include "tuning/tuning.hpp"
#include "weft/communicator.hpp"
#include "weft/launch.hpp"

namespace weft::detail {

class CommunicatorState;

class GroupState {
 public:
  // Each member's region lies at `region_offset` of its window number `window`.
  GroupState(CommunicatorState& communicator, int id, std::vector<int> members, int rank, int window,
             std::size_t region_offset, RegionLayout layout, MultimemLayout multimem = {});

  CommunicatorState& communicator() const { return communicator_; }
  int id() const { return id_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }
  const RegionLayout& layout() const { return layout_; }
  const MultimemLayout& multimem() const { return multimem_; }
  const TuningChoice& tuning(TunedOperation operation = TunedOperation::all_reduce) const {
    return tuning_[static_cast<std::size_t>(operation)];
  }
  // For a search of tables, between calls: all ranks must try the same. Null: the group's own again.
  void try_table(TunedOperation operation, const TuningTable* table);
  // All members' windows can be reached by plain stores: Weft's own algorithms work.
  bool direct() const { return direct_; }
  // The channel of messages, which pairs of ranks use by themselves (protocol/mail.hpp).
  bool is_mail() const { return id_ == kMailChannel; }

  // Puts memory to rest and fills the table; the caller's next meeting fences it for peers. Epochs begin at
  // `first_epoch` (a new group); without one they go on (a window taken again). `moved`: some rank's window has another
  // address.
  void arm(std::optional<std::uint32_t> first_epoch, bool moved);
  // Calls on the GPU's queues or in graphs end at once from now on.
  void set_released();

  // Around each call that is made now. A call that this rank has rejected counts before its next one, whichever stream
  // that is on. If streams are ordered (Config::order_streams), each call comes behind the one before it.
  void begin_turn(Stream stream) {
    if (marked_) follow_mark(stream);
  }
  void end_turn(Stream stream) {
    if (ordered_) set_mark(stream);
  }
  void note_rejection(Stream stream) { set_mark(stream); }

  Call call(std::uint32_t fingerprint) const;
  // The place for counts that a caller has on the host.
  HostNumbers* host_numbers() const;
  // Notes a call for fault messages, this rank's and its peers', and for the flight recorder.
  void remember(const CallName& name);
  std::vector<CallRecord> recent_calls() const;
  // The words of a call of this rank, or of world rank `peer`.
  std::string name_of(std::uint32_t fingerprint) const;
  std::string name_of(std::uint32_t fingerprint, int peer) const;
  // The step that the host of world rank `peer` has reached, if its last call here is one of several launches, or was
  // rejected. Empty: it is neither, or not known. Calls of graphs are noted when they are captured.
  std::string progress_of(int peer) const;

 private:
  void set_mark(Stream stream);
  void follow_mark(Stream stream);

  CommunicatorState& communicator_;
  int id_;
  int rank_;
  std::vector<int> members_;
  int window_;
  std::size_t region_offset_;
  RegionLayout layout_;
  MultimemLayout multimem_;
  std::array<TuningChoice, kTunedBySize.size()> tuning_;
  bool direct_ = false;
  bool ordered_;                  // Config::order_streams
  bool marked_ = false;           // a place in a stream, behind which the next call comes
  Channel table_{};               // the host's copy
  std::uint32_t generation_ = 0;  // of the window; 0 stands for a released one

  static constexpr std::size_t kRecentCalls = 32;
  struct RecentCall {
    std::chrono::system_clock::time_point time;
    CallWords words;
  };
  std::optional<CallBoard::Match> find_call(int world_rank, std::uint32_t fingerprint) const;

  mutable std::mutex mutex_;                     // status() may be asked from any thread
  std::array<RecentCall, kRecentCalls> recent_;  // by number
  std::uint64_t calls_ = 0;
};

class CommunicatorState : public std::enable_shared_from_this<CommunicatorState> {
 public:
  // Collective: meets the other ranks, takes memory, and lets every pair exchange checked data.
  static std::shared_ptr<CommunicatorState> create(std::unique_ptr<Bootstrap> bootstrap, const Config& config,
                                                   ncclComm* nccl = nullptr);
  ~CommunicatorState();

  // Throws Errc::unsupported in a fork()ed child of this process, which may only destroy its copy.
  void check_process() const { origin_.check(); }
  Fabric& fabric() const { return *fabric_; }
  const std::shared_ptr<Fabric>& shared_fabric() const { return fabric_; }
  const Config& config() const { return config_; }
  CallBoard& board() const { return *board_; }
  int rank() const { return bootstrap_->rank(); }
  int size() const { return bootstrap_->size(); }
  bool released() const { return released_; }
  std::array<TuningChoice, kTunedBySize.size()> tuning_for(int ranks) const;
  // The tables of layers that serve groups of so many ranks.
  std::vector<const TuningTable*> layer_tables(int ranks) const;
  const TuningTable* layer_tuning_for(int ranks, const LayerSize& size) const {
    return choose_layer_tuning(tuning_, processor_, ranks, size);
  }
  TuningChoice exchange_tuning_for(int ranks, const ExchangeSize& size) const {
    return choose_exchange_tuning(tuning_, processor_, ranks, size);
  }
  // The choices of groups of so many ranks for which these tables were made, or which take them as the nearest ones.
  std::vector<TuningChoice> exchange_choices(int ranks) const;
  std::size_t window_bytes() const;
  std::string multicast() const;  // see Communicator
  GroupState& world() const { return *groups_.front(); }
  GroupState& mail() const { return *mail_; }
  std::uint32_t initial_epoch() const { return first_epoch_; }

  // Most blocks of one call. Calls of different groups may run at once, and in another order on another rank. So all of
  // them must fit on the GPU beside each other, with the call that is brought up behind each.
  int max_blocks() const { return part_of(fabric_->max_blocks()); }
  // The same for a launch. In clusters of two it may be odd: plans leave out the block without a partner.
  int max_blocks(const Launch& launch) const {
    if (!in_pairs(launch)) return max_blocks();
    return part_of(std::min(fabric_->max_paired_blocks() + 1, fabric_->max_blocks()));
  }
  // The same for the rank whose GPU takes the fewest blocks; for choices that all ranks must make alike.
  int least_max_blocks() const { return part_of(least_max_blocks_); }
  GroupState* split(int color);  // null for color −1
  // Tenants are made and freed with these (tenants.cpp). The window of its first slot names a kind.
  Bootstrap& bootstrap() const { return *bootstrap_; }
  TenantSlot next_slot(int first_window) const;
  // Collective: opens the window and arms the tenant in a meeting for `what`. If that fails, all ranks close it.
  void open_tenant(Tenant& tenant, std::string_view what);
  void keep_tenant(int first_window, int slot, std::shared_ptr<Tenant> tenant);
  void drop_tenant(int first_window, int slot);
  template <class Visit>
  void each_tenant(int first_window, Visit visit) const {
    const Tenants* const tenants = tenants_of(first_window);
    if (tenants != nullptr) each_in(*tenants, visit);
  }
  // A generation for a window that has been taken, or has moved: no call was ever made with it. 0 stands for a released
  // window.
  std::uint32_t new_generation() { return ++generations_; }
  void release();
  void acquire();
  void abort() noexcept;  // from any thread
  // The first fault in words; empty while all is well.
  std::optional<Fault> fault() const;
  // Throws the fault, with the last calls of the group that failed. `asked`: tells its calls if that group is not
  // known.
  void check(const GroupState& asked) const;
  // The same only for faults that have ended the communicator: stale replays do not affect other calls.
  void check_ending(const GroupState& asked) const;
  // For a call that has returned false on this CPU rank: throws the reason.
  [[noreturn]] void throw_failed(const GroupState& asked, const Call& call) const;

 private:
  CommunicatorState(std::unique_ptr<Bootstrap> bootstrap, const Config& config);
  int part_of(int blocks) const {
    const int groups = static_cast<int>(groups_.size());
    return groups == 1 ? blocks : std::max(blocks / (2 * groups), 2);
  }
  void agree_on_tuning();
  void open_window();
  void close_windows();
  std::vector<const std::byte*> windows() const;
  void check_pairs();
  void check_nccl(const GroupState* group);
  void forbid_abort();
  void allow_abort();
  std::size_t region_offset(int group) const;

  // faults.cpp
  struct Found {
    Fault fault;
    std::shared_ptr<const GroupState> group;  // that failed, freed or not; null if not known
  };
  std::optional<Found> find_fault() const;
  std::optional<Found> find_ending() const;
  std::optional<Found> find_stale_replay() const;
  std::optional<Found> find_between_calls() const;
  [[noreturn]] void throw_found(const Found& found, const GroupState& asked) const;
  std::optional<Found> found_by_kernel(const FaultRecord& record) const;
  std::optional<Found> found_by_host() const;
  // Tenants that were not freed, the lowest windows first.
  template <class Visit>
  static void each_in(const Tenants& tenants, Visit visit) {
    for (const auto& tenant : tenants.by_slot) {
      if (tenant != nullptr) visit(*tenant);
    }
  }
  template <class Visit>
  void each_tenant(Visit visit) const {
    for (const Tenants& tenants : tenants_) each_in(tenants, visit);
  }
  const Tenants* tenants_of(int first_window) const;
  std::shared_ptr<const GroupState> channel_owner(std::uint32_t channel) const;
  std::vector<CallRecord> history(const GroupState& group) const;
  void forget_stale_replay();

  Origin origin_;
  std::unique_ptr<Bootstrap> bootstrap_;
  Config config_;
  const std::uint32_t first_epoch_;  // of its channels, unless a test has said otherwise 1
  std::shared_ptr<Fabric> fabric_;
  std::unique_ptr<CallBoard> board_;
  Processor processor_;              // rank 0's
  std::vector<TuningTable> tuning_;  // likewise; tables of its file first
  int least_max_blocks_ = 0;
  std::size_t window_bytes_ = 0;
  bool released_ = false;
  std::vector<const std::byte*> windows_;  // by rank, their addresses before release()
  std::mutex abort_mutex_;                 // guards the two below
  bool aborted_ = false;
  bool reachable_ = true;     // the windows are there for abort() to write to
  mutable std::mutex mutex_;  // guards the two below and tenants_, which status() reads from any thread
  mutable std::optional<Found> ending_, stale_replay_;  // the first found stay
  std::vector<std::unique_ptr<GroupState>> groups_;     // by id, the world first; null if this rank is not in it
  std::unique_ptr<GroupState> mail_;
  std::vector<Tenants> tenants_;  // by first window. They keep no reference to this communicator's owner.
  std::uint32_t generations_ = 0;
  std::optional<WaitWatch> waits_;  // the last: it goes before the record that it reads
};

}  // namespace weft::detail
