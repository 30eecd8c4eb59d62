// What bytes from outside are fed to, by a fuzzer (main.cpp) and by a test that repeats what fuzzers have found
// (corpus_test.cpp). Whatever the bytes are, a target returns: weft::Error is caught here, as that is the right answer
// to bytes that are wrong, and everything else is a find.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace weft::fuzz {

using Bytes = std::span<const std::byte>;

void frames(Bytes data);       // frames.cpp: what ranks say to each other while they meet
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

// Ends the process where what must hold does not.
void require(bool condition, std::string_view what);

}  // namespace weft::fuzz
