// Steps by tokens in files of tuning tables.
#pragma once

#include <cstdint>
#include <vector>

#include "tuning/file_node.hpp"
#include "tuning/tuning.hpp"

namespace weft::detail {

// `read(node, before)` reads what a step has besides its tokens; `before`: the step in front of it, or null.
template <class Step, class Read>
std::vector<Step> read_token_steps(const FileNode& table, Read read) {
  constexpr std::uint32_t kMostTokens = 1 << 30;
  const char* const up_to = "up_to_tokens";
  const std::vector<FileNode> nodes = table.list("steps", kMostTuningSteps);
  std::vector<Step> steps;
  for (const FileNode& node : nodes) {
    const Step* const before = steps.empty() ? nullptr : &steps.back();
    Step step = read(node, before);
    if (steps.size() + 1 < nodes.size())
      step.up_to =
          static_cast<std::uint32_t>(node.number(up_to, before != nullptr ? before->up_to + 1 : 1, kMostTokens));
    else if (node.has(up_to))
      node.reject(up_to, "left out: the last step serves all that is larger");
    steps.push_back(std::move(step));
  }
  return steps;
}

// The key and its comma; the last step has none.
template <class Step>
std::string up_to_json(const Step& step) {
  return step.up_to != UINT32_MAX ? fmt::format("\"up_to_tokens\": {}, ", step.up_to) : "";
}

}  // namespace weft::detail
