#include "bench/plot.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/report.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

constexpr const char* kInstall = "apt install python3 python3-matplotlib";
constexpr int kNoMatplotlib = 3;  // the script's exit status

// The build folder is laid out like an installation.
std::filesystem::path script() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto file = (self.parent_path() / WEFT_PLOT_SCRIPT).lexically_normal();
  if (!error && std::filesystem::exists(file)) return file;
  throw Error(Errc::unsupported, fmt::format("--plot: the script {} is missing: it comes with `cmake --install`, and "
                                             "beside bin in a build folder",
                                             file.string()));
}

// Returns the script's exit status.
int run_script(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"python3", "-B", script().string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "python3", nullptr, nullptr, pointers.data(), environ);
  if (failed == ENOENT) throw Error(Errc::unsupported, fmt::format("--plot: python3 is not on PATH: {}", kInstall));
  if (failed != 0) throw Error(Errc::system, fmt::format("--plot: python3 does not start: error {}", failed));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw Error(Errc::system, "--plot: python3 is lost");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A file that is removed when this ends.
class Temporary {
 public:
  explicit Temporary(const std::string& text) {
    const int file = mkstemps(name_.data(), 5);
    if (file < 0) throw Error(Errc::system, fmt::format("--plot: cannot make a file in {}", directory_));
    ::close(file);
    write_text(name_, text);
  }
  ~Temporary() { ::unlink(name_.c_str()); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::string& name() const { return name_; }

 private:
  std::string directory_ = std::filesystem::temp_directory_path().string();
  std::string name_ = directory_ + "/weft-bench-XXXXXX.json";
};

}  // namespace

void check_plotting(const std::string& file) {
  const auto extension = std::filesystem::path(file).extension();
  if (extension != ".png" && extension != ".svg" && extension != ".pdf")
    throw Error(Errc::invalid_argument, fmt::format("--plot {}: must end in .png, .svg or .pdf", file));
  const int status = run_script({"--check"});
  if (status == kNoMatplotlib) throw Error(Errc::unsupported, fmt::format("--plot: needs matplotlib: {}", kInstall));
  if (status != 0) throw Error(Errc::unsupported, fmt::format("--plot: python3 ended with status {}", status));
}

void plot(const nlohmann::json& report, const std::string& file) {
  const Temporary input(report.dump());
  const int status = run_script({input.name(), file});
  if (status != 0) throw Error(Errc::system, fmt::format("--plot {}: the script ended with status {}", file, status));
}

}  // namespace weft::cli
