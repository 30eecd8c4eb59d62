// Dispatch and combine as calls of a program: their tensors, and the expected outputs.
#include <bit>
#include <cstring>
#include <optional>

#include "numeric/numeric.hpp"
#include "ops/moe/sim_arrivals.hpp"
#include "ops/moe/sim_moe_kernels.hpp"
#include "ops/moe/sim_rows.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {
namespace {

using detail::ExchangeShape;
using detail::RoutingTables;
using Half = detail::Element<DataType::bf16>;

// Pieces of a call's memory, each aligned to a pack, with a guard of one pack between them.
struct Pieces {
  std::size_t end = sizeof(Pack);
  std::size_t take(std::size_t bytes) {
    const std::size_t at = end;
    end += (bytes + sizeof(Pack) - 1) / sizeof(Pack) * sizeof(Pack) + sizeof(Pack);
    return at;
  }
};

// Memory of one call: its address for kernels, and that address's distance from the vectors' begin.
struct Mapped {
  std::byte* memory;
  std::size_t skew;
  template <class Value>
  void put(std::vector<std::uint32_t>& words, std::size_t at, const Value* from, std::size_t count) const {
    if (count == 0) return;
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + skew + at, from, count * sizeof(Value));
  }
};
Mapped map(std::vector<std::uint32_t>& words) {
  auto* const begin = reinterpret_cast<std::byte*>(words.data());
  const std::size_t skew = (16 - reinterpret_cast<std::uintptr_t>(begin) % 16) % 16;
  return {begin + skew, skew};
}

}  // namespace

struct AllReduceProgram::RoutingMemory {
  std::vector<std::vector<std::uint64_t>> tables;
  std::vector<detail::RoutingHeader> headers;
};

void AllReduceProgram::reset_tables() {
  if (tables_ == nullptr) tables_ = std::make_shared<RoutingMemory>();
  auto& [tables, headers] = *tables_;
  tables.resize(std::size_t{setup_.exchange.handles} * setup_.ranks);
  headers.assign(tables.size(), {});
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const ExchangeShape& shape = plan_of(world_).shape(static_cast<unsigned>(i % setup_.ranks));
    // Values that a dispatch leaves unwritten must not lead a seeded bug out of all memory.
    tables[i].assign(RoutingTables::bytes(setup_.ranks, shape) / sizeof(tables[i][0]), 0);
  }
}

// Dispatches take handle slots in turn when they are made or recorded. A replay has its recording's handle slot, and a
// dispatch made again that of the first one.
detail::ExchangeView AllReduceProgram::exchange_view(unsigned dispatch, unsigned rank) {
  const int again = setup_.call(dispatch, rank).again;
  const unsigned first = recorded(again >= 0 ? static_cast<unsigned>(again) : dispatch);
  unsigned earlier = 0;
  for (unsigned call = 0; call < first; ++call) {
    const CallSetup& spec = setup_.calls[call];
    const bool takes_slot = spec.moving == Moving::dispatch && spec.phases != detail::kWait && spec.again < 0;
    earlier += takes_slot && spec.replays < 0;
  }
  const bool ring = takes_ring(setup_.calls[dispatch]);
  const std::vector<std::uint32_t>& first_replica = plan_of(world_).map().first_replica;
  const ExchangeShape shape = plan_of(world_).shape(rank).of_call(ring);
  const std::size_t place = std::size_t{earlier % setup_.exchange.handles} * setup_.ranks + rank;
  return {
      .shape = shape,
      .areas = plan_of(world_).layout().areas(ring),
      .homes = plan_of(world_).map().homes.data(),
      .first_replica = first_replica.empty() ? nullptr : first_replica.data(),
      .tables = RoutingTables::at(&tables_->headers[place], reinterpret_cast<std::byte*>(tables_->tables[place].data()),
                                  setup_.ranks, shape)};
}

bool AllReduceProgram::takes_ring(const CallSetup& dispatch) const {
  return plan_of(world_).shape(0).ring_rows != 0 && !dispatch.by_slots;
}

// Of the call's channel, replays included.
std::uint32_t AllReduceProgram::epoch_of(unsigned call) const {
  std::uint32_t epoch = setup_.start_epoch;
  for (unsigned before = 0; before < call; ++before) {
    const CallSetup& spec = setup_.calls[before];
    epoch += spec.begins_epoch() && spec.group == setup_.calls[call].group;
  }
  return epoch;
}

void AllReduceProgram::fill_dispatch(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.calls[call];
  const detail::ExchangeView exchange = exchange_view(call, rank);
  const ExchangeShape& shape = exchange.shape;
  const std::vector<std::int64_t>& ids = ids_of(spec, rank);
  const auto tokens = static_cast<std::uint32_t>(ids.size()) / shape.top_k;
  const std::size_t given = input_row_bytes(shape), row = sent_row_bytes(shape), scale = sent_scale_bytes(shape);
  const bool by_rank = shape.layout == RowLayout::rank_major, contiguous = shape.layout == RowLayout::expert_contiguous;
  const bool joint = detail::has_joint_rows(shape.layout), compact = shape.layout == RowLayout::rank_compact;
  const std::size_t rows = shape.rows, entries = joint ? rows * shape.top_k : 0;
  const std::size_t told = std::size_t{shape.local} + (compact ? 2 : 1) * setup_.ranks;
  const std::size_t host_words = setup_.tells_counts() ? told : 0;
  Pieces pieces;
  const std::size_t input = pieces.take(tokens * given), scales = pieces.take(std::size_t{tokens} * shape.scale_bytes),
                    topk = pieces.take(ids.size() * 8), weights = pieces.take(ids.size() * 4),
                    output = pieces.take(rows * row), output_scales = pieces.take(rows * output_scale_bytes(shape)),
                    counts = pieces.take(std::size_t{shape.local} * 4),
                    offsets = pieces.take(contiguous ? (std::size_t{shape.local} + 1) * 4 : 0),
                    sources = pieces.take(by_rank ? 0 : rows * 4), source_tokens = pieces.take(setup_.ranks * 4u),
                    prefix = pieces.take(compact ? std::size_t{setup_.ranks} * setup_.ranks * 4 : 0),
                    local_ids = pieces.take(entries * 4), local_weights = pieces.take(entries * 4),
                    host_counts = pieces.take(host_words * 8);
  const std::vector<std::uint32_t>& payload_bytes = setup_.exchange.payload_bytes;
  std::vector<std::size_t> payloads, output_payloads;
  for (const std::uint32_t bytes : payload_bytes) payloads.push_back(pieces.take(std::size_t{tokens} * bytes));
  for (const std::uint32_t bytes : payload_bytes) output_payloads.push_back(pieces.take(rows * bytes));
  const Mapped at = map(make_tensors(call, rank, pieces.end));
  // Puts the payloads behind the scales of a row into its places among all rows.
  const auto put_payloads = [&](std::vector<std::uint32_t>& words, const std::vector<std::size_t>& to,
                                std::size_t number, const std::byte* from) {
    for (std::size_t i = 0; i < to.size(); from += payload_bytes[i], ++i)
      at.put(words, to[i] + number * payload_bytes[i], from, payload_bytes[i]);
  };
  Tensors& t = tensors(call, rank);
  t.output_offset = at.skew + output;

  for (std::uint32_t token = 0; token < tokens; ++token) {
    const Bytes bytes = given_row(setup_, shape, call, rank, token);
    at.put(t.initial, input + token * given, bytes.data(), given);
    at.put(t.initial, scales + std::size_t{token} * shape.scale_bytes, bytes.data() + given, shape.scale_bytes);
    put_payloads(t.initial, payloads, token, bytes.data() + given + shape.scale_bytes);
  }
  const std::vector<std::int32_t> narrow(ids.begin(), ids.end());
  const bool again = spec.again >= 0;  // reads and writes rows alone
  if (spec.wide_ids && !again) {
    at.put(t.initial, topk, ids.data(), ids.size());
  } else if (!again) {
    at.put(t.initial, topk, narrow.data(), narrow.size());
  }
  for (std::uint32_t i = 0; i < ids.size() && !again; ++i) {
    const float weight = weight_of(call, rank, i);
    at.put(t.initial, weights + std::size_t{i} * 4, &weight, 1);
  }
  t.expected = t.initial;
  // A reader behind the call copies the words to the tensors.
  if (host_words != 0) t.symmetric.push_back({.from = 0, .to = at.skew + host_counts, .bytes = host_words * 8});
  const auto note = [&](std::size_t to, const auto* from) {
    if (!again) at.put(t.expected, to, from, 1);
  };
  const auto tell = [&](std::size_t word, std::uint32_t count) {
    const std::uint64_t bits = std::uint64_t{count} << 32 | (epoch_of(call) << 1 | 1u);
    if (host_words != 0) at.put(t.expected, host_counts + word * 8, &bits, 1);
  };
  const auto by_expert = arrivals(call);
  const auto begins = beginnings(by_expert);
  const auto& homes = plan_of(world_).map().homes;
  std::int32_t end = 0;
  // By source and token: the row that has its ids.
  std::vector<std::optional<std::size_t>> row_of_token(std::size_t{setup_.ranks} * shape.source_rows);
  for (std::size_t i = 0; by_rank && i < row_of_token.size(); ++i) row_of_token[i] = i;
  for (std::uint32_t expert = 0; expert < by_expert.size(); ++expert) {
    const auto [home, local] = homes[expert];
    if (home != rank) continue;
    const auto count = static_cast<std::int32_t>(by_expert[expert].size());
    note(counts + std::size_t{local} * 4, &count);
    tell(local, static_cast<std::uint32_t>(count));
    for (std::size_t place = 0; place < by_expert[expert].size(); ++place) {
      const Arrival& arrival = by_expert[expert][place];
      const std::optional<std::size_t> to = row_of(by_expert, expert, place, begins[expert]);
      if (!to) continue;
      const Bytes bytes = sent_row(setup_, shape, call, arrival.rank, arrival.token);
      at.put(t.expected, output + *to * row, bytes.data(), row);
      add_to_round(
          call, rank, local,
          {at.skew + output + *to * row, Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(row))});
      for (std::size_t i = 0; i < scale; ++i) {
        at.put(t.expected, output_scales + scale_place(shape, *to, i), &bytes[row + i], 1);
      }
      put_payloads(t.expected, output_payloads, *to, bytes.data() + row + scale);
      const std::uint32_t source = arrival.rank * shape.source_rows + arrival.token;
      if (!by_rank) note(sources + *to * 4, &source);
      row_of_token[source] = *to;
    }
    if (!contiguous) continue;
    const auto begin = static_cast<std::int32_t>(begins[expert]), pad = -1;
    note(offsets + std::size_t{local} * 4, &begin);
    for (end = begin + count; end % static_cast<std::int32_t>(shape.alignment) != 0; ++end) {
      if (end < static_cast<std::int32_t>(rows)) note(sources + static_cast<std::size_t>(end) * 4, &pad);
    }
  }
  if (contiguous) note(offsets + std::size_t{shape.local} * 4, &end);
  for (unsigned source = 0; source < setup_.ranks; ++source) {
    const std::vector<std::int64_t>& chosen = ids_of(spec, source);
    const auto count = static_cast<std::uint32_t>(chosen.size()) / shape.top_k;
    note(source_tokens + source * 4u, &count);
    tell(shape.local + source, count);
    for (std::uint32_t i = 0; joint && i < chosen.size(); ++i) {
      const std::optional<std::size_t> row_of_ids = row_of_token[source * shape.source_rows + i / shape.top_k];
      if (!row_of_ids) continue;
      const std::optional<std::uint32_t> replica = replica_of(chosen[i], source, i / shape.top_k);
      const detail::ExpertHome home = replica ? homes[*replica] : detail::ExpertHome{~0u, 0};
      const std::uint32_t id = home.rank == rank ? home.local : ~0u;
      const float weight = home.rank == rank ? weight_of(call, source, i) : 0;
      const std::size_t entry = (*row_of_ids * shape.top_k + i % shape.top_k) * 4;
      note(local_ids + entry, &id);
      note(local_weights + entry, &weight);
    }
  }
  for (unsigned to = 0; compact && to < setup_.ranks; ++to) {
    std::int32_t through = 0;
    for (unsigned source = 0; source < setup_.ranks; ++source) {
      const std::int32_t count = rows_for(by_expert, source, to);
      through += count;
      note(prefix + (std::size_t{source} * setup_.ranks + to) * 4, &through);
      if (to == rank) tell(shape.local + setup_.ranks + source, static_cast<std::uint32_t>(count));
    }
  }
  const auto words = [&](std::size_t piece) { return reinterpret_cast<std::int32_t*>(at.memory + piece); };
  const auto floats = reinterpret_cast<const float*>(at.memory + weights);
  DispatchArgs of_payloads;
  for (std::size_t i = 0; i < payload_bytes.size(); ++i) {
    of_payloads.payloads[i] = at.memory + payloads[i];
    of_payloads.output_payloads[i] = at.memory + output_payloads[i];
  }
  detail::DispatchWork work{
      .exchange = exchange,
      .phases = spec.phases,
      .input = at.memory + input,
      .scales = at.memory + scales,
      .ids = at.memory + topk,
      .weights = floats,
      .tokens = tokens,
      .senders = world_.grid(call, rank).senders,
      .wide_ids = spec.wide_ids,
      .discard = spec.discard,
      .output = at.memory + output,
      .output_scales = at.memory + output_scales,
      .counts = words(counts),
      .offsets = contiguous ? words(offsets) : nullptr,
      .sources = by_rank ? nullptr : words(sources),
      .source_tokens = words(source_tokens),
      .source_wait_ns = nullptr,
      .host_counts = host_words != 0 ? reinterpret_cast<std::uint64_t*>(world_.symmetric(rank)) : nullptr,
      .local_ids = joint ? words(local_ids) : nullptr,
      .local_weights = reinterpret_cast<float*>(words(local_weights)),
      .rounds = rounds_of(spec, shape.most_local),
      .rank_prefix = words(prefix),
      .sides = detail::side_payloads(setup_.exchange, shape, of_payloads)};
  const detail::RoutingUse use = again                        ? detail::RoutingUse::known
                                 : setup_.exchange.repeatable ? detail::RoutingUse::noted
                                                              : detail::RoutingUse::once;
  const auto kernel = [&] {
    const detail::DispatchQuery query{.type = setup_.exchange.type,
                                      .cast = exchange.shape.cast,
                                      .order = exchange.shape.scale_order,
                                      .ring = takes_ring(spec),
                                      .rounds = work.rounds.count != 1,
                                      .tallies = work.phases.has(0) && world_.grid(call, rank).tallies,
                                      .compact = compact,
                                      .use = use,
                                      .payloads = !payload_bytes.empty()};
    return find_kernel({query, work}, {setup_.atomic_bytes, setup_.one_thread, setup_.lanes});
  };
  t.kernel = kernel();
  work.phases = detail::kWait;
  for (; work.rounds.current < work.rounds.count; ++work.rounds.current) t.later.push_back(kernel());
}

void AllReduceProgram::fill_combine(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.calls[call];
  const auto dispatch = static_cast<unsigned>(spec.of);
  const detail::ExchangeView exchange = exchange_view(dispatch, rank);
  const ExchangeShape& shape = exchange.shape;
  const std::size_t rows = shape.rows, row = shape.columns;
  const std::size_t tokens = ids_of(setup_.calls[dispatch], rank).size() / shape.top_k;
  Pieces pieces;
  const std::size_t input = pieces.take(rows * row * 2), output = pieces.take(tokens * row * 2),
                    apart = pieces.take(tokens * row * 2), weights = pieces.take(tokens * shape.top_k * 4);
  const std::size_t residual = spec.in_place ? output : apart;
  const Mapped at = map(make_tensors(call, rank, pieces.end));
  Tensors& t = tensors(call, rank);
  t.output_offset = at.skew + output;
  // The experts' results for the rows of a rank.
  const auto made = [&](unsigned owner, std::size_t i) {
    return static_cast<std::uint16_t>(element_bits(setup_.payload, DataType::bf16, call, owner, i));
  };
  for (std::size_t i = 0; i < rows * row; ++i) {
    const std::uint16_t bits = made(rank, i);
    at.put(t.initial, input + i * 2, &bits, 1);
  }
  const auto added = [&](std::size_t i) {
    return static_cast<std::uint16_t>(element_bits(setup_.payload, DataType::bf16, call, setup_.ranks + rank, i));
  };
  for (std::size_t i = 0; i < tokens * row; ++i) {
    const std::uint16_t bits = added(i);
    at.put(t.initial, residual + i * 2, &bits, 1);
  }
  for (std::size_t i = 0; setup_.exchange.weights_at_combine && i < tokens * shape.top_k; ++i) {
    const float weight = weight_of(routing_of(dispatch), rank, i);
    at.put(t.initial, weights + i * 4, &weight, 1);
  }
  t.expected = t.initial;
  const auto by_expert = arrivals(dispatch);
  const auto begins = beginnings(by_expert);
  const auto& homes = plan_of(world_).map().homes;
  for (std::uint32_t expert = 0; expert < by_expert.size(); ++expert) {
    for (std::size_t place = 0; homes[expert].rank == rank && place < by_expert[expert].size(); ++place) {
      const std::optional<std::size_t> at_expert = row_of(by_expert, expert, place, begins[expert]);
      if (!at_expert) continue;
      const std::size_t from = at.skew + input + *at_expert * row * 2;
      const auto* const made_row = reinterpret_cast<const std::byte*>(t.initial.data()) + from;
      add_to_round(call, rank, homes[expert].local, {from, Bytes(made_row, made_row + row * 2)});
    }
  }
  for (std::size_t i = 0; i < tokens * row; ++i) {
    std::vector<std::uint64_t> terms;
    for (unsigned from = 0; from < setup_.ranks; ++from) {
      float part = 0;
      bool sent = false, first = true;
      for (std::uint32_t expert = 0; expert < by_expert.size(); ++expert) {
        for (std::size_t place = 0; homes[expert].rank == from && place < by_expert[expert].size(); ++place) {
          const Arrival& arrival = by_expert[expert][place];
          if (arrival.rank != rank || arrival.token != i / row) continue;
          sent = true;
          const std::optional<std::size_t> at_expert = row_of(by_expert, expert, place, begins[expert]);
          const bool by_rank = detail::has_joint_rows(shape.layout);
          if (!at_expert || (by_rank && !first)) continue;
          const float value = Half::widen(made(from, *at_expert * row + i % row));
          const float weight = by_rank || !shape.weighted ? 1.0f : arrival.weight;
          part = first ? weight * value : detail::multiply_add(weight, value, part);
          first = false;
        }
      }
      if (sent) terms.push_back(Half::narrow(part));
    }
    if (spec.residual) terms.push_back(added(i));
    const auto sum = static_cast<std::uint16_t>(terms.empty() ? 0 : reduced(DataType::bf16, ReduceOp::sum, terms));
    at.put(t.expected, output + i * 2, &sum, 1);
  }
  detail::CombineWork work{.exchange = exchange,
                           .phases = spec.phases,
                           .senders = world_.grid(call, rank).senders,
                           .pairs = world_.grid(call, rank).pairs,
                           .input = at.memory + input,
                           .residual = spec.residual ? at.memory + residual : nullptr,
                           .output = at.memory + output,
                           .source_wait_ns = nullptr,
                           .dispatch_admitted = world_.local(0, rank)->admitted,
                           .late = {.given = reinterpret_cast<const float*>(at.memory + weights),
                                    .arrived = plan_of(world_).layout().late_weights,
                                    .tokens = static_cast<std::uint32_t>(tokens),
                                    .places = setup_.exchange.tokens},
                           .rounds = rounds_of(spec, shape.most_local)};
  const auto kernel = [&] {
    // The instance for many ranks serves three as well; one of the three takes it.
    const std::uint32_t ranks = setup_.ranks == 3 && rank == 0 ? detail::kMaxRanks : setup_.ranks;
    const detail::CombineQuery query{DataType::bf16, ranks, takes_ring(setup_.calls[dispatch]),
                                     setup_.exchange.weights_at_combine, work.rounds.count != 1};
    return find_kernel({query, work}, {setup_.atomic_bytes, setup_.one_thread, setup_.lanes});
  };
  t.kernel = kernel();
  while (++work.rounds.current < work.rounds.count) t.later.push_back(kernel());
  work.phases = detail::kWait;
  t.later.push_back(kernel());
  if (spec.phases == detail::kSend) hide_rounds_behind(t, 0, t.initial);
}

}  // namespace weft::sim
