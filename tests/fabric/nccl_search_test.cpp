// The search for NCCL, and its functions, with stand-ins of several versions (tests/stubs). A process keeps the copy it
// has, so each case runs in a process of its own.
#if WEFT_WITH_CUDA

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <link.h>

#include <filesystem>
#include <string>

#include "fabric/nccl_api.hpp"
#include "fabric/nccl_table.hpp"
#include "support/nccl_stub.hpp"
#include "support/ranks.hpp"
#include "support/spawned.hpp"
#include "weft/communicator.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

std::string stub(int version) {
  return nccl_stub(version);
}

std::string folder_of(const std::string& file) {
  return std::filesystem::path(file).parent_path().string();
}

// The places of a process's copies; empty: none.
struct Copies {
  std::string loaded{};  // when it starts, separated by spaces
  std::string named{};
  std::string on_the_path{};
};

std::string said_by(const std::string& worker, const Copies& copies) {
  Spawned process("NcclSearchWorker.DISABLED_" + worker,
                  {{"LD_PRELOAD", copies.loaded},
                   {"WEFT_NCCL", copies.named},
                   {"LD_LIBRARY_PATH", copies.on_the_path.empty() ? "" : folder_of(copies.on_the_path)}});
  const Outcome outcome = process.wait(60s);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
  return outcome.said;
}

std::string report_with(const Copies& copies) {
  return said_by("Report", copies);
}

TEST(NcclSearchWorker, DISABLED_Report) {
  const detail::NcclReport report = detail::nccl_report();
  fmt::print("took [{}] {} [{}]\n", report.version, report.path, report.origin);
  fmt::print("problem [{}]\n", report.problem);
  for (const std::string& note : report.notes) fmt::print("note [{}]\n", note);
  EXPECT_EQ(detail::why_no_nccl(), report.problem);
}

TEST(NcclSearchWorker, DISABLED_UseNccl) {
  use_nccl("/nowhere/libnccl.so.2");
  use_nccl(stub(23007));
  const detail::NcclReport report = detail::nccl_report();
  use_nccl(stub(22907));  // too late
  fmt::print("took [{}] {} [{}]\n", report.version, report.path, report.origin);
  EXPECT_EQ(detail::nccl_report().path, report.path);
}

TEST(NcclSearchWorker, DISABLED_Objects) {
  const auto print = [](dl_phdr_info* object, std::size_t, void*) {
    fmt::print("[{}]\n", object->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(print, nullptr);
}

TEST(NcclSearchWorker, DISABLED_NoSystem) {
  const detail::NcclFinding finding = detail::find_nccl({.system = "libnccl-of-nobody.so"});
  fmt::print("problem [{}]\n", finding.problem);
  EXPECT_FALSE(finding.taken);
}

TEST(NcclSearchWorker, DISABLED_Addresses) {
  const detail::NcclTable& table = detail::nccl();
  const auto window = reinterpret_cast<ncclWindow_t>(std::uintptr_t{0x7000'0000'0000});
  for (void* const address : detail::ask_for_lsa_pointers(table, window, 4)) fmt::print("[{}]\n", address);
  fmt::print("fifth: [{}]\n", error_of([&] { detail::ask_for_lsa_pointers(table, window, 5); }));
  fmt::print("missing: [{}]\n", error_of([&] { table.library.need("ncclNothing"); }));
}

TEST(NcclSearchWorker, DISABLED_FromNccl) {
  int engines = 0;
  fmt::print("[{}]\n", error_of([&] { Communicator::from_nccl(reinterpret_cast<ncclComm*>(&engines)); }));
}

// ------------------------------------------------------------------------------------------------------------
// which copy is taken

// One executable runs with any NCCL, and without the driver.
TEST(NcclSearch, NothingIsLinked) {
  const std::string objects = said_by("Objects", {});
  expect_says(objects, "libc.so.6");
  EXPECT_EQ(objects.find("libnccl"), std::string::npos) << objects;
  EXPECT_EQ(objects.find("libcuda"), std::string::npos) << objects;
}

// A second copy breaks the engine's communicators.
TEST(NcclSearch, TheProcesssOwnComesFirst) {
  const std::string said = report_with({.loaded = stub(22907), .named = stub(23007), .on_the_path = stub(23007)});
  expect_says(said, "took [2.29.7] " + stub(22907) + " [the process's own]");
  expect_says(said, "note [not taken: WEFT_NCCL=" + stub(23007) + ": the process has a copy already]");
  expect_says(said, "note [not looked for: the system's libnccl.so.2]");
}

TEST(NcclSearch, ThenTheNamedOne) {
  const std::string said = report_with({.named = stub(23007), .on_the_path = stub(22907)});
  expect_says(said, "took [2.30.7] " + stub(23007) + " [WEFT_NCCL]");
  expect_says(said, "note [not taken: the process's own copy: it has none]");
}

TEST(NcclSearch, ThenTheOneThatTheProgramNames) {
  expect_says(said_by("UseNccl", {.on_the_path = stub(22907)}), "took [2.30.7] " + stub(23007) + " [use_nccl()]");
  expect_says(said_by("UseNccl", {.named = stub(22907)}), "took [2.29.7] " + stub(22907) + " [WEFT_NCCL]");
  expect_says(said_by("UseNccl", {.loaded = stub(22907)}), "took [2.29.7] " + stub(22907) + " [the process's own]");
}

// It cannot know which copy made an engine's communicators, so it does not choose between them.
TEST(NcclSearch, AProgramsNameDoesNotChooseBetweenTwoCopies) {
  const std::string said = said_by("UseNccl", {.loaded = stub(22907) + " " + stub(23007)});
  expect_says(said, "took [2.29.7] " + stub(22907) + " [the process's own]");
  expect_says(said, "[warning] 2 copies of NCCL in this process");
}

TEST(NcclSearch, ThenTheSystems) {
  const std::string said = report_with({.on_the_path = stub(22907)});
  expect_says(said, "took [2.29.7] " + stub(22907) + " [the system's]");
  expect_says(said, "note [not taken: WEFT_NCCL: it is not set]");
}

// A typing mistake must not run another version than the wanted one.
TEST(NcclSearch, ANameThatLeadsNowhereIsAnError) {
  const std::string said = report_with({.named = "/nowhere/libnccl.so.2", .on_the_path = stub(22907)});
  expect_says(said, "took [] ");
  expect_says(said, "problem [no NCCL: WEFT_NCCL names /nowhere/libnccl.so.2: ");
}

TEST(NcclSearch, NoCopyAtAll) {
  expect_says(said_by("NoSystem", {}), "problem [no NCCL: libnccl-of-nobody.so: ");
}

// ------------------------------------------------------------------------------------------------------------
// two copies in one process

TEST(NcclSearch, TwoCopiesAreNamed) {
  const std::string said = report_with({.loaded = stub(22907) + " " + stub(23007)});
  expect_says(said, "took [2.29.7] " + stub(22907) + " [the process's own]");
  expect_says(said, "note [2 copies of NCCL in this process (" + stub(22907) + ", " + stub(23007) + ")");
  expect_says(said, "[warning] 2 copies of NCCL in this process");
}

TEST(NcclSearch, TheNameChoosesBetweenTwoCopies) {
  const std::string said = report_with({.loaded = stub(22907) + " " + stub(23007), .named = stub(23007)});
  expect_says(said, "took [2.30.7] " + stub(23007) + " [WEFT_NCCL]");
  expect_says(said, "note [not taken: " + stub(22907) + ", another copy in this process]");
  EXPECT_EQ(said.find("2 copies"), std::string::npos) << said;
}

// A call to the wrong copy would read another version's structures.
TEST(NcclSearch, FromNcclWantsToKnowTheCommunicatorsCopy) {
  const std::string both = stub(22907) + " " + stub(23007);
  expect_says(said_by("FromNccl", {.loaded = both}), "[from_nccl: 2 copies of NCCL in this process (");
  // The stand-in refuses the first question, so it was asked.
  expect_says(said_by("FromNccl", {.loaded = both, .named = stub(23007)}),
              "[ncclCommUserRank: the stub says no: its last word]");
}

// ------------------------------------------------------------------------------------------------------------
// what a copy must have

TEST(NcclSearch, TooOld) {
  const std::string said = report_with({.named = stub(22703)});
  expect_says(said, "took [] ");
  expect_says(said, "problem [NCCL 2.27.3 (" + stub(22703) + "): must be 2.28.9 or newer, of version 2]");
}

// Its structures may differ from those that the kernel was compiled for.
TEST(NcclSearch, AnotherVersionWithoutTheHostsCallIsRefused) {
  if (NCCL_VERSION_CODE == 22812) GTEST_SKIP() << "built with NCCL 2.28.12, which the stand-in passes for";
  const std::string said = report_with({.named = stub(22812)});
  expect_says(said, "took [] ");
  expect_says(said, "problem [NCCL 2.28.12 (" + stub(22812) + "): has no ncclGetLsaDevicePointer");
}

TEST(NcclSearch, TheBuildsVersionNeedsNoHostsCall) {
  const std::string own = detail::nccl_version_text(NCCL_VERSION_CODE);
  const std::string said = report_with({.named = stub(NCCL_VERSION_CODE)});
  expect_says(said, "took [" + own + "] ");
  expect_says(said, NCCL_VERSION_CODE < 22900 ? "note [peers' addresses: by a kernel" : "by NCCL's call on the host");
  EXPECT_EQ(said.find("no multicast"), std::string::npos) << said;
}

TEST(NcclSearch, MulticastIsForTheBuildsVersion) {
  if (NCCL_VERSION_CODE == 23007) GTEST_SKIP() << "built with NCCL 2.30.7, which the stand-in passes for";
  expect_says(report_with({.named = stub(23007)}), "note [no multicast: it needs NCCL ");
}

TEST(NcclSearch, AddressesComeByTheHostsCall) {
  for (const int version : {22907, 23007}) {
    const std::string said = said_by("Addresses", {.named = stub(version)});
    for (const char* const address : {"0x700000100000", "0x700000200000", "0x700000300000", "0x700000400000"})
      expect_says(said, fmt::format("[{}]", address));
    expect_says(said, "fifth: [ncclGetLsaDevicePointer: the stub says no: its last word]");
    expect_says(
        said, "missing: [NCCL " + detail::nccl_version_text(version) + " (" + stub(version) + "): has no ncclNothing]");
  }
}

}  // namespace
}  // namespace weft::test

#endif
