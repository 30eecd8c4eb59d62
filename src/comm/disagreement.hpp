// The differences between options that ranks should share.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace weft::detail {

// For two lists of fields, "device cpu, max_groups 4", in the same order: the fields of `mine` that differ from
// `theirs`; the whole list if none does.
inline std::string fields_apart(std::string_view mine, std::string_view theirs) {
  constexpr std::string_view kComma = ", ";
  const auto take = [&](std::string_view& list) {
    const std::string_view field = list.substr(0, list.find(kComma));
    list.remove_prefix(std::min(field.size() + kComma.size(), list.size()));
    return field;
  };
  const std::string_view whole = mine;
  std::string apart;
  while (!mine.empty()) {
    const std::string_view field = take(mine), other = take(theirs);
    if (field == other) continue;
    if (!apart.empty()) apart += kComma;
    apart += field;
  }
  return apart.empty() ? std::string(whole) : apart;
}

}  // namespace weft::detail
