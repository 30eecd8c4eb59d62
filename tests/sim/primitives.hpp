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

// Relacy's verdict of so many random executions: "SUCCESS", or what it has found.
std::string_view relacy_verdict(Primitive primitive, std::uint64_t executions);

}  // namespace weft::sim
