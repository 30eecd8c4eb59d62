// Layers of which one part throws, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "support/moe_layers.hpp"

namespace weft::test {

struct BrokenPart {
  LayerOrder order;
  LayerPart::Which part;
  std::uint32_t round;
  const char* words;  // in the errors of the others
};

// Of layers_of_every_kind(), of three ranks at most.
inline std::vector<BrokenPart> broken_parts(std::uint32_t ranks) {
  using Part = LayerPart::Which;
  const LayerOrder plain{LayerSchedule::plain, {}};
  const std::uint32_t local = (small_exchange().experts + ranks - 1) / ranks;
  const Division three{1, local - 2, 1};
  const LayerOrder rounds{LayerSchedule::rounds, three}, combine{LayerSchedule::combine_rounds, three};
  return {{plain, Part::dispatch, 0, "layer: dispatch: it is broken"},
          {plain, Part::down, 0, "layer: down: it is broken"},
          {rounds, Part::up, 0, "layer: up, round 0 of 0 to 2: it is broken"},
          {rounds, Part::down, 1, "layer: down, round 1 of 0 to 2: it is broken"},
          {rounds, Part::dispatch_wait, 2, "layer: dispatch wait, round 2 of 0 to 2: it is broken"},
          {rounds, Part::down, 2, "layer: down, round 2 of 0 to 2: it is broken"},
          {combine, Part::up, 0, "layer: up: it is broken"},
          {combine, Part::down, 1, "layer: down, round 1 of 0 to 2: it is broken"},
          {plain, Part::shared, 0, "layer: shared expert: it is broken"},
          {rounds, Part::shared, 0, "layer: shared expert: it is broken"},
          {combine, Part::shared, 0, "layer: shared expert: it is broken"}};
}

// GEMMs and the shared expert throw by themselves; other parts as their observer throws in front of them.
inline void break_part(MoeLayerCall& call, const BrokenPart& broken) {
  using Part = LayerPart::Which;
  if (broken.part == Part::shared) {
    call.shared = [](const SharedExpert&) { throw std::runtime_error("it is broken"); };
    return;
  }
  if (broken.part == Part::up || broken.part == Part::down) {
    GroupedGemm& gemm = broken.part == Part::up ? call.up : call.down;
    gemm = [gemm, round = broken.round](const ExpertGemm& of) {
      if (of.round == round) throw std::runtime_error("it is broken\nin the second line");
      gemm(of);
    };
    return;
  }
  call.observe = [&broken](const LayerPart& part) {
    if (part.which == broken.part && part.round == broken.round) throw std::runtime_error("it is broken");
  };
}

}  // namespace weft::test
