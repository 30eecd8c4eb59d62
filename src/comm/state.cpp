#include "comm/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/argument.hpp"
#include "base/enum_text.hpp"
#include "base/log.hpp"
#include "comm/agreed_tuning.hpp"
#include "comm/disagreement.hpp"
#include "comm/first_epoch.hpp"
#include "comm/window_layout.hpp"

namespace weft::detail {
namespace {

// The options that must be the same on all ranks.
struct AgreedConfig {
  Device device;
  std::int64_t deadline;
  std::uint64_t one_shot, two_shot, group_one_shot, group_two_shot;
  int max_groups;
  bool multicast, small_buffers;

  bool operator==(const AgreedConfig&) const = default;
};

std::string describe(const AgreedConfig& c) {
  return fmt::format(
      "device {}, deadline {} ns, one_shot_bytes {}, two_shot_bytes {}, max_groups {}, group_one_shot_bytes {}, "
      "group_two_shot_bytes {}, multicast {}, small_buffers {}",
      name(c.device), c.deadline, c.one_shot, c.two_shot, c.max_groups, c.group_one_shot, c.group_two_shot, c.multicast,
      c.small_buffers);
}

void check_config(const Config& config) {
  constexpr std::size_t most = std::size_t{1} << 40;
  check_choice("Config::device", config.device, Device::cuda);
  check_argument(config.deadline.count() >= 0, "Config::deadline", config.deadline.count(), "0 or more nanoseconds");
  check_argument(config.one_shot_bytes <= most, "Config::one_shot_bytes", config.one_shot_bytes, "between 0 and 2^40");
  check_argument(config.two_shot_bytes <= most, "Config::two_shot_bytes", config.two_shot_bytes, "between 0 and 2^40");
  check_argument(config.group_one_shot_bytes <= most, "Config::group_one_shot_bytes", config.group_one_shot_bytes,
                 "between 0 and 2^40");
  check_argument(config.group_two_shot_bytes <= most, "Config::group_two_shot_bytes", config.group_two_shot_bytes,
                 "between 0 and 2^40");
  check_argument(config.max_groups >= 0 && config.max_groups < kMaxGroups, "Config::max_groups", config.max_groups,
                 "between 0 and 63");
}

void agree_on_config(Bootstrap& bootstrap, const Config& config) {
  const AgreedConfig mine{.device = config.device,
                          .deadline = config.deadline.count(),
                          .one_shot = config.one_shot_bytes,
                          .two_shot = config.two_shot_bytes,
                          .group_one_shot = config.group_one_shot_bytes,
                          .group_two_shot = config.group_two_shot_bytes,
                          .max_groups = config.max_groups,
                          .multicast = config.multicast,
                          .small_buffers = config.small_buffers};
  const std::vector<AgreedConfig> all = bootstrap.all_gather_value("compare configurations", mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::string first = describe(all[0]), other = describe(all[rank]);
    throw Error(Errc::rendezvous, fmt::format("ranks disagree about Config: rank 0 has {}; rank {} has {}",
                                              fields_apart(first, other), rank, fields_apart(other, first)));
  }
}

}  // namespace

std::atomic<std::uint32_t>& first_epoch() {
  static std::atomic<std::uint32_t> first = 1;
  return first;
}

CommunicatorState::CommunicatorState(std::unique_ptr<Bootstrap> bootstrap, const Config& config)
    : bootstrap_(std::move(bootstrap)), config_(config), first_epoch_(first_epoch()) {}

std::shared_ptr<CommunicatorState> CommunicatorState::create(std::unique_ptr<Bootstrap> bootstrap, const Config& config,
                                                             ncclComm* nccl) {
  std::shared_ptr<CommunicatorState> state(new CommunicatorState(std::move(bootstrap), config));
  Bootstrap& meet = *state->bootstrap_;
  Config& chosen = state->config_;
  meet.agree_on("check the configuration", [&] { check_config(chosen); });
  if (chosen.device == Device::automatic) {
    // CUDA only if every rank can.
    const std::string reason = why_no_cuda(chosen.cuda_device);
    const auto able = meet.all_gather_value("choose a device", static_cast<char>(reason.empty()));
    chosen.device = std::ranges::all_of(able, [](char yes) { return yes != 0; }) ? Device::cuda : Device::cpu;
    if (chosen.device == Device::cpu && !reason.empty()) logger().info("CPU ranks: {}", reason);
  }
  agree_on_config(meet, chosen);
  const FabricArgs args{.bootstrap = meet, .config = chosen, .nccl = nccl};
  state->fabric_ = chosen.device == Device::cuda ? make_cuda_fabric(args) : make_cpu_fabric(args);

  state->board_ = CallBoard::create(meet);

  state->agree_on_tuning();
  state->least_max_blocks_ =
      std::ranges::min(meet.all_gather_value("compare the blocks that fit", state->fabric_->max_blocks()));

  state->groups_.resize(1);
  std::vector<int> everyone(static_cast<std::size_t>(meet.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto size = static_cast<std::uint32_t>(meet.size());
  state->mail_ = std::make_unique<GroupState>(*state, kMailChannel, everyone, meet.rank(), 0,
                                              state->region_offset(chosen.max_groups + 1), mail_layout(chosen, size));
  state->groups_[0] =
      std::make_unique<GroupState>(*state, 0, std::move(everyone), meet.rank(), 0, state->region_offset(0),
                                   world_layout(chosen, size), world_multimem(chosen, size));
  state->open_window();
  meet.agree_on("prepare memory", [&] {
    for (GroupState* group : {state->groups_[0].get(), state->mail_.get()}) group->arm(state->first_epoch_, true);
    state->waits_.emplace(WaitWatch::Args{.rank = meet.rank(),
                                          .device = chosen.device,
                                          .deadline = chosen.deadline,
                                          .record = state->fabric_->control().record[kEnding]});
  });
  state->check_nccl(state->groups_[0].get());
  logger().info("rank {} of {}: {}; tuned by {}", meet.rank(), meet.size(), state->fabric_->description(),
                state->groups_[0]->tuning().reason);
  return state;
}

CommunicatorState::~CommunicatorState() = default;

// The algorithm of a call decides the bytes on the wire, so all ranks must use the same tables: those of rank 0's file
// and build.
void CommunicatorState::agree_on_tuning() {
  std::string text;
  bootstrap_->agree_on("read the tuning tables", [&] {
    if (rank() != 0) return;
    auto tables =
        with_shipped(config_.tuning_file.empty() ? std::vector<TuningTable>{} : read_tuning(config_.tuning_file));
    text = to_bytes({.processor = fabric_->processor(), .tables = std::move(tables)});
  });
  const Bytes theirs = bootstrap_->broadcast("rank 0's tuning tables", 0, std::as_bytes(std::span(text)));
  bootstrap_->agree_on("take rank 0's tuning tables", [&] {
    AgreedTuning tuning = agreed_tuning(theirs);
    processor_ = std::move(tuning.processor);
    tuning_ = std::move(tuning.tables);
  });
}

std::array<TuningChoice, kTunedBySize.size()> CommunicatorState::tuning_for(int ranks) const {
  std::array<TuningChoice, kTunedBySize.size()> all;
  for (const TunedKind& kind : kTunedBySize)
    all[static_cast<std::size_t>(kind.operation)] = choose_tuning(tuning_, processor_, ranks, kind.operation);
  return all;
}

std::vector<const TuningTable*> CommunicatorState::layer_tables(int ranks) const {
  std::vector<const TuningTable*> all;
  for (const TuningTable& table : tuning_) {
    if (table.operation == TunedOperation::moe_layer && layer_tuning_for(ranks, table.layer) == &table)
      all.push_back(&table);
  }
  return all;
}

std::vector<TuningChoice> CommunicatorState::exchange_choices(int ranks) const {
  std::vector<TuningChoice> all;
  for (const TuningTable& table : tuning_) {
    if (table.operation != TunedOperation::moe_exchange) continue;
    TuningChoice choice = exchange_tuning_for(ranks, table.exchange);
    if (choice.table == &table) all.push_back(std::move(choice));
  }
  return all;
}

std::size_t CommunicatorState::region_offset(int group) const {
  return detail::region_offset(config_, static_cast<std::uint32_t>(bootstrap_->size()), group);
}

void CommunicatorState::open_window() {
  window_bytes_ = detail::window_bytes(config_, static_cast<std::uint32_t>(size()));
  fabric_->open_window(*bootstrap_, 0, window_bytes_);
  const std::vector<std::byte> zero(kWindowHeaderBytes);
  if (fabric_->window(0, rank()) != nullptr) fabric_->write(fabric_->window(0, rank()), zero.data(), zero.size());
  check_pairs();
}

// Every pair moves checked data both ways before anything is trusted. On some machines peer access is granted, but the
// data never arrives, or arrives wrong.
void CommunicatorState::check_pairs() {
  constexpr std::size_t packs = 256;
  const auto pattern = [](int from, int to) {
    std::vector<Pack> data(packs);
    for (std::size_t i = 0; i < packs; ++i) {
      const auto base = static_cast<std::uint32_t>((static_cast<std::size_t>(from) * kMaxRanks + to) * packs + i);
      data[i] = {{base * 2654435761u, ~base, base ^ 0x5a5a5a5au, base}};
    }
    return data;
  };
  const auto place = [&](int owner, int sender) {
    return reinterpret_cast<Pack*>(fabric_->window(0, owner) + kWindowHeaderBytes) +
           static_cast<std::size_t>(sender) * packs;
  };
  if (kWindowHeaderBytes + static_cast<std::size_t>(size()) * packs * sizeof(Pack) > window_bytes_) {
    return;  // windows of a few KiB exist in tests only
  }
  bootstrap_->agree_on("write to every peer", [&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (fabric_->window(0, peer) != nullptr) fabric_->push(place(peer, rank()), pattern(rank(), peer));
    }
  });
  bootstrap_->agree_on("check what every peer wrote", [&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (fabric_->window(0, peer) == nullptr) continue;
      std::vector<Pack> got(packs);
      fabric_->read(got.data(), place(rank(), peer), packs * sizeof(Pack));
      const std::vector<Pack> wanted = pattern(peer, rank());
      if (std::memcmp(got.data(), wanted.data(), packs * sizeof(Pack)) == 0) continue;
      throw Error(Errc::rendezvous,
                  fmt::format("data that rank {} wrote to rank {} arrived wrong: peer access between them is broken "
                              "(IOMMU or ACS settings are a common cause)",
                              peer, rank()));
    }
  });
}

// Collective over the world. Groups whose members do not reach each other's memory depend on NCCL, which connects with
// the first call. If a connection fails, this call must find it, within the deadline.
void CommunicatorState::check_nccl(const GroupState* group) {
  bootstrap_->agree_on("move data through NCCL", [&] {
    if (group == nullptr || group->direct()) return;
    fabric_->nccl_check(group->id(), group->rank(), group->size());
  });
}

GroupState* CommunicatorState::split(int color) {
  bootstrap_->agree_on("split", [&] {
    if (color < -1) throw Error(Errc::invalid_argument, fmt::format("color: {} is not −1 or more", color));
    if (released_) throw Error(Errc::released, "split: the communicator's memory is released");
    const int made = static_cast<int>(groups_.size()) - 1;
    if (made >= config_.max_groups) {
      throw Error(Errc::invalid_argument,
                  fmt::format("split: {} splits exist, and Config::max_groups is {}", made, config_.max_groups));
    }
  });
  const std::vector<int> colors = bootstrap_->all_gather_value("split: exchange colors", color);
  const int id = static_cast<int>(groups_.size());
  std::vector<int> members;
  int place = 0;
  for (int peer = 0; peer < size(); ++peer) {
    if (color < 0 || colors[static_cast<std::size_t>(peer)] != color) continue;
    if (peer == rank()) place = static_cast<int>(members.size());
    members.push_back(peer);
  }
  groups_.push_back(nullptr);  // on all ranks: a failed split uses up its number
  try {
    bootstrap_->agree_on("split: prepare", [&] {
      fabric_->split(id, color);
      if (members.empty()) return;
      const auto size = static_cast<std::uint32_t>(members.size());
      groups_.back() = std::make_unique<GroupState>(*this, id, std::move(members), place, 0, region_offset(id),
                                                    group_layout(config_, size));
      groups_.back()->arm(first_epoch_, true);
    });
    check_nccl(groups_.back().get());
  } catch (...) {
    groups_.back().reset();
    throw;
  }
  const GroupState* const group = groups_.back().get();
  if (group != nullptr)
    logger().info("rank {} is {} of {} in group {}; tuned by {}", rank(), group->rank(), group->size(), id,
                  group->tuning().reason);
  return groups_.back().get();
}

void CommunicatorState::abort() noexcept {
  if (!origin_.is_here()) return;  // its peers are its parent's
  const std::scoped_lock lock(abort_mutex_);
  aborted_ = true;
  if (reachable_) fabric_->abort();
}

std::vector<const std::byte*> CommunicatorState::windows() const {
  std::vector<const std::byte*> all;
  const auto add = [&](int number) {
    for (int peer = 0; peer < size(); ++peer) all.push_back(fabric_->window(number, peer));
  };
  add(0);
  each_tenant([&](const Tenant& tenant) {
    add(tenant.window());
    if (tenant.own_memory_counts()) all.push_back(fabric_->own_memory(tenant.window()));
  });
  all.push_back(fabric_->multicast());
  return all;
}

std::string CommunicatorState::multicast() const {
  const std::string problem = fabric_->multicast_problem();
  if (!config_.multicast) {
    return "not asked for (Config::multicast); " + (problem.empty() ? "nothing is known against it" : problem);
  }
  return config_.device == Device::cpu ? "CPU ranks do the switch's work" : "bound to the window";
}

void CommunicatorState::forbid_abort() {
  const std::scoped_lock lock(abort_mutex_);
  reachable_ = false;
}

void CommunicatorState::allow_abort() {
  const std::scoped_lock lock(abort_mutex_);
  reachable_ = true;
  if (aborted_) fabric_->abort();  // abort() came meanwhile, or the poison went with the window
}

std::size_t CommunicatorState::window_bytes() const {
  if (released_) return 0;
  std::size_t bytes = window_bytes_;
  each_tenant([&](const Tenant& tenant) { bytes += tenant.window_bytes(); });
  return bytes;
}

void CommunicatorState::release() {
  // All ranks have made their calls when they meet. Before that a rank must not wait for the GPU: if another one shares
  // it, CUDA would hold back the calls which that rank still makes, and for which this rank's kernels wait.
  bootstrap_->agree_on("release", [&] {
    if (released_) throw Error(Errc::released, "release: the communicator's memory is released already");
  });
  // All ranks finish the calls on the GPU's queues: calls that ended halfway would leave epochs torn. If that fails,
  // nothing has happened.
  bootstrap_->agree_on("release: finish calls", [&] { fabric_->finish_calls(); });
  forbid_abort();  // before the meeting after which peers' windows go
  bootstrap_->agree_on("release: end what comes now", [&] {
    for (const auto& group : groups_) {
      if (group != nullptr) group->set_released();
    }
    mail_->set_released();
    each_tenant([](Tenant& tenant) { tenant.set_released(); });
    fabric_->finish_calls();
  });
  windows_ = windows();
  released_ = true;  // from here on no rank writes to any window
  each_tenant([](Tenant& tenant) { tenant.close(); });
  bootstrap_->agree_on("release: free the windows", [&] { close_windows(); });
}

void CommunicatorState::close_windows() {
  for (auto kind = tenants_.rbegin(); kind != tenants_.rend(); ++kind) {
    each_in(*kind, [&](const Tenant& tenant) { fabric_->close_window(tenant.window()); });
  }
  fabric_->close_window(0);
}

void CommunicatorState::acquire() {
  bootstrap_->agree_on("acquire", [&] {
    if (!released_) throw Error(Errc::invalid_argument, "acquire: the communicator's memory is not released");
  });
  try {
    open_window();
    each_tenant(
        [&](const Tenant& tenant) { fabric_->open_window(*bootstrap_, tenant.window(), tenant.window_bytes()); });
  } catch (...) {
    close_windows();  // on all ranks, as all throw: a second attempt must find nothing open
    throw;
  }
  // If one rank's window moved, captured graphs are void on all ranks. Otherwise some ranks would call, and others not.
  const auto moved =
      bootstrap_->all_gather_value("acquire: compare addresses", static_cast<char>(windows() != windows_));
  const bool any_moved = std::ranges::any_of(moved, [](char yes) { return yes != 0; });
  bootstrap_->agree_on("acquire: prepare memory", [&] {
    forget_stale_replay();
    for (const auto& group : groups_) {
      if (group != nullptr) group->arm({}, any_moved);
    }
    mail_->arm({}, any_moved);
    each_tenant([&](Tenant& tenant) { tenant.arm({}, any_moved); });
  });
  released_ = false;
  allow_abort();
}

}  // namespace weft::detail
