// torch's operators for calls with a norm.
#include "torch_call.hpp"
#include "torch_module.hpp"

namespace weft::python::torch {

namespace {

constexpr const char* kNormTensors =
    "Tensor(a!)? output, Tensor(b!) residual_output, Tensor input, Tensor gamma, Tensor? residual, "
    "Tensor(c!)? fp8_rows, Tensor(d!)? fp8_scales, Tensor? fp8_scale";
constexpr const char* kNormRules =
    "int scaling, int scale_type, int scale_token_stride, int scale_group_stride, float scale_floor, float epsilon, "
    "bool gamma_plus_one";

// Tensors and rules of a call with a norm, in the schema's order.
struct NormOnStack {
  explicit NormOnStack(Stack& stack)
      : output(stack.optional()),
        sums(stack.tensor()),
        input(stack.tensor()),
        gamma(stack.tensor()),
        residual(stack.optional()),
        rows(stack.optional()),
        scales(stack.optional()),
        scale(stack.optional()) {}

  // `args_of` makes a call's arguments of its tensors.
  template <auto args_of>
  auto taken(Stack& stack, const Group& group) const {
    for (const Tensor* tensor :
         {address(output), &sums, &input, &gamma, address(residual), address(rows), address(scales), address(scale)})
      if (tensor != nullptr) check_device(group, *tensor);
    auto args = args_of({address(output), &sums, &input, &gamma, address(residual)});
    args.fp8.scaling = static_cast<Fp8Scaling>(stack.integer());
    args.fp8.scale_type = static_cast<ScaleType>(stack.integer());
    args.fp8.scale_token_stride = static_cast<std::size_t>(stack.integer());
    args.fp8.scale_group_stride = static_cast<std::size_t>(stack.integer());
    args.fp8.floor = stack.real();
    args.epsilon = stack.real();
    args.gamma_plus_one = stack.flag();
    if (rows) set_fp8(args, {&*rows, address(scales), address(scale)});
    return args;
  }

  std::optional<Tensor> output;
  Tensor sums, input, gamma;
  std::optional<Tensor> residual, rows, scales, scale;
};

// all_reduce_rms_norm(…tensors, int group, …rules, int options) -> ()
void all_reduce_with_norm(Stack& stack) {
  const NormOnStack norm(stack);
  const Group group = stack.group();
  make(
      group,
      [&] {
        auto args = norm.taken<norm_args>(stack, group);
        args.algorithm = set_options(args, stack).algorithm();
        return args;
      },
      weft::all_reduce_rms_norm);
}

// A crossing's: (…tensors, Tensor rows, Tensor? slots, int group, …rules, int sharding, int padding, int slot_rows,
//   int group_ranks, int options) -> ()
template <void call(const Group&, const CrossingRmsNormArgs&)>
void cross_with_norm(Stack& stack) {
  const NormOnStack norm(stack);
  const Tensor rows = stack.tensor();
  const RaggedCounts counts{rows, stack.optional()};
  const Group group = stack.group();
  make(
      group,
      [&] {
        auto args = norm.taken<normed_crossing_args>(stack, group);
        const auto ranks = static_cast<std::size_t>(group.size());
        args.counts = counts.taken(stack, group, ranks, ranks);
        args.group_ranks = static_cast<std::size_t>(stack.integer());
        set_options(args, stack);
        return args;
      },
      call);
}

}  // namespace

const std::vector<Operator>& norm_operators() {
  static const std::string crossing = fmt::format(
      "({}, Tensor rows, Tensor? slots, int group, {}, int sharding, int padding, int slot_rows, int group_ranks, "
      "int options) -> ()",
      kNormTensors, kNormRules);
  static const std::vector<Operator> all = {
      {"all_reduce_rms_norm", fmt::format("({}, int group, {}, int options) -> ()", kNormTensors, kNormRules),
       kernel<all_reduce_with_norm>},
      {"gather_sums_rms_norm", crossing, kernel<cross_with_norm<weft::gather_sums_rms_norm>>},
      {"scatter_sums_rms_norm", crossing, kernel<cross_with_norm<weft::scatter_sums_rms_norm>>},
  };
  return all;
}

}  // namespace weft::python::torch
