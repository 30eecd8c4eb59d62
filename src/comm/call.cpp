#include "comm/call.hpp"

#include "comm/rejection_kernels.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t kMostRows = std::size_t{1} << 40;  // and elements of one: what they make stays far from overflow

// What check_overlap says of the place that would do.
std::string place_in(const Extent& whole, std::size_t place) {
  if (place == kNowhere) return "";
  const std::string begin =
      place == kAnyRow ? "with one of its rows" : fmt::format("{} bytes behind its begin", place * whole.stride);
  return fmt::format(", or this rank's own part of it, which begins {} and has {} bytes from row to row", begin,
                     whole.stride);
}

}  // namespace

void check_size(const char* name, std::size_t size) {
  require(size <= kMostRows, "{}: {} is not between 0 and 2^40", name, size);
}

void check_launch(const GroupState& group, const Launch& launch, int most_threads) {
  const int most = group.communicator().fabric().max_blocks();
  const bool fits = launch.blocks == 0 || (launch.blocks >= 2 && launch.blocks <= most);
  require(fits || most > 2, "launch.blocks: {} is not 0 or 2", launch.blocks);
  require(fits, "launch.blocks: {} is not 0 or between 2 and {}", launch.blocks, most);
  const int threads = launch.threads;
  require(threads == 0 || (threads >= 32 && threads <= most_threads && threads % 32 == 0),
          "launch.threads: {} is not 0 or a multiple of 32 between 32 and {}", threads, most_threads);
}

namespace {

// Columns of one matrix: rows are equally far apart, as a single one is from whatever there is, and the columns of one
// end before the other's begin.
bool have_one_stride(const Extent& one, const Extent& other) {
  return one.rows == 1 || other.rows == 1 || one.stride == other.stride;
}
bool are_columns_side_by_side(const Extent& one, const Extent& other) {
  if (!have_one_stride(one, other) || (one.rows == 1 && other.rows == 1)) return false;
  const auto a = reinterpret_cast<std::uintptr_t>(one.data), b = reinterpret_cast<std::uintptr_t>(other.data);
  const std::uintptr_t stride = one.rows == 1 ? other.stride : one.stride;
  const std::uintptr_t behind = b >= a ? (b - a) % stride : (stride - (a - b) % stride) % stride;
  return behind >= one.row_bytes && behind + other.row_bytes <= stride;
}

}  // namespace

Extent extent_of(const RowsArgument& rows) {
  const std::size_t stride = rows.stride != 0 ? rows.stride : rows.width;
  require(stride <= kMostRows, "{}_stride: {} is not between 0 and 2^40", rows.name, stride);
  return {rows.name, rows.data, rows.rows, rows.width * rows.element, stride * rows.element, rows.element};
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
  check_buffer(group, extent.name, extent.data);
}

void check_overlap(const Extent& part, const Extent& whole, std::size_t place) {
  const auto a = reinterpret_cast<std::uintptr_t>(part.data), b = reinterpret_cast<std::uintptr_t>(whole.data);
  if (part.bytes() == 0 || whole.bytes() == 0 || a + part.bytes() <= b || b + whole.bytes() <= a) return;
  if (are_columns_side_by_side(part, whole)) return;
  const bool in_place =
      place == kAnyRow ? a >= b && (a - b) % whole.stride == 0 : place != kNowhere && a == b + place * whole.stride;
  if (in_place && have_one_stride(part, whole)) return;
  throw Error(
      Errc::invalid_argument,
      fmt::format("{}: overlaps {} ({} bytes at {}, {} from row to row; {} bytes at {}): must be apart from it{}",
                  part.name, whole.name, part.bytes(), part.data, part.stride, whole.bytes(), whole.data,
                  place_in(whole, place)));
}

Group held(const Group& caller) {
  return caller;
}

std::string last_calls(std::string_view whose, const std::vector<CallRecord>& calls) {
  std::string text = fmt::format("\nlast calls of this rank on {}:", whose);
  // Calls that are all alike are a line.
  for (std::size_t begin = 0, end = 0; begin < calls.size(); begin = end) {
    while (end < calls.size() && calls[end].operation == calls[begin].operation &&
           calls[end].number == calls[begin].number + (end - begin))
      ++end;
    text += end - begin == 1 ? fmt::format("\n  {} {}", calls[begin].number, calls[begin].operation)
                             : fmt::format("\n  {} … {} {} (× {})", calls[begin].number, calls[end - 1].number,
                                           calls[begin].operation, end - begin);
  }
  return text;
}

void tell_rejection(GroupState& group, Stream stream, const Error& error) noexcept try {
  const CommunicatorState& communicator = group.communicator();
  communicator.check_process();  // a child of fork() tells nobody anything
  Fabric& fabric = communicator.fabric();
  if (group.size() == 1 || !group.direct() || communicator.released() || Capture::current() != nullptr) return;
  fabric.check_stream(stream);
  if (fabric.keep_alive(stream, communicator.shared_fabric())) return;
  const std::string_view reason = error.what();
  const KernelFor<NoWork> kernel = find_kernel(RejectionQuery{});
  group.publish({kRejectedCall, fmt::format("a call that it rejected ({})", reason.substr(0, reason.find('\n')))});
  static_cast<void>(fabric.run({.call = group.call(kRejectedCall),
                                .bound = kernel.with({}),
                                .blocks = 1,
                                .threads = kernel.kernel->most_threads,
                                .stream = stream}));
} catch (const std::exception&) {
  // What is wrong with this rank's call has been found already, and its caller learns of that.
}

void check_buffer(const GroupState& group, const char* name, const void* data) {
  // Symmetric memory is nowhere then, and the call ends with Errc::released whatever it is given.
  if (group.communicator().released()) return;
  group.communicator().fabric().check_buffer(name, data);
}

void check_acquired(const GroupState& group, const char* operation) {
  if (!group.communicator().released()) return;
  throw Error(Errc::released, fmt::format("{}: the communicator's memory is released; call acquire() first{}",
                                          operation, last_calls("this group", group.recent_calls())));
}

void check_alive(const Group& handle, const char* operation) {
  check_acquired(handle.state(), operation);
  check_not_ended(handle);
}

void check_not_ended(const Group& handle) {
  handle.state().communicator().check_ending(handle.state());
}

void check_ready(const Group& handle, const char* operation, std::string_view hint) {
  check_alive(handle, operation);
  const GroupState& group = handle.state();
  if (group.direct()) return;
  throw Error(Errc::unsupported, fmt::format("{}: needs ranks that reach each other's memory, and these do not ({}){}",
                                             operation, group.communicator().fabric().description(), hint));
}

void check_side_by_side(const GroupState& group, const char* operation, const Extent& extent) {
  if (extent.rows <= 1 || extent.row_bytes == 0 || extent.stride == extent.row_bytes) return;
  throw Error(Errc::unsupported,
              fmt::format("{}: {}_stride: {} bytes from row to row are not the {} of a row: rows must lie side by side "
                          "where NCCL moves them, as here ({})",
                          operation, extent.name, extent.stride, extent.row_bytes,
                          group.communicator().fabric().description()));
}

void make_call(const Group& handle, const NamedCall& call) {
  GroupState& group = handle.state();
  group.remember(call.name);
  run_or_keep(handle, {.call = group.call(call.name.fingerprint),
                       .bound = call.bound,
                       .blocks = call.blocks,
                       .threads = call.threads,
                       .stream = call.stream});
}

void call_nccl(const Group& handle, const CallName& name, Stream stream, const NcclWork& work) {
  GroupState& group = handle.state();
  const std::shared_ptr<Fabric>& fabric = group.communicator().shared_fabric();
  with_history(group, [&] {
    fabric->keep_alive(stream, fabric);
    fabric->call_nccl({.group = group.id(), .name = name.text, .stream = stream, .work = work});
  });
  // Not before: it may have been rejected.
  group.remember(name);
  check_not_ended(handle);
}

}  // namespace weft::detail
