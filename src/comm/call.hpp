// What every collective does around its own work: rejects what cannot be, names the call, hands it on.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/capture.hpp"
#include "comm/state.hpp"
#include "kernel/kernel.hpp"
#include "weft/collectives.hpp"

namespace weft::detail {

template <class... T>
void require(bool good, fmt::format_string<T...> message, T&&... values) {
  if (!good) throw Error(Errc::invalid_argument, fmt::format(message, std::forward<T>(values)...));
}

// A call's own reference to its group, which keeps the communicator: where a thread waits in a call while another one
// calls exit(), a static communicator is destroyed.
Group held(const Group& caller);

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

// Tells the group's other ranks that this one has rejected its next call, which they would wait for; where nothing can
// be told, they find out by their deadlines: where NCCL serves the group, and while a call is recorded or captured.
void tell_rejection(GroupState& group, Stream stream, const Error& error) noexcept;
// Makes a call, or throws what is wrong with it, and then tells that.
template <class Make>
auto make_or_tell(GroupState& group, Stream stream, Make make) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.fault().rank < 0) tell_rejection(group, stream, error);  // else it has failed, and the record says why
    throw;
  }
}

// "\nlast calls of this rank on this group:", and a line for each: the end of an error's message.
std::string last_calls(std::string_view whose, const std::vector<CallRecord>& calls);
// Launches something; where that fails, the error says what this rank had called. What kernels find is on record.
template <class LaunchIt>
void with_history(const GroupState& group, LaunchIt launch) {
  try {
    launch();
  } catch (const Error& error) {
    if (error.code() != Errc::system) throw;
    throw Error(error.fault(), error.what() + last_calls("this group", group.recent_calls()));
  }
}

// Throws Errc::released, with the group's last calls, where the communicator's memory is.
void check_acquired(const GroupState& group, const char* operation);
// Throws where kernels cannot reach `data`; not while the memory is released: callers ask check_acquired() afterwards.
void check_buffer(const GroupState& group, const char* name, const void* data);
// Throws the fault that has ended the communicator, if there was one.
void check_not_ended(const Group& handle);
// Both.
void check_alive(const Group& handle, const char* operation);
// That, and Errc::unsupported where ranks do not reach each other's memory, which ends in `hint`.
void check_ready(const Group& handle, const char* operation, std::string_view hint = {});
// Of a call that NCCL would carry, which knows no rows: throws where these do not lie side by side.
void check_side_by_side(const GroupState& group, const char* operation, const Extent& extent);

struct NamedCall {
  CallName name;
  BoundKernel bound;
  int blocks, threads;
  Stream stream;
};
// Makes the call, or keeps it where the thread captures. CPU ranks: throws what became of it.
void make_call(const Group& handle, const NamedCall& call);
// Has NCCL make it. Ranks do not compare what it is to do, and its kernels know no deadline: the fabric watches over
// them.
void call_nccl(const Group& handle, const CallName& name, Stream stream, const NcclWork& work);
// What a call's name has in front of its tag.
constexpr std::string_view carrier(bool direct) {
  return direct ? "" : " nccl";
}

}  // namespace weft::detail
