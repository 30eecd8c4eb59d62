// An all-reduce as a call of a program: its tensors, and the expected outputs.
#include "sim/all_reduce.hpp"

#include <fmt/format.h>

#include <cstring>

#include "ops/all_reduce/sim_kernels.hpp"
#include "weft/error.hpp"
#include "wire/payload.hpp"

namespace weft::sim {

void AllReduceProgram::fill_all_reduce(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const auto& members = world_.groups()[spec.group];
  const std::size_t element = size_of(setup_.type);
  const std::size_t shift = spec.misaligned ? element : 0;
  // A guard of one pack in front of and behind each tensor.
  const std::size_t bytes = (spec.count * element + shift + 15) / 16 * 16 + 32;
  auto* const memory = reinterpret_cast<std::byte*>(make_tensors(call, rank, bytes * (spec.in_place ? 1 : 2)).data());
  Tensors& t = tensors(call, rank);
  // Vectors of words are not aligned to packs.
  const std::size_t skew = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16;
  const std::size_t input = skew + 16 + shift;
  t.output_offset = spec.in_place ? input : input + bytes;
  std::vector<std::byte> expected(spec.count * element);
  for (std::uint64_t i = 0; i < spec.count; ++i) {
    std::vector<std::uint64_t> terms;
    for (unsigned k = 0; k < members.size(); ++k) {
      terms.push_back(element_bits(setup_.payload, setup_.type, call, members[k], i));
      if (members[k] == rank) {
        std::memcpy(reinterpret_cast<std::byte*>(t.initial.data()) + input + i * element, &terms.back(), element);
      }
    }
    const std::uint64_t total = reduced(setup_.type, setup_.op, terms);
    std::memcpy(expected.data() + i * element, &total, element);
  }
  t.expected = t.initial;
  if (!world_.stale(call)) {
    std::memcpy(reinterpret_cast<std::byte*>(t.expected.data()) + t.output_offset, expected.data(), expected.size());
  }
  // Each rank chooses for itself, as the host does in production.
  const std::size_t payload = detail::payload_bytes(setup_.type);
  const bool aligned16 = detail::is_aligned16(memory + input, expected.size(), payload) &&
                         detail::is_aligned16(memory + t.output_offset, expected.size(), payload);
  const AllReduceKernel kernel = find_kernel({.algorithm = setup_.algorithm,
                                              .instance = {.type = setup_.type,
                                                           .ops = detail::ops_for(setup_.type, setup_.op),
                                                           .size = static_cast<std::uint32_t>(members.size()),
                                                           .aligned16 = aligned16},
                                              .atomic_bytes = setup_.atomic_bytes,
                                              .one_thread = setup_.one_thread});
  const detail::AllReduceWork work{.input = memory + input,
                                   .output = memory + t.output_offset,
                                   .count = spec.count,
                                   .apart = world_.grid(call, rank).apart,
                                   .op = setup_.op};
  t.kernel = [kernel, work](Machine& machine, Place place, const detail::Call& about) {
    kernel(machine, place, about, work);
  };
}

AllReduceKernel find_kernel(const KernelQuery& query) {
  AllReduceKernel kernel = nullptr;
  if (query.atomic_bytes == 4) kernel = find_kernel_4(query);
  if (query.atomic_bytes == 8) kernel = find_kernel_8(query);
  if (query.atomic_bytes == 16) kernel = find_kernel_16(query);
  if (kernel != nullptr) return kernel;
  throw Error(Errc::invalid_argument,
              fmt::format("simulator: no set-up runs all-reduces of {} for {} ranks{} in units of {} bytes",
                          name(query.instance.type), query.instance.size, query.one_thread ? " of one thread" : "",
                          query.atomic_bytes));
}

}  // namespace weft::sim
