// Wire formats, signals and credits between two ranks, under Relacy. Each runs the production templates, seeded bugs
// included.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::sim {

enum class Primitive : std::uint8_t {
  sentinel,  // one-shot all-reduces, three of them, so that the third uses the slots of the first again …
  line,      // … of a type that has no sentinel
  signal,    // a bulk all-reduce in which chunks share slots
  credit,    // chunks that flow one way through two slots
};

inline constexpr std::string_view kPrimitiveNames[] = {"sentinel", "line", "signal", "credit"};
inline constexpr std::uint64_t kRelacyExecutions = 20'000;

// Relacy's verdict of so many random executions: "SUCCESS", or what it has found, in which of them.
struct RelacyVerdict {
  std::string_view text;
  std::uint64_t execution;
};
RelacyVerdict relacy_verdict(Primitive primitive);

}  // namespace weft::sim
