// launched() follows the same rules as Communicator::from_environment().
#include "common/ranks.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace weft::cli {
namespace {

// Sets variables of this process for its own lifetime.
class Environment {
 public:
  explicit Environment(std::vector<std::pair<const char*, const char*>> variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name, value, 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) ::unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<const char*, const char*>> variables_;
};

TEST(Launched, NotByHand) {
  EXPECT_FALSE(launched());
}

TEST(Launched, BySrunWhichDoesNotNameTheStepsTasks) {
  const Environment srun({{"SLURM_PROCID", "1"},
                          {"SLURM_NTASKS", "4"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_NODELIST", "gpu07"}});
  EXPECT_TRUE(launched());
}

// A batch script is no job step: a program that it starts without srun is a world of its own.
TEST(Launched, NotInABatchScript) {
  const Environment batch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}});
  EXPECT_FALSE(launched());
}

TEST(Launched, ByTorchrunWithOneProcessIsByHand) {
  const Environment one({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  EXPECT_FALSE(launched());
  const Environment two({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  EXPECT_TRUE(launched());
}

}  // namespace
}  // namespace weft::cli
