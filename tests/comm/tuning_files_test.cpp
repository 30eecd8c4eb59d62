// Tuning files of communicators: rank 0's serve, each operation by its own table, and groups say which.
#include <gtest/gtest.h>

#include <fstream>

#include "support/ranks.hpp"
#include "support/world.hpp"
#include "tuning/tuning.hpp"
#include "weft/collectives.hpp"
#include "weft/fused.hpp"

namespace weft::detail {
namespace {

std::string file_with(const std::vector<TuningTable>& tables) {
  // Each test has its own file, since others may run at the same time.
  const std::string file =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() + ".tuning.json";
  std::ofstream(file) << to_json(tables);
  return file;
}

std::string called(const Communicator& communicator, std::size_t count) {
  std::vector<float> x(count, 1.0f);
  all_reduce(communicator, {.input = x.data(), .output = x.data(), .count = count, .type = DataType::f32});
  return communicator.world().recent_calls().back().operation;
}

TEST(Tuning, RanksUseRankZerosFile) {
  const std::string file =
      file_with({{.processor = {"CPU"},
                  .ranks = 3,
                  .origin = "measured",
                  .steps = {{.up_to = 400, .algorithm = Algorithm::pipelined}, {.algorithm = Algorithm::two_shot}}}});
  Config config = test::cpu_config();
  config.tuning_file = file;
  const auto endings = test::run_world(3, config, [&](Communicator& communicator, int) {
    EXPECT_EQ(communicator.tuning(), "CPU, 3 ranks (measured)");
    EXPECT_EQ(communicator.split(0).tuning(), "CPU, 3 ranks (measured)");
    EXPECT_EQ(communicator.split(communicator.rank()).tuning(), "CPU (measured)");
    test::expect_says(called(communicator, 100), "pipelined");
    test::expect_says(called(communicator, 101), "two-shot");
  });
  test::expect_all_well(endings);
}

TEST(Tuning, NormsFollowTheirOwnTable) {
  Config config = test::cpu_config();
  config.tuning_file = file_with({{.processor = {"CPU"},
                                   .ranks = 2,
                                   .operation = TunedOperation::all_reduce_rms_norm,
                                   .origin = "measured",
                                   .steps = {{.up_to = 256, .algorithm = Algorithm::two_shot}, {}}}});
  test::expect_all_well(test::run_world(2, config, [&](Communicator& communicator, int) {
    EXPECT_EQ(communicator.tuning(), "CPU (measured); norms: CPU, 2 ranks (measured)");
    EXPECT_EQ(communicator.split(communicator.rank()).tuning(), "CPU (measured)");
    for (const std::size_t tokens : {2, 3}) {  // of 128 bytes
      std::vector<std::uint16_t> x(tokens * 64), sums(tokens * 64), gamma(64);
      all_reduce_rms_norm(communicator, {.input = x.data(),
                                         .residual_output = sums.data(),
                                         .gamma = gamma.data(),
                                         .output = x.data(),
                                         .tokens = tokens,
                                         .hidden = 64});
      test::expect_says(communicator.world().recent_calls().back().operation, tokens == 2 ? "two-shot" : "one-shot");
    }
    test::expect_says(called(communicator, 100), "one-shot");
  }));
}

TEST(Tuning, GroupsNameTheTablesOfTheirMoves) {
  Config config = test::cpu_config();
  config.tuning_file = file_with({{.processor = {"CPU"},
                                   .ranks = 3,
                                   .operation = TunedOperation::all_gather,
                                   .origin = "measured",
                                   .steps = {{.algorithm = MoveWay::chunks}}},
                                  {.processor = {"CPU"},
                                   .ranks = 0,
                                   .operation = TunedOperation::crossing_rms_norm,
                                   .origin = "extrapolated",
                                   .steps = {{.algorithm = MoveWay::chunks}}}});
  test::expect_all_well(test::run_world(3, config, [&](Communicator& communicator, int) {
    EXPECT_EQ(communicator.tuning(),
              "CPU (measured); gathers: CPU, 3 ranks (measured); crossings with a norm: CPU (extrapolated)");
    EXPECT_EQ(communicator.split(communicator.rank()).tuning(),
              "CPU (measured); crossings with a norm: CPU (extrapolated)");
  }));
}

// The files that other ranks name are not read.
TEST(Tuning, OtherRanksFilesDoNotCount) {
  const std::string file = file_with(
      {{.processor = {"CPU"}, .ranks = 2, .origin = "measured", .steps = {{.algorithm = Algorithm::two_shot}}}});
  const UniqueId id = UniqueId::create();
  for (const std::string& error : test::run_ranks(2, [&](int rank) {
         Config config = test::cpu_config();
         config.tuning_file = rank == 0 ? file : "/nonexistent/tuning.json";
         const Communicator communicator = Communicator::from_id(id, rank, 2, config);
         EXPECT_EQ(communicator.tuning(), "CPU, 2 ranks (measured)");
         test::expect_says(called(communicator, 100), "two-shot");
       }))
    EXPECT_EQ(error, "");
}

// The file is for another number of ranks: the shipped table for any number is nearer.
TEST(Tuning, AFileForOtherRanksIsNotUsed) {
  Config config = test::cpu_config();
  config.tuning_file = file_with(
      {{.processor = {"CPU"}, .ranks = 3, .origin = "measured", .steps = {{.algorithm = Algorithm::two_shot}}}});
  test::expect_all_well(test::run_world(2, config, [&](Communicator& communicator, int) {
    EXPECT_EQ(communicator.tuning(), "CPU (measured)");
    test::expect_says(called(communicator, 100), "one-shot");
  }));
}

TEST(Tuning, ABadFileEndsCreationOnEveryRank) {
  Config config = test::cpu_config();
  config.tuning_file = "/nonexistent/tuning.json";
  test::expect_says(test::error_of([&] { Communicator::local(3, config); }),
                    "/nonexistent/tuning.json: cannot be read");
}

}  // namespace
}  // namespace weft::detail
