// The memory that a communicator takes with the default Config, as docs/architecture.md states it.
#include <gtest/gtest.h>

#include "comm/window_layout.hpp"
#include "fabric/fabric.hpp"
#include "support/world.hpp"

namespace weft::test {
namespace {

Config defaults(Device device, int max_groups) {
  Config config;
  config.device = device;
  config.max_groups = max_groups;
  return config;
}

struct Budget {
  std::uint32_t ranks;
  std::size_t window, without_groups;
};

TEST(Budget, OfDefaultWindows) {
  const Config config;
  EXPECT_EQ(config.max_groups, 4);
  const std::vector<Budget> cuda{
      {2, 285'285'376, 176'192'512}, {4, 276'964'352, 159'443'968}, {8, 293'860'352, 159'484'928}};
  const std::vector<Budget> cpu{{2, 9'256'704, 1'879'808}, {4, 13'264'128, 2'707'712}, {8, 21'280'256, 4'363'776}};
  for (const auto& [device, budgets] : {std::pair{Device::cuda, cuda}, {Device::cpu, cpu}}) {
    for (const Budget& budget : budgets) {
      EXPECT_EQ(detail::window_bytes(defaults(device, 4), budget.ranks), budget.window) << budget.ranks;
      EXPECT_EQ(detail::window_bytes(defaults(device, 0), budget.ranks), budget.without_groups) << budget.ranks;
    }
  }
}

TEST(Budget, OfSmallBuffersOnGpus) {
  Config config = defaults(Device::cuda, 0);
  config.small_buffers = true;
  const std::size_t control = std::size_t{1} << 20;
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    EXPECT_LE(detail::window_bytes(config, ranks) + control, std::size_t{32} << 20) << ranks;
    const detail::RegionLayout layout = detail::world_layout(config, ranks);
    EXPECT_EQ(layout.one_shot_packs, (512u << 10) / sizeof(detail::Pack));
    EXPECT_GE(layout.two_shot_packs * ranks, (3u << 20) / sizeof(detail::Pack));
  }
  // Limits that are given stay, and CPU ranks have their defaults.
  config.two_shot_bytes = 4096;
  EXPECT_LT(detail::world_layout(config, 4).two_shot_packs, 4096u);
  Config cpu = defaults(Device::cpu, 0);
  const std::size_t usual = detail::window_bytes(cpu, 4);
  cpu.small_buffers = true;
  EXPECT_EQ(detail::window_bytes(cpu, 4), usual);
}

// In whole MiB, as docs/integration.md states it. A group may have any size up to the world's.
TEST(Budget, OfGroupsBesideSmallBuffersOnGpus) {
  for (std::uint32_t ranks = 1; ranks <= 8; ++ranks) {
    for (const int groups : {1, 4, 63}) {
      Config config = defaults(Device::cuda, groups);
      config.small_buffers = true;
      const std::size_t all = detail::window_bytes(config, ranks);
      config.max_groups = 0;
      const std::size_t each = (all - detail::window_bytes(config, ranks)) / static_cast<std::size_t>(groups);
      const std::size_t mib = (each + (1u << 19)) >> 20;
      EXPECT_LE(mib, 32u) << ranks << " ranks, " << groups << " groups";
      EXPECT_GE(mib, 25u) << ranks << " ranks, " << groups << " groups";
    }
  }
}

// The computed memory equals the allocated memory.
TEST(Budget, IsWhatACommunicatorTakes) {
  for (const int ranks : {2, 4}) {
    const auto communicators = Communicator::local(ranks, cpu_config());
    const std::size_t computed = detail::window_bytes(defaults(Device::cpu, 4), static_cast<std::uint32_t>(ranks));
    for (const Communicator& communicator : communicators) EXPECT_EQ(communicator.memory().window, computed);
  }
}

// Tables of channels, epochs and the fault record have a fixed size for any world.
TEST(Budget, OfControlMemory) {
  const std::size_t tables = detail::kMaxChannels * (sizeof(detail::Channel) + sizeof(detail::LocalState)) +
                             detail::kMaxGroups * sizeof(detail::HostNumbers);
  EXPECT_LE(tables, 704u << 10);
  EXPECT_LE(Communicator::local(2, cpu_config()).front().memory().control, 704u << 10);
}

}  // namespace
}  // namespace weft::test
