// Checks of the arguments of collectives. Everything here throws Errc::invalid_argument with the argument's name.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/state.hpp"
#include "weft/launch.hpp"

namespace weft::detail {

template <class... T>
void require(bool good, fmt::format_string<T...> message, T&&... values) {
  if (!good) throw Error(Errc::invalid_argument, fmt::format(message, std::forward<T>(values)...));
}

// `alignment`: a power of two, so that a check divides nothing.
inline bool is_aligned(const void* data, std::size_t alignment) {
  return (reinterpret_cast<std::uintptr_t>(data) & (alignment - 1)) == 0;
}
void check_aligned(const char* name, const void* data, std::size_t alignment);
// A number of rows, or the width of one.
void check_size(const char* name, std::size_t size);
void check_root(const GroupState& group, int root);
// `name`: of the argument that gives the number of blocks.
void check_blocks(const GroupState& group, const char* name, int blocks);
// The same of a launch in clusters; `cluster_name`: of the argument that asks for them.
void check_cluster(const GroupState& group, const char* cluster_name, const char* blocks_name, const Launch& launch);
// `most_threads`: the instance's limit.
void check_launch(const GroupState& group, const Launch& launch, int most_threads);

// Rows in a user's memory; sizes and distances in bytes.
struct Extent {
  const char* name;
  const void* data;
  std::size_t rows, row_bytes, stride;
  std::size_t alignment = 1;  // of the element type, a power of two

  // Bytes of all rows.
  std::size_t payload() const { return rows * row_bytes; }
  // Bytes from the first to the last, gaps included.
  std::size_t bytes() const { return rows == 0 || row_bytes == 0 ? 0 : (rows - 1) * stride + row_bytes; }
};
// A caller's description of rows: `width` and `stride` in elements of `element` bytes; stride 0: they lie side by side.
struct RowsArgument {
  const char* name;
  const void* data;
  std::size_t rows, width, stride;
  std::size_t element = 1;
};
Extent extent_of(const RowsArgument& rows);
// Throws if the rows' memory is impossible; an empty extent may be anywhere.
void check_extent(const GroupState& group, const Extent& extent);
// Whether the memory from the first to the last byte of both has a byte in common.
bool spans_meet(const Extent& one, const Extent& other);
// Throws if two extents may share a byte. `part` may begin at row `place` of `whole` with the same stride. Rows of
// different strides are rejected even if they lie in each other's gaps.
void check_overlap(const Extent& part, const Extent& whole, std::size_t place);
inline constexpr std::size_t kNowhere = SIZE_MAX;
inline constexpr std::size_t kAnyRow = SIZE_MAX - 1;  // counts decide which

// Throws where kernels cannot reach `data`. While the memory is released it throws nothing: check_alive() does.
void check_buffer(const GroupState& group, const char* name, const void* data);

}  // namespace weft::detail
