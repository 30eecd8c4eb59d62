// Messages between two ranks, and the gather and scatter of one root that are made of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/communicator.hpp"
#include "weft/launch.hpp"
#include "weft/types.hpp"

namespace weft {

struct Send {
  int peer = 0;  // rank of the group
  const void* data = nullptr;
  std::size_t bytes = 0;  // 0 … 2^46; as many as the receive has
  std::uint32_t tag = 0;  // compared with the receive's
};
struct Receive {
  int peer = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
  std::uint32_t tag = 0;
};

inline constexpr std::size_t kMaxMessages = 256;

struct SendReceiveArgs {
  std::span<const Send> sends;  // 0 … kMaxMessages of each; read before the call returns
  std::span<const Receive> receives;
  Stream stream = nullptr;
  Launch launch = {};  // at least a data block for each peer and direction is best
};
// Sends and receives messages, all at once: none of them waits for another one of the call, unless both go the same way
// between the same ranks. Only the ranks that it names take part (MPI_Isend and MPI_Irecv with MPI_Waitall; a group of
// ncclSend and ncclRecv).
//
// - The k-th send from one rank to another belongs to the k-th receive there, whatever the call. Sizes, tags and groups
//   must be equal: else the receive ends with Errc::mismatch, and the send, or a later call of its rank, with
//   Errc::peer_failed.
// - A send may end before its receive begins, as buffers take a part of its message. Programs should not count on it.
//   Ranks that wait for each other in a circle end by the deadline, with an error.
// - release() needs all messages to be received.
// - A rank's messages are one sequence, whatever the group, as all groups share the communicator's buffers for them. So
//   they come from one thread at a time. Streams or events order them with each other, and with the other calls of
//   their group. Calls that overlap end in Errc::overlap.
// - A message to this rank itself needs the send and the receive in one call.
// - Nothing is registered. Data may have any address and length; multiples of 16 bytes are fastest. A receive shares no
//   byte with another message of the call. Data is the caller's again when the call has run on its stream.
// - Streams, graphs, thread safety and errors are as in all_reduce. A call that is rejected sends nothing, and peers
//   that wait for it end by their deadlines.
// - In communicators whose ranks do not all reach each other's memory, NCCL carries messages. Sizes and tags are not
//   compared then.
// - A call of up to 24 messages is one kernel. More become several, one after the other: then ranks that answer in
//   another order may wait for each other. Many small messages to one rank go faster as one: each waits for a slot.
void send_receive(const Group& group, const SendReceiveArgs& args);

// One message: send_receive() with nothing else.
inline void send(const Group& group, const Send& message, Stream stream = nullptr) {
  send_receive(group, {.sends = {&message, 1}, .receives = {}, .stream = stream, .launch = {}});
}
inline void receive(const Group& group, const Receive& message, Stream stream = nullptr) {
  send_receive(group, {.sends = {}, .receives = {&message, 1}, .stream = stream, .launch = {}});
}

struct GatherArgs {
  const void* input = nullptr;  // `bytes`
  void* output = nullptr;       // on the root: size · `bytes`, rank 0's, then rank 1's, …; ignored elsewhere
  std::size_t bytes = 0;        // of one rank, up to 2^40; the same on every rank
  int root = 0;                 // rank of the group
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// The root's output[r · bytes + i] = input_r[i]. The root's input may lie in the output already, at its own place
// there. Every rank of the group makes the call. Each rank but the root sends one message, under the rules of
// send_receive().
void gather(const Group& group, const GatherArgs& args);

struct ScatterArgs {
  const void* input = nullptr;  // on the root: size · `bytes`, for rank 0, then for rank 1, …; ignored elsewhere
  void* output = nullptr;       // `bytes`; on the root it may be its own place in the input
  std::size_t bytes = 0;        // of one rank; the same on every rank
  int root = 0;
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};
// output_r[i] = the root's input[r · bytes + i]; otherwise as gather().
void scatter(const Group& group, const ScatterArgs& args);

}  // namespace weft
