// A config.json seen field by field: whatever is wrong with one is said with the file, the field, its value and what it
// may be.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/error.hpp"

namespace weft::cli {

class ConfigFields {
 public:
  using Names = std::initializer_list<const char*>;  // of one fact: the first that is present counts
  struct Limits {
    std::int64_t least, most;
  };

  // Refers to `whole`. The language model of a multimodal configuration is found in its text_config (or the like).
  // Throws Errc::invalid_argument, as all of these do, where `whole` is no object.
  ConfigFields(const nlohmann::json& whole, std::string file);

  // Null where the field is absent or null; also inside the sub-object that DBRX uses.
  const nlohmann::json* get(const char* name);
  // A list with a number for each layer is that number where all are the same.
  std::optional<std::int64_t> find(Limits limits, Names names);
  std::int64_t need(const char* meaning, Limits limits, Names names);
  std::string text(const char* name);  // empty where there is none
  // Of a field that must be a list.
  std::vector<std::int64_t> numbers(const char* name, Limits limits);
  std::vector<std::string> texts(const char* name);

  std::int64_t number(const nlohmann::json& value, const std::string& name, Limits limits) const;
  Error bad(const std::string& name, const nlohmann::json& value, const std::string& wanted) const;
  Error error(const std::string& what) const;

  // Fields about layers or experts that nobody has asked for, and that are not known to be about something else.
  std::vector<std::string> unread() const;

 private:
  const nlohmann::json* config_;
  const nlohmann::json* feed_forward_ = nullptr;  // DBRX's
  std::string file_;
  std::set<std::string> asked_;
};

}  // namespace weft::cli
