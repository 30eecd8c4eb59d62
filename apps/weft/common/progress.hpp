// A progress bar on stderr, shown only on a terminal. It never takes more than one line, at the terminal's current
// width, because a wrapped line cannot be redrawn.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::cli {

class Progress {
 public:
  // `total` steps; silent unless `wanted` and stderr is a terminal.
  Progress(std::size_t total, bool wanted);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Names the step that begins. Call it before each of the `total` steps.
  void step(std::string_view what);
  // Adds a note to the present step.
  void note(std::string_view what);
  // Removes the bar before other output.
  void clear();

 private:
  void draw(std::string_view what) const;

  std::size_t total_;
  std::size_t done_ = 0;  // steps begun
  bool shown_;
};

// The first part of `text` that fits `columns`.
std::string_view fitted(std::string_view text, std::size_t columns);

}  // namespace weft::cli
