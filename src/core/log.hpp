// Weft's own log: spdlog's logger "weft" on stderr, level from WEFT_LOG (trace, debug, info, warn, error, off; default
// warn). The host program's spdlog registry is not touched.
#pragma once

#include <spdlog/spdlog.h>

namespace weft::detail {

spdlog::logger& logger();

}  // namespace weft::detail
