// The sum of a layer with residual, norm and fp8, in place and on the way between groups.
#include "binding.hpp"
#include "operations.hpp"
#include "py_counts.hpp"

namespace weft::python {

namespace {

struct PyFp8 {
  nb::object rows, scales, scale;
  Fp8Scaling scaling;
  ScaleType scale_type;
  std::size_t scale_token_stride, scale_group_stride;
  float floor;
};

void give_fp8(auto& args, const PyFp8& of, Tensors& tensors) {
  args.fp8 = {.scaling = of.scaling,
              .scale_type = of.scale_type,
              .scale_token_stride = of.scale_token_stride,
              .scale_group_stride = of.scale_group_stride,
              .floor = of.floor};
  const Tensor& rows = tensors.output("fp8.rows", of.rows);
  const auto scales = tensors.optional("fp8.scales", of.scales, Access::write);
  const auto scale = tensors.optional("fp8.scale", of.scale, Access::read);
  weft::python::set_fp8(args, {&rows, address(scales), address(scale)});
}

// Arguments that every call with a norm takes.
struct PyNorm {
  nb::handle output, residual_output, input, gamma, residual;
  const PyFp8* fp8;
  float epsilon;
  bool gamma_plus_one;
};

// `args_of` makes a call's arguments of its tensors.
template <auto args_of>
auto with_norm(const PyNorm& of, Tensors& tensors) {
  const Tensor &in = tensors.input("input", of.input), &weights = tensors.input("gamma", of.gamma);
  const Tensor& sums = tensors.output("residual_output", of.residual_output);
  const auto normed = tensors.optional("output", of.output, Access::write);
  const auto before = tensors.optional("residual", of.residual, Access::read);
  auto args = args_of({address(normed), &sums, &in, &weights, address(before)});
  args.epsilon = of.epsilon;
  args.gamma_plus_one = of.gamma_plus_one;
  if (of.fp8 != nullptr) give_fp8(args, *of.fp8, tensors);
  return args;
}

void all_reduce_rms_norm(const PyGroup& self, nb::handle output, nb::handle residual_output, nb::handle input,
                         nb::handle gamma, nb::handle residual, const PyFp8* fp8, float epsilon, bool gamma_plus_one,
                         Word<Algorithm> algorithm, nb::handle stream, std::uint32_t tag, int blocks, int threads,
                         int cluster) {
  const PyNorm norm{output, residual_output, input, gamma, residual, fp8, epsilon, gamma_plus_one};
  const auto build = [&](Tensors& tensors) {
    AllReduceRmsNormArgs args = with_norm<norm_args>(norm, tensors);
    args.algorithm = value_of("algorithm", algorithm);
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::all_reduce_rms_norm);
}

template <void run(const Group&, const CrossingRmsNormArgs&)>
void cross_with_norm(const PyGroup& self, nb::handle output, nb::handle residual_output, nb::handle input,
                     nb::handle gamma, const PyCounts& counts, nb::handle residual, std::size_t group_ranks,
                     const PyFp8* fp8, float epsilon, bool gamma_plus_one, nb::handle stream, std::uint32_t tag,
                     int blocks, int threads, int cluster) {
  const PyNorm norm{output, residual_output, input, gamma, residual, fp8, epsilon, gamma_plus_one};
  const auto build = [&](Tensors& tensors) {
    CrossingRmsNormArgs args = with_norm<normed_crossing_args>(norm, tensors);
    args.group_ranks = group_ranks;
    args.counts = counts_of(counts, tensors);
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, run);
}

}  // namespace

void bind_fused(nb::module_& module, nb::class_<PyGroup>& group) {
  nb::class_<PyFp8>(module, "Fp8Output", nb::type_slots(collected<PyFp8, &PyFp8::rows, &PyFp8::scales, &PyFp8::scale>),
                    R"doc(
Normed rows as e4m3, with their scales.

rows: [tokens, hidden] of e4m3 or u8. scaling: "fixed", "per_token" or "per_128_columns".
scale: "fixed": the one scale, f32 [1], which the caller gives.
scales: the others' output, [tokens] or [tokens, hidden / 128]; scale_type "f32", or "ue8m0" in bytes (u8).
scale_token_stride, scale_group_stride: scales from one row's to the next row's, and from one group of columns' to the
    next group's; 0: rows side by side. 1 and the padded number of tokens give the layout by columns of grouped GEMMs.
floor: the least magnitude that a scale is made for, 1e-30 to 448. DeepEP has 1e-4, SGLang 1e-10.)doc")
      .def(
          "__init__",
          [](PyFp8* self, nb::object rows, nb::object scales, nb::object scale, Word<Fp8Scaling> scaling,
             Word<ScaleType> scale_type, std::size_t scale_token_stride, std::size_t scale_group_stride, float floor) {
            new (self) PyFp8{std::move(rows),
                             std::move(scales),
                             std::move(scale),
                             value_of("scaling", scaling),
                             value_of("scale_type", scale_type),
                             scale_token_stride,
                             scale_group_stride,
                             floor};
          },
          nb::arg("rows"), nb::arg("scales") = nb::none(), nb::kw_only(), nb::arg("scale") = nb::none(),
          nb::arg("scaling") = "per_token", nb::arg("scale_type") = "f32", nb::arg("scale_token_stride") = 0,
          nb::arg("scale_group_stride") = 0, nb::arg("floor") = Fp8Output().floor,
          nb::sig("def __init__(self, rows: object, scales: object = None, *, scale: object = None, scaling: "
                  "weft._words.Fp8Scaling = 'per_token', scale_type: weft._words.ScaleType = 'f32', "
                  "scale_token_stride: int = 0, scale_group_stride: int = 0, floor: float = 0.0001) -> None"));

  group.def("all_reduce_rms_norm", all_reduce_rms_norm, nb::arg("output").none(), nb::arg("residual_output"),
            nb::arg("input"), nb::arg("gamma"), nb::arg("residual") = nb::none(), nb::kw_only(),
            nb::arg("fp8").none() = nb::none(), nb::arg("epsilon") = AllReduceRmsNormArgs().epsilon,
            nb::arg("gamma_plus_one") = false, nb::arg("algorithm") = "automatic", nb::arg("stream") = nb::none(),
            nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
            nb::sig("def all_reduce_rms_norm(self, output: object, residual_output: object, input: object, gamma: "
                    "object, residual: object = None, *, fp8: Fp8Output | None = None, epsilon: float = 1e-06, "
                    "gamma_plus_one: bool = False, algorithm: weft._words.Algorithm = 'automatic', stream: object "
                    "= None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
            R"doc(
A layer's sum, residual and RMSNorm in one call, with the bits of the three calls one after the other.

residual_output = sum over ranks of inputs + residual; output = residual_output / rms(residual_output) · gamma.

Matrices are [tokens, hidden] of bf16 or f16, rows 16 bytes aligned; gamma is [hidden] of their type, or of f32, which
is used as it is. `residual`, the same on every rank, may be None. `residual_output` may be `residual`, and `output` may
be `input`. `output` may be None if `fp8` is made. gamma_plus_one: the weights are 1 + gamma, as Gemma's are. algorithm:
"automatic", "one_shot" or "two_shot".)doc");

  group.def(
      "gather_sums_rms_norm", cross_with_norm<weft::gather_sums_rms_norm>, nb::arg("output").none(),
      nb::arg("residual_output"), nb::arg("input"), nb::arg("gamma"), nb::arg("counts"),
      nb::arg("residual") = nb::none(), nb::kw_only(), nb::arg("group_ranks"), nb::arg("fp8").none() = nb::none(),
      nb::arg("epsilon") = CrossingRmsNormArgs().epsilon, nb::arg("gamma_plus_one") = false,
      nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
      nb::arg("cluster") = 0,
      nb::sig("def gather_sums_rms_norm(self, output: object, residual_output: object, input: object, "
              "gamma: object, counts: Counts, residual: object = None, *, group_ranks: int, "
              "fp8: Fp8Output | None = None, epsilon: float = 1e-06, gamma_plus_one: bool = False, "
              "stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
      R"doc(
output = the normed sums of each group's rows, on every rank, in all ranks' slots; zero in the slots' pads.

One kernel, with the bits of three steps: reduce_scatter_v inside of each group; residual and norm on this rank's shard,
as all_reduce_rms_norm makes them; all_gather_v among all ranks. Groups are `group_ranks` neighbours
(ParallelLayout.attn_tp). counts: of every rank's shard of its group's rows, as all_gather_counts makes them. In memory
of the group's device, one captured graph serves every batch.

Matrices are of bf16 or f16, rows 16 bytes aligned; gamma is [hidden] of their type, or of f32.
input: [capacity for a group's rows, hidden]: this rank's part of the sums of its group's rows, shard behind shard.
residual, residual_output: [capacity for this rank's shard, hidden]. `residual` may be None, or `residual_output` itself.
output: [capacity for all slots, hidden]; it shares no memory with the input. None, if `fp8` is made: rows cross the
    wire as e4m3 then. fp8: rows and scales of as many rows as the output has, with zeros in the pads.
Weights, epsilon and gamma_plus_one: as in all_reduce_rms_norm. Counts that do not fit end the call with Errc.capacity.)doc");
  group.def(
      "scatter_sums_rms_norm", cross_with_norm<weft::scatter_sums_rms_norm>, nb::arg("output").none(),
      nb::arg("residual_output"), nb::arg("input"), nb::arg("gamma"), nb::arg("counts"),
      nb::arg("residual") = nb::none(), nb::kw_only(), nb::arg("group_ranks"), nb::arg("fp8").none() = nb::none(),
      nb::arg("epsilon") = CrossingRmsNormArgs().epsilon, nb::arg("gamma_plus_one") = false,
      nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
      nb::arg("cluster") = 0,
      nb::sig("def scatter_sums_rms_norm(self, output: object, residual_output: object, input: object, "
              "gamma: object, counts: Counts, residual: object = None, *, group_ranks: int, "
              "fp8: Fp8Output | None = None, epsilon: float = 1e-06, gamma_plus_one: bool = False, "
              "stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
      R"doc(
output = the normed sums of all ranks' rows of this rank's group, shard behind shard, and zero behind them.

The way back of gather_sums_rms_norm: reduce_scatter_v among all ranks, residual and norm on this rank's shard, and
all_gather_v inside of each group. Zeros are as many rows as the group's slots have pads.

input: [capacity for all slots, hidden]; output: [capacity for the group's slots, hidden]. Everything else is as in
gather_sums_rms_norm.)doc");
}

}  // namespace weft::python
