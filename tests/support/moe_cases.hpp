// Dispatch and combine with known answers.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support/guarded.hpp"
#include "support/moe.hpp"
#include "weft/moe.hpp"

namespace weft::test {

// For bf16 and f16: NaN of either sign, quiet and signalling, including the wire's resting word, infinities, zeros,
// subnormals, the largest numbers, and ones. A special value of one format is an ordinary number in the other.
inline constexpr std::uint32_t kSpecialBits[] = {0xffff, 0x7fff, 0x7fc1, 0xffc0, 0x7f81, 0x7c01, 0xfe00, 0x7f80,
                                                 0xff80, 0x7c00, 0xfc00, 0x8000, 0x0000, 0x0001, 0x8001, 0x007f,
                                                 0x83ff, 0x7f7f, 0xff7f, 0x7bff, 0xfbff, 0x3f80, 0xbc00};

enum class Choice { uniform, none, one_expert, duplicates, holes };

struct MoeCase {
  MoeExchangeArgs args;
  std::vector<std::uint32_t> tokens;  // by rank; the last one serves further ranks
  Choice choice = Choice::uniform;
  bool any_bits = false;         // rows of any bit pattern, many of which are the wire's resting words
  bool special_results = false;  // experts' outputs, residuals, weights: NaN, infinities, zeros, subnormals
  bool residual = false;
  bool wide_ids = false;
  // The reference's expert for an id of the caller: (id, rank, token) → expert.
  std::function<std::int64_t(std::int64_t, std::uint32_t, std::uint32_t)> translate = {};
  std::uint32_t most_tokens = 0;  // as in DispatchArgs
};

// One dispatch and combine, with all ranks' data and the right results.
struct PreparedMoe {
  MoeCase call;
  std::vector<Tokens> tokens;
  Routing routing;
  std::vector<std::uint32_t> rank_of;
  std::vector<ExpertRows> placed;
  std::vector<std::vector<Bytes>> outputs;  // of experts, by place
  std::vector<Bytes> residuals, results;    // by rank
};

PreparedMoe prepare(const MoeCase& c, std::uint32_t ranks, std::uint32_t seed);
std::vector<PreparedMoe> prepare_all(const std::vector<MoeCase>& cases, std::uint32_t ranks);

// The expected output of a rank's dispatch: unwritten rows are canaries of Guarded.
struct Dispatched {
  Bytes rows, scales;
  std::vector<Bytes> payloads;
  std::vector<std::int32_t> counts;  // by local expert
  // Empty if the layout does not have them.
  std::vector<std::int32_t> offsets;
  Bytes sources, ids, weights;
  std::vector<std::int32_t> source_tokens;
  std::vector<std::int32_t> rank_prefix;  // empty if the layout has none
};
Dispatched dispatched(const MoeExchange& exchange, const PreparedMoe& p);
// The results of a rank's experts: the input of combine.
Bytes expert_rows(const MoeExchange& exchange, const PreparedMoe& p);
// For outputs that may have been written only in part.
void expect_bytes_or_canaries(std::span<const std::byte> got, std::span<const std::byte> wanted,
                              const std::string& where);
void expect_bytes(std::span<const std::byte> got, std::span<const std::byte> wanted, const std::string& where);

// A CPU rank's memory for one dispatch and one combine of `p`, with canaries around and in it. Further tokens, which no
// call may read, follow this rank's, up to the largest number.
class CpuMoe {
 public:
  CpuMoe(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank);
  // Prepares another call with as many tokens, in the same memory.
  void fill(const PreparedMoe& p);
  // Prepares the same call once more.
  void fill();
  // Prepares a dispatch that is made again for other rows of the same routing. Outputs beside rows stay as they are,
  // and ids, and weights that dispatch reads, are those of other tokens.
  void fill_again(const PreparedMoe& p);
  DispatchArgs dispatch(bool discard = false);
  CombineArgs combine(DispatchHandle handle);
  // Overwrites the inputs that sends have read.
  void forget_tokens();
  void forget_results();
  // Results of experts below local number `end` alone; and a look at the rows that these got (support/moe_rounds.hpp).
  void make_results(std::uint32_t end);
  void check_rows(std::uint32_t end);
  // Both throw if anything is wrong in the outputs or around them.
  void check_dispatch();
  void check_combine();
  // After a failed dispatch: nothing is written outside the outputs.
  void check_neighbours();

 private:
  void check_guards();

  const MoeExchange& exchange_;
  const PreparedMoe* p_;
  std::uint32_t rank_;
  Dispatched wanted_;
  Bytes results_of_experts_;
  Tokens now_;
  std::vector<std::int32_t> narrow_ids_;
  bool forgotten_ = false;
  Guarded input_, output_, output_scales_, sources_, ids_, weights_, expert_rows_, residual_, result_;
  Guarded counts_, offsets_, source_tokens_, rank_prefix_;
  std::vector<Guarded> output_payloads_;
};

// Makes the call on a CPU rank of the group and checks it.
DispatchHandle dispatch_and_check(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank,
                                  bool discard = false);
void combine_and_check(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank, DispatchHandle handle);
// Both, in the same tensors.
void exchange_and_check(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank);
void exchange_and_check(const MoeExchange& exchange, CpuMoe& moe);
// Both, each in a send and a wait.
void exchange_by_halves_and_check(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank);

}  // namespace weft::test
