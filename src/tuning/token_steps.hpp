// Steps of a tuning table that are by the most tokens of a rank. Each has `up_to` and serves calls of up to so many
// tokens, if no earlier step does. The last step serves all that are larger.
#pragma once

#include <cstdint>

namespace weft::detail {

// The step that serves calls of so many tokens; `steps` are not empty.
template <class Steps>
const auto& token_step_for(const Steps& steps, std::uint32_t tokens) {
  for (const auto& step : steps)
    if (tokens <= step.up_to) return step;
  return steps.back();
}

}  // namespace weft::detail
