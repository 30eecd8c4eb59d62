// The text of --help: CLI11's, wrapped to the width of a terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace weft::cli {

inline constexpr std::size_t kHelpColumns = 100;

// Wraps `text` to `columns`, behind spaces and commas. Later lines begin with `indent` spaces; the first line has so
// many columns in use already.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns = kHelpColumns);

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;

 private:
  std::string entry(const std::string& name, const std::string& description) const;
};

}  // namespace weft::cli
