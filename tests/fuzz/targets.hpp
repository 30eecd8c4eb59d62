// Targets that read bytes from outside, for a fuzzer (main.cpp) and for a test that repeats the fuzzers' findings
// (corpus_test.cpp). A target returns for any bytes: it catches weft::Error, the right answer to wrong bytes.
// Everything else is a find.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace weft::fuzz {

using Bytes = std::span<const std::byte>;

void frames(Bytes data);       // frames.cpp: messages of ranks while they meet
void tuning(Bytes data);       // tuning.cpp: a file of tuning tables
void environment(Bytes data);  // environment.cpp: the variables of a launcher
void models(Bytes data);       // models.cpp: a model's config.json

struct Target {
  std::string_view name;
  void (*run)(Bytes);
};
inline constexpr Target targets[] = {
    {"frames", frames}, {"tuning", tuning}, {"environment", environment}, {"models", models}};

inline std::string_view text_of(Bytes data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

// Ends the process if the condition does not hold.
void require(bool condition, std::string_view what);

}  // namespace weft::fuzz
