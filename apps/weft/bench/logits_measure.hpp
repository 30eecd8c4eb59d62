// Measures gathers of a vocabulary's logits (weft/columns.hpp) beside a gather of shards that are then put into rows.
#pragma once

#include <cstdint>
#include <memory>

#include "workloads/measure.hpp"

namespace weft::cli {

struct LogitsForm {
  std::int64_t vocabulary = 0;  // columns of the output
  bool output_f32 = false;
  float scale = 1.0f, soft_cap = 0.0f;
  std::size_t top_k = 0;   // the largest of a row instead of all; 0: all
  std::size_t groups = 1;  // a point's rows are those of each group of ranks, which gets no others

  // Columns of each rank. Engines pad vocabularies to a multiple of 64, and then to one of the ranks.
  std::size_t shard(int ranks) const;
};

// The bytes of the largest buffer of a point.
std::size_t logits_bytes(const LogitsForm& form, const Point& point, int ranks);

// Points are Operation::all_gather_columns; their `hidden` is the vocabulary.
std::unique_ptr<Bench> open_logits_bench(Ranks& ranks, const BenchArgs& args, const LogitsForm& form);
// The same of the largest alone. Peers gather all shards, and search for nothing.
std::unique_ptr<Bench> open_top_k_bench(Ranks& ranks, const BenchArgs& args, const LogitsForm& form);

}  // namespace weft::cli
