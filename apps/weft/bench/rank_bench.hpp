// The frame of a benchmark: ranks with memory, a clock and a peer, and the steps of each point. Subclasses define the
// operation and its reference.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/rank_device.hpp"
#include "peers/peer.hpp"

namespace weft::cli {

class RankBench : public Bench {
 public:
  // BenchArgs::max_bytes is the size of each buffer. A rank has `buffers` of them: input, output, and others.
  RankBench(Ranks& ranks, const BenchArgs& args, std::size_t buffers = 2);
  ~RankBench() override;
  RankBench(const RankBench&) = delete;
  RankBench& operator=(const RankBench&) = delete;

  std::vector<Method> methods() const override { return methods_of(ranks_.device()); }
  std::vector<std::string> notes() const override;
  Result run(const Point& point, int samples) override;

 protected:
  struct Rank {
    std::unique_ptr<RankDevice> device;
    void* input = nullptr;
    void* output = nullptr;
    std::size_t input_at = 0;     // where the enqueued operation reads: bytes behind `input`
    std::vector<std::byte> host;  // a copy of the output for checks
    std::unique_ptr<Peer> peer;
  };
  // The enqueued operation's buffers: the rank's own, or the peer's if the peer needs memory of its own.
  struct Buffers {
    void* input;
    void* output;
  };

  // Elements of a rank's buffers that a point uses.
  virtual std::size_t input_elements(const Point& point) const = 0;
  virtual std::size_t output_elements(const Point& point) const = 0;
  // The rank whose pattern this rank sends.
  virtual int pattern_rank(const Ranks::Seat& seat) const { return seat.rank(); }
  // Called once in this process before its ranks begin with a point.
  virtual void begin(const Point&) {}
  // Called on every rank before its first operation.
  virtual void prepare(Ranks::Seat&, const Point&) {}
  virtual void enqueue(Ranks::Seat& seat, const Point& point) = 0;
  // Empty, or the fault of the output, which is in the rank's `host`.
  virtual std::string verify(Ranks::Seat& seat, const Point& point) = 0;

  Rank& rank(const Ranks::Seat& seat) { return opened_[static_cast<std::size_t>(seat.local_index())]; }
  virtual Buffers buffers(const Ranks::Seat& seat, const Point& point);
  std::vector<Contender> peers(Operation operation) const;
  std::vector<Contender> exchangers() const;
  // Makes each peer's group of the ranks with the same color. Collective.
  void split_peers(const std::function<int(const Ranks::Seat&)>& color_of);
  // Weft's sums have the reference's bits for any data. Peers and switches add in an order of their own.
  bool is_exact(const Point& point) const {
    return args_.data == Data::integers || (!is_peer(point.contender) && !is_multimem(point.contender));
  }

  Ranks& ranks_;
  BenchArgs args_;

 private:
  void open(Ranks::Seat& seat, bool nccl, const std::shared_ptr<GlooPeer>& gloo);
  struct Taken {
    std::string chosen;
    std::vector<double> samples, baseline;
  };
  Taken take(Ranks::Seat& seat, const Point& point, int samples);

  std::vector<Rank> opened_;
  std::vector<std::string> notes_;
};

}  // namespace weft::cli
