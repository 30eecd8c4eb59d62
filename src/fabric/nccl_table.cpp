#if WEFT_WITH_CUDA

#include "fabric/nccl_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "base/log.hpp"
#include "fabric/nccl_api.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

// Lasts as long as the process: communicators may end after static objects do.
struct ProcessNccl {
  std::mutex mutex;
  std::atomic<const NcclTable*> table = nullptr;
  NcclFinding finding;
  NcclSearch search;  // as use_nccl() has named it
};

ProcessNccl& process_nccl() {
  static ProcessNccl& one = *new ProcessNccl;
  return one;
}

// A kernel reads the window's structure, whose layout changes even between patch levels.
void need_addresses(const NcclTable& table) {
  if (table.get_lsa_device_pointer != nullptr || table.is_of_build()) return;
  throw Error(Errc::unsupported, fmt::format("NCCL {} ({}): has no ncclGetLsaDevicePointer (from 2.29 on), and without "
                                             "it must be {}, the version of the build",
                                             nccl_version_text(table.library.version), table.library.path,
                                             nccl_version_text(NCCL_VERSION_CODE)));
}

// Tries again after a failure: an engine may have loaded its copy since.
const NcclTable* load_nccl(ProcessNccl& one) {
  const std::scoped_lock lock(one.mutex);
  if (const NcclTable* const table = one.table) return table;
  const char* const named = std::getenv(kNcclVariable);
  if (named != nullptr && *named != '\0') one.search = {.named = named};
  one.finding = find_nccl(one.search);
  if (!one.finding.taken) return nullptr;
  try {
    auto table = std::make_unique<NcclTable>(NcclTable{.library = *one.finding.taken});
    need_addresses(*table);
    one.table = table.release();
  } catch (const Error& error) {
    one.finding.refuse(error.what());
    return nullptr;
  }
  if (const std::string twice = why_maker_unknown(); !twice.empty()) logger().warn("{}", twice);
  return one.table;
}

std::string origin_text(NcclOrigin origin, const NcclSearch& search) {
  const std::string names[] = {"the process's own", search.namer, "the system's"};
  return names[static_cast<int>(origin)];
}

}  // namespace

const NcclTable& nccl() {
  if (const NcclTable* const table = process_nccl().table) return *table;
  if (const std::string problem = why_no_nccl(); !problem.empty()) throw Error(Errc::unsupported, problem);
  return *process_nccl().table;
}

void name_nccl(const std::string& file) {
  ProcessNccl& one = process_nccl();
  const std::scoped_lock lock(one.mutex);
  if (one.table == nullptr) one.search = {.named = file, .namer = "use_nccl()"};
}

std::string why_no_nccl() {
  ProcessNccl& one = process_nccl();
  if (load_nccl(one) != nullptr) return {};
  const std::scoped_lock lock(one.mutex);
  return one.finding.problem;
}

NcclReport nccl_report() {
  ProcessNccl& one = process_nccl();
  const NcclTable* const table = load_nccl(one);
  const std::scoped_lock lock(one.mutex);
  NcclReport report{.problem = one.finding.problem, .notes = one.finding.notes};
  if (table == nullptr) return report;
  report.version = nccl_version_text(table->library.version);
  report.path = table->library.path;
  report.origin = origin_text(table->library.origin, one.search);
  report.notes.push_back(fmt::format("peers' addresses: by {}", table->get_lsa_device_pointer != nullptr
                                                                    ? "NCCL's call on the host"
                                                                    : "a kernel, as the build's version runs"));
  if (std::string twice = why_maker_unknown(); !twice.empty()) report.notes.push_back(std::move(twice));
  if (const std::string problem = why_no_multicast(*table); !problem.empty())
    report.notes.push_back("no multicast: " + problem);
  return report;
}

std::string why_no_multicast(const NcclTable& table) {
  if (table.is_of_build()) return {};
  return fmt::format("it needs NCCL {}, the version of the build", nccl_version_text(NCCL_VERSION_CODE));
}

std::string why_maker_unknown() {
  const std::vector<std::string> copies = nccl_copies();
  if (copies.size() < 2 || nccl().library.origin == NcclOrigin::named) return {};
  return fmt::format("{} copies of NCCL in this process ({}); Weft calls {}; to choose one, set {} to its path",
                     copies.size(), fmt::join(copies, ", "), nccl().library.path, kNcclVariable);
}

std::vector<void*> ask_for_lsa_pointers(const NcclTable& table, ncclWindow_t window, int ranks) {
  std::vector<void*> pointers(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    check_nccl(table.get_lsa_device_pointer(window, 0, rank, &pointers[static_cast<std::size_t>(rank)]),
               "ncclGetLsaDevicePointer");
  }
  return pointers;
}

}  // namespace weft::detail

#endif
