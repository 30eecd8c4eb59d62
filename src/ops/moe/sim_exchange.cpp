#include "ops/moe/sim_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ops/moe/moe_routing.hpp"
#include "wire/line.hpp"

namespace weft::sim {

using detail::kBanks;
using detail::Line;

static_assert(kEmptyRecord == detail::kNone);

ExchangePlan::ExchangePlan(const Setup& setup)
    : ranks_(setup.ranks),
      unit_(static_cast<unsigned>(setup.atomic_bytes)),
      empty_columns_(setup.empty_columns),
      in_rounds_(std::ranges::any_of(setup.calls, [](const CallSetup& call) { return !call.rounds.empty(); })),
      repeats_(std::ranges::any_of(setup.calls, [](const CallSetup& call) { return call.again >= 0; })),
      map_(detail::map_experts(setup.ranks, setup.exchange)) {
  for (unsigned rank = 0; rank < ranks_; ++rank) {
    shapes_.push_back(detail::make_shape(ranks_, rank, setup.exchange, map_));
  }
  layout_ = detail::make_exchange_layout(ranks_, shapes_[0]);
}

std::shared_ptr<const Regions> exchange_regions(const Setup& setup) {
  return std::make_shared<ExchangePlan>(setup);
}

detail::RegionLayout ExchangePlan::channel(unsigned group) const {
  return detail::channel_layout(group == 0 ? layout_.dispatch_bytes : layout_.combine_bytes, layout_, shapes_[0]);
}

void ExchangePlan::name_region(Memory& memory, unsigned group, unsigned rank, std::size_t region, bool strict) const {
  const detail::ExchangeShape& shape = shapes_[0];
  // Entries of `bytes` bytes, `each` of them for one sender in one bank.
  const auto add = [&](const char* name, std::uint64_t begin, std::uint64_t end, AreaKind kind, std::uint64_t each,
                       std::uint64_t bytes) {
    memory.add_area({region + begin, region + end, rank, strict ? kind : AreaKind::word,
                     [=, prefix = fmt::format("rank{}.{}", rank, name), ranks = ranks_](std::size_t offset) {
                       const std::size_t entry = offset / bytes, slot = entry / each;
                       return fmt::format("{}[bank {}][from {}][{}]+{}", prefix, slot / ranks, slot % ranks,
                                          entry % each, offset % bytes);
                     }});
  };
  const std::uint64_t rejections = std::uint64_t{kBanks} * ranks_ * sizeof(std::uint64_t);
  const std::uint64_t row = std::uint64_t{shape.row_packs} * sizeof(Pack);
  const std::uint64_t result = std::uint64_t{shape.combine_packs} * sizeof(Pack);
  if (shape.ring_rows != 0) name_ring(memory, group, rank, region, strict);
  if (group != 0) {
    // Weights go to ranks that do not read them, too.
    // They have one bank, number 0.
    add("weight", layout_.late_weights, layout_.combine_bytes, AreaKind::word,
        std::uint64_t{shape.tokens} * shape.top_k, sizeof(std::uint64_t));
    add("combine.header", 0, rejections, AreaKind::header, 1, sizeof(std::uint64_t));
    add("combine.rejections", rejections, layout_.ring_signals, AreaKind::word, 1, sizeof(std::uint64_t));
    if (shape.slots != 0) add("result", layout_.results, layout_.ring_results, AreaKind::slot, shape.slots, result);
    return;
  }
  add("dispatch.header", 0, rejections, AreaKind::header, 1, sizeof(std::uint64_t));
  add("dispatch.rejections", rejections, layout_.ring_signals, AreaKind::word, 1, sizeof(std::uint64_t));
  // Nobody reads the counts that a dispatch made again renews.
  const AreaKind counts = repeats_ ? AreaKind::word : AreaKind::header;
  add("count", layout_.counts, layout_.row_counts, counts, shape.most_local + 1, sizeof(std::uint64_t));
  if (shape.layout == RowLayout::rank_compact) {
    add("row_count", layout_.row_counts, layout_.records, counts, ranks_, sizeof(std::uint64_t));
  }
  if (shape.slots == 0) return;
  add("record", layout_.records, layout_.rows, AreaKind::record, std::uint64_t{shape.slots} * shape.top_k,
      sizeof(Pack));
  add("row", layout_.rows, layout_.ring_rows, AreaKind::slot, shape.slots, row);
  if (!empty_columns_) ignore_empty_columns(memory, rank, region + layout_.rows);
}

// Signals and the rows that they announce are not overwritten before their receiver has read them.
void ExchangePlan::name_ring(Memory& memory, unsigned group, unsigned rank, std::size_t region, bool strict) const {
  const detail::ExchangeShape& shape = shapes_[0];
  const AreaKind read = strict ? AreaKind::header : AreaKind::word;
  const auto add = [&](const char* name, std::uint64_t begin, std::uint64_t end, AreaKind kind, std::uint64_t bytes) {
    memory.add_area({region + begin, region + end, rank, kind,
                     [=, prefix = fmt::format("rank{}.{}.ring_{}", rank, group == 0 ? "dispatch" : "combine", name),
                      ranks = ranks_, places = shape.ring_rows](std::size_t offset) {
                       const std::size_t entry = offset / bytes, place = entry / ranks;
                       return fmt::format("{}[bank {}][place {}][from {}]+{}", prefix, place / places, place % places,
                                          entry % ranks, offset % bytes);
                     }});
  };
  // In rounds a signal of dispatch comes twice: of a row's head, then of all of it.
  const AreaKind once = group == 0 && in_rounds_ ? AreaKind::word : read;
  add("signal", layout_.ring_signals, layout_.ring_credits, once, sizeof(std::uint64_t));
  const std::uint64_t credits_end = group == 0 ? layout_.counts : layout_.results;
  // Not every rank has a later row for the place, and looks at the credit.
  add("credit", layout_.ring_credits, credits_end, group == 0 ? read : AreaKind::word, sizeof(std::uint64_t));
  if (group == 0) {
    add("row", layout_.ring_rows, layout_.dispatch_bytes, read, std::uint64_t{shape.ring_stride} * sizeof(Pack));
  } else {
    add("result", layout_.ring_results, layout_.late_weights, read, std::uint64_t{shape.combine_packs} * sizeof(Pack));
  }
}

// Masks of empty columns would take most of the steps of a small row, and say nothing.
void ExchangePlan::ignore_empty_columns(Memory& memory, unsigned rank, std::size_t rows) const {
  using Wire = detail::Escaped<16>;
  const detail::ExchangeShape& shape = shapes_[0];
  if (shape.segments != 1 || shape.payload_packs >= Wire::kColumns) return;
  for (std::size_t i = 0; i < std::size_t{kBanks} * ranks_ * shape.slots; ++i) {
    const std::size_t masks = rows + (i * shape.row_packs + shape.payload_packs) * sizeof(Pack);
    memory.add_area({masks + shape.payload_packs * sizeof(std::uint32_t),
                     masks + Wire::kColumns * sizeof(std::uint32_t), rank, AreaKind::ignored,
                     [](std::size_t) { return std::string("mask of an empty column"); }});
  }
}

std::uint32_t ExchangePlan::renewed(unsigned group) const {
  const bool has = group == 0 || layout_.late_weights != layout_.combine_bytes;
  return has ? banks_renewed(group) * ranks_ * tokens_renewed(group) * shapes_[0].top_k : 0;
}
std::uint32_t ExchangePlan::tokens_renewed(unsigned group) const {
  return group == 0 ? shapes_[0].slots : shapes_[0].tokens;
}

// Calls `check(place, bank, most)` for each count that a dispatch made again renews: its byte offset, and the most
// calls that may pass until it is renewed. All ranks have as many experts.
template <class Check>
void ExchangePlan::each_renewed_count(Check check) const {
  const detail::ExchangeShape& shape = shapes_[0];
  const bool compact = shape.layout == RowLayout::rank_compact;
  for (std::uint32_t slot = 0; repeats_ && map_.even != 0 && slot < kBanks * ranks_; ++slot) {
    const auto put = [&](std::uint64_t begin, std::uint64_t word, std::uint32_t turns) {
      check(begin + word * sizeof(std::uint64_t), slot / ranks_, kBanks * turns);
    };
    for (std::uint32_t local = 0; local < shape.local; ++local)
      put(layout_.counts, std::uint64_t{slot} * (shape.most_local + 1) + local, shape.replicas);
    for (std::uint32_t rank = 0; compact && rank < ranks_; ++rank)
      put(layout_.row_counts, std::uint64_t{slot} * ranks_ + rank, ranks_);
  }
}

void ExchangePlan::age(std::byte* region, unsigned group, std::uint32_t epoch) const {
  const detail::ExchangeShape& shape = shapes_[0];
  const auto make_old = [&](std::uint64_t place, std::uint32_t bank, std::uint32_t) {
    const std::uint32_t last = epoch - 1 - ((epoch - 1) % kBanks != bank ? 1 : 0);
    *reinterpret_cast<std::uint64_t*>(region + place) = detail::FlaggedWord::encode(0, last);
  };
  if (group == 0) each_renewed_count(make_old);
  const std::uint32_t all = renewed(group), banks = banks_renewed(group), tokens = tokens_renewed(group);
  for (std::uint32_t i = 0; i < all; ++i) {
    const std::uint32_t token = i / shape.top_k % tokens, bank = i / (all / banks);
    std::uint32_t last = epoch - 1;
    while (last % banks != bank || last / banks % tokens != token) --last;
    if (group == 0) {
      reinterpret_cast<Pack*>(region + layout_.records)[i] = Line::encode<16>({{detail::kNone, 0, 0, 0}}, last);
    } else {
      reinterpret_cast<std::uint64_t*>(region + layout_.late_weights)[i] = detail::FlaggedWord::encode(0, last);
    }
  }
}

std::string ExchangePlan::check_ages(Memory& memory, const std::byte* region, unsigned group,
                                     std::uint32_t epoch) const {
  std::string old;
  const auto look = [&](std::uint64_t place, std::uint32_t, std::uint32_t most) {
    const Memory::Location at = memory.locate(region + place, std::min<unsigned>(sizeof(std::uint64_t), unit_));
    const std::uint32_t age = Line::flag(epoch - memory.newest(at).word[0]);
    if (age > most && old.empty()) old = fmt::format("{} is {} calls old", memory.name(at), age);
  };
  if (group == 0) each_renewed_count(look);
  if (!old.empty()) return old;
  const std::byte* const begin = region + (group == 0 ? layout_.records : layout_.late_weights);
  const unsigned bytes = group == 0 ? sizeof(Pack) : sizeof(std::uint64_t);
  for (std::uint32_t i = 0; i < renewed(group); ++i) {
    const Memory::Location at = memory.locate(begin + std::size_t{i} * bytes, std::min(bytes, unit_));
    const std::uint32_t flag = memory.newest(at).word[group == 0 ? 1 : 0];
    const std::uint32_t age = Line::flag(epoch - flag);
    if (age > banks_renewed(group) * tokens_renewed(group))
      return fmt::format("{} is {} calls old", memory.name(at), age);
  }
  return {};
}

}  // namespace weft::sim
