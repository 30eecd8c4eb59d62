// weft bench dp-attention, on CPU ranks.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "bench/crossing_measure.hpp"
#include "bench/crossing_tables.hpp"
#include "bench/rank_device.hpp"
#include "bench/report.hpp"
#include "cli/run.hpp"
#include "cli/test_peer.hpp"
#include "workloads/crossing_reference.hpp"

namespace weft::cli {
namespace {

// A bench of CPU ranks beside a peer that has all of NCCL's operations.
struct CrossingBench {
  CrossingBench(const CrossingForm& form, Data data)
      : ranks({.world_size = form.layout.tp, .device = Device::cpu}),
        peers(std::make_shared<TestPeers>(form.layout.tp)),
        form(form) {
    const auto open = [shared = peers](Ranks::Seat& seat, std::size_t bytes) -> std::unique_ptr<Peer> {
      return std::make_unique<TestPeer>(shared, seat.rank(), bytes);
    };
    const std::size_t bytes = crossing_bytes(form, {.rows = 9, .type = DataType::f32});
    bench = open_crossing_bench(ranks, {.data = data, .max_bytes = bytes, .open_peer = open}, form);
  }

  Result run(const Point& point) {
    peers->calls.clear();
    return bench->run(point, 1);
  }

  Ranks ranks;
  std::shared_ptr<TestPeers> peers;
  CrossingForm form;
  std::unique_ptr<Bench> bench;
};

Point crossing_point(Operation operation, Load load, std::int64_t tokens, Contender contender) {
  return {.operation = operation, .load = load, .count = 1, .rows = tokens, .hidden = 40, .contender = contender};
}

Result measured(Contender contender, double us) {
  Point point = crossing_point(Operation::gather_sums, Load::busy, 5, contender);
  point.method = Method::graph;
  return {.point = point, .verdict = Verdict::ok, .us = us, .samples_us = {{us}}};
}

// Sums and gathers by the peer are compared with the reference, in groups of one rank, of all, and of some.
TEST(BenchDpAttention, PeersAreRight) {
  for (const auto& [tp, dp] : {std::pair{2, 2}, {3, 1}, {4, 2}, {8, 4}, {1, 1}}) {
    for (const Data data : {Data::integers, Data::random}) {
      CrossingBench bench({.layout = {.tp = tp, .dp = dp}, .hidden = 40}, data);
      for (const auto operation : {Operation::gather_sums, Operation::scatter_sums}) {
        for (const auto load : {Load::balanced, Load::busy}) {
          for (const auto contender : {Contender::nccl, Contender::nccl_symmetric, Contender::nccl_grouped}) {
            EXPECT_EQ(std::ranges::count(bench.bench->contenders(operation), contender), 1);
            for (const std::int64_t tokens : {1, 5, 9}) {
              const Result result = bench.run(crossing_point(operation, load, tokens, contender));
              EXPECT_EQ(result.verdict, Verdict::ok)
                  << tp << " " << dp << " " << name(operation) << " " << name(load) << " " << name(contender) << " "
                  << tokens << ": " << result.detail;
            }
          }
        }
      }
    }
  }
}

// Wrong bytes of the last rank are found, whatever the peer has done.
TEST(BenchDpAttention, PeersThatErrAreWrong) {
  for (const auto& [tp, dp] : {std::pair{2, 2}, {3, 1}, {4, 2}}) {
    CrossingBench bench({.layout = {.tp = tp, .dp = dp}, .hidden = 40}, Data::integers);
    bench.peers->errs = true;
    for (const auto operation : {Operation::gather_sums, Operation::scatter_sums}) {
      for (const auto contender : {Contender::nccl, Contender::nccl_symmetric, Contender::nccl_grouped}) {
        const Result result = bench.run(crossing_point(operation, Load::balanced, 6, contender));
        EXPECT_EQ(result.verdict, Verdict::wrong) << name(operation) << " " << name(contender);
      }
    }
  }
}

// Equal operations have the largest shard's rows for each rank. Grouped ones move the rows that there are.
TEST(BenchDpAttention, PeersMoveTheRowsThatTheLegendSays) {
  using Calls = std::vector<TestPeers::Call>;
  const auto calls_of = [](const ParallelLayout& layout, Operation operation, Contender contender) {
    CrossingBench bench({.layout = layout, .hidden = 40}, Data::integers);
    EXPECT_EQ(bench.run(crossing_point(operation, Load::busy, 5, contender)).verdict, Verdict::ok);
    return bench.peers->calls;
  };
  const ParallelLayout apart{.tp = 2, .dp = 2}, together{.tp = 3, .dp = 1}, some{.tp = 4, .dp = 2};
  EXPECT_EQ(calls_of(some, Operation::gather_sums, Contender::nccl),
            (Calls{{Operation::reduce_scatter, {3, 3}}, {Operation::all_gather, {3, 3, 3, 3}}}));
  EXPECT_EQ(calls_of(some, Operation::gather_sums, Contender::nccl_grouped),
            (Calls{{Operation::reduce_scatter_v, {3, 2}}, {Operation::all_gather_v, {3, 2, 1, 0}}}));
  EXPECT_EQ(calls_of(some, Operation::scatter_sums, Contender::nccl),
            (Calls{{Operation::reduce_scatter, {3, 3, 3, 3}}, {Operation::all_gather, {3, 3}}}));
  EXPECT_EQ(calls_of(some, Operation::scatter_sums, Contender::nccl_grouped),
            (Calls{{Operation::reduce_scatter_v, {3, 2, 1, 0}}, {Operation::all_gather_v, {3, 2}}}));
  EXPECT_EQ(calls_of(apart, Operation::gather_sums, Contender::nccl), (Calls{{Operation::all_gather, {5, 5}}}));
  EXPECT_EQ(calls_of(apart, Operation::gather_sums, Contender::nccl_grouped),
            (Calls{{Operation::all_gather_v, {5, 1}}}));
  EXPECT_EQ(calls_of(apart, Operation::scatter_sums, Contender::nccl_symmetric),
            (Calls{{Operation::reduce_scatter, {5, 5}}}));
  EXPECT_EQ(calls_of(apart, Operation::scatter_sums, Contender::nccl_grouped),
            (Calls{{Operation::reduce_scatter_v, {5, 1}}}));
  for (const auto operation : {Operation::gather_sums, Operation::scatter_sums}) {
    EXPECT_EQ(calls_of(together, operation, Contender::nccl),
              (Calls{{Operation::reduce_scatter, {2, 2, 2}}, {Operation::all_gather, {2, 2, 2}}}));
    EXPECT_EQ(calls_of(together, operation, Contender::nccl_grouped),
              (Calls{{Operation::reduce_scatter_v, {2, 2, 1}}, {Operation::all_gather_v, {2, 2, 1}}}));
  }
}

// Groups of one rank, of some and of all; as many tokens everywhere, and one busy group.
TEST(BenchDpAttention, ChecksEveryLayoutAndLoad) {
  const std::string file = testing::TempDir() + "dp_attention.json";
  struct Layout {
    const char *tp, *dp;
    std::size_t rows;  // of the table, those with and without pads
  };
  for (const Layout& layout : {Layout{"4", "2", 16}, Layout{"3", "1", 8}, Layout{"2", "2", 10}}) {
    for (const char* type : {"bf16", "f32"}) {
      const auto result = run({"bench",    "dp-attention", "--device", "cpu", "--tp",      layout.tp,
                               "--dp",     layout.dp,      "--hidden", "72",  "--what",    "gather_sums,scatter_sums",
                               "--tokens", "1,5",          "--dtype",  type,  "--samples", "2",
                               "--data",   "random",       "--json",   file});
      ASSERT_EQ(result.code, 0) << result.out << result.err;
      const auto json = read_json(file);
      EXPECT_EQ(json.at("command"), "bench dp-attention");
      std::size_t ours = 0;
      std::set<std::string> operations, contenders;
      for (const auto& one : json.at("points")) {
        contenders.insert(one.at("contender"));
        if (one.at("contender") != "automatic") continue;
        EXPECT_EQ(one.at("verdict"), "ok");
        operations.insert(one.at("operation"));
        ++ours;
      }
      EXPECT_EQ(ours, layout.rows);
      EXPECT_EQ(operations, (std::set<std::string>{"gather_sums", "scatter_sums"}));
      EXPECT_EQ(contenders.contains("separate"), std::string(layout.dp) != layout.tp);
    }
  }
}

// Rows, pads and norms in slots of every kind, in groups of one rank, of some and of all.
TEST(BenchDpAttention, EveryKindOfSlot) {
  const std::string file = testing::TempDir() + "padding.json";
  for (const auto& [tp, dp] : {std::pair{"4", "2"}, {"2", "2"}, {"3", "1"}}) {
    for (const char* norm : {"none", "same", "fp8"}) {
      const auto result = run({"bench",     "dp-attention",
                               "--device",  "cpu",
                               "--tp",      tp,
                               "--dp",      dp,
                               "--hidden",  "128",
                               "--what",    "gather_sums,scatter_sums",
                               "--tokens",  "1,11",
                               "--padding", "per-rank,none,aligned,max,fixed",
                               "--norm",    norm,
                               "--data",    "random",
                               "--samples", "1",
                               "--json",    file});
      ASSERT_EQ(result.code, 0) << result.err << result.out;
      const auto json = read_json(file);
      EXPECT_EQ(json.at("layout").at("dp"), std::stoi(dp));
      EXPECT_EQ(json.at("norm"), norm);
      std::map<std::string, int> paddings;
      for (const auto& point : json.at("points")) {
        EXPECT_EQ(point.at("verdict"), "ok") << point.dump();
        if (point.at("contender") == "automatic") ++paddings[point.at("padding")];
      }
      EXPECT_EQ(paddings.size(), 4u);  // slots of `fixed` are those of `max`
      EXPECT_EQ(paddings.count("fixed"), 0u);
    }
  }
}

// Peers are measured once, beside lines of any padding.
TEST(BenchDpAttention, PaddedAndRaggedStandSideBySide) {
  const auto result = run({"bench", "dp-attention", "--device", "cpu", "--tp", "2", "--dp", "2", "--hidden", "8",
                           "--what", "gather_sums,scatter_sums", "--tokens", "3", "--samples", "1", "--csv", "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  std::map<std::string, int> lines;
  std::istringstream csv(result.out);
  for (std::string line; std::getline(csv, line);)
    if (line.find(",automatic,") != std::string::npos) ++lines[line.substr(0, line.find(",2,"))];
  EXPECT_EQ(lines, (std::map<std::string, int>{{"gather_sums,balanced,none", 1},
                                               {"gather_sums,busy,none", 1},
                                               {"gather_sums,busy,max", 1},
                                               {"scatter_sums,balanced,none", 1},
                                               {"scatter_sums,busy,none", 1},
                                               {"scatter_sums,busy,max", 1}}));
  std::vector<Result> results = {measured(Contender::automatic, 4), measured(Contender::automatic, 3),
                                 measured(Contender::nccl, 6)};
  results[1].point.padding = Padding::max;
  const std::string table = crossing_table(results, Method::graph, {}).csv();
  EXPECT_NE(table.find("\ngather_sums,busy,none,5,2 B,4.00,6.00,1.50\ngather_sums,busy,max,5,2 B,3.00,6.00,2.00\n"),
            std::string::npos)
      << table;
}

// Changes every byte that an output must have: each change is found. Other bytes of the buffer do not matter.
TEST(BenchDpAttention, ReferencesFindAnyWrongByte) {
  const CrossingForm form{.layout = {.tp = 4, .dp = 2}, .hidden = 3};
  for (const auto padding : {Padding::none, Padding::aligned, Padding::max, Padding::per_rank}) {
    for (const auto operation : {Operation::gather_sums, Operation::scatter_sums}) {
      Point point = crossing_point(operation, Load::busy, 5, Contender::automatic);
      point.padding = padding;
      const CrossingShape shape = crossing_shape(form, point);
      EXPECT_EQ(shape.all.rows, (std::vector<std::size_t>{3, 2, 1, 0}));
      const bool gathers = shape.gathers();
      const std::size_t row = shape.row_bytes(), rank = 2;
      std::vector<std::byte> right((shape.output_rows() + 1) * row, std::byte{0xff});
      std::set<std::size_t> checked;
      const auto place = [&](std::size_t begin, std::size_t rows, std::size_t slot, ReferenceArgs sums,
                             std::size_t at) {
        sums.count = (at + rows) * 3;
        std::vector<std::byte> all(sums.count * 2);
        reduce_reference(sums, 0, sums.count, all.data());
        std::fill_n(right.begin() + static_cast<std::ptrdiff_t>(begin * row), slot * row, std::byte{0});
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(at * row), rows * row,
                    right.begin() + static_cast<std::ptrdiff_t>(begin * row));
        for (std::size_t b = begin * row; b < (begin + slot) * row; ++b) checked.insert(b);
      };
      if (gathers) {
        for (std::size_t r = 0; r < 4; ++r)
          place(shape.all.slots[r].begin, shape.all.rows[r], shape.all.slots[r].size(),
                {.ranks = 2, .step = kLastStep, .first_rank = r < 2 ? 0 : 2},
                r == 1   ? 3
                : r == 3 ? 1
                         : 0);
      } else {  // the second group's row, which every input has behind the first one's slots
        place(0, 1, shape.group_slots(rank), {.ranks = 4, .step = kLastStep}, shape.all.slots[rank].begin);
      }
      CrossingReference reference;
      reference.prepare(shape, Data::integers, kLastStep);
      ASSERT_EQ(reference.check({.rank = rank, .rows = right}), "") << name(operation) << " " << name(padding);
      for (std::size_t b = 0; b < right.size(); ++b) {
        auto wrong = right;
        wrong[b] ^= std::byte{0x41};
        EXPECT_EQ(reference.check({.rank = rank, .rows = wrong}).empty(), checked.count(b) == 0)
            << name(operation) << " " << name(padding) << " byte " << b;
      }
    }
  }
}

// Outputs in symmetric memory have a column if groups of one rank gather what nobody has to sum.
TEST(BenchDpAttention, GathersOfOneRankGoToSymmetricMemory) {
  const std::string file = testing::TempDir() + "symmetric.json";
  const auto verdicts_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "bench",    "dp-attention", "--device",  "cpu", "--tp",   "2", "--what", "gather_sums,scatter_sums",
        "--tokens", "1,5",          "--samples", "1",   "--json", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    std::map<std::string, int> verdicts;
    const auto json = read_json(file);
    for (const auto& point : json.at("points"))
      if (point.at("contender") == "symmetric")
        ++verdicts[point.at("operation").get<std::string>() + " " + point.at("verdict").get<std::string>()];
    EXPECT_EQ(result.out.find("symmetric: the gather with outputs in symmetric memory") != std::string::npos,
              !verdicts.empty())
        << result.out;
    return verdicts;
  };
  using Verdicts = std::map<std::string, int>;
  EXPECT_EQ(verdicts_of({"--dp", "2", "--hidden", "40"}), (Verdicts{{"gather_sums ok", 5}}));
  EXPECT_EQ(verdicts_of({"--dp", "2", "--hidden", "36"}), (Verdicts{{"gather_sums unavailable", 5}}));
  EXPECT_EQ(verdicts_of({"--dp", "1", "--hidden", "40"}), Verdicts{});
  EXPECT_EQ(verdicts_of({"--dp", "2", "--hidden", "40", "--norm", "same"}), Verdicts{});
}

// Symmetric memory is rated against symmetric windows, in the table and in the report.
TEST(BenchDpAttention, SymmetricMemoryHasARatioOfItsOwn) {
  const std::vector<Result> results = {measured(Contender::automatic, 4), measured(Contender::symmetric, 2),
                                       measured(Contender::nccl, 10), measured(Contender::nccl_symmetric, 5),
                                       measured(Contender::nccl_grouped, 8)};
  const std::string csv = crossing_table(results, Method::graph, {}).csv();
  EXPECT_NE(csv.find(",Weft,symmetric,NCCL,NCCL symm.,NCCL grouped,speed-up,symm. speed-up\n"), std::string::npos)
      << csv;
  EXPECT_NE(csv.find(",4.00,2.00,10.0,5.00,8.00,1.25,2.50\n"), std::string::npos) << csv;
  const auto json = to_json(results, {});
  EXPECT_EQ(json.at(0).at("speed_up"), 1.25);
  EXPECT_FALSE(json.at(0).contains("symmetric_speed_up"));
  EXPECT_EQ(json.at(1).at("symmetric_speed_up"), 2.5);
  const std::string legend = crossing_legend(results, {});
  for (const char* column : {"symmetric:", "NCCL:", "symm.:", "NCCL grouped:", "symm. speed-up:"})
    EXPECT_NE(legend.find(column), std::string::npos) << column;
  EXPECT_EQ(legend.find("separate"), std::string::npos);
  const std::string alone = crossing_legend({results[0]}, {});
  for (const char* column : {"symmetric", "NCCL", "norm"}) EXPECT_EQ(alone.find(column), std::string::npos) << column;
}

TEST(BenchDpAttention, CsvHasLoads) {
  const auto result = run({"bench", "dp-attention", "--device", "cpu", "--tp", "2", "--dp", "2", "--hidden", "8",
                           "--what", "gather_sums,scatter_sums", "--tokens", "3", "--samples", "1", "--csv", "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* line :
       {"\ngather_sums,balanced,none,2,", "\ngather_sums,busy,none,2,", "\nscatter_sums,busy,none,2,"})
    EXPECT_NE(result.out.find(line), std::string::npos) << result.out;
}

TEST(BenchDpAttention, ABusyGroupLeavesTheOthersOneToken) {
  const CrossingForm form{.layout = {.tp = 4, .dp = 2}, .hidden = 8};
  EXPECT_EQ(form.tokens({.load = Load::busy, .rows = 9}, 0), 9u);
  EXPECT_EQ(form.tokens({.load = Load::busy, .rows = 9}, 1), 1u);
  EXPECT_EQ(form.tokens({.load = Load::balanced, .rows = 9}, 1), 9u);
  // Room for 5 rows on each of four ranks.
  EXPECT_EQ(crossing_bytes(form, {.rows = 9, .type = DataType::f32}), 5u * 4 * 8 * 4);
}

TEST(BenchDpAttention, BadUsageIsRejected) {
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"--dp", "3"}, {"--tokens", "0"}, {"--load", "idle"}, {"--dtype", "u8"}}) {
    std::vector<std::string> arguments = {"bench", "dp-attention", "--device", "cpu", "--tp", "2", "--hidden", "8"};
    arguments.insert(arguments.end(), bad.begin(), bad.end());
    EXPECT_EQ(run(arguments).code, 2) << bad[0];
  }
  const auto shared = run({"bench", "dp-attention", "--device", "cpu", "--share-gpus"});
  EXPECT_NE(shared.code, 0);
  EXPECT_NE(shared.err.find("--share-gpus: the ranks would be CPU ranks"), std::string::npos) << shared.err;
}

}  // namespace
}  // namespace weft::cli
