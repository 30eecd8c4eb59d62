// Calls that put columns together, with known answers, the same for CPU ranks and GPU ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/bytes.hpp"
#include "support/cases.hpp"
#include "weft/columns.hpp"
#include "weft/parallel.hpp"

namespace weft::test {

struct ColumnCase {
  std::size_t rows = 1, shard = 8;
  std::size_t columns = 0;  // 0: all shards'
  bool even = false;
  DataType type = DataType::bf16;
  bool output_f32 = false;
  float scale = 1.0f, soft_cap = 0.0f;
  std::size_t input_gap = 0, output_gap = 0;      // elements between rows
  std::size_t input_shift = 0, output_shift = 0;  // elements from an aligned address
  bool in_place = false;
  // all_to_all_columns: `rows` are those of all slots. None: all_gather_columns.
  std::vector<std::int32_t> counts = {};
  std::size_t group_ranks = 1;
  Padding padding = Padding::none;
  std::size_t slot_rows = 0;
  std::vector<std::int32_t> slots = {};
  bool on_host = false;
  std::size_t room = 0;  // rows that outputs have room for; 0: as many as they need
  std::uint32_t seed = 0;

  bool to_groups() const { return !counts.empty(); }
};
std::string describe(const ColumnCase& c);

// The columns of a rank among `columns` of all: evenly as torch.tensor_split divides them, else `shard` at most.
RowRange columns_of_rank(std::size_t columns, std::size_t shard, bool even, int ranks, int rank);

// Lines and chunks, pads of any length, rows of any width at any address, every type and every change of elements.
std::vector<ColumnCase> column_cases(int ranks);
// The same to groups of every size, with every kind of slot, groups without rows and one busy group.
std::vector<ColumnCase> group_column_cases(int ranks);
// A few of both, that change elements or keep them.
std::vector<ColumnCase> few_column_cases(int ranks);
// Room for any of their tensors.
inline constexpr std::size_t kColumnBytes = std::size_t{4} << 20;

// A rank's two tensors between canaries, before and after the call. Offsets are bytes from an address aligned to 256.
struct PreparedColumns {
  ColumnCase c;
  int ranks = 0, rank = 0;
  Bytes input, output, expected;
  std::size_t input_begin = 0, output_begin = 0;
  RowRange taken = {};  // rows of the inputs that come to this rank

  std::size_t output_rows() const { return std::max(taken.size(), c.room); }
};
PreparedColumns prepare(const ColumnCase& c, int ranks, int rank);
// `input`, `output`: memory with the contents of `prepared`; the input of a call in place is not read.
// `numbers`: counts, and slots behind them, where kernels can read them.
struct ColumnMemory {
  std::byte *input, *output;
  const std::int32_t* numbers;
  Stream stream;
};
void make_column_call(const Group& group, const PreparedColumns& prepared, const ColumnMemory& memory);
std::vector<std::int32_t> numbers_of(const ColumnCase& c);
// Throws if the memory of the output differs from what is expected.
void expect_columns(const PreparedColumns& prepared, std::span<const std::byte> output);

// A rank's memory on the host: made once; filled, used and checked any number of times. Other cases may differ only in
// the seed and in counts of as many rows.
class HostColumns {
 public:
  explicit HostColumns(const PreparedColumns& first);
  void fill(const PreparedColumns& next);
  // Makes the call that was prepared first.
  void call(const Group& group);
  void check(const PreparedColumns& next);

 private:
  const PreparedColumns& first_;
  AlignedBytes input_, output_;
  std::vector<std::int32_t> numbers_;
};

// Makes the call on a CPU rank and compares everything. `symmetric`: memory for the output, or null.
void run_on_cpu_rank(const Group& group, const ColumnCase& c, std::byte* symmetric = nullptr);

}  // namespace weft::test
