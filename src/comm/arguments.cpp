#include "comm/arguments.hpp"

#include "comm/pairs.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t kMostRows = std::size_t{1} << 40;  // also elements of one row: products stay far from overflow

// The place that check_overlap() would allow, in words.
std::string place_in(const Extent& whole, std::size_t place) {
  if (place == kNowhere) return "";
  const std::string begin =
      place == kAnyRow ? "with one of its rows" : fmt::format("{} bytes behind its begin", place * whole.stride);
  return fmt::format(", or this rank's own part of it, which begins {} and has {} bytes from row to row", begin,
                     whole.stride);
}

}  // namespace

void check_aligned(const char* name, const void* data, std::size_t alignment) {
  require(is_aligned(data, alignment), "{}: {} is not aligned to {} bytes", name, data, alignment);
}

void check_size(const char* name, std::size_t size) {
  require(size <= kMostRows, "{}: {} is not between 0 and 2^40", name, size);
}

void check_root(const GroupState& group, int root) {
  require(root >= 0 && root < group.size(), "root: {} is not a rank of the group, 0 … {}", root, group.size() - 1);
}

void check_blocks(const GroupState& group, const char* name, int blocks) {
  const int most = group.communicator().fabric().max_blocks();
  const bool fits = blocks == 0 || (blocks >= 2 && blocks <= most);
  require(fits || most > 2, "{}: {} is not 0 or 2", name, blocks);
  require(fits, "{}: {} is not 0 or between 2 and {}", name, blocks, most);
}

void check_cluster(const GroupState& group, const char* cluster_name, const char* blocks_name, const Launch& launch) {
  require(launch.cluster >= 0 && launch.cluster <= 2, "{}: {} is not between 0 and 2", cluster_name, launch.cluster);
  if (!in_pairs(launch) || launch.blocks == 0) return;
  require(launch.blocks % 2 == 0, "{}: {} is odd, and {} is 2", blocks_name, launch.blocks, cluster_name);
  const int most = group.communicator().fabric().max_paired_blocks();
  require(launch.blocks <= most, "{}: {} is more than the {} that fit in clusters of two", blocks_name, launch.blocks,
          most);
}

void check_launch(const GroupState& group, const Launch& launch, int most_threads) {
  check_cluster(group, "launch.cluster", "launch.blocks", launch);
  check_blocks(group, "launch.blocks", launch.blocks);
  const int threads = launch.threads;
  require(threads == 0 || (threads >= 32 && threads <= most_threads && threads % 32 == 0),
          "launch.threads: {} is not 0 or a multiple of 32 between 32 and {}", threads, most_threads);
}

namespace {

// Columns of one matrix: rows of both are equally far apart (a single row fits any distance), and one extent's columns
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
  std::size_t all = 0;  // a product, as a division takes longer
  require(extent.stride <= most && !__builtin_mul_overflow(extent.rows, extent.stride + 1, &all) && all <= most,
          "{}: {} rows, {} bytes apart, are more than 2^46 bytes", extent.name, extent.rows, extent.stride);
  if (extent.bytes() == 0) return;
  require(extent.data != nullptr, "{}: null, with {} rows of {} bytes", extent.name, extent.rows, extent.row_bytes);
  require(is_aligned(extent.data, extent.alignment), "{}: {} is not aligned to the {} bytes of its elements",
          extent.name, extent.data, extent.alignment);
  check_buffer(group, extent.name, extent.data);
}

bool spans_meet(const Extent& one, const Extent& other) {
  const auto a = reinterpret_cast<std::uintptr_t>(one.data), b = reinterpret_cast<std::uintptr_t>(other.data);
  return one.bytes() != 0 && other.bytes() != 0 && a < b + other.bytes() && b < a + one.bytes();
}

void check_overlap(const Extent& part, const Extent& whole, std::size_t place) {
  const auto a = reinterpret_cast<std::uintptr_t>(part.data), b = reinterpret_cast<std::uintptr_t>(whole.data);
  if (!spans_meet(part, whole)) return;
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

void check_buffer(const GroupState& group, const char* name, const void* data) {
  // Symmetric memory has no address then, and the call ends with Errc::released whatever it is given.
  if (group.communicator().released()) return;
  group.communicator().fabric().check_buffer(name, data);
}

}  // namespace weft::detail
