// NCCL, the peer of the GPU path: on ordinary buffers, and on buffers in symmetric windows.
#include <nccl.h>

#include <algorithm>
#include <cstddef>

#include "common/cuda_check.hpp"
#include "fabric/nccl_table.hpp"
#include "peers/peer.hpp"

namespace weft::cli {
namespace {

using detail::nccl;

// The library itself does not call it.
decltype(&ncclCommInitRank) comm_init_rank() {
  return nccl().library.need("ncclCommInitRank");
}

void check(ncclResult_t result, const char* what) {
  if (result != ncclSuccess)
    throw Error(Errc::system,
                std::string("NCCL, the benchmark's peer, failed in ") + what + ": " + nccl().get_error_string(result));
}

ncclDataType_t type_of(DataType type) {
  constexpr ncclDataType_t types[] = {ncclBfloat16, ncclFloat16, ncclFloat32, ncclInt32, ncclInt64, ncclUint8};
  return types[static_cast<int>(type)];
}

class NcclPeer final : public Peer {
 public:
  NcclPeer(Ranks::Seat& seat, std::size_t max_bytes);
  ~NcclPeer() override;
  NcclPeer(const NcclPeer&) = delete;
  NcclPeer& operator=(const NcclPeer&) = delete;

  // Broadcasts and ragged operations have no variant for symmetric windows.
  std::vector<Contender> contenders(Operation operation) const override {
    const bool plain = is_ragged(operation) || operation == Operation::broadcast;
    if (!symmetric_problem_.empty() || plain) return {Contender::nccl};
    return {Contender::nccl, Contender::nccl_symmetric};
  }
  std::vector<Contender> exchangers() const override { return contenders(Operation::all_to_all); }
  std::string problem() const override {
    return symmetric_problem_.empty() ? "" : "NCCL on symmetric windows: " + symmetric_problem_;
  }
  void* input(Contender contender) const override {
    return contender == Contender::nccl_symmetric ? buffers_[0] : nullptr;
  }
  void* output(Contender contender) const override {
    return contender == Contender::nccl_symmetric ? buffers_[1] : nullptr;
  }

  void split(Ranks::Seat& seat, int color) override;
  void all_reduce(const Point& point, const void* input, void* output, Stream stream) override;
  void move(const GatherShape& shape, const void* input, void* output, Stream stream) override {
    move_among(all_, shape, input, output, stream);
  }
  void move_in_group(const GatherShape& shape, const void* input, void* output, Stream stream) override {
    move_among(group_, shape, input, output, stream);
  }
  void exchange(const Exchange& part, Stream stream) override;

 private:
  // Ranks that make calls together.
  struct Circle {
    ncclComm_t comm = nullptr;
    ncclWindow_t windows[2] = {};  // of both buffers

    void close();
  };
  void open_windows(Ranks::Seat& seat, Circle& circle);
  void move_among(const Circle& circle, const GatherShape& shape, const void* input, void* output, Stream stream);
  void gather(const Circle& circle, const GatherShape& shape, const std::byte* input, std::byte* output, Stream stream);
  void move_ragged(const Circle& circle, const GatherShape& shape, const std::byte* input, std::byte* output,
                   Stream stream);

  Circle all_, group_;
  void* buffers_[2] = {};
  std::size_t bytes_;  // of each
  std::string symmetric_problem_;
};

NcclPeer::NcclPeer(Ranks::Seat& seat, std::size_t max_bytes) : bytes_(std::max<std::size_t>(max_bytes, 1)) {
  ncclUniqueId id = {};
  if (seat.rank() == 0) check(nccl().get_unique_id(&id), "ncclGetUniqueId");
  seat.broadcast(std::as_writable_bytes(std::span(&id, 1)));
  check(comm_init_rank()(&all_.comm, seat.communicator().size(), id, seat.rank()), "ncclCommInitRank");
  open_windows(seat, all_);
}

// The same buffers get windows of the group, too.
void NcclPeer::split(Ranks::Seat& seat, int color) {
  check(nccl().comm_split(all_.comm, color, seat.rank(), &group_.comm, nullptr), "ncclCommSplit");
  if (symmetric_problem_.empty()) open_windows(seat, group_);
}

void NcclPeer::open_windows(Ranks::Seat& seat, Circle& circle) {
  std::string problem;
  for (int b = 0; b < 2; ++b) {
    // Every rank makes every call, so that none waits for a rank that gave up.
    if (buffers_[b] == nullptr && nccl().mem_alloc(&buffers_[b], bytes_) != ncclSuccess) {
      problem = "ncclMemAlloc failed";
      buffers_[b] = nullptr;
    }
    bool all_have_memory = true;
    for (const auto& one : seat.gather({buffers_[b] != nullptr ? 1.0 : 0.0})) all_have_memory &= one.front() != 0;
    if (!all_have_memory) break;
    const auto result =
        nccl().window_register(circle.comm, buffers_[b], bytes_, &circle.windows[b], NCCL_WIN_COLL_SYMMETRIC);
    // Without cuMem (NCCL_CUMEM_ENABLE=0), registration succeeds but gives no window.
    if (result != ncclSuccess || circle.windows[b] == nullptr) problem = "ncclCommWindowRegister gave no window";
  }
  double failures = 0;
  for (const auto& one : seat.gather({problem.empty() ? 0.0 : 1.0})) failures += one.front();
  if (failures > 0) symmetric_problem_ = problem.empty() ? "no symmetric window on another rank" : problem;
}

void NcclPeer::Circle::close() {
  for (ncclWindow_t window : windows)
    if (window != nullptr) static_cast<void>(nccl().window_deregister(comm, window));
  if (comm != nullptr) static_cast<void>(nccl().comm_destroy(comm));
}

NcclPeer::~NcclPeer() {
  group_.close();
  all_.close();
  for (void* buffer : buffers_)
    if (buffer != nullptr) static_cast<void>(nccl().mem_free(buffer));
}

void NcclPeer::all_reduce(const Point& point, const void* input, void* output, Stream stream) {
  constexpr ncclRedOp_t ops[] = {ncclSum, ncclMax, ncclMin, ncclAvg};
  check(nccl().all_reduce(input, output, point.count, type_of(point.type), ops[static_cast<int>(point.op)], all_.comm,
                          stream),
        "ncclAllReduce");
}

void NcclPeer::move_among(const Circle& circle, const GatherShape& shape, const void* input, void* output,
                          Stream stream) {
  const ncclDataType_t type = type_of(shape.type);
  const std::size_t mine = shape.most_rows() * shape.row_elements();  // for an equal operation
  switch (shape.operation) {
    case Operation::reduce_scatter:
      return check(nccl().reduce_scatter(input, output, mine, type, ncclSum, circle.comm, stream), "ncclReduceScatter");
    case Operation::all_to_all:
      return check(nccl().all_to_all(input, output, mine, type, circle.comm, stream), "ncclAlltoAll");
    case Operation::broadcast:
      return check(nccl().broadcast(input, output, mine * shape.ranks(), type, 0, circle.comm, stream),
                   "ncclBroadcast");
    case Operation::barrier:
      return check(nccl().all_reduce(input, output, 1, type, ncclSum, circle.comm, stream), "ncclAllReduce");
    default:
      break;
  }
  const auto from = static_cast<const std::byte*>(input);
  const auto to = static_cast<std::byte*>(output);
  check(nccl().group_start(), "ncclGroupStart");
  if (shape.operation == Operation::all_gather) {
    gather(circle, shape, from, to, stream);
  } else {
    move_ragged(circle, shape, from, to, stream);
  }
  check(nccl().group_end(), "ncclGroupEnd");
}

// Tensors of as many rows on every rank: one operation for each tensor.
void NcclPeer::gather(const Circle& circle, const GatherShape& shape, const std::byte* input, std::byte* output,
                      Stream stream) {
  const std::size_t size = size_of(shape.type);
  for (std::size_t t = 0; t < shape.widths.size(); ++t) {
    check(nccl().all_gather(input + shape.input_at(t) * size, output + shape.output_at(t) * size,
                            shape.most_rows() * shape.widths[t], type_of(shape.type), circle.comm, stream),
          "ncclAllGather");
  }
}

void NcclPeer::exchange(const Exchange& part, Stream stream) {
  auto from = static_cast<const std::byte*>(part.input);
  auto to = static_cast<std::byte*>(part.output);
  check(nccl().group_start(), "ncclGroupStart");
  for (std::size_t rank = 0; rank < part.sent.size(); ++rank) {
    const std::size_t sent = part.sent[rank], received = part.received[rank];
    const int peer = static_cast<int>(rank);
    if (sent != 0) check(nccl().send(from, sent, ncclUint8, peer, all_.comm, stream), "ncclSend");
    if (received != 0) check(nccl().recv(to, received, ncclUint8, peer, all_.comm, stream), "ncclRecv");
    from += sent;
    to += received;
  }
  check(nccl().group_end(), "ncclGroupEnd");
}

// Engines do the same if they do not pad: one operation for each tensor and each rank that has rows.
void NcclPeer::move_ragged(const Circle& circle, const GatherShape& shape, const std::byte* input, std::byte* output,
                           Stream stream) {
  const ncclDataType_t type = type_of(shape.type);
  const std::size_t size = size_of(shape.type);
  for (std::size_t t = 0; t < shape.widths.size(); ++t) {
    for (std::size_t r = 0; r < shape.ranks(); ++r) {
      const std::size_t count = shape.rows[r] * shape.widths[t], first = shape.first_row(r) * shape.widths[t];
      const std::byte* from = input + shape.input_at(t) * size;
      std::byte* to = output + shape.output_at(t) * size;
      if (count == 0) continue;
      if (shape.scatters()) {
        check(nccl().reduce(from + first * size, to, count, type, ncclSum, static_cast<int>(r), circle.comm, stream),
              "ncclReduce");
      } else {
        check(nccl().broadcast(from, to + first * size, count, type, static_cast<int>(r), circle.comm, stream),
              "ncclBroadcast");
      }
    }
  }
}

}  // namespace

std::unique_ptr<Peer> open_nccl_peer(Ranks::Seat& seat, std::size_t max_bytes) {
  return std::make_unique<NcclPeer>(seat, max_bytes);
}

}  // namespace weft::cli
