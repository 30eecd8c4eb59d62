// Reads a config.json field by field. Errors name the file, the field, its value and the values that it may have.
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
  using Names = std::initializer_list<const char*>;  // synonyms of one fact: the first that is present counts
  struct Limits {
    std::int64_t least, most;
  };

  // Keeps a reference to `whole`. For a multimodal configuration it reads the language model's text_config (or the
  // like). Throws Errc::invalid_argument, like all functions here, if `whole` is no object.
  ConfigFields(const nlohmann::json& whole, std::string file);

  // Null if the field is absent or null. Also looks into the sub-object that DBRX uses.
  const nlohmann::json* get(const char* name);
  // A list with one number per layer counts as that number if all are equal.
  std::optional<std::int64_t> find(Limits limits, Names names);
  std::int64_t need(const char* meaning, Limits limits, Names names);
  std::string text(const char* name);  // empty if the field is absent
  // The field must be a list.
  std::vector<std::int64_t> numbers(const char* name, Limits limits);
  std::vector<std::string> texts(const char* name);

  std::int64_t number(const nlohmann::json& value, const std::string& name, Limits limits) const;
  Error bad(const std::string& name, const nlohmann::json& value, const std::string& wanted) const;
  Error error(const std::string& what) const;

  // Fields about layers or experts that no caller has read, unless they are known not to matter here.
  std::vector<std::string> unread() const;

 private:
  const nlohmann::json* config_;
  const nlohmann::json* feed_forward_ = nullptr;  // the sub-object that DBRX uses
  std::string file_;
  std::set<std::string> asked_;
};

}  // namespace weft::cli
