#include "common/help.hpp"

#include "common/table.hpp"

namespace weft::cli {

std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns) {
  std::string out, line(indent, ' ');
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" ,", begin), text.size() - 1) + 1;
    const std::string word = text.substr(begin, end - begin);
    const std::size_t shown = width_of(word) - (word.back() == ' ' ? 1 : 0);
    if (width_of(line) > indent && width_of(line) + shown > columns) {
      out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
      line = std::string(indent, ' ');
    }
    line += word;
    begin = end;
  }
  return (out + line).substr(indent);
}

std::string HelpFormatter::entry(const std::string& name, const std::string& description) const {
  constexpr std::size_t kIndent = 2, kHanging = 6;
  const std::size_t column = get_column_width();
  // Wrapped lines of names have a deeper indent than the first line.
  std::string out = std::string(kIndent, ' ') + wrapped(name, kHanging);
  if (description.empty()) return out + '\n';
  const std::size_t last = out.rfind('\n') == std::string::npos ? 0 : out.rfind('\n') + 1;
  const std::size_t taken = width_of(std::string_view(out).substr(last));
  out += last == 0 && taken < column ? std::string(column - taken, ' ') : '\n' + std::string(column, ' ');
  return out + wrapped(description, column) + '\n';
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return entry(command->get_display_name(true), command->get_description());
}

}  // namespace weft::cli
