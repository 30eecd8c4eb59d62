// Gathers and scatters with counts that ranks read while the call runs: every kind of slot, every shape of counts, one
// recording for all batches, and counts that do not fit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <variant>

#include "comm/capture.hpp"
#include "support/cases.hpp"
#include "support/move_mixes.hpp"
#include "support/move_recordings.hpp"
#include "support/ragged_cases.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"
#include "weft/take.hpp"

namespace weft::test {
namespace {

class Ragged : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Ragged, testing::ValuesIn(world_sizes({1, 2, 3, 4, 8, 13})));

TEST_P(Ragged, EveryShapeOfCountsInEveryKindOfSlot) {
  const std::vector<Move> moves = moves_of_every_shape(GetParam());
  expect_right(GetParam(), cpu_config(), moves);
  expect_right(GetParam(), small_slots(), moves);
}

TEST_P(Ragged, RowsThatRanksShareAreSplitByBothRules) {
  expect_right(GetParam(), cpu_config(), moves_of_shared_rows(GetParam()));
}

TEST_P(Ragged, CountsOnTheHost) {
  expect_right(GetParam(), cpu_config(), moves_with_counts_on_host(GetParam()));
}

// A recording keeps the numbers that its calls were made with.
TEST(RaggedOnHost, ARecordingKeepsTheNumbers) {
  expect_all_well(run_world(3, cpu_config(), [](Communicator& communicator, int) {
    Move move{.kind = Kind::all_gather_v, .widths = {8}, .counts = {3, 0, 2}, .counts_at = CountsAt::host};
    const RankMove prepared = prepare(move, 3, communicator.rank());
    HostMove memory(prepared);
    const Recording recording = Recording::capture(communicator, [&] { memory.call(communicator); });
    for (int replay = 0; replay < 3; ++replay) {
      memory.fill();
      recording.replay();
      memory.check();
      Move other = move;
      other.counts = {0, 4, 1};
      run_on_cpu_rank(communicator, other);
    }
  }));
}

// One rank has other numbers, on the host, than its peers on the device; or rejects its own. All learn it.
TEST(RaggedOnHost, NumbersThatDifferOrAreRejectedEndTheCallEverywhere) {
  for (const bool negative : {false, true}) {
    const std::vector<Ending> endings = run_world(3, cpu_config(), [&](Communicator& communicator, int rank) {
      const std::int32_t usual[] = {1, 1, 1}, odd[] = {1, negative ? -1 : 0, 1};
      Bytes rows(64);
      const GatheredTensor tensor{.input = rows.data(), .output = rows.data() + 32, .row_bytes = 8};
      const Counts counts{.rows = rank == 1 ? odd : usual, .on_host = rank == 1};
      all_gather_v(communicator, {.tensors = {&tensor, 1}, .counts = counts, .input_rows = 1, .output_rows = 4});
    });
    for (std::size_t rank = 0; rank < endings.size(); ++rank) {
      if (negative) {
        expect_says(endings[rank].what,
                    rank == 1 ? "counts.rows[1]: -1 is not between" : "all_gather_v rows of 8 bytes");
        if (rank != 1 && endings[rank].error) {
          EXPECT_EQ(endings[rank].error->fault().peer, 1);
        }
      } else {
        expect_fault(endings[rank], {Errc::mismatch, Errc::peer_failed}, std::to_string(rank));
      }
    }
  }
}

TEST(RaggedOnHost, ImpossibleNumbersAreRejected) {
  std::vector<Communicator> ranks = Communicator::local(1, cpu_config());
  const std::int32_t negative[] = {-1}, one[] = {1};
  Bytes rows(64);
  const GatheredTensor tensor{.input = rows.data(), .output = rows.data(), .row_bytes = 8};
  const auto gather = [&](Counts counts) {
    counts.on_host = true;
    all_gather_v(ranks[0], {.tensors = {&tensor, 1}, .counts = counts, .input_rows = 8, .output_rows = 8});
  };
  gather({.rows = one});
  expect_says(error_of([&] { gather({.rows = negative}); }), "counts.rows[0]: -1 is not between 0 and 2147483647");
  expect_says(error_of([&] { gather({.rows = one, .padding = Padding::per_rank, .slots = negative}); }),
              "counts.slots[0]: -1 is not between 0 and 2147483647");
  const TakeRowsArgs take{.input = rows.data(),
                          .output = rows.data() + 32,
                          .row_bytes = 8,
                          .counts = {.rows = one, .on_host = true},
                          .input_rows = 4,
                          .output_rows = 4};
  expect_says(error_of([&] { take_rows(ranks[0], take); }),
              "counts.on_host: true; with counts on the host, slots_of()");
}

TEST_P(Ragged, UpToEightTensorsOfAnyNumberOfBytes) {
  const std::vector<Move> moves = moves_of_many_tensors(GetParam());
  expect_right(GetParam(), cpu_config(), moves);
  expect_right(GetParam(), small_slots(), moves);
}

// The equal and the ragged operation give the same bits.
TEST_P(Ragged, CountsThatAreAlikeGiveWhatTheEqualFormGives) {
  const int ranks = GetParam();
  std::vector<Move> moves;
  for (const auto& [equal, ragged] : alike_moves(ranks)) {
    ASSERT_EQ(prepare(equal, ranks, 0).memory.back().after, prepare(ragged, ranks, 0).memory.back().after);
    moves.insert(moves.end(), {equal, ragged});
  }
  expect_right(ranks, cpu_config(), moves);
  expect_right(ranks, small_slots(), moves);
}

TEST_P(Ragged, EveryTypeWidthStrideAndAddress) {
  const std::vector<Move> moves = ragged_moves_of_any_shape(200, GetParam(), {.packs = 6, .elements = 50});
  expect_right(GetParam(), cpu_config(), moves);
  expect_right(GetParam(), small_slots(), moves);
}

// One rank's message takes many rounds of the slots, while others have little or nothing.
TEST_P(Ragged, OneBusyRankWithWideRows) {
  const int ranks = GetParam();
  std::vector<Move> moves;
  for (const Kind kind : kRagged) {
    for (const std::int32_t rest : {0, 1, 7}) {
      std::vector<std::int32_t> rows(static_cast<std::size_t>(ranks), rest);
      rows[moves.size() % rows.size()] = kSanitized ? 12 : 60;
      moves.push_back({.kind = kind, .widths = {7168}, .fill = Fill::special, .counts = rows, .padding = Padding::max});
    }
  }
  moves.push_back({.kind = Kind::all_gather_v,
                   .widths = {7168, 56, 8, 8},
                   .counts = std::vector<std::int32_t>(static_cast<std::size_t>(ranks), 9),
                   .seed = 4});
  expect_right(ranks, small_slots(), moves);
}

// One busy rank's rows are few enough for lines, and go through all other ranks. The two-shot all-reduce, which shares
// these areas, and calls without relays take turns with them.
TEST(RaggedRelays, OneBusyRankInLines) {
  for (const int ranks : {4, 5, 8}) {
    std::vector<Move> moves;
    for (const std::int32_t rest : {0, 1}) {
      for (const std::size_t busy : {std::size_t{0}, static_cast<std::size_t>(ranks - 1)}) {
        Move move{.kind = Kind::all_gather_v, .widths = {512}, .fill = Fill::bits, .padding = Padding::none};
        move.counts.assign(static_cast<std::size_t>(ranks), rest);
        move.counts[busy] = 20;
        moves.push_back(move);
        move.widths = {448, 24, 8, 8};  // hidden, scales, ids, weights
        move.padding = Padding::aligned;
        move.slot_rows = 4;
        moves.push_back(move);
        move.kind = Kind::reduce_scatter_v;
        move.widths = {500};
        move.fill = Fill::special;
        moves.push_back(move);
      }
    }
    moves.push_back({.kind = Kind::broadcast, .rows = 20, .widths = {512}, .fill = Fill::bits, .root = 1});
    moves.push_back({.kind = Kind::all_gather, .widths = {300}});
    const Prepared sum = prepare({.count = 9000, .algorithm = Algorithm::two_shot, .fill = Fill::random}, ranks);
    expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
      std::mt19937 delays(static_cast<unsigned>(rank)), choices(4);
      for (int call = 0; call < repeated(150); ++call) {
        if (delays() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
        const auto choice = choices();
        if (choice % 4 == 0) {
          run_on_cpu_rank(communicator, sum, rank);
        } else {
          run_on_cpu_rank(communicator, moves[choice / 4 % moves.size()]);
        }
      }
    }));
  }
}

// Hidden states and their scales are columns of one matrix in input and output, with a gap behind them.
TEST(RaggedColumns, OfOneMatrixLieSideBySide) {
  constexpr int ranks = 3;
  constexpr std::size_t wide = 40, narrow = 12, stride = 64, rows = 5;
  const std::vector<std::int32_t> counts{2, 0, 3};
  const auto byte_of = [](std::size_t row, std::size_t column) { return static_cast<std::byte>(row * 50 + column); };
  for (const bool in_place : {false, true}) {
    expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
      const std::size_t begin = rank == 2 ? 2 : 0, own = static_cast<std::size_t>(counts[index(rank)]);
      Bytes input(rows * stride, std::byte{0xee}), output(rows * stride, std::byte{0xee});
      Bytes& from = in_place ? output : input;
      const std::size_t shift = in_place ? begin : 0;
      for (std::size_t row = 0; row < own; ++row)
        for (std::size_t column = 0; column < wide + narrow; ++column)
          from[(shift + row) * stride + column] = byte_of(begin + row, column);
      const auto tensor = [&](std::size_t column, std::size_t bytes) {
        return GatheredTensor{.input = from.data() + shift * stride + column,
                              .output = output.data() + column,
                              .row_bytes = bytes,
                              .input_stride = stride,
                              .output_stride = stride};
      };
      const GatheredTensor tensors[] = {tensor(0, wide), tensor(wide, narrow)};
      all_gather_v(communicator,
                   {.tensors = tensors, .counts = {.rows = counts.data()}, .input_rows = own, .output_rows = rows});
      for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t column = 0; column < stride; ++column)
          ensure(output[row * stride + column] == (column < wide + narrow ? byte_of(row, column) : std::byte{0xee}),
                 fmt::format("row {}, byte {}", row, column));
    }));
  }
}

// A single row has no distance to the next one. So counts and an own row may lie in the gaps.
TEST(RaggedColumns, ASingleRowMayLieInAGap) {
  expect_all_well(run_world(2, cpu_config(), [&](Communicator& communicator, int rank) {
    constexpr std::size_t width = 24, stride = 64;
    alignas(16) std::byte memory[2 * stride] = {};
    auto* const counts = reinterpret_cast<std::int32_t*>(memory + 32);
    counts[0] = counts[1] = 1;
    const std::byte input[width] = {static_cast<std::byte>(5 + rank)};
    const GatheredTensor tensors[] = {{.input = input, .output = memory, .row_bytes = width, .output_stride = stride}};
    const auto gather = [&](std::int32_t* rows) {
      all_gather_v(communicator, {.tensors = tensors, .counts = {.rows = rows}, .input_rows = 1, .output_rows = 2});
    };
    gather(counts);
    ensure(memory[0] == std::byte{5} && memory[stride] == std::byte{6} && counts[1] == 1, "wrong rows");
    for (const std::size_t at : {std::size_t{20}, stride - 4, stride + 20}) {
      auto* const inside = reinterpret_cast<std::int32_t*>(memory + at);
      expect_code([&] { gather(inside); }, Errc::invalid_argument, "counts.rows: overlaps tensors[0].output");
    }
  }));
}

class RaggedRecordings : public testing::TestWithParam<std::tuple<int, Padding>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RaggedRecordings,
                         testing::Combine(testing::ValuesIn(world_sizes({1, 2, 3, 4, 8})),
                                          testing::Values(Padding::aligned, Padding::per_rank)));

// Capacities are each rank's own, and one recording serves all batches.
TEST_P(RaggedRecordings, OneForEveryBatch) {
  const auto [ranks, padding] = GetParam();
  expect_all_well(
      run_world(ranks, small_slots(), [ranks = ranks, padding = padding](Communicator& communicator, int rank) {
        gather_and_scatter_every_batch(HostSide(communicator), ranks, rank,
                                       {.padding = padding, .widths = {40, 3}, .turns = 100});
      }));
}

TEST(RaggedWays, OneRecordingForAll) {
  constexpr int ranks = 4;
  for (const Config& config : {cpu_config(), small_slots()}) {
    expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int rank) {
      for (const Kind kind : kRagged) move_every_way(HostSide(communicator), ranks, rank, kind, 60, 12);
    }));
  }
}

// The gather reads exchanged counts without the host's help.
TEST_P(Ragged, CountsAreExchangedByTheRanksThemselves) {
  const int ranks = GetParam();
  expect_all_well(run_world(ranks, cpu_config(), [&](Communicator& communicator, int rank) {
    std::vector<std::int32_t> counts(static_cast<std::size_t>(ranks), -1);
    const std::int32_t mine = rank % 3;
    std::vector<std::int32_t> rows(3, 100 + rank), all(static_cast<std::size_t>(ranks) * 3, -1), wanted;
    const GatheredTensor tensor{.input = rows.data(), .output = all.data(), .row_bytes = 4};
    const Recording recording = Recording::capture(communicator, [&] {
      all_gather_into_tensor(communicator, {.input = &mine, .output = counts.data(), .row_bytes = 4});
      all_gather_v(communicator, {.tensors = std::span(&tensor, 1),
                                  .counts = {.rows = counts.data()},
                                  .input_rows = 3,
                                  .output_rows = all.size()});
    });
    recording.replay();
    for (int other = 0; other < ranks; ++other)
      wanted.insert(wanted.end(), static_cast<std::size_t>(other % 3), 100 + other);
    wanted.resize(all.size(), -1);
    EXPECT_EQ(all, wanted);
  }));
}

// A rank without rows receives everybody else's rows. A rank with a small shard sends a whole tensor. Their grids must
// equal their peers'.
TEST(RaggedGrids, FollowFromTheLargerOfWhatARankSendsAndReceives) {
  auto communicators = Communicator::local(1, cpu_config());
  const Communicator& communicator = communicators[0];
  alignas(64) static std::byte input[64 * 256], output[64 * 256];
  const std::int32_t counts[1] = {0};
  const auto grid_of = [&](auto&& call) {
    detail::Capture capture(communicator.world().state().communicator());
    call();
    const auto planned = std::get<detail::KernelCall>(capture.take().steps.at(0).what);
    return std::pair(planned.blocks, planned.threads);
  };
  const auto gather = [&](std::size_t input_rows, std::size_t output_rows) {
    const GatheredTensor tensor{.input = input, .output = output, .row_bytes = 256};
    return grid_of([&] {
      all_gather_v(communicator, {.tensors = std::span(&tensor, 1),
                                  .counts = {.rows = counts},
                                  .input_rows = input_rows,
                                  .output_rows = output_rows});
    });
  };
  const auto scatter = [&](std::size_t input_rows, std::size_t output_rows) {
    return grid_of([&] {
      reduce_scatter_v(communicator, {.input = input,
                                      .output = output,
                                      .width = 128,
                                      .counts = {.rows = counts},
                                      .input_rows = input_rows,
                                      .output_rows = output_rows});
    });
  };
  EXPECT_EQ(gather(0, 64), gather(64, 64));
  EXPECT_EQ(gather(64, 0), gather(64, 64));
  EXPECT_NE(gather(1, 1), gather(64, 64));
  EXPECT_EQ(scatter(64, 0), scatter(64, 64));
  EXPECT_EQ(scatter(0, 64), scatter(64, 64));
  EXPECT_NE(scatter(1, 1), scatter(64, 64));
}

TEST(RaggedSequences, AThousandCallsWithRandomDelays) {
  constexpr int ranks = 4;
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    std::mt19937 delays(static_cast<unsigned>(rank)), random(11);
    for (std::uint32_t call = 0; call < static_cast<std::uint32_t>(repeated(1000)); ++call) {
      if (delays() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 100));
      std::vector<std::int32_t> counts;
      for (int i = 0; i < ranks; ++i)
        counts.push_back(static_cast<std::int32_t>(random() % 3 == 0 ? 0 : random() % 30));
      const SlotChoice padding = kSlots[random() % std::size(kSlots)];
      run_on_cpu_rank(communicator, with_slots({.kind = kRagged[random() % 2],
                                                .widths = {random() % 2 == 0 ? 32u : 400u},
                                                .fill = Fill::special,
                                                .counts = counts,
                                                .padding = padding.kind,
                                                .slot_rows = padding.rows,
                                                .seed = call},
                                               ranks));
    }
  }));
}

// ------------------------------------------------------------------------------------------- counts that do not fit

class Misfits : public testing::TestWithParam<Misfit> {};
INSTANTIATE_TEST_SUITE_P(Ragged, Misfits, testing::ValuesIn(misfits()),
                         [](const auto& info) { return std::string(info.param.name); });

// Every rank gets an error, and nothing is written outside the outputs: in a call, and in a replay behind one that
// succeeded.
TEST_P(Misfits, EndTheCallEverywhereAndWriteNothing) {
  const Misfit& misfit = GetParam();
  for (const bool replayed : {false, true}) {
    const auto endings = run_world(kMisfitRanks, cpu_config(), [&](Communicator& communicator, int rank) {
      const MisfitMove move = prepare(misfit, rank);
      HostMove host(move.capacity);
      std::optional<Recording> recording;
      if (replayed) {
        recording.emplace(Recording::capture(communicator, [&] { host.call(communicator); }));
        recording->replay();
        host.check(move.capacity);
      }
      host.fill(move.untouched);
      const std::string error = error_of([&] { replayed ? recording->replay() : host.call(communicator); });
      if (misfit.leaves_untouched(rank)) host.check(move.untouched);
      if (error.empty()) throw std::runtime_error("the call went through");
      communicator.check();
    });
    expect_misfit(endings, misfit.reason, misfit.name);
  }
}

}  // namespace
}  // namespace weft::test
