#include "tuning/layer_file.hpp"

#include <numeric>

#include "base/limits.hpp"
#include "tuning/token_file.hpp"

namespace weft::detail {
namespace {

constexpr std::uint32_t kMostColumns = 1 << 20, kMostLocalExperts = 4096, kMostTopK = 32;

struct SmsKey {
  const char* key;
  int LayerSms::*value;
};
constexpr SmsKey kSmsKeys[] = {{"send_num_sms", &LayerSms::send},
                               {"recv_num_sms", &LayerSms::recv},
                               {"combine_send_num_sms", &LayerSms::combine_send},
                               {"combine_recv_num_sms", &LayerSms::combine_recv},
                               {"up_num_sms", &LayerSms::up},
                               {"down_num_sms", &LayerSms::down}};

constexpr LayerSchedule kSchedules[] = {LayerSchedule::plain, LayerSchedule::rounds, LayerSchedule::combine_rounds};

void read_rounds(const FileNode& node, const LayerSize& size, LayerStep& step) {
  const char* const key = "rounds";
  if (step.schedule == LayerSchedule::plain) {
    if (node.has(key)) node.reject(key, "left out: the schedule is plain");
    return;
  }
  if (!node.is_list(key)) {
    step.rounds = static_cast<std::uint32_t>(node.number(key, 2, kMostTunedRounds));
    return;
  }
  step.experts = node.numbers(key, kMostTunedRounds, kMostLocalExperts);
  step.rounds = static_cast<std::uint32_t>(step.experts.size());
  if (step.rounds == 1) node.reject(key, "two rounds or more");
  if (std::accumulate(step.experts.begin(), step.experts.end(), 0u) != size.local_experts)
    node.reject(key, fmt::format("a division of the {} local_experts", size.local_experts));
}

RowPath read_path(const FileNode& table) {
  if (!table.has("path")) return RowPath::automatic;
  return table.text("path", {name(RowPath::slots), name(RowPath::ring)}) == name(RowPath::slots) ? RowPath::slots
                                                                                                 : RowPath::ring;
}

LayerStep read_layer_step(const FileNode& node, const LayerSize& size) {
  node.allow({"up_to_tokens", "schedule", "rounds", "send_num_sms", "recv_num_sms", "combine_send_num_sms",
              "combine_recv_num_sms", "up_num_sms", "down_num_sms"});
  LayerStep step;
  const std::string schedule = node.text("schedule", {"plain", "rounds", "combine-rounds"});
  for (const auto candidate : kSchedules)
    if (name(candidate) == schedule) step.schedule = candidate;
  read_rounds(node, size, step);
  for (const auto& [key, value] : kSmsKeys)
    if (node.has(key)) step.sms.*value = static_cast<int>(node.number(key, 2, kMaxBlocks));
  return step;
}

}  // namespace

LayerSize read_layer_size(const FileNode& table) {
  const auto number = [&](const char* key, std::uint32_t most) {
    return static_cast<std::uint32_t>(table.number(key, 1, most));
  };
  return {.hidden = number("hidden", kMostColumns),
          .intermediate = number("intermediate", kMostColumns),
          .local_experts = number("local_experts", kMostLocalExperts),
          .top_k = number("top_k", kMostTopK),
          .path = read_path(table)};
}

std::vector<LayerStep> read_layer_steps(const FileNode& table, const LayerSize& size) {
  return read_token_steps<LayerStep>(
      table, [&](const FileNode& node, const LayerStep*) { return read_layer_step(node, size); });
}

std::string to_json(const LayerSize& size) {
  const std::string path = size.path != RowPath::automatic ? fmt::format(R"( "path": "{}",)", name(size.path)) : "";
  return fmt::format(R"("hidden": {}, "intermediate": {}, "local_experts": {}, "top_k": {},{})", size.hidden,
                     size.intermediate, size.local_experts, size.top_k, path);
}

std::string to_json(const LayerStep& step) {
  std::string out = fmt::format("{{{}\"schedule\": \"{}\"", up_to_json(step), name(step.schedule));
  if (step.schedule != LayerSchedule::plain) {
    out += step.experts.empty() ? fmt::format(", \"rounds\": {}", step.rounds)
                                : fmt::format(", \"rounds\": [{}]", fmt::join(step.experts, ", "));
  }
  for (const auto& [key, value] : kSmsKeys)
    if (step.sms.*value != 0) out += fmt::format(", \"{}\": {}", key, step.sms.*value);
  return out + "}";
}

}  // namespace weft::detail
