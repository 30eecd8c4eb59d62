// The text of --help: CLI11's, in lines that fit a terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace weft::cli {

inline constexpr std::size_t kHelpColumns = 100;

// `text` in lines of at most `columns`, broken behind spaces and commas; those after the first begin with `indent`
// spaces, and so many are taken on the first one already.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns = kHelpColumns);

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;

 private:
  std::string entry(const std::string& name, const std::string& description) const;
};

}  // namespace weft::cli
