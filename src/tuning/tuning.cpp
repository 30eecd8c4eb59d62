#include "tuning/tuning.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "base/fingerprint.hpp"
#include "base/limits.hpp"
#include "tuning/exchange_file.hpp"
#include "tuning/file_node.hpp"
#include "tuning/layer_file.hpp"
#include "tuning/tuning_files.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using nlohmann::json;

constexpr std::string_view kSchema = "weft-tuning-1";
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;

// Deeper files are no tables. Very deep ones would end the process when they are written into a message.
constexpr int kMostNesting = 16;

json parse_json(std::string_view text, const std::string& file) {
  const auto check_depth = [&](int depth, json::parse_event_t, const json&) {
    if (depth <= kMostNesting) return true;
    throw Error(Errc::invalid_argument,
                fmt::format("{}: lists or objects lie more than {} deep in each other", file, kMostNesting));
  };
  try {
    return json::parse(text, check_depth);
  } catch (const json::out_of_range& error) {
    throw Error(Errc::invalid_argument, fmt::format("{}: a number is too large: {}", file, error.what()));
  } catch (const json::exception& error) {
    throw Error(Errc::invalid_argument, fmt::format("{}: no JSON: {}", file, error.what()));
  }
}

// Each rank finds the sizes at which a move changes its way, so that no way may come back.
TuningStep read_step(const FileNode& node, const TunedKind& kind, bool last, const TuningStep* before) {
  std::vector<std::string_view> keys{"up_to_bytes", "algorithm"}, names;
  if (kind.grids) keys.insert(keys.end(), {"blocks", "threads"});
  node.allow(keys);
  TuningStep step;
  if (!last) step.up_to = node.number("up_to_bytes", before != nullptr ? before->up_to + 1 : 1, kMostBytes);
  if (last && node.has("up_to_bytes")) node.reject("up_to_bytes", "left out: the last step serves all that is larger");
  for (const TunedAlgorithm one : kind.algorithms) {
    if (!kind.is_move() || before == nullptr || one >= before->algorithm) names.push_back(name(one));
  }
  const std::string algorithm = node.text("algorithm", names);
  for (const TunedAlgorithm candidate : kind.algorithms)
    if (name(candidate) == algorithm) step.algorithm = candidate;
  if (node.has("blocks")) step.blocks = static_cast<int>(node.number("blocks", 2, kMaxBlocks));
  if (node.has("threads"))
    step.threads = static_cast<int>(node.number("threads", 32, static_cast<std::uint64_t>(kind.most_threads), 32));
  return step;
}

// "9.0" is 90.
int read_capability(const FileNode& node) {
  const char* const key = "compute_capability";
  if (!node.has(key)) return 0;
  const std::string text = node.any_text(key);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::size_t last = text.size() - 1;
  const bool good = text.size() >= 3 && text.size() <= 4 && text[last - 1] == '.' && is_digit(text[last]) &&
                    std::all_of(text.begin(), text.end() - 2, is_digit) && text[0] != '0';
  if (!good) node.reject(key, "a compute capability such as \"9.0\"");
  return std::stoi(text.substr(0, last - 1)) * 10 + (text[last] - '0');
}

TuningTable read_table(const FileNode& node) {
  std::vector<std::string_view> operations,
      keys{"processor", "compute_capability", "multiprocessors", "ranks", "operation", "origin", "note", "steps"};
  for (const TunedKind& kind : kTunedKinds) operations.push_back(kind.name);
  const std::string operation = node.text("operation", operations);
  const TunedKind& kind = *std::ranges::find(kTunedKinds, operation, &TunedKind::name);
  const bool of_layers = kind.operation == TunedOperation::moe_layer;
  const bool of_exchanges = kind.operation == TunedOperation::moe_exchange;
  if (of_layers) keys.insert(keys.end(), {"hidden", "intermediate", "local_experts", "top_k", "path"});
  if (of_exchanges) keys.insert(keys.end(), {"hidden", "local_experts", "top_k", "layout", "cast"});
  if (kind.detours) keys.push_back("detour_bytes");
  node.allow(keys);
  TuningTable table{.processor = {.name = node.any_text("processor"), .capability = read_capability(node)},
                    .ranks = static_cast<int>(node.number("ranks", of_layers || of_exchanges ? 1 : 0, kMaxRanks)),
                    .operation = kind.operation,
                    .origin = node.text("origin", {"measured", "extrapolated"})};
  if (node.has("multiprocessors"))
    table.processor.multiprocessors = static_cast<int>(node.number("multiprocessors", 1, 4096));
  if (node.has("note")) table.note = node.any_text("note");
  if (node.has("detour_bytes")) table.detour_bytes = node.number("detour_bytes", 1, kMostBytes);
  if (of_layers) {
    table.layer = read_layer_size(node);
    table.layer_steps = read_layer_steps(node, table.layer);
    return table;
  }
  if (of_exchanges) {
    table.exchange = read_exchange_size(node);
    table.exchange_steps = read_exchange_steps(node, table.exchange);
    return table;
  }
  const auto steps = node.list("steps", kMostTuningSteps);
  for (std::size_t i = 0; i < steps.size(); ++i)
    table.steps.push_back(
        read_step(steps[i], kind, i + 1 == steps.size(), table.steps.empty() ? nullptr : &table.steps.back()));
  return table;
}

// Twice as many, or half as many.
constexpr bool are_far_apart(std::int64_t a, std::int64_t b) {
  return a >= 2 * b || 2 * a <= b;
}

// Twice as many ranks are another kind of group: two ranks take one hop up to megabytes, eight up to 128 KB.
bool is_for_another_kind(const TuningTable& table, int ranks) {
  return table.ranks != 0 && are_far_apart(table.ranks, ranks);
}

// The distance of a table from what is wanted. The nearest serves.
std::tuple<bool, bool, int, int, bool> distance(const TuningTable& table, const Processor& processor, int ranks) {
  const bool same = table.processor.name == processor.name;
  const int apart = table.ranks == 0 ? 0 : std::abs(table.ranks - ranks);
  const int fewer = table.ranks < ranks && apart != 0 ? 1 : 0;
  const bool known = processor.multiprocessors != 0 && table.processor.multiprocessors != 0;
  const int more = std::abs(table.processor.multiprocessors - processor.multiprocessors);
  return {is_for_another_kind(table, ranks),
          !same && (processor.capability == 0 || table.processor.capability != processor.capability),
          same    ? 0
          : known ? more
                  : std::numeric_limits<int>::max(),
          2 * apart + fewer, !same};
}

bool is_for_another_kind(const ExchangeSize& a, const ExchangeSize& b) {
  return a.layout != b.layout || a.cast != b.cast || are_far_apart(a.hidden, b.hidden) ||
         are_far_apart(a.local_experts, b.local_experts) || are_far_apart(a.top_k, b.top_k);
}
std::tuple<std::int64_t, std::int64_t, std::int64_t> distance(const ExchangeSize& a, const ExchangeSize& b) {
  const auto apart = [](std::int64_t one, std::int64_t other) { return std::abs(one - other); };
  return {apart(a.hidden, b.hidden), apart(a.local_experts, b.local_experts), apart(a.top_k, b.top_k)};
}

}  // namespace

std::string table_in_words(const TuningTable& table) {
  if (table.ranks == 0) return fmt::format("{} ({})", table.processor.name, table.origin);
  return fmt::format("{}, {} ranks ({})", table.processor.name, table.ranks, table.origin);
}

std::vector<TuningTable> parse_tuning(std::string_view text, const std::string& file) {
  const json whole = parse_json(text, file);
  const FileNode root(whole, file, "");
  root.allow({"schema", "tables"});
  root.text("schema", {kSchema});
  std::vector<TuningTable> tables;
  for (const FileNode& node : root.list("tables", 1024)) {
    TuningTable table = read_table(node);
    for (const TuningTable& other : tables)
      if (other.serves_as(table))
        node.reject("ranks", fmt::format("the only table for {} of this size", table.processor.name));
    tables.push_back(std::move(table));
  }
  return tables;
}

std::vector<TuningTable> read_tuning(const std::string& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) throw Error(Errc::invalid_argument, fmt::format("{}: cannot be read", file));
  return parse_tuning(text.str(), file);
}

std::string to_json(const std::vector<TuningTable>& tables) {
  std::string out = fmt::format("{{\n \"schema\": \"{}\",\n \"tables\": [", kSchema);
  for (const TuningTable& table : tables) {
    const Processor& processor = table.processor;
    out += fmt::format("{}\n  {{\n   \"processor\": {},\n", &table == &tables.front() ? "" : ",",
                       json(processor.name).dump());
    if (processor.capability != 0)
      out +=
          fmt::format("   \"compute_capability\": \"{}.{}\",\n", processor.capability / 10, processor.capability % 10);
    if (processor.multiprocessors != 0) out += fmt::format("   \"multiprocessors\": {},\n", processor.multiprocessors);
    out += fmt::format("   \"ranks\": {},\n   \"operation\": \"{}\",\n", table.ranks, name(table.operation));
    if (table.operation == TunedOperation::moe_layer) out += fmt::format("   {}\n", to_json(table.layer));
    if (table.operation == TunedOperation::moe_exchange) out += fmt::format("   {}\n", to_json(table.exchange));
    out += fmt::format("   \"origin\": \"{}\",\n", table.origin);
    if (table.detour_bytes != 0) out += fmt::format("   \"detour_bytes\": {},\n", table.detour_bytes);
    if (!table.note.empty()) out += fmt::format("   \"note\": {},\n", json(table.note).dump());
    out += "   \"steps\": [";
    for (const TuningStep& step : table.steps) {
      out += fmt::format("{}\n    {{", &step == &table.steps.front() ? "" : ",");
      if (step.up_to != UINT64_MAX) out += fmt::format("\"up_to_bytes\": {}, ", step.up_to);
      out += fmt::format("\"algorithm\": \"{}\"", name(step.algorithm));
      if (step.blocks != 0) out += fmt::format(", \"blocks\": {}", step.blocks);
      if (step.threads != 0) out += fmt::format(", \"threads\": {}", step.threads);
      out += "}";
    }
    for (const LayerStep& step : table.layer_steps)
      out += fmt::format("{}\n    {}", &step == &table.layer_steps.front() ? "" : ",", to_json(step));
    for (const ExchangeStep& step : table.exchange_steps)
      out += fmt::format("{}\n    {}", &step == &table.exchange_steps.front() ? "" : ",", to_json(step));
    out += "\n   ]\n  }";
  }
  return out + "\n ]\n}\n";
}

const std::vector<TuningTable>& shipped_tuning() {
  static const std::vector<TuningTable> tables = [] {
    std::vector<TuningTable> all;
    for (const auto& [file, text] : kTuningFiles)
      for (TuningTable& table : parse_tuning(text, std::string(file))) all.push_back(std::move(table));
    return all;
  }();
  return tables;
}

std::vector<TuningTable> with_shipped(std::vector<TuningTable> own) {
  const std::size_t owned = own.size();
  for (const TuningTable& table : shipped_tuning()) {
    const auto replaces = [&](const TuningTable& other) { return other.serves_as(table); };
    if (std::none_of(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(owned), replaces)) own.push_back(table);
  }
  return own;
}

TuningChoice choose_tuning(const std::vector<TuningTable>& tables, const Processor& processor, int ranks,
                           TunedOperation operation) {
  const auto far = [&](const TuningTable& table) { return distance(table, processor, ranks); };
  TuningChoice choice;
  for (const TuningTable& table : tables) {
    if ((table.processor.name == kCpuProcessor) != (processor.name == kCpuProcessor)) continue;
    if (table.operation != operation) continue;
    if (operation == TunedOperation::all_reduce_rms_norm && table.ranks != 0 && table.ranks != ranks) continue;
    if (kind_of(operation).is_move() && is_for_another_kind(table, ranks)) continue;
    if (choice.table == nullptr || far(table) < far(*choice.table)) choice.table = &table;
  }
  if (choice.table == nullptr)
    return operation == TunedOperation::all_reduce_rms_norm ? choose_tuning(tables, processor, ranks) : choice;
  choice.exact = far(*choice.table) == std::tuple(false, false, 0, 0, false);
  choice.reason = choice.exact ? table_in_words(*choice.table)
                               : fmt::format("{}, as there is no table for {}, {} ranks", table_in_words(*choice.table),
                                             processor.name, ranks);
  return choice;
}

const TuningTable* choose_layer_tuning(std::span<const TuningTable> tables, const Processor& processor, int ranks,
                                       const LayerSize& size) {
  const TuningTable* of_either = nullptr;
  for (const TuningTable& table : tables) {
    if (table.operation != TunedOperation::moe_layer || table.processor.name != processor.name || table.ranks != ranks)
      continue;
    if (table.layer == size) return &table;
    LayerSize either = size;
    either.path = RowPath::automatic;
    if (table.layer == either) of_either = &table;
  }
  return of_either;
}

TuningChoice choose_exchange_tuning(std::span<const TuningTable> tables, const Processor& processor, int ranks,
                                    const ExchangeSize& size) {
  const auto far = [&](const TuningTable& table) {
    return std::tuple_cat(distance(table, processor, ranks), distance(table.exchange, size));
  };
  TuningChoice choice;
  for (const TuningTable& table : tables) {
    if ((table.processor.name == kCpuProcessor) != (processor.name == kCpuProcessor)) continue;
    if (table.operation != TunedOperation::moe_exchange) continue;
    if (is_for_another_kind(table, ranks) || is_for_another_kind(table.exchange, size)) continue;
    if (choice.table == nullptr || far(table) < far(*choice.table)) choice.table = &table;
  }
  if (choice.table == nullptr) return choice;
  const TuningTable& table = *choice.table;
  choice.exact = table.processor.name == processor.name && table.ranks == ranks && table.exchange == size;
  choice.reason = fmt::format("{}: {}", table_in_words(table), in_words(table.exchange));
  if (!choice.exact)
    choice.reason += fmt::format(", as there is no table for {}, {} ranks: {}", processor.name, ranks, in_words(size));
  return choice;
}

std::span<const TuningStep> shipped_steps(Device device, int ranks) {
  static const Processor cpu{std::string(kCpuProcessor)};
  static const Processor gpu = [] {
    for (const TuningTable& table : shipped_tuning())
      if (table.processor.name != kCpuProcessor) return table.processor;
    return Processor{};
  }();
  return choose_tuning(shipped_tuning(), device == Device::cpu ? cpu : gpu, ranks).table->steps;
}

const TuningStep& step_for(std::span<const TuningStep> steps, std::uint64_t bytes, std::uint64_t wire_bytes) {
  for (const TuningStep& step : steps)
    if ((step.algorithm == Algorithm::one_shot ? wire_bytes : bytes) <= step.up_to) return step;
  return steps.back();
}

std::uint32_t fingerprint_of(const std::vector<TuningTable>& tables) {
  std::uint32_t all = 0;
  for (const TuningTable& table : tables) {
    for (const TuningStep& step : table.steps)
      all = fingerprint(NameHash(table.processor.name), all, table.ranks, table.operation, table.detour_bytes,
                        step.up_to, step.algorithm.code(), step.blocks, step.threads);
    for (const LayerStep& step : table.layer_steps) {
      const LayerSize& size = table.layer;
      const LayerSms& sms = step.sms;
      all = fingerprint(NameHash(table.processor.name), all, table.ranks, table.operation, size.hidden,
                        size.intermediate, size.local_experts, size.top_k, size.path, step.up_to, step.schedule,
                        step.rounds, sms.send, sms.recv, sms.combine_send, sms.combine_recv, sms.up, sms.down);
      for (const std::uint32_t experts : step.experts) all = fingerprint(NameHash("experts"), all, experts);
    }
    for (const ExchangeStep& step : table.exchange_steps) {
      const ExchangeSize& size = table.exchange;
      all = fingerprint(NameHash(table.processor.name), all, table.ranks, table.operation, size.hidden,
                        size.local_experts, size.top_k, size.layout, size.cast, step.up_to, step.path,
                        step.dispatch.blocks, step.dispatch.threads, step.combine.blocks, step.combine.threads);
    }
  }
  return all;
}

}  // namespace weft::detail
