// Sizes on the command line and in tables: "64K", "1.5M", "32,64,128".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

// "16", "64K", "1.5M", "2GiB": bytes. K, M and G are powers of 1024, in either case; "B" or "iB" may follow. Throws
// Errc::invalid_argument for any other text, and for a fraction of a byte.
std::uint64_t parse_bytes(std::string_view text);

// A comma-separated list of byte sizes. Throws as above, also for an empty entry.
std::vector<std::uint64_t> parse_bytes_list(std::string_view text);

// "1,8,256": whole numbers from `least` to `most`. `what` names the option in the message.
std::vector<std::int64_t> parse_counts(std::string_view text, std::string_view what, std::int64_t most,
                                       std::int64_t least = 1);

// The most rows of a tensor whose rows are tokens. Sizes computed from them stay far below 2^63; they may still exceed
// the memory.
constexpr std::int64_t kMostRows = 1 << 30;

// 65536 → "64 KB", 50160000 → "47.84 MB": at most two decimals.
std::string format_bytes(std::uint64_t bytes);

}  // namespace weft::cli
