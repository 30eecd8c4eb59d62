#include "common/ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <thread>

#include "rendezvous/environment.hpp"
#include "weft/collectives.hpp"

namespace weft::cli {
namespace {

constexpr int kDefaultCpuRanks = 4;

// The environment that from_environment() reads.
detail::LaunchEnvironment launch() {
  return detail::read_launch_environment(detail::environment_variable);
}

std::vector<Communicator> open(const Ranks::Args& args) {
  Config config = args.config;
  config.device = args.device;
  if (launched()) {
    if (usable_gpus() > 0) config.cuda_device = launch().local_rank % usable_gpus();
    std::vector<Communicator> one;
    one.push_back(Communicator::from_environment(config));
    if (args.world_size != 0 && args.world_size != one.front().size())
      throw Error(Errc::invalid_argument,
                  fmt::format("--ranks {}: the launcher started {} ranks", args.world_size, one.front().size()));
    return one;
  }
  if (config.device == Device::automatic) config.device = usable_gpus() > 0 ? Device::cuda : Device::cpu;
  return Communicator::local(Ranks::count(args), config);
}

// A rank that ended because another rank failed does not know the cause.
bool is_consequence(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.code() == Errc::aborted || e.code() == Errc::peer_failed;
  } catch (...) {
    return false;
  }
}

}  // namespace

bool launched() {
  return launch().world_size > 1;
}

#if !WEFT_WITH_CUDA
int usable_gpus() {
  return 0;
}
void cuda_sum(const Group&, int, std::span<std::int32_t>) {}
#endif

int Ranks::count(const Args& args) {
  if (launched()) return launch().world_size;
  if (args.world_size != 0) return args.world_size;
  const bool gpus = args.device != Device::cpu && usable_gpus() > 0;
  return gpus || args.device == Device::cuda ? std::max(1, usable_gpus()) : kDefaultCpuRanks;
}

Ranks::Ranks(const Args& args) : communicators_(open(args)), slots_(static_cast<std::size_t>(world_size())) {}

void Ranks::each(const std::function<void(Seat&)>& work) {
  meeting_ = std::make_unique<Meeting>(local_size());
  std::vector<std::exception_ptr> errors(communicators_.size());
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < local_size(); ++i) {
      threads.emplace_back([&, i] {
        const auto index = static_cast<std::size_t>(i);
        Seat seat;
        seat.ranks_ = this;
        seat.communicator_ = &communicators_[index];
        seat.local_index_ = i;
        try {
          work(seat);
        } catch (...) {
          errors[index] = std::current_exception();
          seat.communicator_->abort();
          meeting_->arrive_and_drop();
        }
      });
    }
  }
  std::exception_ptr cause;
  for (const auto& error : errors)
    if (error && (!cause || (is_consequence(cause) && !is_consequence(error)))) cause = error;
  if (cause) std::rethrow_exception(cause);
}

int Ranks::cuda_device(const Seat& seat) const {
  const detail::LaunchEnvironment environment = launch();
  return (environment.world_size > 1 ? environment.local_rank : seat.rank()) % std::max(1, usable_gpus());
}

void Ranks::sum_over_processes(std::span<std::int32_t> words) {
  if (device() == Device::cuda) return cuda_sum(first(), launch().local_rank % std::max(1, usable_gpus()), words);
  all_reduce(first(), {.input = words.data(), .output = words.data(), .count = words.size(), .type = DataType::i32});
}

void Ranks::Seat::barrier() {
  if (ranks_->local_size() != ranks_->world_size()) {
    std::int32_t nothing = 0;
    ranks_->sum_over_processes({&nothing, 1});
  } else {
    ranks_->meeting_->arrive_and_wait();
  }
}

std::vector<std::vector<double>> Ranks::Seat::gather(const std::vector<double>& mine) {
  const auto rank = static_cast<std::size_t>(this->rank());
  const auto world = static_cast<std::size_t>(ranks_->world_size());
  if (ranks_->local_size() == ranks_->world_size()) {
    ranks_->slots_[rank] = mine;
    barrier();
    auto all = ranks_->slots_;
    barrier();
    return all;
  }
  // Every rank adds its bits to a slot that is zero everywhere else.
  std::vector<std::int32_t> words(mine.size() * world);
  for (std::size_t i = 0; i < mine.size(); ++i)
    words[rank * mine.size() + i] = std::bit_cast<std::int32_t>(static_cast<float>(mine[i]));
  ranks_->sum_over_processes(words);
  std::vector<std::vector<double>> all(world, std::vector<double>(mine.size()));
  for (std::size_t w = 0; w < words.size(); ++w)
    all[w / mine.size()][w % mine.size()] = static_cast<double>(std::bit_cast<float>(words[w]));
  return all;
}

void Ranks::Seat::broadcast(std::span<std::byte> bytes) {
  if (ranks_->local_size() == ranks_->world_size()) {
    if (rank() == 0) ranks_->broadcast_ = bytes;
    barrier();
    if (rank() != 0) std::memcpy(bytes.data(), ranks_->broadcast_.data(), bytes.size());
    barrier();
    return;
  }
  std::vector<std::int32_t> words((bytes.size() + 3) / 4);
  if (rank() == 0) std::memcpy(words.data(), bytes.data(), bytes.size());
  ranks_->sum_over_processes(words);
  std::memcpy(bytes.data(), words.data(), bytes.size());
}

}  // namespace weft::cli
