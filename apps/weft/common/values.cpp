#include "common/values.hpp"

#include <fmt/format.h>

#include <charconv>

namespace weft::cli {
namespace {

constexpr double kLeastDeadline = 1e-3, kMostDeadline = 1e6;

// Parses the whole of `text` as a number.
template <class Number>
bool parse(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end;
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto check = [least, most](const std::string& text) {
    std::int64_t value = 0;
    if (parse(text, value) && value >= least && value <= most) return std::string();
    return fmt::format("\"{}\" must be a whole number between {} and {}", text, least, most);
  };
  return {check, fmt::format("{} - {}", least, most)};
}

CLI::Validator deadline_seconds() {
  const auto check = [](const std::string& text) {
    double value = 0;
    const bool number = parse(text, value);
    if (number && (value == 0 || (value >= kLeastDeadline && value <= kMostDeadline))) return std::string();
    return fmt::format("\"{}\" must be a number of seconds between {} and {}, or 0: for ever", text, kLeastDeadline,
                       static_cast<std::int64_t>(kMostDeadline));
  };
  return {check, "0, 0.001 - 1000000"};
}

CLI::Validator not_empty() {
  return {[](const std::string& text) { return std::string(text.empty() ? "must not be empty" : ""); }, ""};
}

}  // namespace weft::cli
