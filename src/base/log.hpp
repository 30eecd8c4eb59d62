// Weft's own log: spdlog's logger "weft" on stderr, level from WEFT_LOG (trace, debug, info, warn, error, off; default
// warn). The host program's spdlog registry is not touched.
#pragma once

#include <spdlog/spdlog.h>

#include <optional>
#include <string_view>

namespace weft::detail {

// Nothing for a name that is no level.
std::optional<spdlog::level::level_enum> log_level(std::string_view name);
spdlog::logger& logger();

}  // namespace weft::detail
