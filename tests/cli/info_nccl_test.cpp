// weft info: which NCCL was taken, and why no other.
#if WEFT_WITH_CUDA

#include <gtest/gtest.h>

#include "cli/launch.hpp"
#include "support/nccl_stub.hpp"
#include "support/ranks.hpp"

namespace weft::cli {
namespace {

// In a process of its own, which keeps the stand-in that it loads.
std::string info_with(const std::string& nccl, const std::string& file) {
  const nlohmann::json arguments = {"info", "--device", "cpu", "--ranks", "1", "--json", file};
  test::Spawned process("LaunchedProgram.DISABLED_Worker",
                        {{kLaunchedArguments, arguments.dump()}, {"WEFT_NCCL", nccl}, {"LD_PRELOAD", ""}});
  const test::Outcome outcome = process.wait(std::chrono::seconds(60));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.said;
  const std::size_t begin = outcome.said.find(kLaunchedMark);
  if (begin == std::string::npos) return outcome.said;
  const std::string rest = outcome.said.substr(begin + kLaunchedMark.size());
  return nlohmann::json::parse(rest.substr(0, rest.find('\n'))).at("out");
}

TEST(InfoNccl, SaysWhichAndWhyNoOther) {
  const std::string file = testing::TempDir() + "info-nccl.json", stub = test::nccl_stub(23007);
  const std::string text = info_with(stub, file);
  test::expect_says(text,
                    ", found 2.30.7: " + stub + " (WEFT_NCCL)\n  not taken: the process's own copy: it has none\n");
  test::expect_says(text, "  peers' addresses: by NCCL's call on the host\n");
  const nlohmann::json nccl = read_json(file).at("nccl");
  EXPECT_EQ(nccl.at("version"), "2.30.7");
  EXPECT_EQ(nccl.at("path"), stub);
  EXPECT_EQ(nccl.at("origin"), "WEFT_NCCL");
  EXPECT_FALSE(nccl.at("notes").empty());
}

TEST(InfoNccl, SaysWhyNone) {
  const std::string text = info_with("/nowhere/libnccl.so.2", testing::TempDir() + "info-no-nccl.json");
  test::expect_says(text, ", found none\n  no NCCL: WEFT_NCCL names /nowhere/libnccl.so.2: ");
}

}  // namespace
}  // namespace weft::cli

#endif
