#include "comm/call.hpp"

#include "comm/choices.hpp"

namespace weft::detail {

void check_rows(std::size_t rows, const char* name, std::size_t width) {
  constexpr std::size_t most = std::size_t{1} << 40;
  require(rows <= most, "rows: {} is not between 0 and 2^40", rows);
  require(width <= most, "{}: {} is not between 0 and 2^40", name, width);
}

void check_launch(const GroupState& group, const Launch& launch, int most_threads) {
  const int most = group.communicator().fabric().max_blocks();
  require(launch.blocks == 0 || (launch.blocks >= 2 && launch.blocks <= most),
          "launch.blocks: {} is not 0 or between 2 and {}", launch.blocks, most);
  const int threads = launch.threads;
  require(threads == 0 || (threads >= 32 && threads <= most_threads && threads % 32 == 0),
          "launch.threads: {} is not 0 or a multiple of 32 between 32 and {}", threads, most_threads);
}

void check_extent(const GroupState& group, const Extent& extent) {
  constexpr std::size_t most = std::size_t{1} << 46;
  require(extent.stride >= extent.row_bytes, "{}_stride: {} bytes from row to row are less than the {} bytes of a row",
          extent.name, extent.stride, extent.row_bytes);
  require(extent.stride <= most && extent.rows <= most / (extent.stride + 1),
          "{}: {} rows, {} bytes apart, are more than 2^46 bytes", extent.name, extent.rows, extent.stride);
  if (extent.bytes() == 0) return;
  require(extent.data != nullptr, "{}: null, with {} rows of {} bytes", extent.name, extent.rows, extent.row_bytes);
  require(reinterpret_cast<std::uintptr_t>(extent.data) % extent.alignment == 0,
          "{}: {} is not aligned to the {} bytes of its elements", extent.name, extent.data, extent.alignment);
  group.communicator().fabric().check_buffer(extent.name, extent.data);
}

void check_overlap(const Extent& part, const Extent& whole, std::size_t place) {
  const auto a = reinterpret_cast<std::uintptr_t>(part.data), b = reinterpret_cast<std::uintptr_t>(whole.data);
  if (part.bytes() == 0 || whole.bytes() == 0 || a + part.bytes() <= b || b + whole.bytes() <= a) return;
  const std::size_t own = place != kNowhere ? place * part.rows * whole.stride : 0;
  const bool in_place = place != kNowhere && a == b + own && part.stride == whole.stride;
  if (in_place) return;
  const std::string own_part = fmt::format(
      ", or this rank's own part of it, which begins {} bytes behind its begin and has {} bytes from row to row", own,
      whole.stride);
  throw Error(
      Errc::invalid_argument,
      fmt::format("{}: overlaps {} ({} bytes at {}, {} from row to row; {} bytes at {}): must be apart from it{}",
                  part.name, whole.name, part.bytes(), part.data, part.stride, whole.bytes(), whole.data,
                  place != kNowhere ? own_part : ""));
}

void check_counts(const GroupState& group, const Counts& counts) {
  check_choice("counts.split", counts.split, Split::ceil);
  check_choice("counts.slot", counts.slot, SlotKind::fixed);
  const std::size_t least = counts.slot == SlotKind::aligned ? 1 : 0;
  require(counts.slot_rows >= least && counts.slot_rows <= INT32_MAX, "counts.slot_rows: {} is not between {} and {}",
          counts.slot_rows, least, INT32_MAX);
  require(counts.rows != nullptr, "counts.rows: null");
  require(reinterpret_cast<std::uintptr_t>(counts.rows) % sizeof(std::int32_t) == 0,
          "counts.rows: {} is not aligned to 4 bytes", static_cast<const void*>(counts.rows));
  group.communicator().fabric().check_buffer("counts.rows", counts.rows);
}

CountedShares counted_shares(const GroupState& group, const Counts& counts, bool own_padded, std::size_t own_rows,
                             std::size_t whole_rows) {
  return {.counts = counts.rows,
          .ranks = static_cast<std::uint32_t>(group.size()),
          .split = counts.split,
          .slot = counts.slot,
          .slot_rows = static_cast<std::uint32_t>(counts.slot_rows),
          .own_padded = own_padded,
          .own_rows = own_rows,
          .whole_rows = whole_rows};
}

std::string describe(const Counts& counts) {
  const bool sized = counts.slot == SlotKind::aligned || counts.slot == SlotKind::fixed;
  return fmt::format("{} slots{}{}", name(counts.slot), sized ? fmt::format(" of {}", counts.slot_rows) : "",
                     counts.split == Split::none ? "" : fmt::format(", split {}", name(counts.split)));
}

std::string last_calls(std::string_view whose, const std::vector<CallRecord>& calls) {
  std::string text = fmt::format("\nlast calls of this rank on {}:", whose);
  for (const CallRecord& call : calls) text += fmt::format("\n  {} {}", call.number, call.operation);
  return text;
}

void check_acquired(const GroupState& group, const char* operation) {
  if (!group.communicator().released()) return;
  throw Error(Errc::released, fmt::format("{}: the communicator's memory is released; call acquire() first{}",
                                          operation, last_calls("this group", group.recent_calls())));
}

void check_ready(const Group& handle, const char* operation) {
  const GroupState& group = handle.state();
  check_acquired(group, operation);
  handle.check();
  if (!group.direct()) {
    throw Error(Errc::unsupported, fmt::format("{}: needs ranks that reach each other's memory, and these do not ({})",
                                               operation, group.communicator().fabric().description()));
  }
}

void make_call(const Group& handle, const NamedCall& call) {
  GroupState& group = handle.state();
  group.remember(call.name);
  run_or_keep(handle, {.call = group.call(call.name.fingerprint),
                       .operation = call.operation,
                       .blocks = call.blocks,
                       .threads = call.threads,
                       .stream = call.stream});
  if (handle.device() == Device::cpu) handle.check();
}

}  // namespace weft::detail
