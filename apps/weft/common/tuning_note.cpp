#include "common/tuning_note.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/state.hpp"
#include "tuning/tuning.hpp"

namespace weft::cli {

std::string unused_tuning(const Ranks& ranks, const std::string& file) {
  if (file.empty()) return {};
  const auto& group = ranks.first().world().state();
  const auto tables = detail::read_tuning(file);
  for (const detail::TunedKind& kind : detail::kTunedBySize) {
    const detail::TuningTable* const table = group.tuning(kind.operation).table;
    if (table != nullptr && std::ranges::find(tables, *table) != tables.end()) return {};
  }
  for (const detail::TuningTable* const table : group.communicator().layer_tables(group.size()))
    if (std::ranges::find(tables, *table) != tables.end()) return {};
  for (const detail::TuningChoice& choice : group.communicator().exchange_choices(group.size()))
    if (std::ranges::find(tables, *choice.table) != tables.end()) return {};
  return fmt::format("--tuning {}: has no table for {} {} of {}, and is not used. In use: {}", file, ranks.world_size(),
                     ranks.world_size() == 1 ? "rank" : "ranks", group.communicator().fabric().processor().name,
                     ranks.first().tuning());
}

std::vector<std::string> layer_tuning(const Ranks& ranks) {
  const auto& group = ranks.first().world().state();
  std::vector<std::string> all;
  for (const detail::TuningTable* const table : group.communicator().layer_tables(group.size())) {
    const detail::LayerSize& size = table->layer;
    const std::string rows = size.path != RowPath::automatic ? fmt::format(", rows by {}", name(size.path)) : "";
    all.push_back(fmt::format("{}: {} and {} columns, {} experts on each rank, top {}{}",
                              detail::table_in_words(*table), size.hidden, size.intermediate, size.local_experts,
                              size.top_k, rows));
  }
  return all;
}

std::vector<std::string> exchange_tuning(const Ranks& ranks) {
  const auto& group = ranks.first().world().state();
  std::vector<std::string> all;
  for (const detail::TuningChoice& choice : group.communicator().exchange_choices(group.size()))
    all.push_back(choice.reason);
  return all;
}

}  // namespace weft::cli
