// A peer of CPU ranks that are threads of one process. It gives NCCL's answers by plain loops, so that what a benchmark
// asks of NCCL is run and compared without a GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>
#include <vector>

#include "oracle/reduction.hpp"
#include "peers/peer.hpp"

namespace weft::cli {

// Shared by its ranks.
struct TestPeers {
  struct Call {
    Operation operation;
    std::vector<std::size_t> rows;  // of each rank
    bool operator==(const Call&) const = default;
  };

  explicit TestPeers(int ranks) : meeting(ranks), inputs(static_cast<std::size_t>(ranks)) {}

  std::barrier<> meeting;
  std::vector<std::vector<std::byte>> inputs;
  std::vector<Call> calls = {};  // of rank 0, each of them once
  bool errs = false;             // the last rank's outputs are wrong
};

class TestPeer final : public Peer {
 public:
  TestPeer(std::shared_ptr<TestPeers> all, int rank, std::size_t max_bytes)
      : all_(std::move(all)), rank_(static_cast<std::size_t>(rank)), windows_{Bytes(max_bytes), Bytes(max_bytes)} {}

  std::vector<Contender> contenders(Operation operation) const override {
    if (is_ragged(operation)) return {Contender::nccl};
    return {Contender::nccl, Contender::nccl_symmetric};
  }
  std::vector<Contender> exchangers() const override { return {}; }
  void* input(Contender contender) const override { return window(contender, 0); }
  void* output(Contender contender) const override { return window(contender, 1); }

  void all_reduce(const Point&, const void*, void*, Stream) override {}
  void exchange(const Exchange&, Stream) override {}
  void split(Ranks::Seat&, int color) override { color_ = color; }
  void move_in_group(const GatherShape& shape, const void* input, void* output, Stream) override {
    const std::size_t group = rank_ / shape.ranks();
    EXPECT_EQ(color_, static_cast<int>(group));
    move_among(shape, group * shape.ranks(), input, output);
  }
  void move(const GatherShape& shape, const void* input, void* output, Stream) override {
    move_among(shape, 0, input, output);
  }

 private:
  using Bytes = std::vector<std::byte>;

  void* window(Contender contender, std::size_t which) const {
    return contender == Contender::nccl_symmetric ? const_cast<std::byte*>(windows_[which].data()) : nullptr;
  }

  // `first`: the rank of the world that is the shape's first one.
  void move_among(const GatherShape& shape, std::size_t first, const void* input, void* output) {
    const std::size_t me = rank_ - first, row = shape.row_bytes(0);
    const auto* const from = static_cast<const std::byte*>(input);
    all_->inputs[rank_].assign(from, from + (shape.scatters() ? shape.padded_rows() : shape.rows[me]) * row);
    const TestPeers::Call call{shape.operation, shape.rows};
    if (rank_ == 0 && std::ranges::find(all_->calls, call) == all_->calls.end()) all_->calls.push_back(call);
    all_->meeting.arrive_and_wait();
    Bytes result;
    if (shape.scatters()) {
      // From the last rank on, and with a rounding of each addition: a peer has an order of its own.
      for (std::size_t peer = first + shape.ranks(); peer-- != first;) {
        const std::byte* const part = all_->inputs[peer].data() + shape.first_row(me) * row;
        const Bytes rows(part, part + shape.rows[me] * row);
        result = result.empty() ? rows : oracle::reduce(shape.type, ReduceOp::sum, std::vector<Bytes>{result, rows});
      }
    } else {
      result.resize(shape.padded_rows() * row);
      for (std::size_t peer = 0; peer < shape.ranks(); ++peer)
        std::memcpy(result.data() + shape.first_row(peer) * row, all_->inputs[first + peer].data(),
                    all_->inputs[first + peer].size());
    }
    if (all_->errs && rank_ + 1 == all_->inputs.size())
      for (std::byte& byte : result) byte ^= std::byte{0x40};
    if (!result.empty()) std::memcpy(output, result.data(), result.size());
    all_->meeting.arrive_and_wait();
  }

  std::shared_ptr<TestPeers> all_;
  std::size_t rank_;
  int color_ = -1;
  Bytes windows_[2];
};

}  // namespace weft::cli
