#include "workloads/cores.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace weft::cli {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// The only line of a file; empty if the file does not exist.
std::string line_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// "max 100000" and "-1" mean no limit, and so does an unreadable text.
double share(const std::string& quota, const std::string& period) {
  double time = 0, whole = 0;
  if (!(std::istringstream(quota) >> time) || !(std::istringstream(period) >> whole)) return kUnlimited;
  return time > 0 && whole > 0 ? time / whole : kUnlimited;
}

// The limit of one group: the file of version 2, or the two files of version 1.
double granted_by(const std::filesystem::path& group) {
  std::string quota, period;
  std::istringstream(line_of(group / "cpu.max")) >> quota >> period;
  return std::min(share(quota, period),
                  share(line_of(group / "cpu.cfs_quota_us"), line_of(group / "cpu.cfs_period_us")));
}

// The least limit of a group and its ancestors, up to the hierarchy's mount. A container may see its own group as the
// top, while its path names folders that are not there.
double granted_up_to(const std::filesystem::path& mount, std::filesystem::path group) {
  double least = granted_by(mount);
  for (; group.has_relative_path(); group = group.parent_path())
    least = std::min(least, granted_by(mount / group.relative_path()));
  return least;
}

}  // namespace

double granted_cores(const std::filesystem::path& root) {
  double least = kUnlimited;
  std::ifstream groups(root / "proc/self/cgroup");  // "0::/path", or "4:cpu,cpuacct:/path" of version 1
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    for (const char* mount : {"sys/fs/cgroup", "sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"})
      if (controllers.empty() || controllers.find("cpu") != std::string::npos)
        least = std::min(least, granted_up_to(root / mount, line.substr(second + 1)));
  }
  return least;
}

int allowed_cores() {
  const auto online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (launched()) return std::max(1, online);
  // The kernel refuses a set that is smaller than its own, so larger ones are tried.
  for (int most = 1024; most <= 1 << 20; most *= 2) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(most));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(most));
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max(1, online);
}

double usable_cores() {
  return std::min(static_cast<double>(allowed_cores()), granted_cores());
}

std::string Crowd::warning() const {
  if (!crowded()) return {};
  const std::string gloo = peer_threads == 0 ? "" : fmt::format(" and {} of Gloo's", peer_threads);
  return fmt::format(
      "TOO FEW CORES: {} ranks{} share {:.3g} {}. Times depend largely on the scheduler, so\n"
      "no speed-up is shown.\n",
      ranks, gloo, cores, cores == 1 ? "core" : "cores");
}

Crowd crowd_of(const Ranks& ranks, const std::vector<Result>& results) {
  Crowd crowd{.cores = usable_cores()};
  if (ranks.device() != Device::cpu) return crowd;
  crowd.ranks = ranks.world_size();
  const bool gloo = std::ranges::any_of(results, [](const Result& result) {
    return result.point.contender == Contender::gloo_ring || result.point.contender == Contender::gloo_bcube;
  });
  if (gloo) crowd.peer_threads = ranks.world_size();
  return crowd;
}

}  // namespace weft::cli
