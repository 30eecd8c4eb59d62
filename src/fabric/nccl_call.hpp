// A collective for NCCL, in its terms: rows lie side by side. Sizes are those of one rank's part.
#pragma once

#include <cstddef>
#include <span>
#include <variant>

#include "base/call_words.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct NcclAllReduce {
  const void* input;
  void* output;
  std::size_t count;
  DataType type;
  ReduceOp op;
};
struct NcclReduceScatter {
  const void* input;
  void* output;
  std::size_t count;
  DataType type;
  ReduceOp op;
};
struct NcclReduce {
  const void* input;
  void* output;  // of the root
  std::size_t count;
  DataType type;
  ReduceOp op;
  int root;
};
struct NcclAllGather {
  const void* input;
  void* output;
  std::size_t bytes;
};
struct NcclAllToAll {
  const void* input;
  void* output;
  std::size_t bytes;
};
struct NcclBroadcast {
  const void* input;  // of the root
  void* output;
  std::size_t bytes;
  int root;
};
// This rank's messages, all at once, in memory of the caller's. Both sides leave out those without bytes.
struct NcclMessage {
  int peer;
  void* data;
  std::size_t bytes;
  bool sends;
};
struct NcclMessages {
  std::span<const NcclMessage> all;
};
struct NcclBarrier {};

using NcclWork = std::variant<NcclAllReduce, NcclReduceScatter, NcclReduce, NcclAllGather, NcclAllToAll, NcclBroadcast,
                              NcclMessages, NcclBarrier>;

struct NcclCall {
  int group;
  CallWords words;
  Stream stream;
  NcclWork work;
};

}  // namespace weft::detail
