// Objects of a file of tuning tables. Errors name file, key, value and allowed range.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/error.hpp"

namespace weft::detail {

// One object of the file, with the key that leads to it.
class FileNode {
 public:
  FileNode(const nlohmann::json& value, const std::string& file, std::string key)
      : value_(value), file_(file), key_(std::move(key)) {
    if (!value.is_object()) throw bad(key_, value, "an object");
  }

  void allow(const std::vector<std::string_view>& keys) const {
    for (const auto& [key, value] : value_.items())
      if (std::ranges::find(keys, key) == keys.end())
        throw bad(path(key), value, fmt::format("known; known are {}", fmt::join(keys, ", ")));
  }
  bool has(const char* key) const { return value_.contains(key); }

  std::string text(const char* key, const std::vector<std::string_view>& allowed) const {
    const nlohmann::json& value = get(key);
    if (value.is_string() && std::ranges::find(allowed, value.get<std::string>()) != allowed.end()) return value;
    throw bad(path(key), value, fmt::format("one of {}", fmt::join(allowed, ", ")));
  }
  std::string any_text(const char* key) const {
    const nlohmann::json& value = get(key);
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) throw bad(path(key), value, "a text");
    return value;
  }
  std::uint64_t number(const char* key, std::uint64_t least, std::uint64_t most, std::uint64_t multiple = 1) const {
    const nlohmann::json& value = get(key);
    if (value.is_number_unsigned()) {
      const auto n = value.get<std::uint64_t>();
      if (n >= least && n <= most && n % multiple == 0) return n;
    }
    throw bad(path(key), value,
              fmt::format("a {} between {} and {}",
                          multiple == 1 ? "whole number" : fmt::format("multiple of {}", multiple), least, most));
  }
  bool is_list(const char* key) const { return get(key).is_array(); }
  // A list of whole numbers up to `most`.
  std::vector<std::uint32_t> numbers(const char* key, std::size_t count, std::uint32_t most) const {
    const nlohmann::json& value = get(key);
    std::vector<std::uint32_t> all;
    for (const nlohmann::json& one : value)
      if (one.is_number_unsigned() && one.get<std::uint64_t>() <= most) all.push_back(one);
    if (all.empty() || all.size() > count || all.size() != value.size())
      throw bad(path(key), value, fmt::format("a list of 1 to {} whole numbers between 0 and {}", count, most));
    return all;
  }
  std::vector<FileNode> list(const char* key, std::size_t most) const {
    const nlohmann::json& value = get(key);
    if (!value.is_array() || value.empty() || value.size() > most)
      throw bad(path(key), value, fmt::format("a list of 1 to {} objects", most));
    std::vector<FileNode> nodes;
    for (std::size_t i = 0; i < value.size(); ++i)
      nodes.emplace_back(value[i], file_, fmt::format("{}[{}]", path(key), i));
    return nodes;
  }
  [[noreturn]] void reject(const char* key, const std::string& range) const { throw bad(path(key), get(key), range); }

 private:
  std::string path(std::string_view key) const {
    return key_.empty() ? std::string(key) : fmt::format("{}.{}", key_, key);
  }
  const nlohmann::json& get(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) throw Error(Errc::invalid_argument, fmt::format("{}: {}: missing", file_, path(key)));
    return *found;
  }
  Error bad(const std::string& key, const nlohmann::json& value, const std::string& range) const {
    std::string shown = value.dump(-1, ' ', true);  // in ASCII, which can be cut anywhere
    if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
    return Error(Errc::invalid_argument,
                 fmt::format("{}: {}: {} is not {}", file_, key.empty() ? "the file" : key, shown, range));
  }

  const nlohmann::json& value_;
  const std::string& file_;
  std::string key_;
};

}  // namespace weft::detail
