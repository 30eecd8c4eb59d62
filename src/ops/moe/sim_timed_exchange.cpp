#include "ops/moe/sim_timed_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "sim/schedule.hpp"
#include "weft/error.hpp"

namespace weft::sim {
namespace {

using detail::ExchangeShape;

constexpr unsigned kOfDispatch = 0, kOfCombine = 1;  // groups
constexpr const char* kNames[] = {"dispatch", "combine"};
constexpr unsigned kOne = 0x3f80;  // as bf16

// Columns of a row in the simulator. Rows by slots are cast: a thread would look at a row as it is in 32 turns.
std::uint32_t columns_of(const TimedTraffic& traffic) {
  return traffic.ring ? 8 : kScaleColumns;
}

Setup setup_of(const TimedTraffic& traffic) {
  return {.ranks = traffic.ranks,
          .exchange = {.tokens = traffic.tokens,
                       .hidden = columns_of(traffic),
                       .experts = traffic.experts,
                       .top_k = traffic.top_k,
                       .cast = traffic.ring ? RowCast::none : RowCast::fp8,
                       .path = traffic.ring ? RowPath::ring : RowPath::slots,
                       .ring_rows = traffic.ring ? traffic.tokens : 0}};
}

}  // namespace

TimedExchange::TimedExchange(const TimedTraffic& traffic, const Routing& routing, unsigned streams_of_rank)
    : traffic_(traffic), plan_(setup_of(traffic)), tensors_(traffic.ranks) {
  const detail::ExchangeLayout& layout = plan_.layout();
  const std::size_t dispatch = detail::kWindowHeaderBytes, combine = dispatch + layout.dispatch_bytes;
  machine_ = std::make_unique<TimedMachine>(traffic.ranks, combine + layout.combine_bytes, streams_of_rank);
  say_what_stands_for_what();
  for (unsigned rank = 0; rank < traffic.ranks; ++rank) {
    std::memset(machine_->memory().window(rank) + dispatch, 0xff, layout.dispatch_bytes + layout.combine_bytes);
    for (const unsigned group : {kOfDispatch, kOfCombine}) make_channel(group, rank);
    fill(rank, routing[rank]);
  }
}

// A token's words stand for those of several tokens, and a row's bytes for those of a longer row. A control block has a
// lane for each peer, or for each expert. Blocks that receive from a ring read all counts once.
void TimedExchange::say_what_stands_for_what() {
  const detail::ExchangeLayout& layout = plan_.layout();
  const ExchangeShape& shape = plan_.shape(0);
  const double each = traffic_.tokens_each;
  const std::size_t dispatch = detail::kWindowHeaderBytes, combine = dispatch + layout.dispatch_bytes;
  TimedMemory& memory = machine_->memory();
  const auto tokens = [&](std::size_t begin, std::size_t end, double weight = 1) {
    memory.add({.begin = begin, .end = end, .weight = each * weight, .looks = each});
  };
  const double ranks = traffic_.ranks;
  memory.add({.begin = dispatch, .end = dispatch + layout.ring_signals, .lanes = ranks});
  memory.add({.begin = combine, .end = combine + layout.ring_signals, .lanes = ranks});
  tokens(dispatch + layout.ring_signals, dispatch + layout.counts);
  memory.add({.begin = dispatch + layout.counts,
              .end = dispatch + layout.records,
              .looks = each,
              .lanes = static_cast<double>(shape.local),
              .once = traffic_.ring});
  tokens(dispatch + layout.records, dispatch + layout.rows);
  const double row = traffic_.row_bytes / static_cast<double>(shape.payload_packs * sizeof(Pack) + shape.groups * 4);
  tokens(dispatch + layout.rows, dispatch + layout.ring_rows, row);
  memory.add({.begin = dispatch + layout.ring_rows,
              .end = combine,
              .weight = each * traffic_.row_bytes / static_cast<double>(shape.payload_packs * sizeof(Pack)),
              .step = shape.ring_stride * sizeof(Pack),
              .light = shape.ring_head * sizeof(Pack),
              .light_weight = each,
              .looks = each});
  tokens(combine + layout.ring_signals, combine + layout.results);
  const double result = traffic_.result_bytes / static_cast<double>(shape.combine_packs * sizeof(Pack));
  tokens(combine + layout.results, combine + layout.combine_bytes, result);
}

void TimedExchange::make_channel(unsigned group, unsigned rank) {
  Tensors& t = tensors_[rank];
  TimedMemory& memory = machine_->memory();
  const std::size_t offset = detail::kWindowHeaderBytes + (group == kOfCombine ? plan_.layout().dispatch_bytes : 0);
  detail::Channel& c = t.channel[group];
  c.id = group;
  c.rank = c.world_rank = rank;
  c.size = c.world_size = traffic_.ranks;
  c.layout = plan_.channel(group);
  c.local = &t.local[group];
  c.claim = t.claim;
  c.abort = &t.abort;
  c.record = t.record;
  for (unsigned peer = 0; peer < traffic_.ranks; ++peer) {
    c.member[peer] = peer;
    c.window[peer] = memory.window(peer);
    c.region[peer] = memory.window(peer) + offset;
  }
  constexpr std::uint32_t kGeneration = 1, kFirstEpoch = 2;
  c.local->admit(kGeneration);
  c.local->begin_at(kFirstEpoch);
  detail::each_old_words(c.layout, c.size, [&](std::uint64_t at, std::uint64_t count) {
    std::fill_n(reinterpret_cast<std::uint64_t*>(c.region[rank] + at), count, std::uint64_t{kFirstEpoch - 1} << 32);
  });
  t.call[group] = detail::make_call(c, &c, kGeneration, 1);
}

void TimedExchange::fill(unsigned rank, const std::vector<std::int64_t>& ids) {
  Tensors& t = tensors_[rank];
  const ExchangeShape& shape = plan_.shape(rank);
  t.ids.assign(ids.begin(), ids.end());
  Random random(rank);
  for (std::uint32_t i = 0; i < traffic_.tokens * columns_of(traffic_); ++i) {
    t.input.push_back(static_cast<std::uint16_t>(kOne + random.below(128)));
  }
  for (std::size_t i = 0; i < ids.size(); ++i) t.weights.push_back(static_cast<float>(1 + (i + rank) % 7) / 8);
  t.scales.resize(std::size_t{shape.rows} * shape.groups);
  t.rows.resize(std::size_t{shape.rows} * columns_of(traffic_) * (traffic_.ring ? 2 : 1));
  t.counts.resize(shape.local);
  t.sources.resize(shape.rows);
  t.source_tokens.resize(traffic_.ranks);
  t.results.resize(std::size_t{shape.rows} * columns_of(traffic_));
  t.output.resize(t.input.size());
  t.tables.resize(detail::RoutingTables::bytes(traffic_.ranks, shape) / sizeof(std::uint64_t));
}

detail::ExchangeView TimedExchange::view(unsigned rank) {
  Tensors& t = tensors_[rank];
  const ExchangeShape& shape = plan_.shape(rank);
  return {.shape = shape,
          .areas = plan_.layout().areas(traffic_.ring),
          .homes = plan_.map().homes.data(),
          .first_replica = nullptr,
          .tables = detail::RoutingTables::at(&t.header, reinterpret_cast<std::byte*>(t.tables.data()), traffic_.ranks,
                                              shape)};
}

// By a ring the control block needs no processor of its own.
void TimedExchange::launch(unsigned rank, unsigned stream, unsigned group, double processors, TimedKernel kernel) {
  const detail::Call& call = tensors_[rank].call[group];
  machine_->launch(
      stream, {.what = kNames[group],
               .rank = rank,
               .processors = processors + (traffic_.ring ? 1 : 0),
               .blocks = TimedTeam::kMostBlocks,
               .run = [this, &call, kernel = std::move(kernel)](unsigned block) { kernel(*machine_, block, call); }});
}

void TimedExchange::dispatch(unsigned rank, unsigned stream, double processors, detail::Phases phases,
                             const detail::Rounds& rounds) {
  Tensors& t = tensors_[rank];
  const detail::DispatchWork work{.exchange = view(rank),
                                  .phases = phases,
                                  .input = t.input.data(),
                                  .scales = nullptr,
                                  .ids = t.ids.data(),
                                  .weights = t.weights.data(),
                                  .tokens = traffic_.tokens,
                                  .senders = 0,
                                  .wide_ids = false,
                                  .discard = false,
                                  .output = t.rows.data(),
                                  .output_scales = t.scales.data(),
                                  .counts = t.counts.data(),
                                  .offsets = nullptr,
                                  .sources = t.sources.data(),
                                  .source_tokens = t.source_tokens.data(),
                                  .source_wait_ns = nullptr,
                                  .host_counts = nullptr,
                                  .local_ids = nullptr,
                                  .local_weights = nullptr,
                                  .rounds = rounds};
  launch(rank, stream, kOfDispatch, processors, find_timed_kernel(work, traffic_.ring));
}

void TimedExchange::combine(unsigned rank, unsigned stream, double processors, detail::Phases phases,
                            const detail::Rounds& rounds) {
  Tensors& t = tensors_[rank];
  const detail::CombineWork work{.exchange = view(rank),
                                 .phases = phases,
                                 .senders = 0,
                                 .pairs = false,
                                 .input = t.results.data(),
                                 .residual = nullptr,
                                 .output = t.output.data(),
                                 .source_wait_ns = nullptr,
                                 .dispatch_admitted = t.local[kOfDispatch].admitted,
                                 .late = {},
                                 .rounds = rounds};
  launch(rank, stream, kOfCombine, processors, find_timed_kernel(work, traffic_.ranks, traffic_.ring));
}

// Any function of the rows would do, as results of different schedules are compared.
void TimedExchange::compute(unsigned rank, unsigned stream, double processors, detail::ExpertRange experts, double ns) {
  const auto run = [this, rank, experts, ns](unsigned) {
    Tensors& t = tensors_[rank];
    const ExchangeShape& shape = plan_.shape(rank);
    for (std::uint32_t expert = experts.begin; expert < std::min(experts.end, shape.local); ++expert) {
      const std::size_t columns = columns_of(traffic_), first = expert * shape.capacity * columns;
      for (std::size_t i = 0; i < static_cast<std::size_t>(t.counts[expert]) * columns; ++i) {
        const std::size_t byte = traffic_.ring ? 2 * (first + i) : first + i;
        t.results[first + i] = static_cast<std::uint16_t>(kOne + std::to_integer<unsigned>(t.rows[byte]));
      }
    }
    machine_->pass(ns);
  };
  machine_->launch(stream, {.what = "experts", .rank = rank, .processors = processors, .blocks = 1, .run = run});
}

void TimedExchange::run() {
  machine_->run();
  for (const Tensors& t : tensors_) {
    const detail::FaultRecord& record = t.record[detail::kEnding];
    if (record.complete == 0) continue;
    throw std::logic_error(
        fmt::format("simulator: {} says \"{}\"", kNames[record.channel], name(static_cast<Errc>(record.code))));
  }
}

}  // namespace weft::sim
