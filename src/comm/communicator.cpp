// The public handles.
#include "weft/communicator.hpp"

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <system_error>
#include <thread>

#include "base/foreign.hpp"
#include "comm/call.hpp"
#include "comm/state.hpp"
#include "rendezvous/environment.hpp"
#include "rendezvous/hello.hpp"
#include "rendezvous/secret.hpp"
#include "rendezvous/tcp.hpp"
#include "rendezvous/under_way.hpp"
#include "rendezvous/unique_id.hpp"

namespace weft {
namespace {

// A Group owns a share of its communicator.
Group handle(const std::shared_ptr<detail::CommunicatorState>& communicator, detail::GroupState& group) {
  return Group(std::shared_ptr<detail::GroupState>(communicator, &group));
}

// Runs `create` in a thread for each rank, and throws the first rank's error. Calls `give_up` for each rank for which
// no thread can be started.
void create_in_threads(std::size_t ranks, const std::function<void(std::size_t)>& create,
                       const std::function<void(std::size_t)>& give_up) {
  std::vector<std::exception_ptr> errors(ranks);
  std::string trouble;
  {
    std::vector<std::jthread> threads;
    threads.reserve(ranks);
    try {
      while (threads.size() < ranks) {
        threads.emplace_back([&, rank = threads.size()] {
          try {
            create(rank);
          } catch (...) {
            errors[rank] = std::current_exception();
          }
        });
      }
    } catch (const std::system_error& error) {
      trouble = fmt::format("no thread for rank {} of {}: {}", threads.size(), ranks, error.what());
      for (std::size_t rank = threads.size(); rank < ranks; ++rank) give_up(rank);
    }
  }
  if (!trouble.empty()) throw Error(Errc::system, trouble);
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace

int Group::rank() const {
  return state().rank();
}
int Group::size() const {
  return state().size();
}
std::span<const int> Group::members() const {
  return state().members();
}
Device Group::device() const {
  return state().communicator().fabric().device();
}
int Group::cuda_device() const {
  return state().communicator().fabric().cuda_device();
}
std::string Group::tuning() const {
  const detail::TuningChoice& all_reduces = state().tuning();
  std::string text = all_reduces.reason;
  for (const detail::TunedKind& kind : detail::kTunedBySize) {
    const detail::TuningChoice& choice = state().tuning(kind.operation);
    if (choice.table == nullptr || choice.table == all_reduces.table) continue;
    text += fmt::format("; {}: {}", kind.words, choice.reason);
  }
  return text;
}
std::optional<Fault> Group::status() const {
  return state().communicator().fault();
}
std::vector<CallRecord> Group::recent_calls() const {
  return state().recent_calls();
}

void Group::check() const {
  state().communicator().check(state());
}

void Group::refuse(std::string_view reason, Stream stream) const noexcept {
  if (state_ != nullptr) detail::tell_rejection(*state_, stream, Error(Errc::invalid_argument, std::string(reason)));
}

detail::GroupState& Group::state() const {
  if (state_ == nullptr) {
    throw Error(Errc::invalid_argument, "group: empty (default-constructed, moved from, or split() with color −1)");
  }
  state_->communicator().check_process();
  return *state_;
}

Communicator::Communicator(std::shared_ptr<detail::CommunicatorState> state)
    : state_(std::move(state)), world_(handle(state_, state_->world())) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator Communicator::from_environment(const Config& config) {
  return detail::with_errors_only([&] {
    const detail::LaunchEnvironment launch = detail::read_launch_environment(detail::environment_variable);
    Config local = config;
    if (local.cuda_device < 0 && local.device != Device::cpu)
      local.cuda_device = detail::cuda_device_in_turn(launch.local_rank);
    detail::check_name(config.name);
    if (launch.world_size == 1) {
      auto alone = std::move(detail::make_thread_bootstraps(1, config.rendezvous_deadline).front());
      return Communicator(detail::CommunicatorState::create(std::move(alone), local));
    }
    detail::check_meeting(launch.rank, launch.world_size, config.rendezvous_deadline);
    const detail::CreationUnderWay under_way(config.name);
    const detail::Secret secret = detail::find_secret(launch, detail::environment_variable);
    auto bootstrap = detail::make_tcp_bootstrap({.host = launch.host,
                                                 .port = launch.port,
                                                 .port_origin = launch.port_origin,
                                                 .other_hosts = launch.other_hosts,
                                                 .job = launch.job,
                                                 .key = secret.key,
                                                 .key_source = secret.source,
                                                 .name = config.name,
                                                 .rank = launch.rank,
                                                 .world_size = launch.world_size,
                                                 .deadline = config.rendezvous_deadline});
    return Communicator(detail::CommunicatorState::create(std::move(bootstrap), local));
  });
}

Communicator Communicator::from_id(const UniqueId& id, int rank, int world_size, const Config& config) {
  return detail::with_errors_only([&] {
    auto bootstrap = detail::make_id_bootstrap(id, rank, world_size, config.rendezvous_deadline, config.name);
    return Communicator(detail::CommunicatorState::create(std::move(bootstrap), config));
  });
}

std::vector<Communicator> Communicator::local(int world_size, const Config& config) {
  return detail::with_errors_only([&] {
    detail::check_name(config.name);
    auto bootstraps = detail::make_thread_bootstraps(world_size, config.rendezvous_deadline);
    std::vector<std::shared_ptr<detail::CommunicatorState>> states(bootstraps.size());
    const auto create = [&](std::size_t rank) {
      Config mine = config;
      if (mine.cuda_device < 0 && mine.device != Device::cpu)
        mine.cuda_device = detail::cuda_device_in_turn(static_cast<int>(rank));
      states[rank] = detail::CommunicatorState::create(std::move(bootstraps[rank]), mine);
    };
    // The end of a missing rank's bootstrap tells the ranks that meet it, and they stop waiting.
    create_in_threads(states.size(), create, [&](std::size_t rank) { bootstraps[rank].reset(); });
    std::vector<Communicator> communicators;
    for (auto& state : states) communicators.push_back(Communicator(std::move(state)));
    return communicators;
  });
}

Group Communicator::split(int color) {
  return detail::with_errors_only([&] {
    const Group world = detail::held(world_);
    detail::CommunicatorState& communicator = world.state().communicator();
    detail::GroupState* group = communicator.split(color);
    return group != nullptr ? handle(communicator.shared_from_this(), *group) : Group();
  });
}

void Communicator::release() {
  detail::with_errors_only([&] { detail::held(world_).state().communicator().release(); });
}
void Communicator::acquire() {
  detail::with_errors_only([&] { detail::held(world_).state().communicator().acquire(); });
}
void Communicator::abort() noexcept {
  state_->abort();
}
MemoryUse Communicator::memory() const {
  const detail::CommunicatorState& communicator = world().state().communicator();
  return {communicator.window_bytes(), communicator.fabric().control_bytes()};
}
std::string Communicator::multicast() const {
  return world().state().communicator().multicast();
}
std::string Communicator::fabric() const {
  return world().state().communicator().fabric().description();
}

}  // namespace weft
