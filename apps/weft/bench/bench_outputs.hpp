// Outputs of a benchmark in symmetric memory, one of each rank of this process, and the plain push that stores to them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/ranks.hpp"
#include "weft/symmetric.hpp"

namespace weft::cli {

class BenchOutputs {
 public:
  // As many bytes on every rank. Where no memory is to be had, why_none() says so.
  BenchOutputs(Ranks& ranks, std::size_t bytes);
  ~BenchOutputs();
  BenchOutputs(const BenchOutputs&) = delete;
  BenchOutputs& operator=(const BenchOutputs&) = delete;

  const std::string& why_none() const { return why_none_; }
  void* data(const Ranks::Seat& seat) { return memory(seat)->data(); }

  // Whether ranks are GPUs that all store to each other's outputs.
  bool can_be_pushed_to() const { return can_be_pushed_to_; }
  struct Push {
    const void* input = nullptr;
    std::size_t bytes = 0;
    bool to_itself = true;
    int blocks = 0;
  };
  // Enqueues the stores of this rank to every output, each behind what lower ranks store (push.hpp).
  void push(const Ranks::Seat& seat, const Push& what, Stream stream);

 private:
  std::optional<SymmetricMemory>& memory(const Ranks::Seat& seat) {
    return memory_[static_cast<std::size_t>(seat.local_index())];
  }

  Ranks& ranks_;
  std::vector<std::optional<SymmetricMemory>> memory_;
  std::string why_none_;
  bool can_be_pushed_to_ = false;
};

}  // namespace weft::cli
