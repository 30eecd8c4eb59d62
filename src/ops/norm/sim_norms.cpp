// All-reduces with residual and norm as calls of a program: their tensors, and the expected outputs.
#include <cstring>

#include "numeric/numeric.hpp"
#include "ops/norm/norm_steps.hpp"
#include "ops/norm/sim_norm_kernels.hpp"
#include "ops/norm/sim_norm_rows.hpp"
#include "sim/all_reduce.hpp"

namespace weft::sim {
Kernel AllReduceProgram::kernel_of_norm(const CallSetup& spec, const detail::NormWork& work, std::uint32_t size,
                                        unsigned blocks) const {
  const RunAs as{setup_.atomic_bytes, setup_.one_thread, setup_.lanes};
  // As in production, a rank with few blocks has no roles. Blocks stand for warp groups.
  if (spec.norm.roles && blocks > 2) {
    detail::NormInRolesWork in_roles{work};
    in_roles.warp_groups = blocks >= 6 ? spec.norm.warp_groups : 1;
    in_roles.movers = (blocks / in_roles.warp_groups + 1) / 2;
    in_roles.ahead = 1;
    return find_kernel({detail::NormInRolesQuery{.casts = work.scaling != detail::RowScaling::none}, in_roles}, as);
  }
  if (spec.alone) {
    return find_kernel(
        {detail::NormRowsQuery{setup_.type, spec.norm.gamma_f32}, detail::NormSteps(work, spec.piece).norm()}, as);
  }
  const detail::NormWork part = spec.piece == 0 ? work : detail::NormSteps(work, spec.piece).sum(spec.step);
  const detail::FusedNormQuery query{.type = setup_.type,
                                     .size = size,
                                     .algorithm = setup_.algorithm,
                                     .casts = part.scaling != detail::RowScaling::none,
                                     .keeps_own = spec.norm.keeps_own,
                                     .gamma_f32 = spec.norm.gamma_f32};
  return find_kernel({query, part}, as);
}

// Bytes of a rank's tensors, one behind the other, with a guard of a pack in front of each and behind the last. In
// place, the output is the input, and the residual's output is the residual.
void AllReduceProgram::fill_norm(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const NormForm& form = spec.norm;
  const DataType type = setup_.type;
  const auto& members = world_.groups()[spec.group];
  const std::uint64_t columns = spec.count, stride = columns / 8 + (form.apart ? 1 : 0);
  const std::uint64_t groups = scale_groups(form, columns);
  const std::size_t step = spec.rows * stride * 16 + 16, scale_bytes = form.power_of_two ? 1 : 4;
  const std::size_t tensors_in_call = spec.in_place ? 2 : 4;
  const std::size_t bytes =
      32 + tensors_in_call * step + columns * weight_bytes(form) + 16 + step / 2 + 8 + 16 + spec.rows * groups * 4 + 16;
  // If a norm takes several steps, its first step has the tensors.
  auto* const memory = reinterpret_cast<std::byte*>(
      (spec.step == 0 ? make_tensors(call, rank, bytes) : tensors(static_cast<unsigned>(spec.of), rank).memory).data());
  Tensors& t = tensors(call, rank);
  const std::size_t input = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16 + 16;
  const std::size_t residual = input + step;
  const std::size_t output = spec.in_place ? input : residual + step;
  const std::size_t residual_output = spec.in_place ? residual : output + step;
  const std::size_t gamma = input + tensors_in_call * step;
  const std::size_t fixed = gamma + columns * weight_bytes(form), fp8 = fixed + 16, scales = fp8 + step / 2 + 8;
  t.output_offset = output;

  const detail::NormWork work = norm_work(
      form, columns, {memory, input, residual, residual_output, gamma, output, fp8, scales, fixed, stride, spec.rows});
  t.kernel = kernel_of_norm(spec, work, static_cast<std::uint32_t>(members.size()), world_.grid(call, rank).blocks);
  if (spec.step != 0) return;

  const auto put = [](std::vector<std::uint32_t>& words, std::size_t at, std::uint32_t value, std::size_t size) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + at, &value, size);
  };
  const auto bits = [&](unsigned what, unsigned member, std::uint64_t i) {
    return static_cast<std::uint32_t>(element_bits(setup_.payload, type, call * 8 + what, member, i));
  };
  const auto weight = [&](std::uint64_t i) { return weight_bits(type, form, bits(2, 0, i)); };
  put(t.initial, fixed, detail::bits_of<std::uint32_t>(kFixedScale), 4);
  for (std::uint64_t i = 0; i < spec.rows * columns; ++i) {
    const std::size_t at = (i / columns * stride * 8 + i % columns) * 2;
    put(t.initial, input + at, bits(0, rank, i), 2);
    put(t.initial, residual + at, bits(1, 0, i), 2);
  }
  for (std::uint64_t i = 0; i < columns; ++i)
    put(t.initial, gamma + i * weight_bytes(form), weight(i), weight_bytes(form));
  t.expected = t.initial;
  for (std::uint64_t row = 0; row < spec.rows && !world_.stale(call); ++row) {
    const auto sum = [&](std::uint64_t i) {
      std::vector<std::uint64_t> terms;
      for (const unsigned member : members) terms.push_back(bits(0, member, row * columns + i));
      return static_cast<std::uint32_t>(reduced(type, ReduceOp::sum, terms));
    };
    const NormedRow normed = normed_row(
        type, form, columns, sum, [&](std::uint64_t i) { return bits(1, 0, row * columns + i); }, weight);
    for (std::uint64_t i = 0; i < columns; ++i) {
      put(t.expected, residual_output + (row * stride * 8 + i) * 2, normed.residual[i], 2);
      if (form.output) put(t.expected, output + (row * stride * 8 + i) * 2, normed.output[i], 2);
      if (form.scaling != detail::RowScaling::none) put(t.expected, fp8 + row * stride * 8 + i, normed.cast[i], 1);
    }
    for (std::uint64_t group = 0; group < normed.scales.size(); ++group) {
      const std::uint64_t at = form.apart ? group * spec.rows + row : row * groups + group;
      put(t.expected, scales + at * scale_bytes, normed.scales[group], scale_bytes);
    }
  }
}

}  // namespace weft::sim
