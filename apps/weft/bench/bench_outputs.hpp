// Outputs of a benchmark in symmetric memory, one for each rank of this process, and a plain push to them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/pattern.hpp"
#include "common/ranks.hpp"
#include "weft/symmetric.hpp"

namespace weft::cli {

// A rank's output after a push without stores to itself, in the host's memory.
struct PushedOutput {
  const std::byte* data = nullptr;
  std::size_t elements = 0;  // of each rank
  DataType type = DataType::bf16;
  Data pattern = Data::integers;  // of the step that RankBench leaves
  int rank = 0, ranks = 0;
};
// Empty, or the fault.
std::string check_pushed(const PushedOutput& output);

class BenchOutputs {
 public:
  // Allocates as many bytes on every rank. If that fails, why_none() gives the reason.
  BenchOutputs(Ranks& ranks, std::size_t bytes);
  ~BenchOutputs();
  BenchOutputs(const BenchOutputs&) = delete;
  BenchOutputs& operator=(const BenchOutputs&) = delete;

  const std::string& why_none() const { return why_none_; }
  // Empty, or why a copy of such rows has no faster way to these outputs than to other memory.
  std::string why_ordinary(std::size_t row_bytes) const;
  void* data(const Ranks::Seat& seat) { return memory(seat)->data(); }

  // Whether all ranks are GPUs that can store to each other's outputs.
  bool can_be_pushed_to() const { return can_be_pushed_to_; }
  struct Push {
    const void* input = nullptr;
    std::size_t bytes = 0;
    bool to_itself = true;
    int blocks = 0;
  };
  // Enqueues this rank's stores to every output, each behind the bytes of lower ranks (push.hpp).
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
