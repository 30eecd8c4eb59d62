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
  std::size_t groups = 1;  // of neighbours. A point's rows are those of a group, which gets no others

  // Rows of a group: as many in each, or Load::busy in the first one and a row in each other.
  std::size_t rows(const Point& point, std::size_t group) const;
  std::size_t rows_before(const Point& point, std::size_t group) const;

  // Columns of each rank. Engines pad vocabularies to a multiple of 64, and then to one of the ranks.
  std::size_t shard(int ranks) const;
};

// The bytes of the largest buffer of a point.
std::size_t logits_bytes(const LogitsForm& form, const Point& point, int ranks);

// Points are Operation::all_gather_columns; their `hidden` is the vocabulary, and their count that of the most rows of
// a group.
std::unique_ptr<Bench> open_logits_bench(Ranks& ranks, const BenchArgs& args, const LogitsForm& form);
// The same of the largest alone. Peers gather all shards, and search for nothing.
std::unique_ptr<Bench> open_top_k_bench(Ranks& ranks, const BenchArgs& args, const LogitsForm& form);

}  // namespace weft::cli
