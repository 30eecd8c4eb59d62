#include "tune/tune_state.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "bench/report.hpp"
#include "common/sizes.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "weft-tune-state-4";

}  // namespace

std::string by(RowPath path) {
  return path != RowPath::automatic ? fmt::format(" by {}", name(path)) : "";
}

std::string in_words(const Trial& trial) {
  if (detail::is_by_tokens(trial.operation))
    return fmt::format("{} of {} tokens{}, {}", name(trial.operation), trial.bytes, by(trial.path),
                       trial.way.empty() ? "as at present" : trial.way);
  const std::string what = kind_of(trial.operation).is_move()
                               ? fmt::format("{} by {}", name(trial.operation), name(trial.algorithm))
                               : std::string(name(trial.algorithm));
  return fmt::format("{} of {}, {} × {}", what, format_bytes(trial.bytes), trial.launch.blocks, trial.launch.threads);
}

TuneState::TuneState(Args args) : args_(std::move(args)) {
  if (!args_.text.empty()) read();
  known_ = times_.size();
}

void TuneState::read() {
  const auto bad = [&](const std::string& why) {
    return Error(Errc::invalid_argument,
                 fmt::format("--state {}: {}; delete it to begin anew, or name another file", args_.file, why));
  };
  try {
    std::size_t begin = 0, end = 0;
    for (; (end = args_.text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const json line = json::parse(args_.text.substr(begin, end - begin));
      if (begin == 0) {
        if (line.at("schema") != kSchema) throw bad("is no state of weft tune");
        if (line.at("identity") == args_.identity) continue;
        throw bad(fmt::format("was begun with {}, and this is {}", line.at("identity").dump(), args_.identity.dump()));
      }
      Trial trial{.bytes = line.at("bytes"), .launch = {line.at("blocks"), line.at("threads")}};
      trial.samples = line.at("samples");
      trial.turn = line.at("turn");
      const std::string operation = line.at("operation"), algorithm = line.at("algorithm");
      for (const detail::TunedKind& kind : detail::kTunedKinds) {
        if (kind.name != operation) continue;
        trial.operation = kind.operation;
        trial.algorithm = Algorithm::automatic;
        for (const detail::TunedAlgorithm one : kind.algorithms)
          if (name(one) == algorithm) trial.algorithm = one;
      }
      trial.way = line.value("way", "");
      for (const RowPath path : {RowPath::slots, RowPath::ring})
        if (line.value("path", "") == name(path)) trial.path = path;
      times_[trial] = line.at("us");
    }
    if (begin == 0) throw bad("is no state of weft tune");
  } catch (const json::exception& error) {
    throw bad(error.what());
  }
}

double TuneState::time(const Trial& trial, const std::function<Result(const Trial&)>& measure) {
  const auto found = times_.find(trial);
  if (found != times_.end()) return found->second;
  const Result result = measure(trial);
  if (result.verdict == Verdict::unavailable) return kUnavailable;
  if (result.verdict == Verdict::wrong)
    throw Error(Errc::system,
                fmt::format("WRONG: {}: {}; no table was written; weft verify tells more", in_words(trial),
                            result.detail.empty() ? "other bits, in another process" : result.detail));
  if (args_.writes) keep(trial, result.us);
  return times_[trial] = result.us;
}

// The first call rewrites the file without an unfinished last line.
void TuneState::keep(const Trial& trial, double us) {
  const auto line_of = [](const Trial& of, double time) {
    json line{{"operation", name(of.operation)},
              {"bytes", of.bytes},
              {"algorithm", name(of.algorithm)},
              {"blocks", of.launch.blocks},
              {"threads", of.launch.threads},
              {"samples", of.samples},
              {"turn", of.turn},
              {"us", time}};
    if (!of.way.empty()) line["way"] = of.way;
    if (of.path != RowPath::automatic) line["path"] = name(of.path);
    return line.dump() + "\n";
  };
  if (!out_.is_open()) {
    std::string text = json{{"schema", kSchema}, {"identity", args_.identity}}.dump() + "\n";
    for (const auto& [known, time] : times_) text += line_of(known, time);
    write_text(args_.file + ".new", text);
    std::filesystem::rename(args_.file + ".new", args_.file);
    out_.open(args_.file, std::ios::app);
  }
  out_ << line_of(trial, us) << std::flush;
  if (!out_) throw Error(Errc::system, fmt::format("--state {}: cannot be written", args_.file));
}

void TuneState::remove() {
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(args_.file, ignored);
}

}  // namespace weft::cli
