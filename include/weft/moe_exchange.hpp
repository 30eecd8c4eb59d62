// The definition of an exchange of experts (MoeExchange): rows, layouts, sizes, and the memory that they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/types.hpp"

namespace weft {

// The element type of a row of tokens.
enum class RowType : std::uint8_t {
  bf16,
  f16,
  fp8,  // e4m3; with or without scales, which travel unread beside the row
};

// The cast that dispatch applies to rows on their way. Cast values are limited to ±448 times their scale; NaN stays
// NaN. Among columns of one scale that hold an infinity, each infinity becomes NaN and every other number 0.
enum class RowCast : std::uint8_t {
  none,       // every bit arrives as it was
  fp8,        // bf16 or f16 become e4m3 with one f32 scale per 128 columns: max(amax, 1e-4) / 448
  fp8_ue8m0,  // the same with scales that are powers of two, rounded up, given as one byte each: the biased exponent
  fp8_pow2    // the same powers of two, given as f32 (DeepEP's round_scale)
};

// The places at which dispatch puts rows, and combine reads what the experts made of them.
enum class RowLayout : std::uint8_t {
  expert_masked,      // [local experts, capacity, hidden]: the first rows of an expert's block are its rows
  expert_contiguous,  // [capacity, hidden]: experts one behind the other; each begins at a multiple of `alignment`
  rank_major,         // [ranks, tokens, hidden]: a token's row comes once, whatever its experts
  rank_compact        // [capacity, hidden]: the same without holes, in (source rank, token) order; always by a ring
};

constexpr std::string_view name(RowLayout layout) {
  constexpr std::string_view names[] = {"masked", "contiguous", "rank-major", "rank-compact"};
  return names[static_cast<int>(layout)];
}

// The places at which dispatch puts the scales that it makes. Bytes of a word behind a row's last scale, and bytes of
// rows that no token takes, are not written.
enum class ScaleOrder : std::uint8_t {
  rows,    // [rows, hidden / 128]: a row's scales lie together
  columns  // words of four bytes, an f32 or four neighbouring scales of fp8_ue8m0, the first one lowest, transposed:
           // expert_masked: [local experts, words, capacity]; else [words, MoeExchange::output_rows()]
};

constexpr std::string_view name(ScaleOrder order) {
  return order == ScaleOrder::rows ? "rows" : "columns";
}

// The way of rows to their ranks, and back. All of them give the same bits.
enum class RowPath : std::uint8_t {
  automatic,  // slots up to 1024 tokens, otherwise the ring, and slots for 128 tokens beside it; from few blocks
              // (MoeExchangeArgs::blocks) the ring for fewer tokens, too. With a tuning table of such exchanges
              // (Config::tuning_file, `weft tune`): as its steps say, by DispatchArgs::most_tokens. docs/moe.md says
              // which exchanges take one; none is built in.
  slots,      // buffers have a place for every token of every rank: the least latency, from all processors of a GPU
  ring        // rows flow through `ring_rows` places for each rank: any number of tokens, or 128 and more on few blocks
};

constexpr std::string_view name(RowPath path) {
  constexpr std::string_view names[] = {"automatic", "slots", "ring"};
  return names[static_cast<int>(path)];
}

// Rows for which there is no room. error: a fault of the experts' rank, Errc::overflow; its counts are right as far as
// they were written. drop: the rows are left out, and counts say how many came.
enum class Overflow : std::uint8_t { error, drop };

// Most payloads of an exchange (MoeExchangeArgs::payload_bytes).
inline constexpr std::uint32_t kMostPayloads = 4;

// The definition of an exchange; the same on every rank of the group.
struct MoeExchangeArgs {
  std::uint32_t tokens = 0;      // most of one rank in one dispatch; 1 … 16384 (RowPath::slots: 1024)
  std::uint32_t hidden = 0;      // columns, 2^20 at most; a row is a multiple of 16 bytes (with a cast: of 128 columns)
  std::uint32_t experts = 0;     // of all ranks; 1 … 4096
  std::uint32_t top_k = 0;       // most experts of a token; 1 … 32
  RowType type = RowType::bf16;  // of the rows that dispatch takes
  RowCast cast = RowCast::none;
  // Used if rows are cast. Columns have places for a multiple of 4 rows (16 bytes, which TMA asks for). So `capacity`
  // must be such a multiple, and for rank_major N · tokens of N ranks.
  ScaleOrder scale_order = ScaleOrder::rows;
  // fp8 rows that are given with scales: bytes of a row's scales, a multiple of 4, 4 per column at most.
  std::uint32_t scale_bytes = 0;
  // Payloads that travel unread beside each token's row (DispatchArgs::payloads): the bytes that each has of a token,
  // for kMostPayloads of them at most. Each number is a multiple of 4 above 0. Together with `scale_bytes` they are
  // 4 bytes per column and 4 KiB more at most. On the way each takes whole packs of 16 bytes. Not with a cast.
  std::vector<std::uint32_t> payload_bytes = {};
  DataType combine_type = DataType::bf16;  // of the rows that combine takes and returns: bf16 or f16
  RowLayout layout = RowLayout::expert_masked;
  std::uint32_t alignment = 1;  // expert_contiguous: of the rows at which experts begin; 1 … 1024
  // Rows of one expert: N · tokens · top_k at most among N ranks, and together less than 2^32 on a rank.
  // expert_contiguous: rows of all of a rank's experts, with the pads behind each of them, the last included. Experts
  // of 7 rows aligned to 4 take 8. So at most N · tokens · top_k, and alignment − 1 for each expert or replica of all
  // ranks. 0: as many as there can be if no token names an expert twice; rank_major: always 0; rank_compact: N · tokens
  // at most, and for 0. With scales in columns, this number and those above are rounded up to a multiple of 4.
  std::uint32_t capacity = 0;
  Overflow overflow = Overflow::error;
  // Combine multiplies by the weights that dispatch was given. rank_major, rank_compact: the weights go to the experts'
  // ranks, and combine takes rows as they are.
  bool weighted = true;
  // The weights are given to combine, not to dispatch, and sums have the same bits (DeepEP's low-latency mode does so).
  // Only if weighted, and not rank_major or rank_compact. A rank then adds up a row once its owner's weights have come:
  // combine waits once more. In halves only the weights travel before the wait (see MoeExchange::combine_send).
  bool weights_at_combine = false;
  // Rank of the group that holds each expert; a rank's experts are numbered in ascending order. Empty: as even as
  // possible, in contiguous blocks, larger blocks first.
  std::vector<std::uint32_t> rank_of_expert = {};
  // Use it instead of rank_of_expert if experts have replicas: the ranks that hold each expert, none of them twice. Of
  // an expert with n replicas, number (source rank + token) mod n serves a token; `token` is its number in the source's
  // dispatch. A replica is an expert of its rank like any other. `experts` counts the experts that ids name; all
  // replicas together are 4096 at most.
  std::vector<std::vector<std::uint32_t>> ranks_of_expert = {};
  // Use it instead of both if experts move while the exchange serves (MoeExchange::set_experts): the expert at each
  // place of each rank, [maps, ranks, places], and −1 at places without one. All ranks have as many places, which are
  // their local experts: outputs have them all, and an empty one gets no rows. In each map an expert has a place at
  // least. With several it has replicas, in this order and also on one rank, which serve tokens as those above. All
  // places of a map count as replicas. EPLB's physical_to_logical_map has this form.
  std::vector<std::int32_t> experts_of_rank = {};
  // Maps in experts_of_rank, 1 … 1024: one for each layer of the model that shares the exchange. A dispatch names its
  // own (DispatchArgs::map).
  std::uint32_t maps = 1;
  // Most dispatches whose combine has not ended (in halves: has not been waited for) yet; 1 … 64.
  std::uint32_t handles = 2;
  RowPath path = RowPath::automatic;  // rank_compact: not slots, and automatic is the ring alone
  // With a ring: places for each rank's rows, a power of two, 32 … 16384; 0: 4096 among all ranks, or 512. Halves by
  // the ring take as many tokens at most. A ring serves up to 1024 experts with all replicas, and with a cast 512 ·
  // (128 − top_k) columns. A large block fills a processor's shared memory: so there are no more blocks than
  // processors.
  std::uint32_t ring_rows = 0;
  // With a ring: the tokens of each rank that have slots beside it, 1024 and `tokens` at most. Calls whose
  // `most_tokens` are no more take the slots. So one exchange serves prefill and decoding. 0: as RowPath says; with
  // RowPath::ring none. rank_compact: always 0.
  std::uint32_t slot_tokens = 0;
  // The blocks that its calls will be given (Launch::blocks), 2 … 256, or 0: all of a GPU. From few blocks the ring is
  // faster than slots from some tens of tokens on. So RowPath::automatic then takes it for more `tokens` than those,
  // with slots beside it for calls of no more `most_tokens`. Nothing else depends on it, and calls may still be given
  // any blocks, which may differ from rank to rank.
  int blocks = 0;
  // Its dispatches can be made again with the routing of an earlier one (DispatchArgs::again). Rows then take the ring
  // alone: not RowPath::slots, and no slot_tokens. A dispatch takes no rounds.
  bool repeatable = false;
};

// Bytes that an exchange takes on each rank, and tokens that its buffers hold, if no tuning table has chosen its way.
// docs/moe.md has the formula.
struct MoeExchangeMemory {
  std::size_t dispatch = 0;  // receive buffers of dispatch, of one bank; there are two
  std::size_t combine = 0;   // of combine, likewise
  std::size_t tables = 0;    // routing that combine needs, of all handle slots, and weights that it is given
  std::size_t window = 0;    // all of them: the device's memory taken, besides 20 KiB of control memory that last
  std::size_t output = 0;    // of the caller: dispatch's rows, scales and payloads, and ids and weights of rows by rank
  std::uint32_t ring_rows = 0;  // places for each rank's rows, as given or as chosen for 0; 0: there is no ring
  // Most tokens of a rank in a half, a send or a wait alone. With a ring these are `ring_rows`, or the tokens that have
  // slots, if they are more: halves by slots name their `most_tokens`.
  std::uint32_t half_tokens = 0;
};
// If groups make different exchanges at once, every rank's window is as large as the largest.
MoeExchangeMemory moe_exchange_memory(int ranks, const MoeExchangeArgs& args);

}  // namespace weft
