// The region for messages between two ranks. Every pair has slots of its own in each direction, and four numbers for
// each slot: how often it was filled and emptied. So ranks need not make the same calls: a pair's messages follow from
// nothing but the pair's own messages before.
//
// A sender fills a slot if its last contents were taken: it writes a chunk, counts on `filled`, and tells the receiver
// by `arrived`. The receiver takes the chunk, counts on `taken`, and gives the slot back by `credit`. Numbers that
// travel carry the message's name. A send ends when its last chunk is in a slot; the next one waits for slots.
#pragma once

#include <cstdint>

#include "protocol/channel.hpp"

namespace weft::detail {

enum class MailWord : std::uint8_t { arrived, credit, taken, filled };  // the last two are the rank's own
inline constexpr std::uint64_t kMailWords = 4;

// A layout without the areas of collectives. pipeline_signals: [MailWord][slot][peer] words, number << 32 | name, and
// behind them [block] words of the rank itself: the last call that the block has done its part of. pipeline_scatter:
// [slot][sender][packs].
constexpr RegionLayout mail_layout(std::uint32_t size, PipelineShape shape) {
  RegionLayout layout = make_layout(size, 0, 0, shape, 0);
  const std::uint64_t words = (kMailWords * shape.slots * size + kMaxBlocks) * sizeof(std::uint64_t);
  const std::uint64_t data = shape.slots * size * shape.packs * sizeof(Pack);
  layout.pipeline_scatter = layout.pipeline_signals + (words + 255) / 256 * 256;
  layout.bytes = layout.pipeline_scatter + (data + 255) / 256 * 256;
  layout.pipeline_gather = layout.pipeline_credits = layout.symmetric_signals = layout.ready_flags = layout.bytes;
  return layout;
}

// As each_old_words().
template <class Visit>
constexpr void each_old_mail_word(const RegionLayout& layout, std::uint32_t size, Visit visit) {
  visit(layout.headers, (kBanks + 1) * std::uint64_t{size});
  visit(layout.pipeline_signals, kMailWords * layout.pipeline_slots * size + kMaxBlocks);
}

// `owner`: whose region; `peer`: the other rank of the pair.
WEFT_FN std::uint64_t* mail_word(const Call& call, MailWord word, std::uint32_t owner, std::uint64_t slot,
                                 std::uint32_t peer) {
  const std::uint64_t place = static_cast<std::uint64_t>(word) * call.layout.pipeline_slots + slot;
  return reinterpret_cast<std::uint64_t*>(region_of(call, owner) + call.layout.pipeline_signals) + place * call.size +
         peer;
}
WEFT_FN std::uint64_t* mail_done_word(const Call& call, std::uint32_t block) {
  auto* const words = reinterpret_cast<std::uint64_t*>(region_of(call, call.rank) + call.layout.pipeline_signals);
  return words + kMailWords * call.layout.pipeline_slots * call.size + block;
}
WEFT_FN Pack* mail_slot(const Call& call, std::uint32_t owner, std::uint64_t slot, std::uint32_t sender) {
  return reinterpret_cast<Pack*>(region_of(call, owner) + call.layout.pipeline_scatter) +
         (slot * call.size + sender) * call.layout.pipeline_packs;
}

}  // namespace weft::detail
