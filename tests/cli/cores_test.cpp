// Finding the usable cores, and the warnings of programs that have too few.
#include "workloads/cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <thread>

#include "cli/run.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

// A fake file system: /proc with this process's groups, and the files of their limits.
class Limits : public testing::Test {
 protected:
  Limits() : root_(std::filesystem::path(testing::TempDir()) / ("limits-" + std::to_string(getpid()))) {
    std::filesystem::remove_all(root_);
  }
  ~Limits() override { std::filesystem::remove_all(root_); }
  void file(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  double granted() const { return granted_cores(root_); }

 private:
  std::filesystem::path root_;
};

TEST_F(Limits, AreTheLeastOfAllGroupsAbove) {
  EXPECT_TRUE(std::isinf(granted()));
  file("proc/self/cgroup", "0::/outer/inner\n");
  EXPECT_TRUE(std::isinf(granted()));
  file("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_TRUE(std::isinf(granted()));
  file("sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
  EXPECT_EQ(granted(), 1.5);
  file("sys/fs/cgroup/outer/inner/cpu.max", "800000 100000\n");
  EXPECT_EQ(granted(), 1.5);
  file("sys/fs/cgroup/outer/inner/cpu.max", "50000 100000\n");
  EXPECT_EQ(granted(), 0.5);
}

// A container sees its own group as the top.
TEST_F(Limits, AreThoseOfTheTopWhereTheGroupsFolderIsNotThere) {
  file("proc/self/cgroup", "0::/somewhere/else\n");
  file("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(granted(), 3);
}

TEST_F(Limits, OfTheFirstVersionCount) {
  file("proc/self/cgroup", "9:memory:/m\n4:cpu,cpuacct:/job\n");
  file("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  file("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_TRUE(std::isinf(granted()));
  file("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(granted(), 2);
}

TEST_F(Limits, ThatCannotBeReadAreNone) {
  file("proc/self/cgroup", "nonsense\n0::/\n");
  file("sys/fs/cgroup/cpu.max", "many few\n");
  EXPECT_TRUE(std::isinf(granted()));
}

// Runs the program in a thread that may use only one core. Its child threads inherit that limit.
Output run_on_one_core(const std::vector<std::string>& arguments) {
  Output output{};
  std::thread([&] {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof(all), &all);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
    EXPECT_EQ(allowed_cores(), 1);
    output = run(arguments);
  }).join();
  return output;
}

std::size_t times(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

// The warning stands in the head and the end, in the table and in files for machines.
TEST(Cores, TooFewOfThemAreSaidAndNoRatioIsShown) {
  const auto file = testing::TempDir() + "crowded.json", csv = testing::TempDir() + "crowded.csv";
  for (auto command : small_benches()) {
    command.insert(command.end(), {"--device", "cpu", "--ranks", "2", "--samples", "2", "--json", file, "--csv", csv});
    const auto result = run_on_one_core(command);
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(times(result.out, "TOO FEW CORES: 2 ranks"), 2u) << result.out;
    EXPECT_NE(result.out.find(", 1 core, weft "), std::string::npos) << result.out;
    const auto json = read_json(file);
    EXPECT_EQ(json.at("crowded"), true);
    EXPECT_EQ(json.at("usable_cores"), 1);
    for (const auto& point : json.at("points")) {
      if (!point.contains("speed_up")) continue;  // exchanges have no peer, and peers have no ratio
      EXPECT_TRUE(point.at("speed_up").is_null()) << point.dump();
      EXPECT_FALSE(point.at("why_no_speed_up").get<std::string>().empty()) << point.dump();
    }
    std::ifstream lines(csv);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line.substr(line.rfind(',')), ",speed_up");
    while (std::getline(lines, line)) EXPECT_EQ(line.back(), ',') << line;
  }
}

TEST(SpeedUps, AreRatiosOrReasons) {
  const Result ours{.point = {.count = 8}, .verdict = Verdict::ok, .us = 2};
  const Result peer{.point = {.count = 8, .contender = Contender::gloo_ring}, .verdict = Verdict::ok, .us = 3};
  const Crowd fits{.ranks = 2, .peer_threads = 2, .cores = 4}, crowded{.ranks = 2, .peer_threads = 2, .cores = 3.5};
  EXPECT_EQ(speed_up(ours, &peer, fits).ratio, 1.5);
  EXPECT_EQ(cell(speed_up(ours, &peer, fits)), "1.50");
  EXPECT_EQ(fits.warning(), "");
  const auto refused = [&](const Result& result, const Result* beside, const Crowd& crowd) {
    const SpeedUp none = speed_up(result, beside, crowd);
    EXPECT_FALSE(none.ratio);
    EXPECT_EQ(cell(none), "-");
    return none.why_none;
  };
  EXPECT_EQ(refused(ours, &peer, crowded), "4 threads share 3.5 cores");
  EXPECT_EQ(refused(ours, nullptr, fits), "no peer was measured");
  Result other = ours;
  other.verdict = Verdict::wrong;
  EXPECT_EQ(refused(other, &peer, fits), "Weft has no right result");
  other = ours;
  other.point.count = 0;
  EXPECT_EQ(refused(other, &peer, fits), "nothing is moved");
  other.point.operation = Operation::barrier;
  EXPECT_EQ(speed_up(other, &peer, fits).ratio, 1.5);
}

TEST(SpeedUps, AreToTheBestPeerOfTheSameKind) {
  const Point point{.count = 8};
  std::vector<Result> results;
  const auto add = [&](Contender contender, double us) -> Result& {
    results.push_back({.point = point, .verdict = Verdict::ok, .us = us});
    results.back().point.contender = contender;
    return results.back();
  };
  EXPECT_EQ(best_peer(results, point), nullptr);
  add(Contender::two_shot, 1);
  add(Contender::push, 1);
  add(Contender::gloo_bcube, 1).verdict = Verdict::wrong;
  add(Contender::gloo_bcube, 1).point.count = 9;
  add(Contender::gloo_bcube, 1).point.operation = Operation::all_gather;
  add(Contender::gloo_bcube, 1).point.load = Load::busy;
  add(Contender::gloo_bcube, 1).point.method = Method::graph;
  EXPECT_EQ(best_peer(results, point), nullptr);
  add(Contender::gloo_ring, 5);
  add(Contender::gloo_bcube, 4);
  EXPECT_EQ(best_peer(results, point), &results.back());
}

}  // namespace
}  // namespace weft::cli
