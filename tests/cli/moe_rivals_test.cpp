// The columns beside Weft's in weft bench moe, and its bound.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "bench/bench_options.hpp"
#include "bench/moe_tables.hpp"
#include "cli/run.hpp"

namespace weft::cli {
namespace {

// 8 experts, 4 on each of 2 ranks.
std::string small_experts() {
  const auto config = fmt::format("{}moe_rivals-{}.json", testing::TempDir(), getpid());  // of this test's process
  std::ofstream(config)
      << R"({"hidden_size": 256, "num_hidden_layers": 1, "num_experts": 8, "num_experts_per_tok": 2})";
  return config;
}

std::vector<std::string> bench(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"bench", "moe",  "--config", small_experts(), "--device",
                                    "cpu",   "--ep", "2",        "--samples",     "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// Lines of both tables that begin with these tokens and blocks.
std::ptrdiff_t lines_with(const std::string& out, const std::string& tokens, const std::string& blocks) {
  std::istringstream text(out);
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    count += first == tokens && second == blocks ? 1 : 0;
  }
  return count;
}

TEST(BenchMoeBlocks, EachNumberHasALine) {
  const auto file = testing::TempDir() + "moe_blocks.json";
  const auto result = run(bench({"--tokens", "1,3", "--blocks", "0,2", "--json", file}));
  ASSERT_EQ(result.code, 0) << result.err;
  std::map<std::pair<int, int>, int> points;  // Weft's, by tokens and blocks
  std::map<std::pair<int, int>, int> peers;
  const auto json = read_json(file);
  for (const auto& point : json.at("points")) {
    EXPECT_EQ(point.at("verdict"), "ok");
    auto& of = point.at("contender") == "automatic" ? points : peers;
    ++of[{point.at("tokens").get<int>(), point.at("blocks").get<int>()}];
  }
  const std::map<std::pair<int, int>, int> wanted = {{{1, 0}, 3}, {{1, 2}, 3}, {{3, 0}, 3}, {{3, 2}, 3}};
  EXPECT_EQ(points, wanted);
  for (const auto& [of, count] : peers) EXPECT_EQ(std::pair(of.second, count), std::pair(0, 3));  // AG, and A2A twice
  const std::ptrdiff_t lines = peers.empty() ? 1 : 3;  // with peers also dispatch and combine of the second table
  for (const char* tokens : {"1", "3"})
    for (const char* blocks : {"auto", "2"}) EXPECT_EQ(lines_with(result.out, tokens, blocks), lines) << result.out;
}

TEST(BenchMoeBlocks, ABadListIsRefusedWithItsValue) {
  const std::string range = " must be a whole number between 0 and 1024, or several with commas";
  for (const auto& [list, bad] : std::map<std::string, std::string>{
           {"4,x", "x"}, {"4,,8", ""}, {"2,1025", "1025"}, {"-4", "-4"}, {"2;4", "2;4"}}) {
    const auto result = run(bench({"--tokens", "1", "--blocks", list}));
    EXPECT_EQ(result.code, 2) << list;
    EXPECT_NE(result.err.find("--blocks: \"" + bad + "\"" + range), std::string::npos) << result.err;
  }
  const auto alone = run(bench({"--tokens", "1", "--blocks", "1"}));  // the library's own limit
  EXPECT_EQ(alone.code, 2);
  EXPECT_NE(alone.err.find("blocks"), std::string::npos) << alone.err;
}

// Weft's rows that cross a link, and the bytes of each peer's operations. All points must be right.
struct OnTheWire {
  double rows = 0;
  std::map<std::string, double> bytes;
};
OnTheWire on_the_wire(const nlohmann::json& json) {
  OnTheWire wire;
  for (const auto& point : json.at("points")) {
    EXPECT_EQ(point.at("verdict"), "ok");
    const auto who = point.at("contender").get<std::string>();
    if (who == "automatic") wire.rows = point.at("wire_rows");
    if (who != "automatic") wire.bytes[point.at("operation").get<std::string>() + " " + who] = point.at("wire_bytes");
  }
  return wire;
}

// Rows of 256 fp8 bytes with two scales, rounded to 16 bytes, and two ids and weights of each token. On their way back
// rows have 512 bytes. Gloo's results are compared, so a wrong place or number of a row is a failure.
TEST(BenchMoeRivals, GlooMovesTheSameTokens) {
  const auto file = testing::TempDir() + "moe_gloo.json";
  const auto result = run(bench({"--tokens", "5", "--json", file}));
  ASSERT_EQ(result.code, 0) << result.err;
  const std::string none = "No bound: only for 2 to 8 GPUs that reach each other's memory";
  EXPECT_NE(result.out.find("\n" + none + "\n"), std::string::npos) << result.out;
  const auto json = read_json(file);
  EXPECT_EQ(json.at("notes").back(), none);
  for (const auto& point : json.at("points")) {
    EXPECT_FALSE(point.contains("bound_us"));
    EXPECT_EQ(point.at("samples_us").size(), 2u);
  }
  const auto [rows, bytes] = on_the_wire(json);
  const bool missing = result.out.find("\nGloo: ") != std::string::npos;
  ASSERT_EQ(bytes.empty(), missing) << result.out;
  if (missing) return;
  const std::map<std::string, double> wanted = {{"dispatch Gloo AG", 5 * (272 + 2 * 4 + 2 * 4)},
                                                {"dispatch Gloo A2A", rows * 272},
                                                {"combine Gloo A2A", rows * 512}};
  EXPECT_EQ(bytes, wanted);
  EXPECT_NE(result.out.find("\nPeers dispatch rows of 272 bytes, cast before and with their scales.\n"),
            std::string::npos)
      << result.out;
}

// All-gathers have payloads as tensors of their own. Sends and receives have them behind the row, 536 bytes in packs.
TEST(BenchMoeRivals, PeersMovePayloads) {
  const auto file = testing::TempDir() + "moe_gloo_payloads.json";
  const auto result = run(bench({"--tokens", "5", "--payload", "20", "--payload", "4", "--json", file}));
  ASSERT_EQ(result.code, 0) << result.err;
  const auto [rows, bytes] = on_the_wire(read_json(file));
  const bool missing = result.out.find("\nGloo: ") != std::string::npos;
  ASSERT_EQ(bytes.empty(), missing) << result.out;
  if (missing) return;
  const std::map<std::string, double> wanted = {{"dispatch Gloo AG", 5 * (512 + 2 * 4 + 2 * 4 + 20 + 4)},
                                                {"dispatch Gloo A2A", rows * 544},
                                                {"combine Gloo A2A", rows * 512}};
  EXPECT_EQ(bytes, wanted);
  EXPECT_NE(result.out.find("\nPeers dispatch rows of 512 bytes, with payloads of 20 + 4 bytes.\n"), std::string::npos)
      << result.out;
}

// A rank that gets no token, ranks that get unequal numbers, and rows that are not cast.
TEST(BenchMoeRivals, UnequalNumbersOfRows) {
  const auto config = testing::TempDir() + "moe_unequal.json";
  std::ofstream(config) << R"({"hidden_size": 40, "num_hidden_layers": 1, "num_experts": 9, "num_experts_per_tok": 1})";
  for (const char* routing : {"uniform", "zipf", "hot"}) {
    const auto result = run({"bench", "moe", "--config", config, "--device", "cpu", "--ep", "4", "--tokens", "1,2,7",
                             "--samples", "1", "--routing", routing, "--layout", "rank-major"});
    EXPECT_EQ(result.code, 0) << routing << ": " << result.out << result.err;
  }
}

MoeRival rival(std::size_t operation, const Point& point, double us, double moved_bytes = 0) {
  MoeRival made{.operation = operation, .moved_bytes = moved_bytes};
  made.result = {.point = point, .verdict = Verdict::ok, .us = us, .samples_us = {{us}}};
  return made;
}

TEST(BenchMoeRivals, TheBoundIsTheLargerPart) {
  const Point push{.contender = Contender::push}, copy{.contender = Contender::copy};
  std::vector<MoeRival> rivals = {rival(0, push, 10), rival(0, copy, 5, 1000), rival(1, push, 1),
                                  rival(1, copy, 2, 100)};
  EXPECT_EQ(bound_us(rivals, 0, 1000), 10);  // 1000 bytes at 200 a µs are 5 µs
  EXPECT_EQ(bound_us(rivals, 0, 3000), 15);
  EXPECT_EQ(bound_us(rivals, 1, 100), 2);
  rivals[1].result.verdict = Verdict::wrong;
  EXPECT_EQ(bound_us(rivals, 0, 1000), 0);  // half a bound is none
  EXPECT_EQ(bound_us({}, 0, 1000), 0);
}

// Results as GPUs give them: one number of tokens, two of blocks.
std::vector<MoeResult> gpu_results() {
  std::vector<MoeResult> results(2);
  for (MoeResult& result : results) {
    result.tokens = 64;
    for (std::size_t i = 0; i < kMoeOperations.size(); ++i) result.samples[i] = {{result.us[i] = 20}};
    result.moved_bytes[0] = result.moved_bytes[1] = 4000;
    for (const std::size_t part : {0, 1}) {
      const Operation gather = part == 0 ? Operation::all_gather : Operation::reduce_scatter;
      for (const Contender contender : {Contender::nccl, Contender::nccl_symmetric}) {
        result.peers.push_back(rival(part, {.operation = gather, .contender = contender}, 50));
        result.peers.push_back(rival(part, {.operation = Operation::all_to_all, .contender = contender}, 30));
      }
      result.bounds.push_back(rival(part, {.contender = Contender::push}, 8));
      result.bounds.push_back(rival(part, {.contender = Contender::copy}, 5, 2000));
    }
  }
  results[0].launch.blocks = 4;
  for (MoeRival& bound : results[0].bounds) bound.result.point.launch.blocks = 4;
  return results;
}

TEST(BenchMoeRivals, TheTableHasPeersOnceAndABoundForEachGrid) {
  auto results = gpu_results();
  const std::string csv = moe_rival_table(results, {}).csv();
  EXPECT_EQ(csv.substr(0, csv.find('\n')),
            "tokens,blocks,operation,Weft,NCCL AG/RS,NCCL A2A,NCCL symm. AG/RS,NCCL symm. A2A,plain push,"
            "plain copy,speed-up,bound,of bound");
  for (const char* line : {"\n64,4,dispatch,", "\n64,auto,dispatch,", "\n64,4,combine,", "\n64,auto,combine,"})
    EXPECT_NE(csv.find(std::string(line) + "20.0,50.0,30.0,50.0,30.0,8.00,5.00,1.50,10.0,2.00"), std::string::npos)
        << csv;
  EXPECT_EQ(rivals_of(results).size(), 8u + 2 * 4u);
  EXPECT_EQ(to_json(results).size(), 2 * 3u + 16u);
  EXPECT_EQ(to_json(results).at(0).at("bound_us"), 10);
  EXPECT_TRUE(all_correct(results));
  const std::vector<MoeResult> usual = {results[1]};
  EXPECT_EQ(moe_rival_table(usual, {}).csv().rfind("tokens,operation,", 0), 0u);  // no column of one grid
  results[1].bounds[0].result.verdict = Verdict::wrong;
  EXPECT_FALSE(all_correct(results));
  EXPECT_EQ(compared(results).wrong, 1u);
  EXPECT_NE(moe_rival_table(results, {}).csv().find("WRONG,5.00,1.50,-,-"), std::string::npos);
}

TEST(BenchMoeRivals, TheLegendSaysWhatTheColumnsContain) {
  auto results = gpu_results();
  const MoeExchangeArgs args{.hidden = 7168, .cast = RowCast::fp8};
  const std::string all = moe_rival_legend(results, args);
  for (const char* says : {"AG/RS, vLLM's default", "rows of 7392 bytes, cast before", "A2A: a group of sends",
                           "symm.: ", "No peer casts rows, places them by expert, or applies weights",
                           "bound = max(plain push, moved bytes / copy rate)", "Window traffic is\n  not counted"})
    EXPECT_NE(all.find(says), std::string::npos) << says;
  EXPECT_EQ(all.find("Gloo"), std::string::npos);
  const MoeExchangeArgs with_payloads{.hidden = 7168, .payload_bytes = {896, 4}};
  EXPECT_NE(moe_rival_legend(results, with_payloads).find("rows of 14336 bytes, with payloads of 896 + 4 bytes."),
            std::string::npos);
  for (MoeResult& result : results) result.peers.clear();
  EXPECT_EQ(moe_rival_legend(results, args).find("No peer"), std::string::npos);
  for (MoeResult& result : results) result.bounds.clear();
  EXPECT_EQ(moe_rival_legend(results, args), "");
  EXPECT_EQ(moe_rival_table(results, {}).rows(), 0u);
}

// Two ranks, both experts of every token on both. By hand: rows of 16 bytes, 3 tokens on each rank.
TEST(BenchMoeRivals, BytesThatMustMove) {
  const ModelShape model{.name = "two experts", .hidden = 8, .num_experts = 2, .top_k = 2};
  MoeExchangeArgs args{.tokens = 3, .hidden = 8, .experts = 2, .top_k = 2};
  for (const RowLayout layout : {RowLayout::expert_masked, RowLayout::rank_major}) {
    args.layout = layout;
    const MoeTraffic traffic(model, args, Traffic::uniform, 2, 3);
    for (const std::uint32_t from : {0u, 1u})
      for (const std::uint32_t to : {0u, 1u}) EXPECT_EQ(traffic.tokens_sent(from, to), 3u);
    EXPECT_EQ(traffic.dispatch_moved_bytes(), 3 * 16 + 6 * 16);
    EXPECT_EQ(traffic.combine_moved_bytes(), 6 * 16 + 3 * 16);
  }
  args = {.tokens = 3, .hidden = 8, .experts = 2, .top_k = 2, .capacity = 4, .overflow = Overflow::drop};
  EXPECT_EQ(MoeTraffic(model, args, Traffic::uniform, 2, 3).dispatch_moved_bytes(), 3 * 16 + 4 * 16);
  const ModelShape four{.name = "four experts", .hidden = 8, .num_experts = 4, .top_k = 2};
  args = {.tokens = 3, .hidden = 8, .experts = 4, .top_k = 4};  // two rows of a token for a rank
  EXPECT_EQ(MoeTraffic(four, args, Traffic::uniform, 2, 3).combine_moved_bytes(), 12 * 16 + 3 * 16);
}

// Payloads are read and written, too: 20 and 4 bytes of each of 3 tokens, and of 6 rows.
TEST(BenchMoeRivals, PayloadsMustMove) {
  const ModelShape model{.name = "two experts", .hidden = 8, .num_experts = 2, .top_k = 2};
  const MoeExchangeArgs args{.tokens = 3, .hidden = 8, .experts = 2, .top_k = 2, .payload_bytes = {20, 4}};
  const MoeTraffic traffic(model, args, Traffic::uniform, 2, 3);
  EXPECT_EQ(traffic.dispatch_moved_bytes(), 3 * (16 + 24) + 6 * (16 + 24));
  EXPECT_EQ(traffic.combine_moved_bytes(), 6 * 16 + 3 * 16);
}

// A push stores as many bytes as Weft sends, and bf16 rows and payloads travel with masks. Here all tokens go to all
// ranks.
TEST(BenchMoeRivals, BuffersHoldWhatIsPushed) {
  for (const int ranks : {2, 4}) {
    const ModelShape model{.name = "few experts", .hidden = 7168, .num_experts = ranks, .top_k = ranks};
    const auto experts = static_cast<std::uint32_t>(ranks);
    for (const RowCast cast : {RowCast::none, RowCast::fp8}) {
      MoeExchangeArgs args{.tokens = 99, .hidden = 7168, .experts = experts, .top_k = experts, .cast = cast};
      if (cast == RowCast::none) args.payload_bytes = {28672, 4096};
      const MoeTraffic traffic(model, args, Traffic::uniform, ranks, 99);
      const double pushed = traffic.dispatch_wire_bytes() / (ranks - 1) * ranks;
      EXPECT_GE(static_cast<double>(rival_room(ranks, args)), pushed);
    }
  }
}

// One bit of a token's payload is noticed where its row has come.
TEST(BenchMoeRivals, AWrongPayloadIsNoticed) {
  const ModelShape model{.name = "two experts", .hidden = 8, .num_experts = 2, .top_k = 2};
  const MoeExchangeArgs args{.tokens = 3, .hidden = 8, .experts = 2, .top_k = 2, .payload_bytes = {20, 4}};
  const MoeTraffic traffic(model, args, Traffic::uniform, 2, 3);
  MoeTraffic other = traffic;
  const_cast<RankTokens&>(other.tokens(1)).payloads[1][2 * 4 + 3] ^= std::byte{1};
  Ranks ranks({.world_size = 2, .device = Device::cpu});
  ranks.each([&](Ranks::Seat& seat) {
    MoeRank rank(ranks, seat, args);
    rank.upload(traffic);
    rank.dispatch(3, {});
    EXPECT_NE(rank.check_dispatch(other).find("token 2 of rank 1: other bits in payload 1"), std::string::npos);
    EXPECT_EQ(rank.check_dispatch(traffic), "");
  });
}

// An output is compared with the reference once, and by its bits from then on.
TEST(BenchMoeRivals, AnEarlierRightOutputHidesNoWrongOne) {
  const ModelShape model{.name = "four experts", .hidden = 8, .num_experts = 4, .top_k = 2};
  for (const RowLayout layout : {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major}) {
    const MoeExchangeArgs args{.tokens = 3, .hidden = 8, .experts = 4, .top_k = 2, .layout = layout};
    const MoeTraffic traffic(model, args, Traffic::uniform, 2, 3);
    Ranks ranks({.world_size = 2, .device = Device::cpu});
    ranks.each([&](Ranks::Seat& seat) {
      MoeRank rank(ranks, seat, args);
      rank.upload(traffic);
      for (int call = 0; call < 3; ++call) {
        rank.combine(rank.dispatch(3, {}), {});
        EXPECT_EQ(rank.check_dispatch(traffic), "");
        EXPECT_EQ(rank.check_combine(traffic), "");
        rank.clear();
        EXPECT_NE(rank.check_dispatch(traffic), "");
        EXPECT_NE(rank.check_combine(traffic), "");
      }
    });
  }
}

}  // namespace
}  // namespace weft::cli
