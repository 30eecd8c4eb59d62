#include "core/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>

#include <cstdlib>
#include <memory>

namespace weft::detail {

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("weft", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    const char* level = std::getenv("WEFT_LOG");
    made.set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::warn);
    made.set_pattern("[%H:%M:%S.%e] [weft] [%l] %v");
    return made;
  }();
  return instance;
}

}  // namespace weft::detail
