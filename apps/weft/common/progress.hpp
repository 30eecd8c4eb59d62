// A progress bar on stderr, and only where somebody can see it. It never takes more than a line of the terminal,
// however wide that is at the moment: what wraps cannot be drawn over.
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

  // Says what is being done now; call it before each of the `total` steps.
  void step(std::string_view what);
  // Says more of the present step.
  void note(std::string_view what);
  // Removes the bar, so that something else can be printed.
  void clear();

 private:
  void draw(std::string_view what) const;

  std::size_t total_;
  std::size_t done_ = 0;  // steps begun
  bool shown_;
};

// As much of `text` as `columns` show.
std::string_view fitted(std::string_view text, std::size_t columns);

}  // namespace weft::cli
