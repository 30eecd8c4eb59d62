// Checks of the arguments of collectives. Everything here throws Errc::invalid_argument with the argument's name.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/state.hpp"
#include "weft/collectives.hpp"

namespace weft::detail {

template <class... T>
void require(bool good, fmt::format_string<T...> message, T&&... values) {
  if (!good) throw Error(Errc::invalid_argument, fmt::format(message, std::forward<T>(values)...));
}

// Rows, or the width of one.
void check_size(const char* name, std::size_t size);
// `most_threads`: that the instance takes.
void check_launch(const GroupState& group, const Launch& launch, int most_threads);

// Rows in a user's memory; sizes and distances in bytes.
struct Extent {
  const char* name;
  const void* data;
  std::size_t rows, row_bytes, stride;
  std::size_t alignment = 1;  // of the element type

  // All that there are.
  std::size_t payload() const { return rows * row_bytes; }
  // From the first byte to the last.
  std::size_t bytes() const { return rows == 0 || row_bytes == 0 ? 0 : (rows - 1) * stride + row_bytes; }
};
// What a caller says of them: `width` and `stride` in elements of `element` bytes; stride 0: they lie side by side.
struct RowsArgument {
  const char* name;
  const void* data;
  std::size_t rows, width, stride;
  std::size_t element = 1;
};
Extent extent_of(const RowsArgument& rows);
// Throws where the rows cannot be there; an empty one may be anywhere.
void check_extent(const GroupState& group, const Extent& extent);
// Throws where two extents may share a byte, unless `part` begins with row `place` of `whole` and has its rows where
// `whole` has them. That rows of different strides lie in each other's gaps is not looked at.
void check_overlap(const Extent& part, const Extent& whole, std::size_t place);
inline constexpr std::size_t kNowhere = SIZE_MAX;
inline constexpr std::size_t kAnyRow = SIZE_MAX - 1;  // counts will say which

// Throws where kernels cannot reach `data`. While the memory is released it throws nothing: check_alive() does.
void check_buffer(const GroupState& group, const char* name, const void* data);

}  // namespace weft::detail
