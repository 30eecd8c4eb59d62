// The parts of one experiment: a protocol, its ranks, and the calls that they make.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numeric/row_scaling.hpp"
#include "protocol/channel.hpp"
#include "weft/moe.hpp"
#include "weft/types.hpp"

namespace weft::sim {

struct Grid {
  unsigned blocks = 2;  // the control block included
  unsigned threads = 1;
  bool apart = false;    // pipelined: as in AllReduceWork
  unsigned senders = 0;  // dispatch and combine: as in their work; of a ring: blocks
  bool pairs = false;    // combine: likewise
  bool tallies = false;  // dispatch: likewise
};
inline constexpr Grid kSmall{.blocks = 2, .threads = 1};

struct Trial;  // sim/trial.hpp

// A collective call, or an act of all hosts between calls.
enum class Act : std::uint8_t {
  call,
  release,           // the windows go away; replays end
  acquire,           // they come back to their old addresses: earlier recordings are good again
  acquire_elsewhere  // they do not: earlier recordings stay stale
};

// The kind of a call that is no all-reduce. In gathers and scatters, `count` is the elements that one rank sends to
// another; in ragged ones, the elements of a row. Dispatches are calls of group 0, combines of group 1.
enum class Moving : std::uint8_t {
  nothing,
  all_gather,
  all_to_all,
  broadcast,  // from the last rank
  reduce_scatter,
  reduce,            // to the last rank
  all_gather_v,      // of two tensors, or one
  reduce_scatter_v,  // into a slot with its pads
  all_gather_columns,
  all_to_all_columns,  // `counts` are of groups
  top_k_columns,       // `count` is the columns of each rank
  gather_sums,         // crossings, of rows as in ragged calls
  scatter_sums,
  gather_sums_norm,  // … with residual and norm: `count` is the columns of a row
  scatter_sums_norm,
  barrier,
  gather_counts,  // `count` is the numbers of each rank, `counts` the first one of each group
  dispatch,
  combine,
  rms_norm,   // an all-reduce with residual and norm: `count` is the columns of a row
  messages,   // CallSetup::letters
  rejection,  // no call: the rank tells the others that it has rejected one
  trial       // any call that CallSetup::trial describes
};

// rms_norm and crossings with a norm: the steps applied to a row.
struct NormForm {
  detail::RowScaling scaling = detail::RowScaling::per_token;  // of its cast to e4m3
  bool power_of_two = false;
  float floor = 1e-4f;  // the least magnitude that a scale is made for
  bool gamma_plus_one = false, gamma_f32 = false;
  bool residual = true;      // else there is none to add
  bool output = true;        // else the row is only made in e4m3
  bool apart = false;        // a pack lies between rows, and scales of one group of columns lie together
  bool keeps_own = false;    // one-shot of two ranks: they do not send to themselves
  bool roles = false;        // two-shot of two ranks: blocks move packs or norm rows, if there are more than two
  unsigned warp_groups = 1;  // … of each processor, if there are six blocks or more
};

// A message of `count` elements between two ranks of the group.
struct Letter {
  unsigned from, to;
  std::uint64_t count;
  bool sends = true, receives = true;  // in this call; else it does so in another one
  int sent_in = -1;                    // the call that sends it, if that is another one
};

struct CallSetup {
  std::uint64_t count = 0;             // elements
  std::vector<Grid> grids = {Grid{}};  // by rank of the group; the last one serves the other ranks
  bool in_place = false;
  unsigned group = 0;
  bool misaligned = false;  // user memory begins one element behind a pack boundary
  Moving moving = Moving::nothing;
  bool flows = false;      // in chunks, whatever its size
  bool detour = false;     // … over other ranks: a broadcast, or ragged calls with one busy rank
  bool symmetric = false;  // … to outputs in symmetric memory, at the same place in all calls
  std::uint64_t rows = 1;  // rms_norm, all_gather_columns, top_k_columns
  NormForm norm = {};      // rms_norm, crossings with a norm
  // rms_norm: packs of a row that go through the buffers at once, if the buffers are too small for a row (wide_norm()).
  // The call is then one `step` of several; call `of` is the first of them. If `alone`, it is the norm behind them.
  std::uint64_t piece = 0;
  unsigned step = 0;
  bool alone = false;
  std::vector<std::int32_t> counts = {};  // ragged: rows of each rank; with a sharding: of all ranks
  Sharding sharding = Sharding::none;     // ragged
  Padding padding = Padding::max;         // ragged; aligned: to two rows, fixed: of two
  std::vector<std::int32_t> slots = {};   // ragged: of each rank, for per_rank slots
  std::uint64_t second = 1;               // all_gather_v: elements of a row of the second tensor; 0: none
  std::uint64_t columns = 0;              // calls of columns: of all shards' rows; 0: all
  bool even_shards = false;               // of these calls
  bool changed = false;                   // … whose elements are doubled and widened
  std::uint32_t k = 1, parts = 1;         // top_k_columns: as in TopKWork
  unsigned group_ranks = 1;               // gather_counts: neighbours that share a count; others: rows
  bool split_slots = false;               // … or rather their slot
  bool one_hop = false;                   // crossings: if their slots have room for it
  std::vector<Letter> letters = {};       // messages: of all ranks; no two for one pair and direction
  Act act = Act::call;
  int replays = -1;  // replays the recording of an earlier call: its arguments and tensors, with new data in them
  int only = -1;     // only this rank does it: the replay of a stale recording
  // Dispatch: the experts of each rank's tokens, one token behind the other; the last list serves the other ranks.
  std::vector<std::vector<std::int64_t>> ids = {};
  bool wide_ids = false;       // … which are given as 64 bits
  bool discard = false;        // dispatch: as in DispatchArgs
  bool by_slots = false;       // dispatch: by the slots beside a ring
  int again = -1;              // dispatch: made again with the routing of this call, whose `ids` it has, too
  bool residual = false;       // combine: there is one
  detail::Phases phases = {};  // of dispatch and combine
  // combine: the call that was its dispatch; a wait, or a later round: its first send; rms_norm: the first step
  int of = -1;
  std::vector<std::uint32_t> rounds = {};  // of dispatch and combine: a rank's experts of each round; none: one round
  unsigned round = 0;                      // that a dispatch's wait receives, or a combine's send sends
  std::shared_ptr<const Trial> trial = {};
  int after = -1;  // begins on each rank when this call of another stream has ended there

  // The wait for what was sent does not, and neither does what one rank does alone.
  bool begins_epoch() const { return act == Act::call && !is_later() && !alone && moving != Moving::rejection; }
  // A launch behind the first one of its call.
  bool is_later() const { return !phases.has(0) || round != 0; }
};

// The kind of numbers: plain ones; numbers that show the order of summation; or many sentinels, zeros of both signs and
// NaN.
enum class Payload : std::uint8_t { plain, rounding, special };

// A deliberate fault. The calls then need not succeed, but must end, and name the rank to blame.
struct Faults {
  int odd_rank = -1;                  // makes a call of its own …
  unsigned odd_call = 0;              // … instead of this one:
  std::optional<CallSetup> odd = {};  // none: the same, with another fingerprint, or …
  bool no_room = false;               // … its ragged tensor lacks a row, or …
  bool overflow = false;              // … the dispatch has more rows for its experts than there is room
  bool rejects = false;               // … it makes no call, and tells the others
  int ahead_rank = -1;                // begins two calls ahead of the others
  int aborting_rank = -1;             // its host calls abort()
  bool host_reads = false;            // the host of rank 0 waits for a record and reads it
  int unordered_rank = -1;            // has a stream for each of its calls, and nothing orders them …
  bool overlaps = false;              // … except that they begin while the first one runs
  int stopping_rank = -1;             // stops at one of its steps, which the explorer chooses …
  std::uint64_t until = 0;            // … until this time; 0: for ever
  bool death_is_told = false;         // its peers can know that it has stopped
  bool in_flight = false;             // `odd_call` is a dispatch that takes a handle slot whose combine was not called
  bool harmless = false;              // no rank's call may fail
  bool lacks_room() const { return no_room || overflow; }
  bool any() const {
    return odd_rank >= 0 || ahead_rank >= 0 || aborting_rank >= 0 || stopping_rank >= 0 || unordered_rank >= 0 ||
           in_flight;
  }
};

struct Setup {
  std::string name = {};
  Algorithm algorithm = Algorithm::one_shot;
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  unsigned ranks = 2;
  int atomic_bytes = 16;
  unsigned lanes = 1;       // of a warp; threads of each grid are a multiple
  bool one_thread = false;  // a rank is one thread that runs all blocks of a phase, then the next, as on CPUs
  std::uint32_t start_epoch = 0;
  std::vector<std::vector<unsigned>> groups = {};  // members by rank of the group; none: one group of all ranks
  bool side_by_side = false;                       // each group has a stream of its own on every rank
  Payload payload = Payload::plain;
  std::vector<CallSetup> calls = {};
  bool small = false;  // can be searched exhaustively, within …
  unsigned bound = 2;  // … this bound
  std::uint64_t deadline_ns = 0;
  unsigned pipeline_slots = 4, pipeline_packs = 1;
  unsigned symmetric_bytes = 0;  // of each rank; with an exchange: of DispatchArgs::host_counts
  Faults faults = {};

  bool is_odd(unsigned call, unsigned rank) const {
    return faults.odd_rank == static_cast<int>(rank) && faults.odd_call == call;
  }
  // The call that a rank makes.
  const CallSetup& call(unsigned index, unsigned rank) const {
    return faults.odd && is_odd(index, rank) ? *faults.odd : calls[index];
  }
  MoeExchangeArgs exchange = {};  // of dispatches and combines; no experts: there are none
  // Whether masks of columns without packs are simulated (wire/escaped.hpp); they take 32 steps for each row.
  bool empty_columns = false;
  bool has_exchange() const { return exchange.experts != 0; }
  bool tells_counts() const { return has_exchange() && symmetric_bytes != 0; }
  // Whether warps copy in bulk (sim/copies.hpp).
  bool copies() const { return exchange.path == RowPath::ring; }
};

// A dispatch and its combine for each of the routings (CallSetup::ids).
using Routing = std::vector<std::vector<std::int64_t>>;
std::vector<CallSetup> moe_calls(const std::vector<Routing>& routings, const std::vector<Grid>& grids = {Grid{}});

// Sends and waits in launches of their own, on grids of their own. The wait for a combine comes behind the send of the
// next dispatch.
std::vector<CallSetup> moe_apart(const std::vector<Routing>& routings, Grid of_send, Grid of_wait);
// Launches of their own for each round: the send of a dispatch, then the wait of each round with the combine's send of
// the same round behind it, then the wait. `of_wait` is the grid of a dispatch's waits and a combine's sends.
using Division = std::vector<std::uint32_t>;  // experts of each round
std::vector<CallSetup> moe_in_rounds(const std::vector<Routing>& routings, const Division& division, Grid of_send,
                                     Grid of_wait);
// Dispatches and combines on streams of their own. Each dispatch runs beside the combine of the one before. It takes a
// handle slot when that handle slot's last combine has ended.
std::vector<CallSetup> beside_each_other(std::vector<CallSetup> calls, int handles);
// Dispatches that tell the host their counts (Setup::tells_counts).
std::vector<CallSetup> telling_counts(std::vector<CallSetup> calls);
// Behind each dispatch's combine, `times` dispatches that take its routing, each with a combine.
std::vector<CallSetup> made_again(const std::vector<CallSetup>& calls, int times);
// The same exchange, whose weights come with combine.
MoeExchangeArgs weighed_late(MoeExchangeArgs args);
// With rows of one pack, which travel bit for bit, and room for all of them.
MoeExchangeArgs exchange_of(std::uint32_t tokens, std::uint32_t experts, std::uint32_t top_k);

// Recordings of the first and the second call, mixed with eager calls.
std::vector<CallSetup> replays(const std::vector<CallSetup>& eager);
// The windows come back to their old addresses, then to others. A recording of the first call is replayed meanwhile, is
// good again between the two, and stale ever after; only the last rank tries it then.
std::vector<CallSetup> releases(const std::vector<CallSetup>& eager, int last_rank);

// The set-ups that the tests run, by name.
const std::vector<Setup>& all_setups();
const Setup& find_setup(std::string_view name);  // or one of sim/fault_setups.hpp; throws weft::Error
bool is_listed(const Setup& setup);              // whether find_setup() finds it; it finds no trial
// The set-ups of each operation, in its folder.
std::vector<Setup> small_all_reduce_setups();
std::vector<Setup> large_all_reduce_setups();
std::vector<Setup> small_move_setups();
std::vector<Setup> large_move_setups();
std::vector<Setup> small_in_place_setups();
std::vector<Setup> large_in_place_setups();
std::vector<Setup> symmetric_setups();
std::vector<Setup> small_multimem_setups();
std::vector<Setup> large_multimem_setups();
std::vector<Setup> small_norm_setups();
std::vector<Setup> large_norm_setups();
std::vector<Setup> small_column_setups();
std::vector<Setup> large_column_setups();
std::vector<Setup> small_top_k_setups();
std::vector<Setup> large_top_k_setups();
std::vector<Setup> small_crossing_setups();
std::vector<Setup> large_crossing_setups();
std::vector<Setup> small_normed_crossing_setups();
std::vector<Setup> large_normed_crossing_setups();
std::vector<Setup> small_message_setups();
std::vector<Setup> large_message_setups();
std::vector<Setup> small_moe_setups();
std::vector<Setup> large_moe_setups();
std::vector<Setup> small_tally_setups();
std::vector<Setup> large_tally_setups();
std::vector<Setup> small_round_setups();
std::vector<Setup> large_round_setups();
std::vector<Setup> small_ring_setups();
std::vector<Setup> large_ring_setups();
std::vector<Setup> small_compact_setups();
std::vector<Setup> place_setups();
std::vector<Setup> large_compact_setups();
std::vector<Setup> small_again_setups();
std::vector<Setup> large_again_setups();
std::vector<Setup> payload_setups();

}  // namespace weft::sim
