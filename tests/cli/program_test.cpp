// The program as a whole, on CPU ranks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "bench/bench_options.hpp"
#include "cli/run.hpp"
#include "support/ranks.hpp"
#include "tuning/tuning.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

TEST(Program, BadUsageIsTwo) {
  const std::vector<std::vector<std::string>> bad = {
      {},
      {"dance"},
      {"bench", "--nonsense"},
      {"bench", "--model", "gpt-1"},
      {"bench", "--model", "qwen3-30b", "--config", "x.json"},
      {"bench", "--config", "/nonexistent.json"},
      {"bench", "--tokens", "1,,2"},
      {"bench", "--ranks", "0"},
      {"bench", "--dtype", "fp4"},
      {"bench", "all-reduce", "--bytes", "64Q"},
      {"bench", "all-reduce", "--bytes", "3", "--dtype", "bf16"},
      {"bench", "all-reduce", "--bytes", "64K", "--rows", "4"},
      {"bench", "all-reduce", "--algorithm", "ring"},
      {"bench", "moe", "--data", "random"},  // the option would have no effect
      {"bench", "moe", "--ep", "2", "--ranks", "3"},
      {"info", "--tokens", "5"},
      {"info", "--moe", "qwen3-30b", "--multicast"},
      {"info", "--moe", "qwen3-30b", "--tuning", "x.json"},
      {"bench", "all-reduce", "--device", "cpu", "--algorithm", "multimem-one-shot"},
      {"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K", "--method", "graph"},
      {"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K", "--blocks", "1,2"},
      {"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K", "--torch-json", "/nonexistent"},
      {"bench", "gather", "--tp", "4", "--dp", "3", "--device", "cpu"},
      {"bench", "gather", "--tp", "0"},
      {"bench", "gather", "--what", "all_gather,dance"},
      {"bench", "gather", "--load", "heavy"},
      {"bench", "gather", "--tokens", "0"},
      {"bench", "gather", "--tokens", "2000000"},
      {"bench", "gather", "--hidden", "64", "--row-bytes", "128"},
      {"bench", "gather", "--row-bytes", "3"},
      {"bench", "gather", "--op", "max"},
      {"bench", "gather", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--hidden", "8", "--method", "graph"},
      {"bench", "moe", "--model", "llama-3.1-70b"},
      {"bench", "moe", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--capacity", "0"},
      {"bench", "moe", "--device", "cpu", "--ranks", "2", "--tokens", "1", "--dispatch", "int4"},
      {"info", "--ranks", "many"},
      {"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "1K", "--plot", "picture.gif"},
      {"bench", "moe", "--tuning", "table.json"},
      {"bench", "logits", "--tuning", "table.json"},
  };
  for (const auto& arguments : bad) {
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(arguments);
    EXPECT_FALSE(result.err.empty()) << testing::PrintToString(arguments);
  }
}

// Sizes that exceed any machine, or whose product exceeds 64 bits.
TEST(Program, SizesThatAreTooLargeAreSaid) {
  const auto file = testing::TempDir() + "wide.json";
  std::ofstream(file) << R"({"hidden_size": 1048576, "num_hidden_layers": 1})";
  const std::string most = "must be a whole number between 1 and ";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"bench", "--tokens", "9223372036854775807"}, "--tokens: \"9223372036854775807\" " + most + "1073741824"},
      {{"bench", "all-reduce", "--rows", "1073741825"}, "--rows: \"1073741825\" " + most + "1073741824"},
      {{"bench", "all-reduce", "--blocks", "4294967298"}, "--blocks: \"4294967298\" " + most + "1024"},
      {{"bench", "norm", "--tokens", "1073741825"}, "--tokens: \"1073741825\" " + most + "1073741824"},
      {{"bench", "moe", "--tokens", "4294967297"}, "--tokens: \"4294967297\" " + most + "1073741824"},
      {{"bench", "moe", "--tokens", "1,1073741824"}, "MoeExchangeArgs::tokens"},  // the exchange's own limit
      {{"bench", "gather", "--tokens", "1048577"}, "--tokens: \"1048577\" " + most + "1048576"},
      {{"bench", "--config", file, "--tokens", "1073741824"}, "a message of 2097152 GB: must be at most "},
      {{"bench", "all-reduce", "--bytes", "4000000G"}, "a message of 4000000 GB: must be at most "},
  };
  for (auto [arguments, message] : cases) {
    arguments.insert(arguments.end(), {"--device", "cpu", "--ranks", "2"});
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 2) << message;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
}

// Every command has examples of its own, and its options include the first example's.
TEST(Program, HelpTeaches) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "weft bench --model llama-3.1-70b"},
      {{"bench"}, "weft bench --model deepseek-v3"},
      {{"bench", "all-reduce"}, "weft bench all-reduce --rows"},
      {{"bench", "gather"}, "weft bench gather --"},
      {{"bench", "moe"}, "weft bench moe --model"},
      {{"bench", "logits"}, "weft bench logits"},
      {{"bench", "norm"}, "weft bench norm --hidden"},
      {{"bench", "host"}, "weft bench host"},
      {{"tune"}, "weft tune --quick"},
      {{"verify"}, "weft verify"},
      {{"simulate"}, "weft simulate --protocol"},
      {{"info"}, "weft info"}};
  for (auto [arguments, example] : cases) {
    arguments.emplace_back("--help");
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("\n  " + example), std::string::npos) << result.out;
  }
}

TEST(Program, NamesASubcommandThatThereIsNot) {
  EXPECT_NE(run({"nothing"}).err.find("nothing"), std::string::npos);
  EXPECT_NE(run({}).err.find("A subcommand is required"), std::string::npos);
  EXPECT_EQ(run({}).code, 2);
}

TEST(Program, AllReduceWritesEverySample) {
  const auto file = testing::TempDir() + "all_reduce.json";
  const auto result = run({"bench", "all-reduce", "--device", "cpu", "--ranks", "3", "--bytes", "512,8K", "--data",
                           "random", "--samples", "2", "--json", file});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");  // no progress bar without a terminal
  EXPECT_NE(result.out.find("two-shot"), std::string::npos);
  const auto json = read_json(file);
  EXPECT_EQ(json.at("schema"), "weft-bench-1");
  EXPECT_EQ(json.at("command"), "bench all-reduce");
  EXPECT_EQ(json.at("arguments").at(1), "all-reduce");
  EXPECT_EQ(json.at("world_size"), 3);
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(json.at("date").get<std::string>().size(), 20u);
  EXPECT_TRUE(json.at("build").at("dirty").is_boolean());
  EXPECT_FALSE(json.at("build").at("commit").get<std::string>().empty());
  EXPECT_FALSE(json.at("machine").at("cpu").get<std::string>().empty());
  int ours = 0;
  for (const auto& point : json.at("points")) {
    EXPECT_EQ(point.at("verdict"), "ok") << point.dump();
    EXPECT_EQ(point.at("samples_us").size(), 3u);
    for (const auto& samples : point.at("samples_us")) EXPECT_EQ(samples.size(), 2u);
    EXPECT_GT(point.at("us").get<double>(), 0);
    if (point.contains("algorithm")) ++ours;
    if (point.at("contender") == "two-shot") {
      EXPECT_EQ(point.at("algorithm"), "two-shot");
    }
  }
  EXPECT_EQ(ours, 2 * 4);
}

TEST(Program, MultimemIsMeasuredForWhoAsksForMulticast) {
  const auto result = run({"bench", "all-reduce", "--device", "cpu", "--ranks", "2", "--bytes", "8K", "--samples", "1",
                           "--multicast", "--json", "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  std::vector<std::string> served;
  const auto report = nlohmann::json::parse(result.out);
  for (const auto& point : report.at("points")) {
    const std::string contender = point.at("contender");
    if (contender.rfind("multimem", 0) != 0) continue;
    EXPECT_EQ(point.at("verdict"), "ok") << point.dump();
    EXPECT_EQ(point.at("algorithm"), contender);
    served.push_back(contender);
  }
  EXPECT_EQ(served, (std::vector<std::string>{"multimem-one-shot", "multimem-two-shot"}));
}

// If matplotlib is missing, the error comes first and says what to install.
TEST(Program, PlotsOrSaysWhatIsMissing) {
  const auto picture = testing::TempDir() + "all_reduce.svg";
  std::remove(picture.c_str());
  const std::vector<std::string> bench = {"bench",   "all-reduce", "--device",  "cpu", "--ranks", "2",
                                          "--bytes", "1K,4K",      "--samples", "1",   "--plot",  picture};
  const auto result = run(bench);
  if (result.err.find("plot.py is missing") != std::string::npos) {
    GTEST_SKIP() << "the tests were copied from where they were built, without the plotting script";
  }
  if (result.code == 0) {
    std::ifstream drawn(picture);
    const std::string text(std::istreambuf_iterator<char>(drawn), {});
    EXPECT_NE(text.find("<svg"), std::string::npos);
  } else {
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");  // nothing was measured
    EXPECT_NE(result.err.find("needs matplotlib: apt install python3 python3-matplotlib"), std::string::npos)
        << result.err;
  }

  const std::string path = std::getenv("PATH");
  ::setenv("PATH", "/nonexistent", 1);
  const auto without = run(bench);
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(without.code, 1);
  EXPECT_NE(without.err.find("python3 is not on PATH: apt install python3"), std::string::npos) << without.err;
}

TEST(Program, ModelBenchCoversItsLayers) {
  const auto file = testing::TempDir() + "config.json";
  std::ofstream(file) << R"({"hidden_size": 64, "num_hidden_layers": 3})";
  const auto result = run({"bench", "--config", file, "--device", "cpu", "--ranks", "2", "--tokens", "1,300",
                           "--samples", "1", "--csv", "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("\nall_reduce,,,2,bf16,sum,1,64,128,automatic,batch,"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("\nall_reduce,,,2,bf16,sum,300,64,38400,automatic,batch,"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("\nall_gather,,,2,bf16,,1,64,256,automatic,batch,"), std::string::npos) << result.out;
}

// The error comes before any measurement, and the check leaves no new file.
TEST(Program, OutputsThatCannotBeWrittenAreSaidFirst) {
  const auto file = testing::TempDir() + "outputs.json";
  std::remove(file.c_str());
  const std::string folder = testing::TempDir(), absent = "/nonexistent/file";
  const std::vector<std::vector<std::string>> commands = {
      {"bench", "--device", "cpu", "--tokens", "1"},
      {"bench", "all-reduce", "--device", "cpu", "--bytes", "1K"},
      {"bench", "gather", "--device", "cpu", "--tokens", "1"},
      {"bench", "norm", "--device", "cpu", "--tokens", "1"},
      {"bench", "moe", "--device", "cpu", "--tokens", "1"},
      {"info", "--device", "cpu"},
      {"info", "--moe", "qwen3-30b"},
  };
  const auto expect = [](std::vector<std::string> arguments, const std::vector<std::string>& more,
                         const std::string& message) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = run(arguments);
    EXPECT_EQ(result.code, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(result.out, "") << testing::PrintToString(arguments);
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  };
  for (const auto& command : commands) {
    expect(command, {"--json", "-", "--csv", "-"}, "--json - and --csv -: only one of them may be stdout");
    expect(command, {"--json", file, "--csv", absent}, "--csv /nonexistent/file: cannot be written: No such file");
    expect(command, {"--json", folder}, "--json " + folder + ": cannot be written: Is a directory");
  }
  expect({"verify", "--device", "cpu"}, {"--json", absent}, "--json /nonexistent/file: cannot be written");
  expect({"tune", "--device", "cpu"}, {"--output", absent}, "--state /nonexistent/file.state: cannot be written");
  expect({"tune", "--device", "cpu"}, {"--output", file, "--state", absent}, "--state /nonexistent/file: cannot");
  EXPECT_FALSE(std::ifstream(file).is_open());
}

// The check must not change an existing file.
TEST(Program, OutputsThatExistAreLeftUntilTheyAreWritten) {
  const auto file = testing::TempDir() + "kept.json";
  std::ofstream(file) << "before";
  check_outputs({{"--json", file}, {"--csv", ""}, {"--plot", "/dev/null"}});
  std::ifstream kept(file);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(kept), {}), "before");
}

TEST(Program, ModelBenchShowsGathersAndExchanges) {
  const auto config = testing::TempDir() + "moe_layers.json", file = testing::TempDir() + "layers.json";
  std::ofstream(config) << R"({"hidden_size": 256, "num_hidden_layers": 2, "num_experts": 8,
    "num_experts_per_tok": 2})";
  const auto result = run({"bench", "--config", config, "--device", "cpu", "--ranks", "2", "--tokens", "4,100",
                           "--samples", "1", "--json", file});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("reduce_scatter"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("dispatch, combine"), std::string::npos) << result.out;
  const auto json = read_json(file);
  int ours = 0;
  for (const auto& point : json.at("gathers")) {
    EXPECT_EQ(point.at("verdict"), "ok");
    if (point.at("contender") == "automatic") ++ours;
  }
  EXPECT_EQ(ours, 4);  // two operations, 2 and 50 tokens per rank
  const auto csv = run({"bench", "--config", config, "--device", "cpu", "--ranks", "2", "--tokens", "4", "--samples",
                        "1", "--csv", "-"});
  EXPECT_NE(csv.out.find("\nreduce_scatter,"), std::string::npos) << csv.out;
  EXPECT_NE(csv.out.find("\nboth,"), std::string::npos) << csv.out;
  int exchanges = 0;
  for (const auto& point : json.at("exchanges")) exchanges += point.at("contender") == "automatic" ? 1 : 0;
  EXPECT_EQ(exchanges, 3);  // 50 tokens are too many for CPU ranks, and a note says so
  EXPECT_NE(result.out.find("Dispatch and combine: at most 16 tokens per rank here, so not measured with 50\n"),
            std::string::npos)
      << result.out;
  for (const auto& point : json.at("exchanges")) EXPECT_EQ(point.at("tokens"), 2);
}

TEST(Program, ModelBenchServesRowsThatScalesDoNotDivide) {
  const auto config = testing::TempDir() + "moe_narrow.json";
  std::ofstream(config) << R"({"hidden_size": 192, "num_hidden_layers": 1, "num_experts": 8,
    "num_experts_per_tok": 2})";
  const auto result =
      run({"bench", "--config", config, "--device", "cpu", "--ranks", "2", "--tokens", "4", "--samples", "1"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("dispatch, combine"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("Rows are bf16: hidden 192"), std::string::npos) << result.out;
}

TEST(Program, InfoCountsTheMemoryOfACommunicator) {
  const auto result = run({"info", "--device", "cpu", "--ranks", "2", "--json", "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("communicator").at("ranks"), 2);
  EXPECT_GT(json.at("communicator").at("window_bytes").get<std::size_t>(), 0u);
  EXPECT_EQ(json.at("communicator").at("multicast"), "not asked for (Config::multicast); nothing is known against it");
}

// A table for other ranks has no effect, and a note must say so.
TEST(Program, TablesThatServeNothingAreSaid) {
  const auto file = testing::TempDir() + "tables.json";
  const auto table = [&](const std::string& processor, int ranks) {
    detail::TuningTable table{.processor = {processor}, .ranks = ranks, .origin = "measured", .note = "a test's"};
    table.steps = {{.algorithm = Algorithm::two_shot}};
    std::ofstream(file) << detail::to_json({table});
  };
  const auto info = [&] { return run({"info", "--device", "cpu", "--ranks", "3", "--tuning", file}).out; };
  const auto bench = [&] {
    return run({"bench", "all-reduce", "--device", "cpu", "--ranks", "3", "--bytes", "1K", "--samples", "1", "--tuning",
                file})
        .out;
  };
  const std::string said = "--tuning " + file + ": has no table for 3 ranks of CPU, and is not used. In use: CPU";
  table("NVIDIA H200", 3);
  EXPECT_NE(info().find(said), std::string::npos) << info();
  EXPECT_NE(bench().find(said), std::string::npos) << bench();
  table("CPU", 3);
  EXPECT_EQ(info().find("not used"), std::string::npos) << info();
  EXPECT_EQ(bench().find("not used"), std::string::npos) << bench();
}

TEST(Program, InfoTellsOfMulticast) {
  const auto result = run({"info", "--device", "cpu", "--ranks", "2", "--multicast"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("\nNVLink multicast: CPU ranks do the switch's work\n"), std::string::npos) << result.out;
}

TEST(Program, InfoCountsTheMemoryOfExperts) {
  const auto result = run({"info", "--moe", "deepseek-v3", "--tokens", "64", "--ranks", "4", "--json", "-"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto moe = nlohmann::json::parse(result.out).at("moe");
  EXPECT_EQ(moe.at("model"), "deepseek-v3");
  EXPECT_EQ(moe.at("tokens"), 64);
  EXPECT_EQ(moe.at("ranks"), 4);
  const MoeExchangeMemory expected =
      moe_exchange_memory(4, {.tokens = 64, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8});
  EXPECT_EQ(moe.at("memory").front().at("rows"), "fp8");
  EXPECT_EQ(moe.at("memory").front().at("window_bytes"), expected.window);
  EXPECT_EQ(moe.at("memory").back().at("rows"), "bf16");
  const auto table = run({"info", "--moe", "deepseek-v3", "--csv", "-"});
  EXPECT_EQ(table.out.rfind("way,layout,rows,dispatch_bytes,combine_bytes,", 0), 0u) << table.out;
  const auto wanted =
      moe_exchange_memory(8, {.tokens = 128, .hidden = 7168, .experts = 256, .top_k = 8, .cast = RowCast::fp8});
  EXPECT_NE(table.out.find("\nWeft,masked,fp8," + std::to_string(wanted.dispatch) + ","), std::string::npos)
      << table.out;
}

TEST(Program, TorchColumnsMustBelongToThisRun) {
  const auto file = testing::TempDir() + "torch.json";
  std::ofstream(file) << R"({"schema": "weft-torch-1", "world_size": 2,
    "gpu": "NVIDIA H200", "torch": "2.9.1", "cuda": "13.0", "nccl": "2.28.9", "date": "2026-11-21T10:00:00Z", "points": [
    {"bytes": 1024, "contender": "torch one-shot", "us": 0.001, "correct": true, "samples_us": [[0.001], [0.001]]}]})";
  const TorchRun run = read_torch_run(file, 2, "NVIDIA H200");
  const auto& results = run.results;
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].point.bytes(), 1024u);
  EXPECT_EQ(results[0].point.contender, Contender::torch_one_shot);
  EXPECT_EQ(run.about,
            "torch 2.9.1 with CUDA 13.0 and NCCL 2.28.9, measured by bench/torch_peer.py on 2026-11-21T10:00:00Z");
  const auto refused = [&](int ranks, const std::string& gpu) {
    return test::error_of([&] { read_torch_run(file, ranks, gpu); });
  };
  test::expect_says(refused(4, "NVIDIA H200"), "was measured on 2 ranks, this run has 4");
  test::expect_says(refused(2, "NVIDIA H100"), "was measured on NVIDIA H200, this run is on NVIDIA H100");
  test::expect_says(refused(2, ""), "this run is on CPU ranks");
}

}  // namespace
}  // namespace weft::cli
