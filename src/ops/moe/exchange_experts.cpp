// Experts that move: maps of an exchange that follow each other.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/argument.hpp"
#include "comm/call.hpp"
#include "ops/moe/exchange_state.hpp"
#include "weft/moe.hpp"

namespace weft::detail {

void check_experts_of_rank(const char* name, std::size_t size, std::uint32_t experts,
                           std::span<const std::int32_t> maps) {
  for (std::size_t map = 0; map * size < maps.size(); ++map) {
    std::vector<bool> placed(experts);
    for (const std::int32_t expert : maps.subspan(map * size, size)) {
      const bool one = expert >= 0 && static_cast<std::uint32_t>(expert) < experts;
      check_argument(one || expert == -1, name, expert, fmt::format("between −1 and {}", experts - 1));
      if (one) placed[static_cast<std::size_t>(expert)] = true;
    }
    const auto lost = static_cast<std::size_t>(std::ranges::find(placed, false) - placed.begin());
    require(lost == experts, "{}: expert {} has no place in map {}", name, lost, map);
  }
}

namespace {

// The maps that a rank gives, and for which exchange: what it tells the others.
struct GivenMaps {
  struct Head {
    std::uint64_t exchange;
    std::uint32_t leader;  // world rank of the group's first
    std::uint32_t first_map, maps;
    std::uint32_t unused;  // no padding: heads are compared as bytes
  };
  Head head;
  std::vector<std::int32_t> experts;

  static GivenMaps of(const Bytes& bytes) {
    GivenMaps given{};
    std::memcpy(&given.head, bytes.data(), sizeof(head));
    given.experts.resize((bytes.size() - sizeof(head)) / sizeof(std::int32_t));
    std::memcpy(given.experts.data(), bytes.data() + sizeof(head), bytes.size() - sizeof(head));
    return given;
  }
  Bytes bytes() const {
    const auto first = std::as_bytes(std::span(&head, 1)), second = std::as_bytes(std::span(experts));
    Bytes all(first.begin(), first.end());
    all.insert(all.end(), second.begin(), second.end());
    return all;
  }
};

std::string describe(const GivenMaps::Head& head) {
  return fmt::format("maps {} to {} of exchange {} of those that were ever created", head.first_map,
                     head.first_map + head.maps - 1, head.exchange);
}

// Collective over the world; throws on all ranks if the ranks of one group differ.
void agree_on_maps(Bootstrap& bootstrap, const GivenMaps& mine) {
  const std::vector<Bytes> all = bootstrap.all_gather("compare maps of experts", mine.bytes());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const GivenMaps theirs = GivenMaps::of(all[rank]);
    const std::uint32_t leader = theirs.head.leader;
    if (all[rank] == all[leader]) continue;
    const GivenMaps first = GivenMaps::of(all[leader]);
    constexpr std::string_view kDisagree = "MoeExchange::set_experts: ranks disagree";
    if (std::memcmp(&first.head, &theirs.head, sizeof(first.head)) != 0) {
      throw Error(Errc::mismatch, fmt::format("{}: rank {} sets {}, rank {} {}", kDisagree, leader,
                                              describe(first.head), rank, describe(theirs.head)));
    }
    const auto apart = std::ranges::mismatch(first.experts, theirs.experts);
    throw Error(Errc::mismatch,
                fmt::format("{} about experts_of_rank: element {} is {} on rank {} and {} on rank {}", kDisagree,
                            apart.in1 - first.experts.begin(), *apart.in1, leader, *apart.in2, rank));
  }
}

void check_maps(const Group& group, const ExchangeState& exchange, std::span<const std::int32_t> given,
                std::uint32_t first_map, Stream stream) {
  constexpr const char* kName = "set_experts";
  const GroupState& channel = exchange.dispatch_channel();
  const MoeExchangeArgs& args = exchange.args();
  if (exchange.freed()) throw Error(Errc::released, fmt::format("{}: the exchange has been freed", kName));
  channel.communicator().check_process();
  check_alive(group, channel, kName);
  channel.communicator().fabric().check_stream(stream);
  require(!args.experts_of_rank.empty(), "{}: the exchange was made without MoeExchangeArgs::experts_of_rank", kName);
  const std::size_t size = args.experts_of_rank.size() / args.maps;
  check_argument(first_map < args.maps, "first_map", first_map, fmt::format("between 0 and {}", args.maps - 1));
  check_argument(!given.empty() && given.size() % size == 0 && given.size() / size <= args.maps - first_map,
                 "experts_of_rank's length", given.size(),
                 fmt::format("a multiple of {} up to {}", size, size * (args.maps - first_map)));
  check_experts_of_rank("experts_of_rank", size, args.experts, given);
  require(!is_kept(group, stream), "{}: it is recorded or captured, but ranks meet for it", kName);
}

}  // namespace

void ExchangeState::set_experts(std::span<const std::int32_t> experts_of_rank, std::uint32_t first_map, Stream stream) {
  const std::size_t size = args_.experts_of_rank.size() / args_.maps;
  const auto count = static_cast<std::uint32_t>(experts_of_rank.size() / size);
  MoeExchangeArgs given = args_;
  given.maps = count;
  given.experts_of_rank.assign(experts_of_rank.begin(), experts_of_rank.end());
  std::vector<ExpertMap> maps;
  std::vector<std::vector<std::byte>> bytes;
  for (std::uint32_t map = 0; map < count; ++map) {
    maps.push_back(map_experts(static_cast<std::uint32_t>(group_.size()), given, map));
    bytes.push_back(bytes_of_map(maps.back()));
  }
  // One by one: beyond 64 KB CUDA may wait for the stream, and a combine there may wait for a rank that meets here.
  group_.begin_turn(stream);
  for (std::uint32_t map = 0; map < count; ++map)
    group_.communicator().fabric().write_behind(stream, map_memory(first_map + map), bytes[map].data(),
                                                bytes[map].size());
  group_.end_turn(stream);
  // In place: callers keep the addresses.
  std::ranges::copy(experts_of_rank, args_.experts_of_rank.begin() + static_cast<std::ptrdiff_t>(first_map * size));
  for (std::uint32_t map = 0; map < count; ++map) {
    maps_[first_map + map] = std::move(maps[map]);
    number_experts(first_map + map);
  }
}

}  // namespace weft::detail

namespace weft {

void MoeExchange::set_experts(std::span<const std::int32_t> experts_of_rank, std::uint32_t first_map, Stream stream) {
  const MoeExchange self = *this;  // keeps the state, as detail::held() keeps a group
  detail::ExchangeState& state = *self.state_;
  const detail::GroupState& group = self.group_.state();
  detail::Bootstrap& bootstrap = group.communicator().bootstrap();
  bootstrap.agree_on("set experts",
                     [&] { detail::check_maps(self.group_, state, experts_of_rank, first_map, stream); });
  const std::size_t size = state.args().experts_of_rank.size() / state.args().maps;
  detail::agree_on_maps(bootstrap, {.head = {.exchange = state.number() + 1,
                                             .leader = static_cast<std::uint32_t>(group.members().front()),
                                             .first_map = first_map,
                                             .maps = static_cast<std::uint32_t>(experts_of_rank.size() / size),
                                             .unused = 0},
                                    .experts = {experts_of_rank.begin(), experts_of_rank.end()}});
  bootstrap.agree_on("set experts: write the maps", [&] { state.set_experts(experts_of_rank, first_map, stream); });
}

std::span<const std::uint32_t> MoeExchange::experts(std::uint32_t map) const {
  const std::uint32_t maps = state_->args().maps;
  detail::check_argument(map < maps, "map", map, fmt::format("between 0 and {}", maps - 1));
  return state_->experts(map);
}

}  // namespace weft
