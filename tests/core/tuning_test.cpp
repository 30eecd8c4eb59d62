// Tuning tables: the shipped ones, the format of files, and the choice of a table.
#include "tuning/tuning.hpp"

#include <gtest/gtest.h>

#include "ops/all_reduce/all_reduce_plan.hpp"
#include "support/changed_tuning.hpp"
#include "support/ranks.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;

Algorithm planned(Device device, std::uint32_t size, DataType type, std::size_t bytes) {
  return plan_all_reduce({.device = device,
                          .size = size,
                          .layout = make_layout(size, 8 * MiB, 16 * MiB, {.slots = 256, .packs = 64}),
                          .type = type,
                          .op = ReduceOp::sum,
                          .count = bytes / size_of(type)})
      .algorithm;
}

// The largest message of each algorithm, by ranks.
TEST(Tuning, ShippedTablesAreWhatWasMeasured) {
  const std::pair<std::uint32_t, std::size_t> one_shot[] = {{2, 6 * MiB},   {3, 256 * KiB}, {4, 160 * KiB},
                                                            {5, 128 * KiB}, {6, 128 * KiB}, {7, 128 * KiB},
                                                            {8, 128 * KiB}, {9, 128 * KiB}, {72, 128 * KiB}};
  for (const auto& [size, last] : one_shot) {
    EXPECT_EQ(planned(Device::cuda, size, DataType::bf16, last), Algorithm::one_shot) << size;
    EXPECT_EQ(planned(Device::cuda, size, DataType::bf16, last + 2), Algorithm::two_shot) << size;
    EXPECT_EQ(planned(Device::cuda, size, DataType::i32, last / 2), Algorithm::one_shot) << size;
    EXPECT_EQ(planned(Device::cuda, size, DataType::i32, last / 2 + 4), Algorithm::two_shot) << size;
    const std::size_t pipelined = 64 * MiB + (size == 3 ? 4 : 0);
    for (const auto type : {DataType::bf16, DataType::i32}) {
      EXPECT_EQ(planned(Device::cuda, size, type, pipelined - 4), Algorithm::two_shot) << size;
      EXPECT_EQ(planned(Device::cuda, size, type, pipelined), Algorithm::pipelined) << size;
    }
    EXPECT_EQ(planned(Device::cpu, size, DataType::f32, 2 * KiB), Algorithm::one_shot);
    EXPECT_EQ(planned(Device::cpu, size, DataType::f32, 2 * KiB + 4), Algorithm::pipelined);
  }
  EXPECT_EQ(planned(Device::cuda, 1, DataType::bf16, 512 * MiB), Algorithm::one_shot);
  for (const TuningTable& table : shipped_tuning()) {
    if (table.processor.name == kCpuProcessor) continue;
    EXPECT_EQ(table.processor, (Processor{"NVIDIA H200", 90, 132}));
    EXPECT_EQ(table.origin, table.ranks <= 4 || table.ranks == 8 ? "measured" : "extrapolated");
  }
}

TEST(Tuning, PipelinedNeedsSlotsAndBlocks) {
  PlanQuery query{.device = Device::cuda,
                  .size = 4,
                  .layout = make_layout(4, 1 << 16, 1 << 20, {.slots = 32, .packs = 64}),
                  .type = DataType::bf16,
                  .op = ReduceOp::sum,
                  .count = 64 * MiB};
  EXPECT_EQ(plan_all_reduce(query).algorithm, Algorithm::two_shot);
  query.layout = make_layout(4, 1 << 16, 1 << 20, {.slots = 256, .packs = 64});
  EXPECT_EQ(plan_all_reduce(query).algorithm, Algorithm::pipelined);
  query.max_blocks = 16;  // only this rank has few blocks, so the choice stays
  EXPECT_EQ(plan_all_reduce(query).algorithm, Algorithm::pipelined);
  query.least_max_blocks = 16;
  EXPECT_EQ(plan_all_reduce(query).algorithm, Algorithm::two_shot);
}

const TuningStep kSteps[] = {{.up_to = 4 * KiB, .algorithm = Algorithm::two_shot, .blocks = 9, .threads = 96},
                             {.up_to = 1 * MiB, .algorithm = Algorithm::one_shot},
                             {.algorithm = Algorithm::two_shot, .blocks = 200, .threads = 1024}};

TEST(Tuning, AStepsGridIsTakenAsFarAsItGoes) {
  PlanQuery query{.device = Device::cuda,
                  .size = 4,
                  .layout = make_layout(4, 1 << 16, 1 << 20),
                  .type = DataType::bf16,
                  .op = ReduceOp::sum,
                  .count = 2 * KiB,
                  .max_blocks = 133,
                  .steps = kSteps};
  Plan plan = plan_all_reduce(query);
  EXPECT_EQ(plan.algorithm, Algorithm::two_shot);
  EXPECT_EQ(plan.blocks, 9);
  EXPECT_EQ(plan.threads, 96);
  query.launch = {.blocks = 5, .threads = 64};  // the caller's launch overrides the table's
  plan = plan_all_reduce(query);
  EXPECT_EQ(plan.blocks, 5);
  EXPECT_EQ(plan.threads, 64);
  query.launch = {};
  query.requested =
      Algorithm::two_shot;  // an explicit algorithm has the grid by size, which weft tune compares with others
  plan = plan_all_reduce(query);
  EXPECT_EQ(plan.blocks, 2);
  EXPECT_EQ(plan.threads, 64);
  query.requested = Algorithm::automatic;
  query.count = 4 * MiB;
  plan = plan_all_reduce(query);
  EXPECT_EQ(plan.blocks, 133);
  EXPECT_EQ(plan.threads, 1024);
  const std::size_t piece = plan.piece;
  query.aligned16 = false;  // another instance, with fewer threads; the wire is the same
  query.max_blocks = 20;
  plan = plan_all_reduce(query);
  EXPECT_EQ(plan.threads, 512);
  EXPECT_EQ(plan.blocks, 20);
  EXPECT_EQ(plan.algorithm, Algorithm::two_shot);
  EXPECT_EQ(plan.piece, piece);
  query.requested = Algorithm::one_shot;  // not the algorithm of the step
  EXPECT_EQ(plan_all_reduce(query).threads, 256);
  query.count = 64;
  EXPECT_EQ(plan_all_reduce(query).threads, 64);
}

const Processor kH200{"NVIDIA H200", 90, 132}, kCpu{"CPU"};

std::vector<TuningTable> some_tables() {
  return {{.processor = {"NVIDIA B200", 100, 148},
           .ranks = 4,
           .origin = "measured",
           .note = "a \"note\"",
           .steps = {kSteps[0], {}}},
          {.processor = kH200, .ranks = 2, .origin = "measured", .steps = {kSteps, kSteps + 3}},
          {.processor = kH200, .ranks = 4, .origin = "measured", .steps = {{}}},
          {.processor = kH200, .ranks = 8, .origin = "extrapolated", .steps = {{}}},
          {.processor = kCpu, .ranks = 0, .origin = "measured", .steps = {{}}},
          {.processor = {"a GPU"}, .ranks = 2, .origin = "measured", .steps = {{}}},
          {.processor = kH200,
           .ranks = 4,
           .operation = TunedOperation::all_reduce_rms_norm,
           .origin = "measured",
           .steps = {{.up_to = 99}, {.algorithm = Algorithm::two_shot}}},
          {.processor = kH200,
           .ranks = 4,
           .operation = TunedOperation::all_gather,
           .origin = "measured",
           .detour_bytes = 1600,
           .steps = {{.up_to = 500, .algorithm = MoveWay::lines, .blocks = 20, .threads = 64},
                     {.up_to = 700, .algorithm = MoveWay::lines},
                     {.algorithm = MoveWay::chunks, .threads = 512}}},
          {.processor = kH200,
           .ranks = 4,
           .operation = TunedOperation::reduce_scatter,
           .origin = "measured",
           .steps = {{.algorithm = MoveWay::chunks}}},
          {.processor = kCpu,
           .ranks = 0,
           .operation = TunedOperation::crossing,
           .origin = "measured",
           .steps = {{.up_to = 800, .algorithm = MoveWay::one_hop, .blocks = 30}, {.algorithm = MoveWay::lines}}},
          {.processor = kH200,
           .ranks = 4,
           .operation = TunedOperation::crossing_rms_norm,
           .origin = "measured",
           .steps = {{.up_to = 900, .algorithm = MoveWay::one_hop}, {.algorithm = MoveWay::chunks}}}};
}

TEST(Tuning, WhatIsWrittenIsRead) {
  const auto tables = some_tables();
  EXPECT_EQ(parse_tuning(to_json(tables), "file"), tables);
  EXPECT_EQ(parse_tuning(to_json(shipped_tuning()), "file"), shipped_tuning());
}

TEST(Tuning, TheNearestTableServesAndSaysSo) {
  const auto tables = some_tables();
  const auto reason = [&](const Processor& processor, int ranks) {
    return choose_tuning(tables, processor, ranks).reason;
  };
  EXPECT_EQ(reason(kH200, 4), "NVIDIA H200, 4 ranks (measured)");
  EXPECT_EQ(reason({"NVIDIA B200", 100, 148}, 4), "NVIDIA B200, 4 ranks (measured)");
  // A table for more ranks is preferred to one for fewer.
  EXPECT_EQ(reason(kH200, 3), "NVIDIA H200, 4 ranks (measured), as there is no table for NVIDIA H200, 3 ranks");
  EXPECT_EQ(reason(kH200, 72), "NVIDIA H200, 8 ranks (extrapolated), as there is no table for NVIDIA H200, 72 ranks");
  // The compute capability matters most, then the number of processors, then that of ranks …
  EXPECT_EQ(reason({"NVIDIA B300", 100, 132}, 3),
            "NVIDIA B200, 4 ranks (measured), as there is no table for NVIDIA B300, 3 ranks");
  EXPECT_EQ(reason({"NVIDIA H100 PCIe", 90, 114}, 2),
            "NVIDIA H200, 2 ranks (measured), as there is no table for NVIDIA H100 PCIe, 2 ranks");
  EXPECT_EQ(reason({"NVIDIA RTX", 120, 139}, 3),
            "NVIDIA H200, 4 ranks (measured), as there is no table for NVIDIA RTX, 3 ranks");
  EXPECT_EQ(reason({"NVIDIA RTX", 120, 150}, 3),
            "NVIDIA B200, 4 ranks (measured), as there is no table for NVIDIA RTX, 3 ranks");
  // … unless the table is for twice as many ranks or half as many, even if it is the GPU's own.
  EXPECT_EQ(reason({"NVIDIA B200", 100, 148}, 2),
            "NVIDIA H200, 2 ranks (measured), as there is no table for NVIDIA B200, 2 ranks");
  EXPECT_EQ(reason({"NVIDIA B200", 100, 148}, 8),
            "NVIDIA H200, 8 ranks (extrapolated), as there is no table for NVIDIA B200, 8 ranks");
  // A user's table need not have the numbers if it has the name.
  EXPECT_EQ(reason({"a GPU", 90, 132}, 2), "a GPU, 2 ranks (measured)");
  EXPECT_EQ(reason(kCpu, 7), "CPU (measured)");
  EXPECT_TRUE(choose_tuning(tables, kCpu, 7).exact);
  EXPECT_FALSE(choose_tuning(tables, kH200, 3).exact);
}

TEST(Tuning, NormsUseTheAllReducesTableUnlessTheirOwnIsForAsManyRanks) {
  const auto tables = some_tables();
  const auto chosen = [&](const Processor& processor, int ranks) {
    return choose_tuning(tables, processor, ranks, TunedOperation::all_reduce_rms_norm).table;
  };
  EXPECT_EQ(chosen(kH200, 4), &tables[6]);
  EXPECT_EQ(chosen({"NVIDIA H100", 90, 132}, 4), &tables[6]);
  EXPECT_EQ(chosen(kH200, 2), &tables[1]);
  EXPECT_EQ(chosen(kCpu, 4), &tables[4]);
  EXPECT_EQ(choose_tuning(tables, kH200, 4).table, &tables[2]);
}

// A near one serves, as for all-reduces, but not one for another kind of group: constants do.
TEST(Tuning, MovesWithoutATableHaveNone) {
  const auto tables = some_tables();
  const auto chosen = [&](const Processor& processor, int ranks, TunedOperation operation) {
    return choose_tuning(tables, processor, ranks, operation);
  };
  EXPECT_EQ(chosen(kH200, 4, TunedOperation::all_gather).table, &tables[7]);
  EXPECT_EQ(chosen(kH200, 4, TunedOperation::reduce_scatter).table, &tables[8]);
  EXPECT_EQ(chosen(kCpu, 9, TunedOperation::crossing).table, &tables[9]);
  EXPECT_EQ(chosen(kH200, 4, TunedOperation::crossing_rms_norm).table, &tables[10]);
  EXPECT_EQ(chosen({"NVIDIA B200", 100, 148}, 5, TunedOperation::all_gather).reason,
            "NVIDIA H200, 4 ranks (measured), as there is no table for NVIDIA B200, 5 ranks");
  for (const int ranks : {1, 2, 8}) {
    EXPECT_EQ(chosen(kH200, ranks, TunedOperation::all_gather).table, nullptr) << ranks;
  }
  EXPECT_EQ(chosen(kH200, 4, TunedOperation::crossing).table, nullptr);
  EXPECT_EQ(chosen(kCpu, 4, TunedOperation::crossing_rms_norm).table, nullptr);
}

// Ranks compare fingerprints of what they have read: every number of a table counts.
TEST(Tuning, EveryDifferenceOfAMoveIsInTheFingerprint) {
  const std::vector<TuningTable> all = some_tables();
  const auto differs = [&](auto change) {
    std::vector<TuningTable> other = all;
    change(other[7], other[7].steps[0]);
    EXPECT_NE(fingerprint_of(other), fingerprint_of(all));
  };
  differs([](TuningTable& table, TuningStep&) { table.operation = TunedOperation::reduce_scatter; });
  differs([](TuningTable& table, TuningStep&) { table.detour_bytes += 1; });
  differs([](TuningTable&, TuningStep& step) { step.algorithm = MoveWay::one_hop; });
  differs([](TuningTable&, TuningStep& step) { step.up_to += 1; });
  differs([](TuningTable&, TuningStep& step) { step.blocks += 1; });
  differs([](TuningTable&, TuningStep& step) { step.threads += 32; });
}

TEST(Tuning, AnOwnTableTakesTheShippedOnesPlace) {
  const std::vector<TuningTable> own = {
      {.processor = {"NVIDIA H200"}, .ranks = 4, .origin = "measured", .steps = {{.algorithm = Algorithm::pipelined}}}};
  const auto all = with_shipped(own);
  EXPECT_EQ(all.size(), shipped_tuning().size());
  EXPECT_EQ(choose_tuning(all, kH200, 4).table->steps, own[0].steps);
  EXPECT_NE(fingerprint_of(all), fingerprint_of(shipped_tuning()));
  // One of another operation does not.
  auto norms = own;
  norms[0].operation = TunedOperation::all_reduce_rms_norm;
  EXPECT_EQ(with_shipped(norms).size(), shipped_tuning().size() + 1);
  EXPECT_NE(fingerprint_of(norms), fingerprint_of(own));
}

TEST(Tuning, ErrorsNameFileKeyValueAndRange) {
  const std::string good = to_json(some_tables());
  const auto error = [&](const std::string& from, const std::string& to) {
    return test::error_of_changed_tuning(good, from, to);
  };
  EXPECT_EQ(error("\"two-shot\"", "\"ring\""),
            "my.json: tables[0].steps[0].algorithm: \"ring\" is not one of one-shot, two-shot, pipelined");
  // Only a caller may choose these.
  for (const std::string name : {"nccl", "multimem-one-shot", "multimem-two-shot"}) {
    EXPECT_EQ(error("\"two-shot\"", "\"" + name + "\""),
              "my.json: tables[0].steps[0].algorithm: \"" + name + "\" is not one of one-shot, two-shot, pipelined");
  }
  EXPECT_EQ(error("\"blocks\": 9", "\"blocks\": 300"),
            "my.json: tables[0].steps[0].blocks: 300 is not a whole number between 2 and 256");
  EXPECT_EQ(error("\"threads\": 96", "\"threads\": 100"),
            "my.json: tables[0].steps[0].threads: 100 is not a multiple of 32 between 32 and 1024");
  EXPECT_EQ(error("1048576", "4096"),
            "my.json: tables[1].steps[1].up_to_bytes: 4096 is not a whole number between "
            "4097 and 1152921504606846976");
  EXPECT_EQ(error("4096", "-1"),
            "my.json: tables[0].steps[0].up_to_bytes: -1 is not a whole number between 1 and "
            "1152921504606846976");
  EXPECT_EQ(error("\"ranks\": 4", "\"ranks\": 73"),
            "my.json: tables[0].ranks: 73 is not a whole number between 0 and 72");
  EXPECT_EQ(error("\"ranks\": 8", "\"ranks\": 2"),
            "my.json: tables[3].ranks: 2 is not the only table for NVIDIA H200 of this size");
  EXPECT_EQ(error("\"measured\"", "\"guessed\""),
            "my.json: tables[0].origin: \"guessed\" is not one of measured, extrapolated");
  EXPECT_EQ(error("all_reduce", "broadcast"),
            "my.json: tables[0].operation: \"broadcast\" is not one of all_reduce, all_reduce_rms_norm, all_gather, "
            "reduce_scatter, crossing, crossing_rms_norm, moe_layer, moe_exchange");
  // A norm has no pipeline.
  EXPECT_EQ(error("99, \"algorithm\": \"one-shot\"", "99, \"algorithm\": \"pipelined\""),
            "my.json: tables[6].steps[0].algorithm: \"pipelined\" is not one of one-shot, two-shot");
  EXPECT_EQ(error("{\"up_to_bytes\": 99,", "{\"up_to_bytes\": 99, \"blocks\": 9,"),
            "my.json: tables[6].steps[0].blocks: 9 is not known; known are up_to_bytes, algorithm");
  for (const std::string bad : {"9", "9.", ".0", "9.00", "x.0", "123.0", "-9.0", "09.0"}) {
    EXPECT_EQ(error("\"9.0\"", "\"" + bad + "\""),
              "my.json: tables[1].compute_capability: \"" + bad + "\" is not a compute capability such as \"9.0\"");
  }
  EXPECT_EQ(error("132", "0"), "my.json: tables[1].multiprocessors: 0 is not a whole number between 1 and 4096");
  EXPECT_EQ(error("\"blocks\": 9", "\"block\": 9"),
            "my.json: tables[0].steps[0].block: 9 is not known; known are up_to_bytes, algorithm, blocks, threads");
  EXPECT_EQ(error("\"processor\": \"CPU\",", ""), "my.json: tables[4].processor: missing");
  EXPECT_EQ(error("weft-tuning-1", "weft-bench-1"), "my.json: schema: \"weft-bench-1\" is not one of weft-tuning-1");
  EXPECT_EQ(error("{\"algorithm\": \"one-shot\"}", "{\"up_to_bytes\": 9000, \"algorithm\": \"one-shot\"}"),
            "my.json: tables[0].steps[1].up_to_bytes: 9000 is not left out: the last step serves all that is larger");
  // Moves have ways, of which none comes back, and threads up to 512.
  EXPECT_EQ(error("500, \"algorithm\": \"lines\"", "500, \"algorithm\": \"one-shot\""),
            "my.json: tables[7].steps[0].algorithm: \"one-shot\" is not one of lines, chunks");
  EXPECT_EQ(error("500, \"algorithm\": \"lines\"", "500, \"algorithm\": \"chunks\""),
            "my.json: tables[7].steps[1].algorithm: \"lines\" is not one of chunks");
  EXPECT_EQ(error("\"threads\": 512", "\"threads\": 544"),
            "my.json: tables[7].steps[2].threads: 544 is not a multiple of 32 between 32 and 512");
  EXPECT_EQ(error("\"blocks\": 20,", "\"blocks\": 1,"),
            "my.json: tables[7].steps[0].blocks: 1 is not a whole number between 2 and 256");
  EXPECT_EQ(error("\"detour_bytes\": 1600", "\"detour_bytes\": 0"),
            "my.json: tables[7].detour_bytes: 0 is not a whole number between 1 and 1152921504606846976");
  EXPECT_EQ(error("\"operation\": \"crossing\",", "\"operation\": \"crossing\", \"detour_bytes\": 16,"),
            "my.json: tables[9].detour_bytes: 16 is not known; known are processor, compute_capability, "
            "multiprocessors, ranks, operation, origin, note, steps");
  EXPECT_EQ(error("{\"up_to_bytes\": 900,", "{\"up_to_bytes\": 900, \"threads\": 32,"),
            "my.json: tables[10].steps[0].threads: 32 is not known; known are up_to_bytes, algorithm");
  EXPECT_EQ(error("{\n \"schema\"", "{{\n \"schema\"").substr(0, 18), "my.json: no JSON: ");
}

// Faults in a JSON library must not reach the caller.
TEST(Tuning, FilesThatNestTooDeepAndNumbersThatAreTooLargeAreNoTables) {
  const std::string head = R"({"schema": "weft-tuning-1", "tables": [], )", deep(400'000, '[');
  const std::pair<std::string, std::string> cases[] = {
      {deep, "more than 16 deep in each other"},
      {head + R"("x": )" + deep + std::string(400'000, ']') + "}", "more than 16 deep in each other"},
      {head + R"("x": 1e999})", "a number is too large"},
      {head + R"("x": "…………………………………………………"})", "is not known"},
      {"\xff", "no JSON"}};
  for (const auto& [text, part] : cases) {
    test::expect_code([&, text = text] { parse_tuning(text, "mine.json"); }, Errc::invalid_argument, "mine.json: ");
    test::expect_code([&, text = text] { parse_tuning(text, "mine.json"); }, Errc::invalid_argument, part);
  }
}

}  // namespace
}  // namespace weft::detail
