#include "bench/moe_tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "bench/bench_options.hpp"

namespace weft::cli {
namespace {

// Tokens, and blocks if any result has another number than Weft's own choice.
class Keys {
 public:
  explicit Keys(const std::vector<MoeResult>& results)
      : blocks_(std::ranges::any_of(results, [](const MoeResult& r) { return r.launch.blocks != 0; })) {}

  std::vector<std::string> columns() const {
    return blocks_ ? std::vector<std::string>{"tokens", "blocks"} : std::vector<std::string>{"tokens"};
  }
  std::vector<std::string> of(const MoeResult& result) const {
    std::vector<std::string> keys = {std::to_string(result.tokens)};
    const int blocks = result.launch.blocks;
    if (blocks_) keys.push_back(blocks == 0 ? std::string("auto") : std::to_string(blocks));
    return keys;
  }

 private:
  bool blocks_;
};

// Without the spread, which --json has: there are many columns.
std::string brief(const Result& result) {
  if (result.verdict == Verdict::unavailable) return "-";
  return result.verdict == Verdict::wrong ? "WRONG" : microseconds(result.us);
}

std::vector<std::string> columns_of(const std::vector<MoeResult>& results) {
  std::vector<std::string> columns;
  for (const MoeRival* rival : rivals_of(results))
    if (std::ranges::find(columns, name(*rival)) == columns.end()) columns.push_back(name(*rival));
  return columns;
}

std::vector<const MoeRival*> rivals_of(const MoeResult& result, std::size_t operation) {
  std::vector<const MoeRival*> all;
  for (const auto& some : {&result.peers, &result.bounds})
    for (const MoeRival& rival : *some)
      if (rival.operation == operation) all.push_back(&rival);
  return all;
}

double best_peer_us(const MoeResult& result, std::size_t operation) {
  double best = 0;
  for (const MoeRival& peer : result.peers) {
    if (peer.operation != operation || peer.result.verdict != Verdict::ok) continue;
    if (best == 0 || peer.result.us < best) best = peer.result.us;
  }
  return best;
}

// "1.50", or "-" if a time is missing.
std::string ratio(double us, double of) {
  return us > 0 && of > 0 ? fmt::format("{:.2f}", us / of) : "-";
}

}  // namespace

std::string payloads_in_words(const MoeExchangeArgs& args) {
  return fmt::format("payloads of {} bytes", fmt::join(args.payload_bytes, " + "));
}

Table moe_table(const std::vector<MoeResult>& results, const MoeExchangeArgs& args) {
  const double logical = static_cast<double>(placed_row_bytes(args)) + args.hidden * 2.0;
  const Keys keys(results);
  std::vector<std::string> columns = keys.columns();
  const std::size_t first = columns.size();
  for (const char* column : {"dispatch µs", "combine µs", "both µs", "dispatch GB/s", "combine GB/s", "logical GB/s"})
    columns.emplace_back(column);
  Table table(columns, first);
  for (const MoeResult& result : results) {
    const auto rate = [](double bytes, double us) { return fmt::format("{:.1f}", bytes / us / 1e3); };
    std::vector<std::string> cells = keys.of(result);
    for (const auto& samples : result.samples)
      cells.push_back(result.wrong.empty() ? cell(figure_of(samples)) : std::string("WRONG"));
    cells.push_back(rate(result.wire_bytes[0], result.us[0]));
    cells.push_back(rate(result.wire_bytes[1], result.us[1]));
    cells.push_back(rate(result.logical_rows * logical, result.us[2]));
    table.add(std::move(cells));
  }
  return table;
}

Table moe_rival_table(const std::vector<MoeResult>& results, const Crowd& crowd) {
  const std::vector<std::string> rivals = columns_of(results);
  const Keys keys(results);
  std::vector<std::string> columns = keys.columns();
  const std::size_t first = columns.size() + 1;
  columns.insert(columns.end(), {"operation", "Weft"});
  columns.insert(columns.end(), rivals.begin(), rivals.end());
  columns.insert(columns.end(), {"speed-up", "bound", "of bound"});
  Table table(columns, first);
  if (rivals.empty()) return table;
  for (const MoeResult& result : results) {
    for (std::size_t operation = 0; operation < std::size(result.moved_bytes); ++operation) {
      const double us = result.wrong.empty() ? result.us[operation] : 0;
      const double bound = bound_us(result.bounds, operation, result.moved_bytes[operation]);
      std::vector<std::string> cells = keys.of(result);
      cells.emplace_back(kMoeOperations[operation]);
      cells.push_back(us > 0 ? microseconds(us) : std::string("WRONG"));
      const auto mine = rivals_of(result, operation);
      for (const std::string& column : rivals) {
        const auto found = std::ranges::find_if(mine, [&](const MoeRival* rival) { return name(*rival) == column; });
        cells.push_back(found != mine.end() ? brief((*found)->result) : "-");
      }
      cells.push_back(ratio(crowd.crowded() ? 0 : best_peer_us(result, operation), us));
      cells.push_back(bound > 0 ? microseconds(bound) : "-");
      cells.push_back(ratio(us, bound));
      table.add(std::move(cells));
    }
  }
  return table;
}

std::string moe_rival_legend(const std::vector<MoeResult>& results, const MoeExchangeArgs& args) {
  const std::vector<std::string> columns = columns_of(results);
  const auto has = [&](std::string_view part) {
    return std::ranges::any_of(columns, [&](const std::string& c) { return c.find(part) != std::string::npos; });
  };
  std::string text;
  if (!columns.empty()) text += "µs: median of the slowest rank's samples.\n";
  if (has("AG") || has("A2A"))
    text += fmt::format("Peers dispatch rows of {} bytes{}{}.\n", peer_row_bytes(args),
                        args.cast == RowCast::none ? "" : ", cast before and with their scales",
                        args.payload_bytes.empty() ? "" : fmt::format(", with {}", payloads_in_words(args)));
  if (has("AG"))
    text +=
        "AG/RS, vLLM's default. dispatch: a group of all-gathers of all tokens' rows, ids, weights and\n"
        "  payloads, if there are any.\n"
        "  combine: a reduce-scatter of a bf16 row of every token of every rank, summed before.\n";
  if (has("Gloo")) text += "  Gloo's all-gathers follow each other, and it has no reduce-scatter here.\n";
  if (has("A2A"))
    text +=
        "A2A: a group of sends and receives, and back. A token's row goes once to each rank with an expert\n"
        "  of it, its own rank included, with payloads behind. It leaves out packing, counts (here known before)\n"
        "  and, in combine, the sum over ranks.\n";
  if (has("symm.")) text += "symm.: buffers in symmetric windows (NCCL_WIN_COLL_SYMMETRIC).\n";
  if (!columns.empty() && columns != std::vector<std::string>{"plain push", "plain copy"})
    text +=
        "No peer casts rows, places them by expert, or applies weights. None takes --blocks.\n"
        "speed-up: the best peer's time over Weft's.\n";
  if (has("plain push"))
    text +=
        "bound = max(plain push, moved bytes / copy rate), on as many blocks (auto: one for each SM).\n"
        "  plain push: all ranks store to their peers as many bytes as cross Weft's links, none waits.\n"
        "  copy rate: bytes that the plain copy reads and writes, over its time. It moves the same number\n"
        "  of bytes, or as many as a bank of receive buffers holds.\n"
        "  moved bytes, of the rank with most: dispatch reads each input row and writes each placed row\n"
        "  once, with their payloads; combine reads each expert's row and writes each combined row once. Window "
        "traffic is\n"
        "  not counted.\n"
        "of bound: Weft's time over the bound.\n";
  return text;
}

}  // namespace weft::cli
