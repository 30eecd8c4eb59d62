// Wire formats, signals and credits between two ranks, under Relacy. Each runs the production templates with seeded
// bugs.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::sim {

enum class Primitive : std::uint8_t {
  sentinel,  // three one-shot all-reduces, so that the third reuses the first one's slots
  line,      // the same with a type that has no sentinel
  signal,    // a pipelined all-reduce in which chunks share slots
  credit,    // chunks that flow one way through two slots
};

inline constexpr std::string_view kPrimitiveNames[] = {"sentinel", "line", "signal", "credit"};
inline constexpr std::uint64_t kRelacyExecutions = 20'000;

// Relacy's verdict on so many random executions: "SUCCESS", or the fault and the execution that shows it.
struct RelacyVerdict {
  std::string_view text;
  std::uint64_t execution;
};
RelacyVerdict relacy_verdict(Primitive primitive);

}  // namespace weft::sim
