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
  for (const auto operation : detail::kTunedBySize)
    if (std::ranges::find(tables, *group.tuning(operation).table) != tables.end()) return {};
  return fmt::format("--tuning {}: has no table for {} {} of {}, and is not used. In use: {}", file, ranks.world_size(),
                     ranks.world_size() == 1 ? "rank" : "ranks", group.communicator().fabric().processor().name,
                     ranks.first().tuning());
}

}  // namespace weft::cli
