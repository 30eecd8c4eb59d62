#include "support/norms.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <tuple>

#include "oracle/fp8.hpp"
#include "oracle/norm.hpp"
#include "support/bytes.hpp"
#include "support/memo.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kElement = 2, kGroup = 128;

// In place, the strides are the output's.
std::size_t input_stride(const Norm& n) {
  return n.hidden + (n.output_in_place ? n.output_gap : n.input_gap);
}
std::size_t residual_stride(const Norm& n) {
  return n.hidden + (n.residual_in_place ? n.residual_output_gap : n.residual_gap);
}

}  // namespace

std::size_t groups_of(const Norm& norm) {
  return norm.fp8 && norm.scaling == Fp8Scaling::per_128_columns ? norm.hidden / kGroup : 1;
}
std::size_t scale_bytes(const Norm& norm) {
  return norm.scale_type == ScaleType::f32 ? 4 : 1;
}

std::size_t scale_token_stride(const Norm& norm) {
  return norm.scales_by_columns ? 1 : groups_of(norm);
}
std::size_t scale_group_stride(const Norm& norm) {
  return norm.scales_by_columns ? (norm.tokens + 3) / 4 * 4 : 1;
}

Bytes data_of(const Norm& norm, std::uint32_t what, int rank, std::size_t rows, Fill fill) {
  const Case c{.count = rows * norm.hidden, .type = norm.type, .fill = fill, .seed = norm.seed * 8 + what};
  return input_of(c, rank);
}

Bytes gamma_of(const Norm& norm) {
  Norm as = norm;
  if (norm.gamma_f32) as.type = DataType::f32;
  return data_of(as, 2, 0, 1, norm.fill == Fill::special ? Fill::special : Fill::random);
}
std::vector<float> weights_of(const Norm& norm, const Bytes& gamma) {
  std::vector<std::uint32_t> bits;
  for (std::size_t i = 0; i < norm.hidden; ++i)
    bits.push_back(get(gamma, norm.gamma_f32 ? DataType::f32 : norm.type, i));
  if (!norm.gamma_f32) return oracle::values_of(norm.type, bits);
  std::vector<float> weights(norm.hidden);
  std::memcpy(weights.data(), bits.data(), norm.hidden * sizeof(float));
  return weights;
}

NormMemory memory_of(std::size_t bytes) {
  const Bytes canaries((kGuard + bytes + kGuard + kGuard - 1) / kGuard * kGuard, kNanCanary);
  return {.before = canaries, .after = canaries};
}
void put_rows(Bytes& memory, std::size_t row_bytes, std::size_t stride, std::span<const std::byte> rows) {
  for (std::size_t row = 0; row_bytes != 0 && row * row_bytes < rows.size(); ++row) {
    const auto from = rows.subspan(row * row_bytes, row_bytes);
    std::copy(from.begin(), from.end(), memory.begin() + static_cast<std::ptrdiff_t>(kGuard + row * stride));
  }
}
Bytes bytes_of(const std::vector<std::uint32_t>& elements) {
  Bytes bytes(elements.size() * kElement);
  for (std::size_t i = 0; i < elements.size(); ++i) put(bytes, DataType::bf16, i, elements[i]);
  return bytes;
}

std::string describe(const Norm& n) {
  return fmt::format(
      "rms_norm {}[{}, {}] {} fill {}{}{}{}{}{}{} epsilon {} gaps {} {} {} {} {}, fp8 {} {} {}{} floor {}, seed {}, "
      "launch {}×{}",
      name(n.type), n.tokens, n.hidden, name(n.algorithm), static_cast<int>(n.fill), n.residual ? " residual" : "",
      n.residual_in_place ? " in place" : "", n.output ? " output" : "", n.output_in_place ? " in place" : "",
      n.gamma_plus_one ? " 1+γ" : "", n.gamma_f32 ? " γ f32" : "", n.epsilon, n.input_gap, n.residual_gap,
      n.residual_output_gap, n.output_gap, n.fp8_gap, n.fp8, name(n.scaling), static_cast<int>(n.scale_type),
      n.scales_by_columns ? " by columns" : "", n.floor, n.seed, n.launch.blocks, n.launch.threads);
}

NormResult norm_of(const Norm& norm, const Bytes& sum, const Bytes& residual, const Bytes& gamma, float fixed) {
  const auto row_of = [&](const Bytes& tensor, std::size_t token) {
    std::vector<std::uint32_t> row;
    for (std::size_t i = 0; i < norm.hidden; ++i) row.push_back(get(tensor, norm.type, token * norm.hidden + i));
    return row;
  };
  const auto append = [](auto& to, const auto& what) { to.insert(to.end(), what.begin(), what.end()); };
  const std::size_t width = norm.hidden / groups_of(norm);
  const std::vector<float> weights = weights_of(norm, gamma);
  NormResult result;
  for (std::size_t token = 0; token < norm.tokens; ++token) {
    std::vector<std::uint32_t> row = row_of(sum, token);
    if (norm.residual) row = oracle::add_rows(norm.type, row, row_of(residual, token));
    const auto normed = oracle::normed_row(norm.type, row, weights, norm.gamma_plus_one, norm.epsilon);
    append(result.residual, row);
    append(result.output, normed);
    if (!norm.fp8) continue;
    const std::vector<float> values = oracle::values_of(norm.type, normed);
    if (norm.scaling == Fp8Scaling::fixed) {
      append(result.fp8, oracle::cast_row(values, fixed));
      continue;
    }
    const oracle::Fp8Row cast = oracle::cast_row(
        values, width, norm.scale_type == ScaleType::ue8m0 ? oracle::Scales::ue8m0 : oracle::Scales::f32, norm.floor);
    append(result.fp8, cast.numbers);
    append(result.scales, cast.scales);
  }
  return result;
}

namespace {

// Inputs and results of all ranks, without gaps.
struct NormMessages {
  std::vector<Bytes> inputs;
  Bytes residual, gamma;
  float scale = 0.037f;
  NormResult result;
};

std::shared_ptr<const NormMessages> messages_of(const Norm& n, int ranks) {
  using Key = std::tuple<int, std::size_t, std::size_t, DataType, Fill, bool, bool, bool, float, bool, Fp8Scaling,
                         ScaleType, float, std::uint32_t>;
  static Memo<Key, NormMessages> messages(std::size_t{64} << 20);
  const Key key{ranks,       n.tokens,  n.hidden, n.type,    n.fill,       n.residual, n.gamma_plus_one,
                n.gamma_f32, n.epsilon, n.fp8,    n.scaling, n.scale_type, n.floor,    n.seed};
  // Inputs, and results of 32 bits per element.
  const std::size_t bytes = n.tokens * n.hidden * (kElement * static_cast<std::size_t>(ranks) + 12);
  return messages.get(key, bytes, [&] {
    NormMessages made;
    for (int r = 0; r < ranks; ++r) made.inputs.push_back(data_of(n, 0, r, n.tokens, n.fill));
    made.residual = data_of(n, 1, 0, n.tokens, n.fill);
    made.gamma = gamma_of(n);
    made.result = norm_of(n, reduce(n.type, ReduceOp::sum, made.inputs), made.residual, made.gamma, made.scale);
    return made;
  });
}

}  // namespace

RankNorm prepare(const Norm& norm, int ranks, int rank) {
  RankNorm made{.norm = norm, .memory = {}};
  const std::shared_ptr<const NormMessages> messages = messages_of(norm, ranks);
  const auto& [inputs, residual, gamma, scale, result] = *messages;

  const std::size_t row = norm.hidden * kElement;
  const auto whole = [&](NormTensor tensor, std::size_t stride) {
    made.memory[tensor] = memory_of(norm.tokens * stride * kElement);
  };
  const std::size_t residual_output_stride = norm.hidden + norm.residual_output_gap;
  const std::size_t output_stride = norm.hidden + norm.output_gap;
  whole(kResidualOutput, residual_output_stride);
  whole(kOutput, output_stride);
  NormMemory& input = made.memory[norm.output_in_place ? kOutput : kInput];
  if (!norm.output_in_place) whole(kInput, input_stride(norm));
  put_rows(input.before, row, input_stride(norm) * kElement, inputs[static_cast<std::size_t>(rank)]);
  input.after = input.before;
  if (norm.residual) {
    NormMemory& of = made.memory[norm.residual_in_place ? kResidualOutput : kResidual];
    if (!norm.residual_in_place) whole(kResidual, residual_stride(norm));
    put_rows(of.before, row, residual_stride(norm) * kElement, residual);
    of.after = of.before;
  }
  put_rows(made.memory[kResidualOutput].after, row, residual_output_stride * kElement, bytes_of(result.residual));
  if (norm.output) put_rows(made.memory[kOutput].after, row, output_stride * kElement, bytes_of(result.output));
  made.memory[kGamma] = memory_of(gamma.size());
  put_rows(made.memory[kGamma].before, gamma.size(), gamma.size(), gamma);
  made.memory[kGamma].after = made.memory[kGamma].before;
  if (!norm.fp8) return made;

  const std::size_t fp8_stride = norm.hidden + norm.fp8_gap;
  made.memory[kFp8] = memory_of(norm.tokens * fp8_stride);
  put_rows(made.memory[kFp8].after, norm.hidden, fp8_stride, result.fp8);
  if (norm.scaling == Fp8Scaling::fixed) {
    made.memory[kScale] = memory_of(4);
    put_rows(made.memory[kScale].before, 4, 4, std::as_bytes(std::span(&scale, 1)));
    made.memory[kScale].after = made.memory[kScale].before;
    return made;
  }
  const std::size_t groups = groups_of(norm), bytes = scale_bytes(norm);
  made.memory[kScales] = memory_of((norm.tokens + 3) / 4 * 4 * groups * bytes);
  for (std::size_t i = 0; i < norm.tokens * groups; ++i) {
    const std::size_t at = i / groups * scale_token_stride(norm) + i % groups * scale_group_stride(norm);
    std::memcpy(made.memory[kScales].after.data() + kGuard + at * bytes, result.scales.data() + i * bytes, bytes);
  }
  return made;
}

AllReduceRmsNormArgs arguments(const RankNorm& prepared, const std::function<std::byte*(NormTensor)>& address) {
  const Norm& n = prepared.norm;
  const auto at = [&](NormTensor tensor) { return address(tensor) + kGuard; };
  AllReduceRmsNormArgs args{.residual_output = at(kResidualOutput),
                            .gamma = at(kGamma),
                            .tokens = n.tokens,
                            .hidden = n.hidden,
                            .type = n.type,
                            .epsilon = n.epsilon,
                            .gamma_plus_one = n.gamma_plus_one,
                            .gamma_f32 = n.gamma_f32,
                            .algorithm = n.algorithm,
                            .tag = n.tag,
                            .launch = n.launch};
  args.input = n.output_in_place ? at(kOutput) : at(kInput);
  if (n.residual) args.residual = n.residual_in_place ? at(kResidualOutput) : at(kResidual);
  if (n.output) args.output = at(kOutput);
  // If rows lie side by side: both ways to pass the stride.
  const auto stride = [&](std::size_t elements) { return elements == n.hidden && n.seed % 2 == 0 ? 0 : elements; };
  args.input_stride = stride(input_stride(n));
  args.residual_stride = stride(residual_stride(n));
  args.residual_output_stride = stride(n.hidden + n.residual_output_gap);
  args.output_stride = stride(n.hidden + n.output_gap);
  if (!n.fp8) return args;
  args.fp8 = {.rows = at(kFp8),
              .stride = stride(n.hidden + n.fp8_gap),
              .scaling = n.scaling,
              .scale_type = n.scale_type,
              .floor = n.floor};
  if (n.scaling == Fp8Scaling::fixed) {
    args.fp8.scale = reinterpret_cast<const float*>(at(kScale));
  } else {
    args.fp8.scales = at(kScales);
    if (n.scales_by_columns) {
      args.fp8.scale_token_stride = scale_token_stride(n);
      args.fp8.scale_group_stride = scale_group_stride(n);
    }
  }
  return args;
}

void expect_after(const RankNorm& prepared, NormTensor tensor, std::span<const std::byte> got) {
  const Bytes& wanted = prepared.memory[tensor].after;
  const std::size_t at = first_difference(wanted, got);
  if (at == wanted.size()) return;
  constexpr const char* names[] = {"input", "residual", "residual_output", "output", "gamma", "fp8", "scale", "scales"};
  throw std::runtime_error(fmt::format("{}: byte {} of {} is {:#x}, not {:#x}", describe(prepared.norm),
                                       static_cast<std::ptrdiff_t>(at) - static_cast<std::ptrdiff_t>(kGuard),
                                       names[tensor], static_cast<unsigned>(got[at]),
                                       static_cast<unsigned>(wanted[at])));
}

HostNorm::HostNorm(const RankNorm& first) : first_(first) {
  for (int tensor = 0; tensor < kNormTensors; ++tensor)
    storage_[tensor] = AlignedBytes(first.memory[tensor].before.size());
  fill(first);
}

void HostNorm::fill(const RankNorm& norm) {
  for (int tensor = 0; tensor < kNormTensors; ++tensor) copy_bytes(norm.memory[tensor].before, storage(tensor));
}

void HostNorm::call(const Group& group) {
  all_reduce_rms_norm(group, arguments(first_, [&](NormTensor tensor) { return storage(tensor).data(); }));
}

void HostNorm::check(const RankNorm& norm) {
  for (int tensor = 0; tensor < kNormTensors; ++tensor)
    expect_after(norm, static_cast<NormTensor>(tensor), storage(tensor));
}

void run_on_cpu_rank(const Group& group, const Norm& norm) {
  const RankNorm prepared = prepare(norm, group.size(), group.rank());
  HostNorm host(prepared);
  host.call(group);
  host.check(prepared);
}

std::vector<Norm> mixed_norms(int count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Norm> norms;
  for (int i = 0; i < count; ++i) {
    const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
    const auto gap = [&] { return std::size_t{pick(3) == 0 ? 8 * (1 + pick(4)) : 0}; };
    Norm norm{.tokens = pick(9), .hidden = 8 * (1 + std::size_t{pick(100)})};
    norm.type = pick(3) == 0 ? DataType::f16 : DataType::bf16;
    norm.fill = static_cast<Fill>(pick(4));
    norm.residual = pick(4) != 0;
    norm.residual_in_place = norm.residual && pick(2) == 0;
    norm.fp8 = pick(2) == 0;
    norm.output = !norm.fp8 || pick(2) == 0;
    norm.output_in_place = norm.output && pick(3) == 0;
    norm.gamma_plus_one = pick(3) == 0;
    norm.gamma_f32 = pick(3) == 0;
    // With the last one even the least floor may decide, and with it a row's largest number.
    constexpr float epsilons[] = {0, 1e-5f, 1e-5f, 1e25f}, floors[] = {1e-4f, 1e-10f, 1.0f / 512, 448};
    norm.epsilon = epsilons[pick(4)];
    norm.floor = floors[pick(4)];
    norm.input_gap = gap();
    norm.residual_gap = gap();
    norm.residual_output_gap = gap();
    norm.output_gap = gap();
    norm.fp8_gap = gap();
    norm.scaling = static_cast<Fp8Scaling>(pick(3));
    norm.scale_type = static_cast<ScaleType>(pick(2));
    norm.scales_by_columns = norm.scaling == Fp8Scaling::per_128_columns && pick(2) == 0;
    if (norm.fp8 && norm.scaling == Fp8Scaling::per_128_columns) norm.hidden = kGroup * (1 + pick(9));
    norm.algorithm = static_cast<Algorithm>(pick(3));
    norm.seed = seed * 1000 + static_cast<std::uint32_t>(i);
    norms.push_back(norm);
  }
  return norms;
}

}  // namespace weft::test
