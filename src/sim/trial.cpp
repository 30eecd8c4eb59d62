#include "sim/trial.hpp"

#include <cstring>

#include "sim/all_reduce.hpp"

namespace weft::sim {

void AllReduceProgram::fill_trial(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const Trial& trial = *spec.trial;
  const std::size_t element = size_of(setup_.type);
  const auto bytes = [&](std::uint64_t elements) { return (elements * element + 15) / 16 * 16 + 16; };
  auto* const memory =
      reinterpret_cast<std::byte*>(make_tensors(call, rank, bytes(trial.inputs) + bytes(trial.outputs) + 32).data());
  const std::size_t input = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16 + 16;
  Tensors& t = tensors(call, rank);
  t.output_offset = input + bytes(trial.inputs);
  const auto put = [&](std::vector<std::uint32_t>& words, std::size_t at, std::uint64_t bits) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + at, &bits, element);
  };
  const Trial::Bits bits = [&](unsigned of, std::uint64_t i) {
    return element_bits(setup_.payload, setup_.type, call, world_.groups()[spec.group][of], i);
  };
  const unsigned me = world_.group_rank(spec.group, rank);
  for (std::uint64_t i = 0; i < trial.inputs; ++i) put(t.initial, input + i * element, bits(me, i));
  t.expected = t.initial;
  for (std::uint64_t i = 0; i < trial.outputs && !world_.stale(call); ++i) {
    put(t.expected, t.output_offset + i * element, trial.expected(me, i, bits));
  }
  t.kernel = trial.kernel(memory + input, memory + t.output_offset);
}

}  // namespace weft::sim
