#include "common/sizes.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "weft/error.hpp"

namespace weft::cli {
namespace {

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// The power of 1024 that `unit` means, or −1.
int power_of(std::string_view unit) {
  if (unit.empty() || unit == "B" || unit == "b") return 0;
  const auto letter = std::string_view("KMGkmg").find(unit.front());
  if (letter == std::string_view::npos) return -1;
  const auto rest = unit.substr(1);
  if (!rest.empty() && rest != "B" && rest != "iB" && rest != "b") return -1;
  return static_cast<int>(letter % 3) + 1;
}

[[noreturn]] void bad_bytes(std::string_view text) {
  throw Error(Errc::invalid_argument,
              fmt::format("size \"{}\": must be a number of bytes such as 512, 64K, 1.5M or 1G", text));
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0) bad_bytes(text);
  const int power = power_of(text.substr(static_cast<std::size_t>(end - text.data())));
  if (power < 0) bad_bytes(text);
  const double bytes = std::ldexp(value, 10 * power);
  if (bytes != std::floor(bytes) || bytes > 0x1p52) bad_bytes(text);
  return static_cast<std::uint64_t>(bytes);
}

std::vector<std::uint64_t> parse_bytes_list(std::string_view text) {
  std::vector<std::uint64_t> sizes;
  for (const auto part : split(text)) sizes.push_back(parse_bytes(part));
  return sizes;
}

std::vector<std::int64_t> parse_counts(std::string_view text, std::string_view what, std::int64_t most,
                                       std::int64_t least) {
  std::vector<std::int64_t> counts;
  for (const auto part : split(text)) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < least || value > most)
      throw Error(Errc::invalid_argument,
                  fmt::format("{}: \"{}\" must be a whole number between {} and {}, or several with commas", what, part,
                              least, most));
    counts.push_back(value);
  }
  return counts;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "KB", "MB", "GB"};
  int unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  std::string number = fmt::format("{:.2f}", value);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number + " " + units[unit];
}

}  // namespace weft::cli
