// A second opinion on the primitives: Relacy finds no fault in the production templates, and finds the seeded bugs that
// break them.
#include "primitives.hpp"

#include <gtest/gtest.h>

#include "mutant_number.hpp"
#include "telling.hpp"

namespace weft::sim {
namespace {

struct Case {
  Primitive primitive;
  std::string_view mutant = {}, verdict = "SUCCESS";
};

class Primitives : public WithMutant, public testing::WithParamInterface<Case> {};

TEST_P(Primitives, RelacysVerdict) {
  const Case& c = GetParam();
  if (!c.mutant.empty()) detail::active_mutant = mutant_number(c.mutant);
  EXPECT_EQ(relacy_verdict(c.primitive).text, c.verdict);
  RecordProperty("primitive", std::string(kPrimitiveNames[static_cast<int>(c.primitive)]));
  RecordProperty("with", std::string(c.mutant));
  RecordProperty("verdict", std::string(c.verdict));
}

const Case kCases[] = {
    {Primitive::sentinel},
    {Primitive::sentinel, "no re-arm", "USER ASSERT FAILED"},
    {Primitive::sentinel, "re-arm before reading", "LIVELOCK"},
    {Primitive::sentinel, "arrival of one unit only", "USER ASSERT FAILED"},
    {Primitive::sentinel, "one bank", "USER ASSERT FAILED"},
    {Primitive::line},
    {Primitive::line, "arrival of half a line", "USER ASSERT FAILED"},
    {Primitive::line, "one bank", "LIVELOCK"},
    {Primitive::signal},
    {Primitive::signal, "signal without release", "DATA RACE"},
    {Primitive::signal, "signal without acquire", "DATA RACE"},
    {Primitive::signal, "credit taken too early", "DATA RACE"},
    {Primitive::credit},
    {Primitive::credit, "flow: relaxed signal", "DATA RACE"},
    {Primitive::credit, "flow: relaxed look at a signal", "DATA RACE"},
    {Primitive::credit, "flow: credits are not awaited", "DATA RACE"},
    {Primitive::credit, "flow: relaxed credit", "DATA RACE"},
    {Primitive::credit, "flow: a credit is not given", "LIVELOCK"},
};
INSTANTIATE_TEST_SUITE_P(Sim, Primitives, testing::ValuesIn(kCases), [](const auto& info) {
  const Case& c = info.param;
  return identifier(std::string(kPrimitiveNames[static_cast<int>(c.primitive)]) + "_" +
                    std::string(c.mutant.empty() ? "sound" : c.mutant));
});

}  // namespace
}  // namespace weft::sim
