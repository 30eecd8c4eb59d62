// Runs Relacy silently. Include this last: Relacy's headers redefine a good part of the language.
#pragma once

#include <cstdint>
#include <ostream>
//
#include <relacy/relacy.hpp>

namespace weft::sim {

struct RelacyResult {
  rl::test_result_e verdict;
  std::uint64_t executions;  // until the verdict
};

// Runs random executions of a suite until one fails.
template <class Suite>
RelacyResult run_relacy(std::uint64_t executions) {
  rl::test_params params;
  std::ostream silent(nullptr);  // no stringstream: Relacy has an allocator of its own
  params.iteration_count = static_cast<rl::iteration_t>(executions);
  params.execution_depth_limit = 20'000;
  params.output_stream = &silent;
  params.progress_stream = &silent;
  rl::simulate<Suite>(params);
  return {params.test_result, params.stop_iteration + std::uint64_t{1}};
}

}  // namespace weft::sim
