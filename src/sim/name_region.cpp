// Names the contents of a region, for traces, and gives the rules that their stores must keep.
#include <fmt/format.h>

#include <algorithm>

#include "protocol/mail.hpp"
#include "sim/world.hpp"

namespace weft::sim {

using detail::RegionLayout;

bool World::is_mail(unsigned group) const {
  return std::ranges::any_of(
      setup_.calls, [=](const CallSetup& call) { return call.moving == Moving::messages && call.group == group; });
}

void World::name_region(Memory& memory, unsigned group, unsigned rank) const {
  const RegionLayout& layout = layouts_[group];
  const std::size_t region = region_offset(group, rank);
  // Overlapping calls, and calls that differ from the peers', break every rule; only their end counts.
  const bool no_rules = setup_.faults.unordered_rank >= 0 || setup_.faults.odd;
  if (setup_.has_exchange()) return exchange_->name_region(memory, group, rank, region, !no_rules);
  const std::size_t size = groups_[group].size();
  const std::string prefix =
      groups_.size() > 1 ? fmt::format("rank{}.group{}.", rank, group) : fmt::format("rank{}.", rank);
  const AreaKind slot = no_rules ? AreaKind::word : AreaKind::slot;
  const AreaKind header = no_rules ? AreaKind::word : AreaKind::header;
  const auto slots = [&](const std::string& name, std::uint64_t begin, std::uint64_t end, std::uint64_t packs) {
    memory.add_area({region + begin, region + end, rank, slot, [=](std::size_t offset) {
                       const std::size_t pack = offset / sizeof(Pack), slot = pack / packs;
                       return fmt::format("{}{}[bank {}][from {}][{}]+{}", prefix, name, slot / size, slot % size,
                                          pack % packs, offset % sizeof(Pack));
                     }});
  };
  const std::size_t rejections = layout.headers + detail::kBanks * size * sizeof(std::uint64_t);
  memory.add_area({region + layout.headers, region + rejections, rank, header, [=](std::size_t offset) {
                     return fmt::format("{}header[bank {}][from {}]", prefix, offset / 8 / size, offset / 8 % size);
                   }});
  // The number of calls that a peer has rejected. Only a rank that waits for the peer reads it.
  memory.add_area({region + rejections, region + layout.one_shot, rank, AreaKind::word,
                   [=](std::size_t offset) { return fmt::format("{}rejections[from {}]", prefix, offset / 8); }});
  if (is_mail(group)) {
    const auto mail = [&](const char* name, std::uint64_t begin, std::uint64_t end, std::uint64_t unit, AreaKind kind) {
      memory.add_area({region + begin, region + end, rank, kind, [=](std::size_t offset) {
                         return fmt::format("{}mail_{}[slot {}][peer {}]+{}", prefix, name, offset / unit / size,
                                            offset / unit % size, offset % unit);
                       }});
    };
    const std::uint64_t words = layout.pipeline_slots * size * sizeof(std::uint64_t);
    const char* const names[] = {"arrived", "credit", "taken", "filled"};
    for (std::uint64_t i = 0; i < detail::kMailWords; ++i) {
      const std::uint64_t begin = layout.pipeline_signals + i * words;
      const bool last = i + 1 == detail::kMailWords;
      // A rank's own numbers are nobody else's.
      mail(names[i], begin, last ? layout.pipeline_scatter : begin + words, sizeof(std::uint64_t),
           i < 2 ? header : AreaKind::word);
    }
    mail("chunk", layout.pipeline_scatter, layout.bytes, layout.pipeline_packs * sizeof(Pack), header);
    return;
  }
  slots("one_shot", layout.one_shot, layout.scatter, layout.one_shot_packs);
  slots("scatter", layout.scatter, layout.gather, layout.two_shot_packs);
  slots("gather", layout.gather, layout.pipeline_signals, layout.two_shot_packs);
  // Neither signals nor the packs that they announce are overwritten before the peer has read them.
  const auto pipelined = [&](const std::string& name, std::uint64_t begin, std::uint64_t end, std::uint64_t unit) {
    memory.add_area({region + begin, region + end, rank, header, [=](std::size_t offset) {
                       return fmt::format("{}pipelined_{}[slot {}][from {}]+{}", prefix, name, offset / unit / size,
                                          offset / unit % size, offset % unit);
                     }});
  };
  pipelined("signal", layout.pipeline_signals, layout.pipeline_scatter, sizeof(std::uint64_t));
  pipelined("scatter", layout.pipeline_scatter, layout.pipeline_gather, layout.pipeline_packs * sizeof(Pack));
  pipelined("gather", layout.pipeline_gather, layout.pipeline_credits, layout.pipeline_packs * sizeof(Pack));
  pipelined("credit", layout.pipeline_credits, layout.symmetric_signals, sizeof(std::uint64_t));
  pipelined("symmetric_signal", layout.symmetric_signals, layout.ready_flags, sizeof(std::uint64_t));
  // A rank with nothing to send reads no ready flag.
  memory.add_area({region + layout.ready_flags, region + (multimem_.packs != 0 ? multimem_.signals : layout.bytes),
                   rank, AreaKind::word,
                   [=](std::size_t offset) { return fmt::format("{}ready_flag[from {}]", prefix, offset / 8); }});
  if (multimem_.packs == 0) return;
  // A peer may be one call ahead, and its signal may replace an unread one: it tells the reader as much.
  memory.add_area({region + multimem_.signals, region + multimem_.stage, rank, AreaKind::word,
                   [=, chunks = multimem_.chunks](std::size_t offset) {
                     const std::size_t word = offset / sizeof(std::uint64_t);
                     return fmt::format("{}multimem_signal[hop {}][chunk {}][from {}]", prefix, word / size / chunks,
                                        word / size % chunks, word % size);
                   }});
  // The owner writes it and all ranks read it: only results show whether too early.
  memory.add_area({region + multimem_.stage, region + multimem_.gather, rank, AreaKind::word,
                   [=, packs = multimem_.packs](std::size_t offset) {
                     const std::size_t pack = offset / sizeof(Pack);
                     return fmt::format("{}multimem_stage[bank {}][{}]+{}", prefix, pack / packs, pack % packs,
                                        offset % sizeof(Pack));
                   }});
  memory.add_area({region + multimem_.gather, region + layout.bytes, rank, header, [=](std::size_t offset) {
                     return fmt::format("{}multimem_gather[{}]+{}", prefix, offset / sizeof(Pack),
                                        offset % sizeof(Pack));
                   }});
}

}  // namespace weft::sim
