#include "bench/bench_outputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "bench/push.hpp"
#include "bench/rank_device.hpp"
#include "comm/state.hpp"

namespace weft::cli {

std::string check_pushed(const PushedOutput& output) {
  const std::size_t bytes = output.elements * size_of(output.type);
  std::vector<std::byte> expected(bytes);
  for (int peer = 0; peer < output.ranks; ++peer) {
    if (peer == output.rank) continue;
    fill(expected.data(), 0, output.elements, output.type, output.pattern, peer, kLastStep);
    if (std::memcmp(output.data + static_cast<std::size_t>(peer) * bytes, expected.data(), bytes) != 0)
      return fmt::format("the bytes of rank {} have not arrived", peer);
  }
  return {};
}

BenchOutputs::BenchOutputs(Ranks& ranks, std::size_t bytes)
    : ranks_(ranks), memory_(static_cast<std::size_t>(ranks.local_size())) {
  ranks_.each([&](Ranks::Seat& seat) {
    auto& mine = memory(seat);
    try {
      mine = SymmetricMemory::allocate(seat.communicator(), std::max<std::size_t>(bytes, 1));
    } catch (const Error& error) {  // all ranks throw it, and none keeps memory
      if (error.code() != Errc::system && error.code() != Errc::rendezvous) throw;
      if (seat.local_index() == 0) why_none_ = std::string("no symmetric memory: ") + error.what();
      return;
    }
    const int world = ranks_.world_size();
    bool reached = ranks_.device() == Device::cuda && world <= kMostPushed;
    for (int peer = 0; reached && peer < world; ++peer) reached = mine->peer(peer) != nullptr;
    if (seat.local_index() == 0) can_be_pushed_to_ = reached;
  });
}

std::string BenchOutputs::why_ordinary(std::size_t row_bytes) const {
  if (!why_none_.empty()) return why_none_;
  if (row_bytes % 16 == 0 && ranks_.first().world().state().direct()) return {};
  return "rows are no multiple of 16 bytes, or ranks do not reach each other: such calls take the ordinary way";
}

BenchOutputs::~BenchOutputs() {
  // After an exception, peers may be elsewhere: the communicator gives the memory back.
  if (!why_none_.empty() || std::uncaught_exceptions() != 0) return;
  try {
    ranks_.each([&](Ranks::Seat& seat) { memory(seat)->free(); });
  } catch (const std::exception&) {
    // Another rank failed before; the process is about to end with its message.
  }
}

void BenchOutputs::push([[maybe_unused]] const Ranks::Seat& seat, [[maybe_unused]] const Push& what,
                        [[maybe_unused]] Stream stream) {
#if WEFT_WITH_CUDA
  PushArgs args{.input = what.input,
                .bytes = what.bytes,
                .rank = seat.rank(),
                .ranks = ranks_.world_size(),
                .outputs = {},
                .to_itself = what.to_itself,
                .blocks = what.blocks};
  for (int peer = 0; peer < args.ranks; ++peer) args.outputs[peer] = memory(seat)->peer(peer);
  enqueue_push(args, stream);
#endif
}

}  // namespace weft::cli
