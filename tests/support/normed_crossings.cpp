#include "support/normed_crossings.hpp"

#include <algorithm>
#include <random>
#include <stdexcept>

#include "support/bytes.hpp"
#include "support/crossing_cases.hpp"
#include "support/move_mixes.hpp"
#include "support/ragged_cases.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kHalf = 2;

// The places of rows: each rank's shard in the tensor of all slots, and in that of its group's rows.
struct ShardLayout {
  std::vector<oracle::Place> places;
  std::size_t group_ranks;

  std::size_t first_of(std::size_t rank) const { return rank / group_ranks * group_ranks; }
  std::size_t row_in_group(std::size_t rank) const {
    std::size_t rows = 0;
    for (std::size_t other = first_of(rank); other < rank; ++other) rows += places[other].rows;
    return rows;
  }
  std::size_t rows_of_group(std::size_t rank) const {
    const std::size_t last = first_of(rank) + group_ranks - 1;
    return row_in_group(last) + places[last].rows;
  }
  std::size_t slots_of_group(std::size_t rank) const {
    std::size_t rows = 0;
    for (std::size_t other = first_of(rank); other < first_of(rank) + group_ranks; ++other) rows += places[other].slot;
    return rows;
  }
};
ShardLayout layout_of(const NormedCrossing& c, int ranks) {
  std::vector<std::size_t> rows(c.counts.begin(), c.counts.end());
  if (c.sharding != Sharding::none) {
    const std::size_t shared = rows.at(0), n = static_cast<std::size_t>(ranks);
    rows.resize(n);
    for (std::size_t rank = 0; rank < n; ++rank) rows[rank] = oracle::part_of(shared, n, rank, c.sharding).size;
  }
  return {oracle::places_of(rows, c.padding, c.slot_rows, c.slots), static_cast<std::size_t>(c.group_ranks)};
}

// The input of a rank: rows of its group, or of all ranks without their pads.
std::size_t input_rows_of(const NormedCrossing& c, const ShardLayout& layout, std::size_t rank) {
  if (c.gathers) return layout.rows_of_group(rank);
  std::size_t rows = 0;
  for (const oracle::Place& place : layout.places) rows += place.rows;
  return rows;
}
// The norm of an owner's shard. Every rank's residual has a seed of its own.
NormResult shard_of(const NormedCrossing& c, const ShardLayout& layout, std::size_t owner, int ranks) {
  Norm norm = c.norm;
  norm.tokens = layout.places[owner].rows;
  const std::size_t first = c.gathers ? layout.first_of(owner) : 0;
  const std::size_t end = c.gathers ? first + layout.group_ranks : static_cast<std::size_t>(ranks);
  std::size_t begin = layout.row_in_group(owner);
  if (!c.gathers) {
    begin = 0;
    for (std::size_t rank = 0; rank < owner; ++rank) begin += layout.places[rank].rows;
  }
  const auto row = static_cast<std::ptrdiff_t>(norm.hidden * kHalf);
  std::vector<Bytes> parts;
  for (std::size_t rank = first; rank < end; ++rank) {
    const Bytes input = data_of(norm, 0, static_cast<int>(rank), input_rows_of(c, layout, rank), norm.fill);
    const auto from = input.begin() + static_cast<std::ptrdiff_t>(begin) * row;
    parts.emplace_back(from, from + static_cast<std::ptrdiff_t>(norm.tokens) * row);
  }
  const Bytes residual = data_of(norm, 1, static_cast<int>(owner), norm.tokens, norm.fill);
  return norm_of(norm, reduce(norm.type, ReduceOp::sum, parts), residual, gamma_of(norm), 0.037f);
}

}  // namespace

std::string describe(const NormedCrossing& c) {
  return fmt::format("{} in groups of {}, counts {} shared {}, {} slots of {}, {} spare rows: {}",
                     c.gathers ? "gather" : "scatter", c.group_ranks, fmt::join(c.counts, " "), name(c.sharding),
                     name(c.padding), c.slot_rows, c.spare_rows, describe(c.norm));
}

RankNormedCrossing prepare(const NormedCrossing& c, int ranks, int rank) {
  const ShardLayout layout = layout_of(c, ranks);
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t whole = oracle::rows_of(layout.places), spare = c.spare_rows;
  RankNormedCrossing made{.of = c,
                          .input_rows = (c.gathers ? layout.rows_of_group(me) : whole) + spare,
                          .shard_rows = layout.places[me].rows + spare,
                          .output_rows = (c.gathers ? whole : layout.slots_of_group(me)) + spare,
                          .memory = {},
                          .counts = {}};
  Norm& norm = made.of.norm;
  norm.tokens = made.output_rows;
  const std::size_t row = norm.hidden * kHalf;
  const auto stride = [&](std::size_t gap) { return (norm.hidden + gap) * kHalf; };
  const auto put = [&](Bytes& memory, std::size_t at, std::size_t row_bytes, std::size_t row_stride,
                       std::span<const std::byte> rows) {
    Bytes shifted(memory.begin() + static_cast<std::ptrdiff_t>(at * row_stride), memory.end());
    put_rows(shifted, row_bytes, row_stride, rows);
    copy_bytes(shifted, std::span(memory).subspan(at * row_stride));
  };

  // Rows behind the input's last one, and its pads, stay NaN.
  NormMemory& input = made.memory[kInput] = memory_of(made.input_rows * stride(norm.input_gap));
  const Bytes rows = data_of(norm, 0, rank, input_rows_of(c, layout, me), norm.fill);
  if (c.gathers) {
    put(input.before, 0, row, stride(norm.input_gap), rows);
  } else {
    std::size_t begin = 0;
    for (const oracle::Place& place : layout.places) {
      put(input.before, place.begin, row, stride(norm.input_gap),
          std::span(rows).subspan(begin * row, place.rows * row));
      begin += place.rows;
    }
  }
  input.after = input.before;
  made.memory[kResidualOutput] = memory_of(made.shard_rows * stride(norm.residual_output_gap));
  if (norm.residual) {
    NormMemory& of = made.memory[norm.residual_in_place ? kResidualOutput : kResidual];
    const std::size_t residual_stride = stride(norm.residual_in_place ? norm.residual_output_gap : norm.residual_gap);
    if (!norm.residual_in_place) of = memory_of(made.shard_rows * residual_stride);
    put_rows(of.before, row, residual_stride, data_of(norm, 1, rank, layout.places[me].rows, norm.fill));
    of.after = of.before;
  }
  const Bytes gamma = gamma_of(norm);
  made.memory[kGamma] = memory_of(gamma.size());
  put_rows(made.memory[kGamma].before, gamma.size(), gamma.size(), gamma);
  made.memory[kGamma].after = made.memory[kGamma].before;
  if (norm.output) made.memory[kOutput] = memory_of(made.output_rows * stride(norm.output_gap));
  const std::size_t groups = groups_of(norm), fp8_stride = norm.hidden + norm.fp8_gap, scale = scale_bytes(norm);
  const bool makes_scales = norm.fp8 && norm.scaling != Fp8Scaling::fixed;
  if (norm.fp8) made.memory[kFp8] = memory_of(made.output_rows * fp8_stride);
  if (norm.fp8 && !makes_scales) {
    const float fixed = 0.037f;
    made.memory[kScale] = memory_of(4);
    put_rows(made.memory[kScale].before, 4, 4, std::as_bytes(std::span(&fixed, 1)));
    made.memory[kScale].after = made.memory[kScale].before;
  }
  if (makes_scales) made.memory[kScales] = memory_of((made.output_rows + 3) / 4 * 4 * groups * scale);

  const auto put_scales = [&](std::size_t token, std::span<const std::byte> scales) {
    for (std::size_t group = 0; group < groups; ++group) {
      const std::size_t at = token * scale_token_stride(norm) + group * scale_group_stride(norm);
      std::ranges::copy(scales.subspan(group * scale, scale),
                        made.memory[kScales].after.begin() + static_cast<std::ptrdiff_t>(kGuard + at * scale));
    }
  };
  const auto put_shard = [&](std::size_t at, std::size_t count, const NormResult& result) {
    if (norm.output) put(made.memory[kOutput].after, at, row, stride(norm.output_gap), bytes_of(result.output));
    if (norm.fp8) put(made.memory[kFp8].after, at, norm.hidden, fp8_stride, result.fp8);
    for (std::size_t i = 0; makes_scales && i < count; ++i)
      put_scales(at + i, std::span(result.scales).subspan(i * groups * scale, groups * scale));
  };
  for (std::size_t owner = 0; owner < layout.places.size(); ++owner) {
    const oracle::Place& place = layout.places[owner];
    const bool mine = owner == me;
    if (!c.gathers && layout.first_of(owner) != layout.first_of(me)) continue;
    const NormResult result = shard_of(c, layout, owner, ranks);
    put_shard(c.gathers ? place.begin : layout.row_in_group(owner), place.rows, result);
    if (mine)
      put_rows(made.memory[kResidualOutput].after, row, stride(norm.residual_output_gap), bytes_of(result.residual));
    // Pads: behind each shard, or behind the group's rows.
    const std::size_t pads = place.slot - place.rows;
    const NormResult zeros{.residual = {},
                           .output = std::vector<std::uint32_t>(pads * norm.hidden),
                           .fp8 = Bytes(pads * norm.hidden),
                           .scales = Bytes(pads * groups * scale)};
    if (c.gathers) put_shard(place.begin + place.rows, pads, zeros);
  }
  if (!c.gathers) {
    const std::size_t filled = layout.rows_of_group(me), pads = layout.slots_of_group(me) - filled;
    put_shard(filled, pads,
              {.residual = {},
               .output = std::vector<std::uint32_t>(pads * norm.hidden),
               .fp8 = Bytes(pads * norm.hidden),
               .scales = Bytes(pads * groups * scale)});
  }
  std::vector<std::int32_t> numbers = c.counts;
  numbers.insert(numbers.end(), c.slots.begin(), c.slots.end());
  made.counts = memory_of(numbers.size() * 4);
  put_rows(made.counts.before, numbers.size() * 4, numbers.size() * 4, std::as_bytes(std::span(numbers)));
  made.counts.after = made.counts.before;
  return made;
}

void issue(const Group& group, const RankNormedCrossing& prepared,
           const std::function<std::byte*(std::size_t)>& address, Stream stream) {
  const NormedCrossing& c = prepared.of;
  const AllReduceRmsNormArgs norm =
      arguments({.norm = c.norm, .memory = {}}, [&](NormTensor tensor) { return address(tensor); });
  const auto* const numbers = reinterpret_cast<const std::int32_t*>(
      c.counts_on_host ? prepared.counts.before.data() + kGuard : address(kNormTensors) + kGuard);
  CrossingRmsNormArgs args{.input = norm.input,
                           .residual = norm.residual,
                           .residual_output = norm.residual_output,
                           .gamma = norm.gamma,
                           .output = norm.output,
                           .fp8 = norm.fp8,
                           .hidden = norm.hidden,
                           .input_stride = norm.input_stride,
                           .residual_stride = norm.residual_stride,
                           .residual_output_stride = norm.residual_output_stride,
                           .output_stride = norm.output_stride,
                           .type = norm.type,
                           .epsilon = norm.epsilon,
                           .gamma_plus_one = norm.gamma_plus_one,
                           .gamma_f32 = norm.gamma_f32,
                           .group_ranks = static_cast<std::size_t>(c.group_ranks),
                           .counts = {.rows = numbers,
                                      .sharding = c.sharding,
                                      .padding = c.padding,
                                      .slot_rows = c.slot_rows,
                                      .slots = c.padding == Padding::per_rank ? numbers + c.counts.size() : nullptr,
                                      .on_host = c.counts_on_host},
                           .input_rows = prepared.input_rows,
                           .shard_rows = prepared.shard_rows,
                           .output_rows = prepared.output_rows,
                           .stream = stream,
                           .tag = norm.tag,
                           .launch = norm.launch};
  // Tensors without rows are null, or another address if null would say that no rank has them.
  const auto instead = [&](auto*& tensor) {
    if (tensor != nullptr) tensor = const_cast<void*>(args.gamma);
  };
  if (prepared.input_rows == 0) args.input = nullptr;
  if (prepared.shard_rows == 0) instead(args.residual), args.residual_output = nullptr;
  if (prepared.output_rows == 0) instead(args.output), instead(args.fp8.rows), args.fp8.scales = nullptr;
  (c.gathers ? gather_sums_rms_norm : scatter_sums_rms_norm)(group, args);
}

void expect_after(const RankNormedCrossing& prepared, std::size_t i, std::span<const std::byte> got) {
  const Bytes& wanted = prepared.place(i).after;
  const std::size_t at = first_difference(wanted, got);
  if (at == wanted.size()) return;
  constexpr const char* names[] = {"input", "residual", "residual_output", "output", "gamma",
                                   "fp8",   "scale",    "scales",          "counts"};
  throw std::runtime_error(fmt::format("{}: byte {} of {} is {:#x}, not {:#x}", describe(prepared.of),
                                       static_cast<std::ptrdiff_t>(at) - static_cast<std::ptrdiff_t>(kGuard), names[i],
                                       static_cast<unsigned>(got[at]), static_cast<unsigned>(wanted[at])));
}

HostNormedCrossing::HostNormedCrossing(const RankNormedCrossing& largest) : largest_(largest) {
  for (std::size_t i = 0; i < largest.places(); ++i) storage_[i] = AlignedBytes(largest.place(i).before.size());
  fill(largest);
}
void HostNormedCrossing::fill(const RankNormedCrossing& next) {
  for (std::size_t i = 0; i < next.places(); ++i) copy_bytes(next.place(i).before, storage(i));
}
void HostNormedCrossing::call(const Group& group) {
  issue(
      group, largest_, [&](std::size_t i) { return storage(i).data(); }, nullptr);
}
void HostNormedCrossing::check(const RankNormedCrossing& next) {
  for (std::size_t i = 0; i < next.places(); ++i) expect_after(next, i, storage(i).first(next.place(i).after.size()));
}

void run_on_cpu_rank(const Group& group, const NormedCrossing& c) {
  const RankNormedCrossing prepared = prepare(c, group.size(), group.rank());
  HostNormedCrossing host(prepared);
  host.call(group);
  host.check(prepared);
}

std::vector<NormedCrossing> normed_crossings_of_every_shape(int ranks) {
  std::vector<NormedCrossing> all;
  // The mixed norms' outputs, casts, fills, gaps and widths.
  std::vector<Norm> norms = mixed_norms(97, static_cast<std::uint32_t>(40 + ranks));
  const auto add = [&](bool gathers, int group_ranks, const std::vector<std::int32_t>& counts, Sharding sharding) {
    for (const SlotChoice& padding : kSlots) {
      const std::size_t number = all.size();
      Norm norm = norms[number % norms.size()];
      norm.output_in_place = false;
      norm.seed += static_cast<std::uint32_t>(number);
      const Move slots = with_slots({.kind = Kind::gather_sums,
                                     .counts = counts,
                                     .sharding = sharding,
                                     .padding = padding.kind,
                                     .slot_rows = padding.rows,
                                     .group_ranks = group_ranks,
                                     .seed = norm.seed},
                                    ranks);
      all.push_back({.gathers = gathers,
                     .counts = counts,
                     .sharding = sharding,
                     .group_ranks = group_ranks,
                     .padding = padding.kind,
                     .slot_rows = slots.slot_rows,
                     .slots = slots.slots,
                     .spare_rows = number % 3,
                     .counts_on_host = number % 7 == 0,  // of every kind of slot
                     .norm = norm});
    }
  };
  for (const bool gathers : {true, false}) {
    for (int group_ranks = 1; group_ranks <= ranks; ++group_ranks) {
      if (ranks % group_ranks != 0) continue;
      for (const auto& counts : shapes_of(ranks, group_ranks)) add(gathers, group_ranks, counts, Sharding::none);
    }
    // Shards of the same rows: the scatter is a reduce-scatter with a norm, whose output is the shard alone.
    for (const Sharding sharding : {Sharding::balanced, Sharding::ceil})
      for (const std::int32_t rows : {0, 1, ranks + 1, 3 * ranks + 2}) add(gathers, 1, {rows}, sharding);
  }
  return all;
}

std::vector<NormedCrossing> mixed_normed_crossings(int ranks, std::size_t count) {
  std::vector<NormedCrossing> all = normed_crossings_of_every_shape(ranks);
  std::erase_if(all, [](const NormedCrossing& c) { return c.norm.hidden > 1024; });
  std::mt19937 random(static_cast<std::uint32_t>(ranks));
  std::shuffle(all.begin(), all.end(), random);
  all.resize(std::min(count, all.size()));
  return all;
}

std::vector<NormedCrossing> long_normed_crossings(int ranks, std::int32_t rows) {
  std::vector<NormedCrossing> all;
  for (const bool gathers : {true, false}) {
    for (int group_ranks = 1; group_ranks <= ranks; ++group_ranks) {
      if (ranks % group_ranks != 0) continue;
      std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks), rows);
      counts[all.size() % counts.size()] = 1;
      const auto seed = static_cast<std::uint32_t>(all.size());
      const NormedCrossing call{
          .gathers = gathers, .counts = counts, .group_ranks = group_ranks, .padding = Padding::max};
      for (const Norm& norm : {Norm{.hidden = 7168, .residual_in_place = true, .seed = seed},
                               Norm{.hidden = 4096, .gamma_f32 = true, .fp8 = seed % 2 == 0, .seed = seed},
                               Norm{.hidden = 7168,
                               .output = seed % 2 == 0,
                               .fp8 = true,
                               .scaling = Fp8Scaling::per_128_columns,
                               .scale_type = seed % 3 == 0 ? ScaleType::ue8m0 : ScaleType::f32,
                               .floor = 1.0f / 512,
                               .scales_by_columns = true,
                               .seed = seed},
                               Norm{.hidden = 2048, .type = DataType::f16, .output = false, .fp8 = true, .seed = seed}})
        all.emplace_back(call).norm = norm;
    }
  }
  return all;
}

}  // namespace weft::test
