// Options that take the name of an enumerator.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

namespace weft::cli {

// `values` are the enumerators that may be named; name(value) gives their names.
template <class Enum>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, Enum& target, std::vector<Enum> values,
                        const std::string& help) {
  std::vector<std::string> names;
  for (const Enum value : values) names.emplace_back(name(value));
  const auto assign = [&target, values](const std::string& text) {
    for (const Enum value : values)
      if (name(value) == text) target = value;
  };
  return app.add_option_function<std::string>(flag, assign, help)
      ->check(CLI::IsMember(names))
      ->default_str(std::string(name(target)));
}

// … of several enumerators, "none,max", each once.
template <class Enum>
CLI::Option* add_choices(CLI::App& app, const std::string& flag, std::vector<Enum>& targets, std::vector<Enum> values,
                         const std::string& help) {
  std::vector<std::string> names;
  for (const Enum value : values) names.emplace_back(name(value));
  const auto assign = [&targets, values](const std::vector<std::string>& texts) {
    targets.clear();
    for (const std::string& text : texts)
      for (const Enum value : values)
        if (name(value) == text && std::ranges::find(targets, value) == targets.end()) targets.push_back(value);
  };
  return app.add_option_function<std::vector<std::string>>(flag, assign, help)
      ->delimiter(',')
      ->check(CLI::IsMember(names));
}

}  // namespace weft::cli
