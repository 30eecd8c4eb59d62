#include "fabric/memory_room.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

// The number behind `name` in a file of lines "name number", in any unit.
std::optional<std::uint64_t> number_of(const std::string& file, std::string_view name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string found;
    std::uint64_t number = 0;
    if (words >> found && found == name && words >> number) return number;
  }
  return std::nullopt;
}

// A file of one number; empty if it has none, like "max".
std::optional<std::uint64_t> number_in(const std::string& file) {
  std::uint64_t number = 0;
  if (std::ifstream(file) >> number) return number;
  return std::nullopt;
}

struct Version {
  const char *limit, *usage, *inactive, *active;  // the kernel drops these first: pages of files
};
constexpr Version kVersions[] = {
    {"memory.max", "memory.current", "inactive_file", "active_file"},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"}};

// The memory that the limit of one control group leaves.
std::optional<MemoryRoom> room_in(const std::string& folder) {
  for (const Version& version : kVersions) {
    const auto limit = number_in(folder + '/' + version.limit), usage = number_in(folder + '/' + version.usage);
    if (!limit || !usage) continue;
    const std::string statistics = folder + "/memory.stat";
    const std::uint64_t files =
        number_of(statistics, version.inactive).value_or(0) + number_of(statistics, version.active).value_or(0);
    const std::uint64_t used = *usage - std::min(*usage, files);
    struct stat info {};
    static_cast<void>(::stat(folder.c_str(), &info));
    return MemoryRoom{
        .bytes = *limit - std::min(*limit, used),
        .owner = info.st_ino,
        .text = fmt::format("control group {} has a limit of {} bytes, of which {} are in use", folder, *limit, used)};
  }
  return std::nullopt;
}

// A mounted tree of control groups, and the folder of this process in it.
struct Tree {
  std::string mount, folder;
};

// "34 28 0:29 /root /mount/point options … - cgroup2 source options"
struct Mount {
  std::string root, point, kind, options;
};
std::optional<Mount> parse_mount(const std::string& line) {
  std::istringstream words(line);
  Mount mount;
  std::string word;
  words >> word >> word >> word >> mount.root >> mount.point;
  while (words >> word && word != "-") {
  }
  if (words >> mount.kind >> word >> mount.options) return mount;
  return std::nullopt;
}

bool has_word(std::string_view list, std::string_view word) {
  return fmt::format(",{},", list).find(fmt::format(",{},", word)) != std::string::npos;
}

// Lines "number:controllers:path"; version 2 has number 0 and no controllers.
std::optional<std::string> path_of(const std::string& groups, bool second) {
  std::ifstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), last = line.find(':', first + 1);
    if (first == std::string::npos || last == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, last - first - 1);
    if (second ? controllers.empty() : has_word(controllers, "memory")) return line.substr(last + 1);
  }
  return std::nullopt;
}

std::vector<Tree> trees(const MemoryFiles& files) {
  std::vector<Tree> found;
  std::ifstream lines(files.mounts);
  for (std::string line; std::getline(lines, line);) {
    const std::optional<Mount> mount = parse_mount(line);
    if (!mount) continue;
    const bool second = mount->kind == "cgroup2";
    if (!second && !(mount->kind == "cgroup" && has_word(mount->options, "memory"))) continue;
    std::optional<std::string> path = path_of(files.groups, second);
    if (!path) continue;
    // In a container the tree may begin at its own group.
    const std::string root = mount->root == "/" ? "" : mount->root;
    const bool below = path->starts_with(root + '/') || *path == root;
    const std::string rest = below ? path->substr(root.size()) : "";
    found.push_back({.mount = mount->point, .folder = mount->point + (rest == "/" ? "" : rest)});
  }
  return found;
}

void check(const std::optional<MemoryRoom>& room, std::uint64_t bytes, std::uint64_t ranks) {
  if (!room || bytes <= room->bytes / ranks) return;
  throw Error(Errc::system,
              fmt::format("{} bytes of memory for each of {} CPU ranks are more than the {} bytes that are left: {}",
                          bytes, ranks, room->bytes, room->text));
}

}  // namespace

std::optional<MemoryRoom> machine_room(const MemoryFiles& files) {
  const auto available = number_of(files.meminfo, "MemAvailable:");
  if (!available) return std::nullopt;
  const std::uint64_t swap = number_of(files.meminfo, "SwapFree:").value_or(0);
  return MemoryRoom{
      .bytes = (*available + swap) * 1024,
      .text = fmt::format("the machine has {} KiB available and {} KiB of swap (/proc/meminfo)", *available, swap)};
}

std::optional<MemoryRoom> group_room(const MemoryFiles& files) {
  std::optional<MemoryRoom> least;
  for (const Tree& tree : trees(files)) {
    // The limits of all parent groups hold, too.
    for (std::string folder = tree.folder; folder.size() >= tree.mount.size();
         folder.resize(std::min(folder.size() - 1, folder.rfind('/')))) {
      const std::optional<MemoryRoom> room = room_in(folder);
      if (room && (!least || room->bytes < least->bytes)) least = room;
    }
  }
  return least;
}

void check_memory_room(Bootstrap& bootstrap, std::uint64_t bytes, const MemoryFiles& files) {
  const auto size = static_cast<std::uint64_t>(bootstrap.size());
  const std::optional<MemoryRoom> group = group_room(files);
  const std::uint64_t own = group ? group->owner : 0;
  const auto owners = bootstrap.all_gather_value("compare control groups", own);
  bootstrap.agree_on("look for memory", [&] {
    check(machine_room(files), bytes, size);
    check(group, bytes, static_cast<std::uint64_t>(std::ranges::count(owners, own)));
  });
}

}  // namespace weft::detail
