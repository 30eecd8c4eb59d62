// Runs every example of every --help in a folder of its own. Sanitizers skip it, since they skip `weft simulate`.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/launch.hpp"
#include "common/machine.hpp"
#include "common/ranks.hpp"
#include "common/table.hpp"
#include "gemm/grouped_gemm.hpp"

namespace weft::cli {
namespace {

using Words = std::vector<std::string>;

const std::vector<Words> kCommands = {{},
                                      {"bench"},
                                      {"bench", "all-reduce"},
                                      {"bench", "gather"},
                                      {"bench", "dp-attention"},
                                      {"bench", "logits"},
                                      {"bench", "norm"},
                                      {"bench", "moe"},
                                      {"bench", "moe-layer"},
                                      {"bench", "host"},
                                      {"tune"},
                                      {"verify"},
                                      {"simulate"},
                                      {"info"}};

struct Example {
  std::string line, comment;
};

std::vector<Example> examples_of(const std::string& help) {
  std::vector<Example> examples;
  std::istringstream text(help.substr(std::min(help.find("\nExamples:\n"), help.size())));
  for (std::string line; std::getline(text, line);) {
    if (line.rfind("  ", 0) != 0) continue;
    const std::size_t end = std::min(line.find("  ", 2), line.size());
    examples.push_back({line.substr(2, end - 2), line.substr(std::min(line.find_first_not_of(' ', end), line.size()))});
  }
  return examples;
}

Words words_of(const std::string& line) {
  Words words;
  std::istringstream text(line);
  for (std::string word; text >> word;) words.push_back(word == "''" ? "" : word);
  return words;
}

// `weft --help` says how to try an example quickly: one sample, one small size, few executions.
Words shortened(Words words) {
  const auto has = [&](const std::string& option) { return std::ranges::find(words, option) != words.end(); };
  const auto set = [&](const std::string& option, const std::string& value) {
    const auto at = std::ranges::find(words, option);
    if (at == words.end()) {
      words.insert(words.end(), {option, value});
    } else {
      *(at + 1) = value;
    }
  };
  if (has("--help") || has("--list") || has("--replay") || words.front() == "info") return words;
  for (const char* list : {"--tokens", "--bytes", "--rows"}) {
    const auto at = std::ranges::find(words, list);
    if (at != words.end()) (at + 1)->resize(std::min((at + 1)->find(','), (at + 1)->size()));
  }
  if (words.front() == "simulate") set("--executions", "10");
  if (words.front() == "verify") set("--most-bytes", "8K");
  if (words.front() == "verify" && usable_gpus() == 0) set("--ranks", "2");
  if (words.front() == "tune") set("--bytes", "64K");  // whole rows of gathers
  if (words.front() != "bench" && words.front() != "tune") return words;
  set("--samples", "1");
  if (words.size() > 1 && words[1] == "host") return words;
  const bool all_reduce = words.size() > 1 && words[1] == "all-reduce";
  if (words.front() == "bench" && all_reduce && !has("--rows")) set("--bytes", has("--bytes") ? "64K" : "1K");
  if (words.front() == "bench" && !all_reduce && !has("--tokens")) set("--tokens", "1");
  return words;
}

// If there are too few GPUs for an example, it runs on CPU ranks.
Words on_this_machine(Words words, int ranks) {
  if (usable_gpus() == 0 || usable_gpus() >= ranks) return words;
  if (std::ranges::find(words, "--device") == words.end()) words.insert(words.end(), {"--device", "cpu"});
  return words;
}

// Makes the files that the examples read.
void make_files() {
  std::filesystem::create_directories("path");
  std::ofstream("path/config.json") << R"({"hidden_size": 256, "num_hidden_layers": 3,
    "num_experts": 8, "num_experts_per_tok": 2})";
}

// The file of bench/torch_peer.py, for as many ranks as `weft bench all-reduce` takes here.
void make_torch_columns() {
  const Machine machine = describe_machine();
  const nlohmann::json columns = {{"schema", "weft-torch-1"},
                                  {"world_size", Ranks::count({})},
                                  {"gpu", usable_gpus() > 0 ? machine.gpus[0].name : std::string()},
                                  {"torch", "2.9.1"},
                                  {"cuda", "13.0"},
                                  {"nccl", "2.28.9"},
                                  {"date", "2026-11-21T10:00:00Z"},
                                  {"points", nlohmann::json::array()}};
  std::ofstream("torch.json") << columns.dump();
}

// "torchrun --nproc-per-node 4 --no-python weft …": as many processes, or two if they do not have a GPU each.
void expect_launched(const Example& example, const Words& words) {
  ASSERT_GT(words.size(), 5u) << example.line;
  ASSERT_EQ(words[1], "--nproc-per-node");
  ASSERT_EQ(words[4], "weft");
  const int asked = std::stoi(words[2]), ranks = usable_gpus() >= asked ? asked : 2;
  for (const auto& rank : launch(ranks, on_this_machine(shortened({words.begin() + 5, words.end()}), ranks)))
    EXPECT_EQ(rank.at("code"), 0) << example.line << "\n" << rank.at("out") << rank.at("err");
}

void expect_works(const Example& example) {
  std::string line = example.line;
  // PyTorch may be missing, so the result of its script is made here.
  if (const auto second = line.find(" && "); line.rfind("python3 bench/torch_peer.py ", 0) == 0) {
    ASSERT_NE(second, std::string::npos);
    line = line.substr(second + 4);
    make_torch_columns();
  }
  Words words = words_of(line);
  if (words.front() == "torchrun") return expect_launched(example, words);
  ASSERT_EQ(words.front(), "weft") << line;
  words.erase(words.begin());
  if (!words.empty()) words = shortened(words);
  const bool tunes = !words.empty() && words.front() == "tune";
  if (tunes) words = on_this_machine(words, 2);
  const auto result = run(words);
  const bool gpus = example.comment.find("only on GPUs") != std::string::npos;
  const bool cutlass = example.comment.find("with CUTLASS") != std::string::npos;
  const bool has_gemms = has_cutlass_gemms() && !(tunes && usable_gpus() < 2);  // then two CPU ranks tune
  const bool elsewhere = (gpus && usable_gpus() == 0) || (cutlass && !has_gemms);
  // A copy of only the tests has no plotting script, and some machines have no matplotlib.
  const bool undrawn = result.err.find("plot.py is missing") != std::string::npos ||
                       result.err.find("needs matplotlib") != std::string::npos;
  if (undrawn) return;
  EXPECT_EQ(result.code, elsewhere ? 2 : 0) << example.line << "\n" << result.out << result.err;
  if (elsewhere) {
    EXPECT_NE(result.err.find("weft: "), std::string::npos) << result.err;
  }
}

class Help : public testing::TestWithParam<Words> {
 protected:
  Help()
      : before_(std::filesystem::current_path()), folder_(testing::TempDir() + "examples-" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
  }
  ~Help() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  static std::string text() {
    Words words = GetParam();
    words.emplace_back("--help");
    const auto result = run(words);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }

 private:
  std::filesystem::path before_, folder_;
};

TEST_P(Help, HasExamplesThatWork) {
  make_files();
  const auto examples = examples_of(text());
  ASSERT_FALSE(examples.empty());
  for (const Example& example : examples) expect_works(example);
}

TEST_P(Help, FitsATerminal) {
  std::istringstream lines(text());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(width_of(line), 100u) << line;
}

std::string test_name(const testing::TestParamInfo<Words>& info) {
  std::string joined = "Weft";
  for (const std::string& word : info.param) joined += "_" + word;
  std::ranges::replace(joined, '-', '_');
  return joined;
}
INSTANTIATE_TEST_SUITE_P(Program, Help, testing::ValuesIn(kCommands), test_name);

// The examples of every command are tried.
TEST(Helps, AreAllTried) {
  std::size_t commands = 0;
  for (const Words& command : kCommands) {
    Words words = command;
    words.emplace_back("--help");
    const std::string help = run(words).out;
    const std::size_t begin = help.find("\nSubcommands:\n");
    if (begin == std::string::npos) continue;
    std::istringstream lines(help.substr(begin + 14));
    for (std::string line; std::getline(lines, line) && !line.empty();) commands += line[2] != ' ' ? 1 : 0;
  }
  EXPECT_EQ(commands + 1, kCommands.size());
}

}  // namespace
}  // namespace weft::cli
