// Arguments of a kernel that sends and receives messages.
#pragma once

#include <cstdint>

namespace weft::detail {

struct Message {
  void* data;
  std::uint64_t bytes;
  std::uint32_t peer;
  std::uint32_t name;  // the same on both ranks
};

inline constexpr std::uint32_t kMostPeersAtOnce = 12;  // a message each way
inline constexpr std::uint32_t kMostMessages = 2 * kMostPeersAtOnce;

// Messages that go the same way between the same ranks are a queue: they go one after the other. Queues of sends come
// first.
struct MessagesWork {
  Message message[kMostMessages];
  std::uint8_t begin[kMostMessages + 1];  // of each queue, and the end of the last one
  std::uint32_t sends, queues;
};

}  // namespace weft::detail
