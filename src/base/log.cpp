#include "base/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>

#include <cstdlib>
#include <memory>

namespace weft::detail {

std::optional<spdlog::level::level_enum> log_level(std::string_view name) {
  const auto level = spdlog::level::from_str(std::string(name));
  if (level == spdlog::level::off && name != "off") return std::nullopt;  // spdlog's answer to unknown names
  return level;
}

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("weft", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_pattern("[%H:%M:%S.%e] [weft] [%l] %v");
    made.set_level(spdlog::level::warn);
    const char* requested = std::getenv("WEFT_LOG");
    if (requested == nullptr) return made;
    if (const auto level = log_level(requested)) {
      made.set_level(*level);
    } else {
      made.warn("WEFT_LOG: {} is not trace, debug, info, warn, error or off; it stays at warn", requested);
    }
    return made;
  }();
  return instance;
}

}  // namespace weft::detail
