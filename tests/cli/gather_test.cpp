// weft bench gather, on CPU ranks.
#include "bench/gather_measure.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "bench/rank_device.hpp"
#include "cli/run.hpp"
#include "workloads/gather_reference.hpp"

namespace weft::cli {
namespace {

using Rows = std::vector<std::size_t>;

GatherModel model_of(int tp, int dp, std::int64_t hidden) {
  return {.layout = {.tp = tp, .dp = dp}, .hidden = hidden};
}

Point point_of(const GatherModel& model, Operation operation, Load load, std::int64_t tokens, Contender contender) {
  Point point = gather_point(model, operation, load, tokens, DataType::bf16);
  point.contender = contender;
  return point;
}

TEST(GatherShapes, RanksOfAGroupShareItsTokens) {
  const auto model = model_of(8, 4, 64);
  const auto rows = [&](Operation operation, Load load, std::int64_t tokens, Contender contender) {
    return gather_shape(model, point_of(model, operation, load, tokens, contender)).rows;
  };
  EXPECT_EQ(rows(Operation::all_gather, Load::balanced, 5, Contender::automatic), Rows(8, 3));
  EXPECT_EQ(rows(Operation::all_gather_v, Load::balanced, 5, Contender::automatic), (Rows{3, 2, 3, 2, 3, 2, 3, 2}));
  EXPECT_EQ(rows(Operation::reduce_scatter_v, Load::busy, 5, Contender::nccl), (Rows{3, 2, 1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(rows(Operation::reduce_scatter_v, Load::busy, 5, Contender::padded), Rows(8, 3));
  // A group's gather has only the group's own shards. The first group differs from the others.
  const Point inside = point_of(model, Operation::attn_all_gather, Load::busy, 5, Contender::automatic);
  EXPECT_EQ(gather_shape(model, inside, 0).rows, (Rows{3, 2}));
  EXPECT_EQ(gather_shape(model, inside, 1).rows, (Rows{1, 0}));
  EXPECT_EQ(inside.bytes(), 8u * 64 * 2);
  // The size of a table's row leaves padding out.
  EXPECT_EQ(point_of(model, Operation::all_gather_v, Load::busy, 5, Contender::padded).bytes(), 8u * 64 * 2);
}

TEST(GatherShapes, FourTensorsAreTheBytesOfOne) {
  const GatherModel model{.layout = {.tp = 2, .dp = 2}, .hidden = 7168, .top_k = 8};
  const auto four =
      gather_shape(model, point_of(model, Operation::four_tensors, Load::balanced, 3, Contender::automatic));
  EXPECT_EQ(four.widths, (Rows{7168, 112, 16, 16}));
  const auto one =
      gather_shape(model, point_of(model, Operation::four_tensors, Load::balanced, 3, Contender::one_tensor));
  EXPECT_EQ(one.widths, Rows{7168 + 112 + 16 + 16});
  EXPECT_EQ(four.output_at(1), 6u * 7168);
}

// Its input and its output fit the buffers of the operation that it bounds.
TEST(GatherShapes, APushIsTheAllGatherOfTheRowsOfARank) {
  const auto model = model_of(4, 4, 64);
  const auto shape = [&](Operation operation, Contender contender) {
    return gather_shape(model, point_of(model, operation, Load::balanced, 5, contender));
  };
  const GatherShape gather = shape(Operation::all_gather, Contender::automatic);
  for (const auto operation : {Operation::all_gather, Operation::reduce_scatter, Operation::all_to_all}) {
    const GatherShape push = shape(operation, Contender::push), bounded = shape(operation, Contender::automatic);
    EXPECT_EQ(push, gather) << name(operation);
    EXPECT_EQ(push.most_rows(), bounded.most_rows()) << name(operation);
    EXPECT_EQ(bounded.operation, operation);
    const std::size_t room = gather_bytes(model, point_of(model, operation, Load::balanced, 5, Contender::push));
    EXPECT_LE(std::max(push.input_elements(), push.output_elements()) * size_of(DataType::bf16), room);
  }
}

TEST(GatherShapes, ALayoutForMoreRanksIsScaled) {
  const auto is = [](const ParallelLayout& layout, int tp, int dp) { return layout.tp == tp && layout.dp == dp; };
  EXPECT_TRUE(is(scaled({.tp = 8, .dp = 4}, 8), 8, 4));
  EXPECT_TRUE(is(scaled({.tp = 8, .dp = 4}, 4), 4, 2));
  EXPECT_TRUE(is(scaled({.tp = 8, .dp = 8}, 4), 4, 4));
  EXPECT_TRUE(is(scaled({.tp = 8, .dp = 1}, 3), 3, 1));
  EXPECT_TRUE(is(scaled({.tp = 8, .dp = 4}, 3), 3, 3));  // two ranks per group do not divide three
}

TEST(GatherShapes, SlotsHavePadsBehindRows) {
  auto model = model_of(4, 2, 16);
  const auto slots = [&](Padding padding) {
    model.padding = padding;
    const auto shape =
        gather_shape(model, point_of(model, Operation::all_gather_v, Load::busy, 19, Contender::automatic));
    EXPECT_EQ(shape.rows, (Rows{10, 9, 1, 0}));
    EXPECT_EQ(shape.own_rows(), 20u);
    EXPECT_EQ(shape.output_elements(), shape.all_rows() * 16);
    EXPECT_GE(shape.all_rows(), shape.padded_rows());
    return shape.slots;
  };
  using Slots = std::vector<RowRange>;
  EXPECT_EQ(slots(Padding::none), (Slots{{0, 10}, {10, 19}, {19, 20}, {20, 20}}));
  EXPECT_EQ(slots(Padding::aligned), (Slots{{0, 16}, {16, 32}, {32, 40}, {40, 40}}));
  EXPECT_EQ(slots(Padding::max), (Slots{{0, 10}, {10, 20}, {20, 30}, {30, 40}}));
  EXPECT_EQ(slots(Padding::fixed), slots(Padding::max));  // a graph for the largest rank
  EXPECT_EQ(slots(Padding::per_rank), (Slots{{0, 10}, {10, 20}, {20, 23}, {23, 26}}));
}

// Changes every byte that an output must have: each change is found. Other bytes of the buffer do not matter.
TEST(GatherReferences, FindAnyWrongRow) {
  auto model = model_of(3, 3, 20);
  const std::pair<Operation, Padding> cases[] = {
      {Operation::all_gather, Padding::none},       {Operation::all_gather_v, Padding::none},
      {Operation::four_tensors, Padding::none},     {Operation::reduce_scatter, Padding::none},
      {Operation::reduce_scatter_v, Padding::none}, {Operation::all_gather_v, Padding::max},
      {Operation::all_to_all, Padding::none},       {Operation::broadcast, Padding::none},
      {Operation::four_tensors, Padding::aligned},  {Operation::reduce_scatter_v, Padding::aligned},
      {Operation::four_tensors, Padding::per_rank}, {Operation::reduce_scatter_v, Padding::per_rank}};
  for (const auto& [operation, padding] : cases) {
    model.padding = padding;
    const auto shape = gather_shape(model, point_of(model, operation, Load::busy, 4, Contender::automatic));
    GatherReference reference;
    reference.prepare(shape, Data::integers, kLastStep);
    std::vector<std::vector<std::byte>> inputs;
    for (int r = 0; r < 3; ++r) {
      inputs.emplace_back(shape.input_elements() * 2);
      fill(inputs.back().data(), 0, shape.input_elements(), shape.type, Data::integers, r, kLastStep);
    }
    std::vector<std::byte> right(shape.output_elements() * 2, std::byte{0xff});
    std::set<std::size_t> checked;  // bytes
    if (shape.scatters()) {
      const std::size_t own = shape.rows[0] * shape.row_bytes(0);
      reduce_reference({.count = own / 2, .ranks = 3, .step = kLastStep}, 0, own / 2, right.data());
      const std::size_t padded = shape.slots[0].size() * shape.row_bytes(0);
      std::memset(right.data() + own, 0, padded - own);
      for (std::size_t b = 0; b < padded; ++b) checked.insert(b);
    } else if (operation == Operation::all_to_all || operation == Operation::broadcast) {
      const std::size_t bytes = shape.all_rows() * shape.row_bytes(0), part = bytes / 3;
      for (std::size_t from = 0; from < 3; ++from) {
        const bool own_parts = operation == Operation::all_to_all;  // rank 0 gets every input's first part
        std::memcpy(right.data() + from * part, inputs[own_parts ? from : 0].data() + (own_parts ? 0 : from * part),
                    part);
      }
      for (std::size_t b = 0; b < bytes; ++b) checked.insert(b);
    } else {
      for (std::size_t t = 0; t < shape.widths.size(); ++t) {
        for (std::size_t r = 0; r < 3; ++r) {
          const std::size_t to = shape.output_at(t) * 2 + shape.first_row(r) * shape.row_bytes(t);
          const std::size_t bytes = shape.rows[r] * shape.row_bytes(t);
          std::memcpy(right.data() + to, inputs[r].data() + shape.input_at(t) * 2, bytes);
          const std::size_t padded = shape.slots[r].size() * shape.row_bytes(t);
          std::memset(right.data() + to + bytes, 0, padded - bytes);
          for (std::size_t b = 0; b < padded; ++b) checked.insert(to + b);
        }
      }
    }
    ASSERT_EQ(reference.check(0, right, true), "") << name(operation);
    for (std::size_t b = 0; b < right.size(); ++b) {
      auto wrong = right;
      wrong[b] ^= std::byte{0x41};
      EXPECT_EQ(reference.check(0, wrong, true).empty(), checked.count(b) == 0) << name(operation) << " byte " << b;
    }
  }
}

// The scales of a short row are no multiple of 16 bytes, so such calls take the ordinary way even with symmetric
// outputs. The benchmark does not call them symmetric.
void expect_measured(const nlohmann::json& point) {
  const bool ordinary = point.at("contender") == "symmetric" && point.at("operation") == "four_tensors";
  EXPECT_EQ(point.at("verdict"), ordinary ? "unavailable" : "ok") << point.dump();
}

TEST(BenchGather, EveryRowOfEveryOperation) {
  const auto file = testing::TempDir() + "gather.json";
  const auto result = run({"bench", "gather", "--device", "cpu", "--tp", "4", "--dp", "2", "--hidden", "40", "--tokens",
                           "1,5", "--samples", "2", "--json", file});
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  // There is no progress bar without a terminal. Only four small tensors cannot be written directly.
  EXPECT_EQ(result.err.rfind("not measured: symmetric of four_tensors", 0), 0u) << result.err;
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_NE(result.out.find("tp 4, dp 2, rows of 80 bytes (bf16)"), std::string::npos) << result.out;
  const auto json = read_json(file);
  EXPECT_EQ(json.at("command"), "bench gather");
  EXPECT_EQ(json.at("layout").at("tp"), 4);
  EXPECT_EQ(json.at("layout").at("dp"), 2);
  EXPECT_EQ(json.at("row_bytes"), 80);
  std::map<std::string, int> ours;
  for (const auto& point : json.at("points")) {
    expect_measured(point);
    if (point.at("verdict") == "unavailable") continue;
    EXPECT_EQ(point.at("samples_us").size(), 4u);
    EXPECT_GT(point.at("us").get<double>(), 0);
    if (point.at("contender") != "automatic") continue;
    ++ours[point.at("operation")];
    // 5 tokens are split into 3 + 2. If the load is busy, the other group's token is split into 1 + 0.
    if (point.at("operation") == "all_gather_v" && point.at("rows") == 5) {
      EXPECT_EQ(point.at("bytes"), (point.at("load") == "busy" ? 6 : 10) * 80);
    }
  }
  EXPECT_EQ(ours, (std::map<std::string, int>{{"all_gather", 2},
                                              {"reduce_scatter", 2},
                                              {"all_gather_v", 4},
                                              {"reduce_scatter_v", 4},
                                              {"four_tensors", 4},
                                              {"attn_reduce_scatter", 4},
                                              {"attn_all_gather", 4}}));
}

// The size is the bytes that a rank receives. A barrier is one row for any number of tokens.
TEST(BenchGather, WhatNoLayerCallsIsMeasuredWhenNamed) {
  const auto file = testing::TempDir() + "extras.json";
  for (const std::string type : {"bf16", "f32"}) {
    const auto result =
        run({"bench",   "gather",   "--device", "cpu",      "--tp",      "4",      "--dp",
             "2",       "--hidden", "24",       "--tokens", "1,5",       "--what", "all_to_all,broadcast,barrier",
             "--dtype", type,       "--data",   "random",   "--samples", "1",      "--json",
             file});
    ASSERT_EQ(result.code, 0) << result.err << result.out;
    std::multimap<std::string, std::size_t> bytes;
    int in_symmetric = 0;
    const auto json = read_json(file);
    for (const auto& point : json.at("points")) {
      EXPECT_EQ(point.at("verdict"), "ok") << point.dump();
      if (point.at("contender") == "automatic") bytes.emplace(point.at("operation"), point.at("bytes"));
      in_symmetric += point.at("contender") == "symmetric";
    }
    EXPECT_EQ(in_symmetric, 4);                        // all_to_all and broadcast
    const std::size_t row = type == "bf16" ? 48 : 96;  // 5 tokens are 3 and 2: shares of 3
    EXPECT_EQ(bytes, (std::multimap<std::string, std::size_t>{{"all_to_all", 4 * row},
                                                              {"all_to_all", 12 * row},
                                                              {"broadcast", 4 * row},
                                                              {"broadcast", 12 * row},
                                                              {"barrier", 0}}));
  }
}

TEST(BenchGather, EveryKindOfSlot) {
  for (const std::string padding : {"aligned", "max", "fixed", "per-rank"}) {
    const auto file = testing::TempDir() + "padding.json";
    const auto result = run({"bench", "gather", "--device", "cpu", "--tp", "4", "--dp", "2", "--hidden", "24",
                             "--tokens", "1,11", "--padding", padding, "--samples", "1", "--json", file});
    ASSERT_EQ(result.code, 0) << result.err << result.out;
    EXPECT_NE(result.out.find("padding " + padding), std::string::npos) << result.out;
    const auto json = read_json(file);
    EXPECT_EQ(json.at("padding"), padding);
    for (const auto& point : json.at("points")) {
      expect_measured(point);
      EXPECT_TRUE(point.at("operation") == "all_gather" || point.at("contender") != "Gloo ring") << point.dump();
    }
  }
}

// --blocks limits Weft only: peers choose their own grid.
TEST(BenchGather, OnSoManyBlocks) {
  const auto file = testing::TempDir() + "blocks.json";
  const auto result = run({"bench", "gather", "--device", "cpu", "--tp", "2", "--hidden", "24", "--tokens", "3",
                           "--blocks", "2", "--samples", "1", "--json", file});
  ASSERT_EQ(result.code, 0) << result.err << result.out;
  EXPECT_NE(result.out.find("Weft on 2 blocks"), std::string::npos) << result.out;
  const auto json = read_json(file);
  for (const auto& point : json.at("points")) {
    const bool ours = point.at("contender") != "Gloo ring" && point.at("contender") != "Gloo bcube";
    EXPECT_EQ(point.at("blocks"), ours ? 2 : 0) << point.dump();
    expect_measured(point);
  }
}

TEST(BenchGather, RandomSumsAreBitExact) {
  const auto result = run({"bench",       "gather", "--device", "cpu", "--ranks",   "3",
                           "--row-bytes", "36",     "--dtype",  "f32", "--what",    "reduce_scatter,reduce_scatter_v",
                           "--data",      "random", "--tokens", "7",   "--samples", "1",
                           "--csv",       "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("\nreduce_scatter_v,busy,,3,f32,,7,9,324,automatic,"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("all_gather"), std::string::npos);
}

TEST(BenchGather, OneGroupHasNobodyIdle) {
  const auto result = run({"bench", "gather", "--device", "cpu", "--tp", "2", "--dp", "1", "--hidden", "16", "--tokens",
                           "3", "--what", "all_gather_v", "--samples", "1", "--csv", "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("balanced"), std::string::npos);
  EXPECT_EQ(result.out.find("busy"), std::string::npos);
}

TEST(BenchGather, ErrorsSayWhatWouldDo) {
  const auto dp = run({"bench", "gather", "--device", "cpu", "--tp", "6", "--dp", "4"});
  EXPECT_NE(dp.err.find("--dp 4: must divide --tp 6: 1, 2, 3, 6"), std::string::npos) << dp.err;
  const auto row = run({"bench", "gather", "--row-bytes", "6", "--dtype", "f32"});
  const auto alone = run({"bench", "gather", "--device", "cpu", "--tp", "2", "--what", "attn_all_gather"});
  EXPECT_NE(alone.err.find("--what attn_all_gather: an attention group has one rank"), std::string::npos) << alone.err;
  EXPECT_NE(row.err.find("--row-bytes 6: must be a multiple of 4, the size of f32"), std::string::npos) << row.err;
  const auto shared = run({"bench", "gather", "--device", "cpu", "--share-gpus"});
  EXPECT_NE(shared.code, 0);
  EXPECT_NE(shared.err.find("--share-gpus: the ranks would be CPU ranks"), std::string::npos) << shared.err;
}

}  // namespace
}  // namespace weft::cli
