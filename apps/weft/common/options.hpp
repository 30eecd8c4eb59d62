// Options that take the name of an enumerator.
#pragma once

#include <CLI/CLI.hpp>
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

}  // namespace weft::cli
