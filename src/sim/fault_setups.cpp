#include "sim/fault_setups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <string_view>

#include "sim/fault_calls.hpp"

namespace weft::sim {
namespace {

constexpr std::uint64_t kDeadline = 100'000;  // ns of the simulated clock: ten thousand steps

// A dispatch that fills a rank's room for its expert, and one with a row too many; if experts are aligned, its pad is
// too many. Compact rows come once for both entries of a token.
void set_overflow(Setup& setup, int culprit, const std::string& variant) {
  const std::int64_t full = culprit, other = culprit == 0 ? 1 : 0;
  setup.exchange.capacity = 2;
  if (variant == "contiguous") {
    setup.exchange.layout = RowLayout::expert_contiguous;
    setup.exchange.alignment = 2;
    setup.exchange.capacity = 3;
  }
  const std::vector<Grid> grids = setup.calls[0].grids;
  setup.calls = moe_calls({{{full, other}, {full, -1}, {}}, {{full, full}, {other, full}, {}}}, grids);
  if (variant == "compact") {
    setup.exchange.layout = RowLayout::rank_compact;
    setup.exchange.path = RowPath::ring;
    setup.exchange.ring_rows = 1;
    setup.exchange.capacity = 1;
    setup.calls = moe_calls({{{full, full}, {other, -1}, {}}, {{full, -1}, {-1, full}, {}}}, grids);
  }
  setup.faults.odd_rank = culprit;
  setup.faults.odd_call = 2;
  setup.faults.overflow = true;
}

bool is_one_of(std::string_view kind, std::initializer_list<std::string_view> kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}

// Dispatches and combines through a ring with one place for each rank: tokens wait for credits.
void set_ring(Setup& setup) {
  setup.exchange.path = RowPath::ring;
  setup.exchange.ring_rows = 1;
  setup.exchange.tokens = 3;
  setup.exchange.capacity = 3 * setup.exchange.capacity;
  setup.calls = moe_calls({{{1, 0, 0, 0, 1, -1}, {0, 1, -1, -1, 1, 0}}, {{0, 1, 1, 0}, {1, -1}, {}}},
                          {{.blocks = 4, .threads = setup.lanes, .senders = 1}, {.blocks = 2, .threads = setup.lanes}});
}

// Two dispatches that leave their routing, and one that is made again with each of them.
void set_again(Setup& setup) {
  setup.exchange.repeatable = true;
  setup.exchange.handles = 2;
  setup.calls = made_again(setup.calls, 1);
}

void set_beside(Setup& setup) {
  setup.side_by_side = true;
  setup.exchange.handles = 2;
  setup.calls = beside_each_other(setup.calls, 2);
}

// Changes the calls that are already there.
void set_variant(Setup& setup, const std::string& variant) {
  if (variant == "wrap") {
    setup.start_epoch = 0xfffffffeu;
  } else if (variant == "torn16") {
    setup.atomic_bytes = 16;
  } else if (variant == "i32") {
    setup.type = DataType::i32;
  } else if (variant == "halves") {
    setup.calls = moe_apart({setup.calls[0].ids, setup.calls[2].ids}, {2, 1}, {2, 2});
    setup.exchange.handles = 2;
  } else if (is_one_of(variant, {"rounds", "rounds-ring"})) {
    // Two experts on each rank. The last rank to send first has rows for the second round alone.
    const auto last = static_cast<std::int64_t>(2 * setup.ranks - 1);
    setup.exchange.experts = 2 * setup.ranks;
    setup.exchange.capacity = 4 * setup.ranks;
    setup.exchange.handles = 2;
    setup.calls = moe_in_rounds({{{0, last}, {1, 0}, {last, -1}}, {{last, 1}, {0, 2}, {}}}, {1, 1}, {2, 1}, {2, 2});
    if (variant == "rounds-ring") {
      setup.exchange.path = RowPath::ring;
      setup.exchange.ring_rows = setup.exchange.tokens;
    }
  } else if (variant == "replays") {
    setup.calls = replays(setup.calls);
  } else if (variant == "apart") {
    for (CallSetup& call : setup.calls) call.grids = {{4, 1, true}, {5, 1, true}, kSmall};
  } else if (variant == "threads") {
    setup.pipeline_packs = 2;
    for (CallSetup& call : setup.calls) {
      call.count = 32 * setup.ranks;
      call.grids = {{2, 2}};
      call.flows = call.moving != Moving::nothing;
    }
  } else if (variant == "roles") {
    for (CallSetup& call : setup.calls) {
      call.grids = {{2, 2, false, 1}};
    }
  } else if (variant == "roles-lanes") {
    setup.exchange.hidden = 40;  // two packs and a half for each lane
    for (CallSetup& call : setup.calls) call.grids = {{2, 10, false, 2, true}, {3, 4, false, 1, true}};
  } else if (variant == "weights") {
    setup.exchange.weights_at_combine = true;
  } else if (variant.starts_with("ring")) {
    set_ring(setup);
    if (variant == "ring-beside-lanes") set_beside(setup);
    if (variant == "ring-again") set_again(setup);
    if (variant == "ring-compact") {
      setup.exchange.layout = RowLayout::rank_compact;
      setup.exchange.capacity = 0;
    }
  } else if (variant == "beside-lanes") {
    set_beside(setup);
  } else if (variant == "stale") {
    // Before the fault, the first rank has replayed a recording whose memory is gone.
    CallSetup stale = setup.calls[0];
    stale.replays = stale.only = 0;
    setup.calls = {setup.calls[0], {.act = Act::release}, {.act = Act::acquire_elsewhere}, stale, setup.calls[1]};
  } else if (variant == "chunks") {
    setup.calls[1].flows = true;
    setup.calls[3].detour = true;
  } else if (variant == "groups") {
    setup.groups = {{0, 1, 2}, {2, 0}};
    setup.calls[1].group = 1;
  } else if (variant == "groups-beside") {
    // Each group's calls have their own stream or thread: both may find the fault that ends the communicator.
    setup.groups = {{0, 1, 2}, {2, 0, 1}};
    setup.side_by_side = true;
    setup.calls[1].group = 1;
  } else if (!variant.empty() && !is_one_of(variant, {"lanes", "contiguous", "compact"})) {
    throw std::invalid_argument("no such variant: " + variant);
  }
}

// One rank makes a call that differs from the others'.
bool calls_differ(std::string_view kind) {
  return is_one_of(kind, {"mismatch", "other-count", "other-operation", "other-rows", "no-room"});
}

struct Variant {
  const char *protocol, *variant;
  unsigned ranks;
};
constexpr Variant kVariants[] = {
    {"two-shot", "wrap", 2},    {"one-shot", "torn16", 3}, {"one-shot", "i32", 2},     {"moe", "halves", 2},
    {"two-shot", "replays", 2}, {"one-shot", "groups", 3}, {"pipelined", "apart", 2},  {"counts", "", 2},
    {"counts", "wrap", 3},      {"moe", "roles", 2},       {"moe", "weights", 2},      {"moe", "weights", 3},
    {"moe", "rounds", 2},       {"moe", "rounds-ring", 2}, {"moe", "ring-compact", 2}, {"moe", "ring-again", 2}};

}  // namespace

Setup fault_setup(const FaultArgs& args) {
  const auto& [kind, protocol, ranks, one_thread, first, odd_call, variant] = args;
  Setup setup{.name = fmt::format("{}-{}{}{}-ranks{}{}{}", kind, protocol, variant.empty() ? "" : "-", variant, ranks,
                                  one_thread ? "-cpu" : "", first ? "-first" : ""),
              .type = DataType::bf16,
              .ranks = ranks,
              .atomic_bytes = 8,
              .lanes = variant.ends_with("lanes") ? 2u : 1u,
              .one_thread = one_thread,
              .payload = Payload::special,
              .deadline_ns = kDeadline};
  if (calls_differ(kind)) setup.name += fmt::format("-call{}", odd_call);
  set_fault_calls(setup, protocol);
  set_variant(setup, variant);
  Faults& faults = setup.faults;
  const int culprit = first ? 0 : static_cast<int>(ranks) - 1;
  if (calls_differ(kind) || kind == "host-reads") {
    faults.odd_rank = culprit;
    faults.odd_call = odd_call;
  }
  faults.no_room = kind == "no-room";
  if (kind == "overflow") set_overflow(setup, culprit, variant);
  if (kind == "in-flight") {
    // Made again, a dispatch without a combine comes behind one that has its combine.
    const std::vector<CallSetup> calls = setup.calls;
    setup.calls = {calls[0], calls[2]};
    if (variant == "ring-again") setup.calls = {calls[0], calls[1], calls[4], calls[4]};
    faults.in_flight = true;
    faults.odd_call = static_cast<unsigned>(setup.calls.size()) - 1;
  }
  if (kind == "other-routing") {
    // Both dispatches have as many tokens, so only their epochs tell them apart. The culprit takes the second one's.
    setup.calls = made_again(moe_calls({{{1, -1, 0, 0}, {0, 1}}, {{-1, 0, 1, 1}, {1, -1}}}, setup.calls[0].grids), 1);
    faults.odd_rank = culprit;
    faults.odd_call = 4;
    faults.odd = setup.calls[4];
    faults.odd->again = 2;
  }
  if (is_one_of(kind, {"other-count", "other-operation"})) {
    CallSetup odd = setup.calls[odd_call];
    if (kind == "other-count" && odd.moving == Moving::rms_norm) {
      odd.rows += 1;
    } else if (odd.moving == Moving::dispatch) {
      odd.count += 1;  // only the fingerprint shows it
      odd.ids = {{1, 1}};
    } else if (kind == "other-count") {
      odd.count += odd.symmetric ? 8 : 5;
    } else {
      odd.moving = odd.moving == Moving::nothing ? Moving::all_to_all : Moving::nothing;
    }
    faults.odd = odd;
  }
  if (kind == "other-rows") {
    faults.odd = setup.calls[odd_call];
    std::ranges::reverse(faults.odd->counts);
  }
  if (kind == "rejects") {
    // It makes no other call either: unless it tells its peers, they wait for ever.
    faults.odd_rank = culprit;
    faults.odd_call = static_cast<unsigned>(setup.calls.size()) - 1;
    faults.odd = CallSetup{.grids = {{1, 2}}, .moving = Moving::rejection};
    faults.rejects = true;
  }
  faults.host_reads = kind == "host-reads";
  if (kind == "ahead") faults.ahead_rank = culprit;
  if (is_one_of(kind, {"stops", "slow", "late", "dies", "aborted"})) faults.stopping_rank = culprit;
  if (kind == "slow") faults.until = kDeadline / 2;
  if (kind == "late") faults.until = kDeadline * 2;
  faults.harmless = kind == "slow";
  faults.death_is_told = kind == "dies";
  if (is_one_of(kind, {"dies", "aborted", "rejects"})) setup.deadline_ns = 0;
  if (is_one_of(kind, {"aborted", "aborts"})) faults.aborting_rank = 0;
  if (is_one_of(kind, {"overlap", "unordered"})) faults.unordered_rank = culprit;
  faults.overlaps = kind == "overlap";
  // Messages of calls that overlap are mixed up: of one name, so that nobody finds a mismatch first.
  if (faults.overlaps && protocol == "messages") {
    for (CallSetup& call : setup.calls) {
      for (Letter& letter : call.letters) letter.count = 24;
    }
  }
  // Overlapping calls are of one group. They are dispatches, because a later dispatch need not wait for a combine.
  if (faults.overlaps && setup.has_exchange()) {
    setup.calls = {setup.calls[0], setup.calls[2]};
    setup.calls[1].discard = true;
  }
  if (!faults.any()) throw std::invalid_argument("no such fault: " + kind);
  return setup;
}

const Setup& unordered_setup() {
  static const Setup setup = fault_setup({.kind = "unordered", .protocol = "one-shot", .ranks = 2});
  return setup;
}

const std::vector<Setup>& all_fault_setups() {
  static const std::vector<Setup> setups = [] {
    std::vector<Setup> all;
    for (const std::string kind :
         {"stops", "slow", "late", "dies", "aborted", "aborts", "mismatch", "other-count", "other-operation",
          "other-rows", "no-room", "in-flight", "overflow", "ahead", "host-reads", "overlap", "rejects"}) {
      for (const std::string protocol : {"one-shot", "two-shot", "pipelined", "multimem-one-shot", "multimem-two-shot",
                                         "moves", "ragged", "symmetric", "norm-one-shot", "norm-two-shot", "moe"}) {
        // The groups of an exchange have no other operation.
        if (protocol == "moe" && kind == "other-operation") continue;
        if (!is_one_of(protocol, {"ragged", "symmetric"}) && is_one_of(kind, {"no-room", "other-rows"})) continue;
        if (protocol != "moe" && is_one_of(kind, {"in-flight", "overflow"})) continue;
        const unsigned calls = protocol == "moe" || protocol == "ragged" ? 4 : 3;
        for (unsigned call = 0; call < calls; ++call) {
          if (!calls_differ(kind) && call != 1) continue;
          if (kind == "no-room" && call != 0 && call != 3) continue;  // equal shares fit always
          if (kind == "other-rows" && call != 0 && (protocol != "ragged" || call != 3)) continue;
          const auto add = [&](FaultArgs args) {
            args.kind = kind;
            args.protocol = protocol;
            args.odd_call = call;
            all.push_back(fault_setup(args));
          };
          for (const unsigned ranks : {2u, 3u, 4u}) add({.kind = {}, .protocol = {}, .ranks = ranks});
          add({.kind = {}, .protocol = {}, .ranks = 3, .one_thread = true});
          if (is_one_of(kind, {"stops", "slow", "late", "dies", "mismatch", "overflow"})) {
            add({.kind = {}, .protocol = {}, .ranks = 3, .first = true});
          }
        }
      }
      for (const auto& [protocol, variant, ranks] : kVariants) {
        if (!is_one_of(kind, {"stops", "dies"})) continue;
        all.push_back(fault_setup({.kind = kind, .protocol = protocol, .ranks = ranks, .variant = variant}));
      }
    }
    // Groups of two ranks, and in a crossing ranks of other groups.
    for (const std::string kind : {"late", "dies", "aborts"}) {
      for (const std::string protocol : {"crossings", "normed-crossings", "columns", "top-k"}) {
        all.push_back(fault_setup({.kind = kind, .protocol = protocol, .ranks = 2}));
      }
      all.push_back(fault_setup({.kind = kind, .protocol = "crossings", .ranks = 4, .one_thread = true}));
    }
    for (const std::string protocol : {"pipelined", "moves"}) {
      all.push_back(fault_setup({.kind = "aborts", .protocol = protocol, .ranks = 2, .variant = "threads"}));
    }
    for (const bool one_thread : {false, true}) {
      all.push_back(fault_setup({.kind = "aborts",
                                 .protocol = "one-shot",
                                 .ranks = 3,
                                 .one_thread = one_thread,
                                 .variant = "groups-beside"}));
    }
    for (const std::string variant : {"contiguous", "lanes", "ring", "compact"}) {
      all.push_back(fault_setup({.kind = "overflow", .protocol = "moe", .ranks = 2, .variant = variant}));
    }
    for (const unsigned ranks : {2u, 3u}) {
      all.push_back(fault_setup({.kind = "other-routing", .protocol = "moe", .ranks = ranks, .variant = "ring-again"}));
    }
    for (const std::string kind : {"late", "aborts", "mismatch", "in-flight"}) {
      all.push_back(fault_setup({.kind = kind, .protocol = "moe", .ranks = 2, .odd_call = 4, .variant = "ring-again"}));
    }
    for (const std::string variant : {"beside-lanes", "ring-beside-lanes"}) {
      all.push_back(fault_setup({.kind = "aborts", .protocol = "moe", .ranks = 2, .variant = variant}));
    }
    all.push_back(
        fault_setup({.kind = "mismatch", .protocol = "one-shot", .ranks = 2, .odd_call = 4, .variant = "stale"}));
    for (const std::string kind : {"stops", "slow", "late", "dies", "aborts"}) {
      all.push_back(fault_setup({.kind = kind, .protocol = "ragged", .ranks = 3, .variant = "chunks"}));
    }
    // Teams with lanes are not told of deaths.
    for (const std::string kind : {"stops", "slow", "late", "aborts"}) {
      for (const unsigned ranks : {2u, 3u}) {
        all.push_back(fault_setup({.kind = kind, .protocol = "moe", .ranks = ranks, .variant = "roles-lanes"}));
      }
    }
    for (const std::string kind :
         {"stops", "slow", "late", "dies", "aborted", "aborts", "mismatch", "in-flight", "rejects"}) {
      const auto add = [&](FaultArgs args) {
        args.kind = kind;
        args.protocol = "moe";
        if (args.variant.empty()) args.variant = "ring";
        all.push_back(fault_setup(args));
      };
      add({.kind = {}, .protocol = {}, .ranks = 2, .odd_call = 2});
      if (is_one_of(kind, {"slow", "aborted", "in-flight", "rejects"})) continue;
      add({.kind = {}, .protocol = {}, .ranks = 3});
      if (is_one_of(kind, {"late", "dies"})) add({.kind = {}, .protocol = {}, .ranks = 3, .one_thread = true});
      if (kind == "stops") add({.kind = {}, .protocol = {}, .ranks = 3, .first = true});
      // Teams with lanes are not told of deaths.
      if (kind != "dies") add({.kind = {}, .protocol = {}, .ranks = 2, .variant = "ring-lanes"});
    }
    for (const std::string kind : {"stops", "slow", "late", "dies", "aborted", "aborts", "mismatch", "overlap"}) {
      const auto add = [&](unsigned ranks, bool one_thread) {
        all.push_back(fault_setup(
            {.kind = kind, .protocol = "messages", .ranks = ranks, .one_thread = one_thread, .odd_call = 1}));
      };
      add(2, false);
      add(3, true);
    }
    for (const std::string kind : {"stops", "slow", "late", "dies", "aborts", "mismatch"}) {
      all.push_back(fault_setup({.kind = kind, .protocol = "norm-roles", .ranks = 2, .odd_call = 1}));
    }
    for (const std::string kind : {"stops", "late", "aborts", "mismatch"}) {
      for (const std::string protocol : {"moe", "norm-one-shot", "norm-two-shot"}) {
        for (const unsigned ranks : {2u, 3u}) {
          if (ranks == 3 && protocol != "moe") continue;  // norms with lanes are built for two
          all.push_back(fault_setup({.kind = kind, .protocol = protocol, .ranks = ranks, .variant = "lanes"}));
        }
      }
    }
    return all;
  }();
  return setups;
}

}  // namespace weft::sim
