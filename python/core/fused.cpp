// The sum of a layer with residual, norm and fp8.
#include "binding.hpp"
#include "operations.hpp"

namespace weft::python {

namespace {

struct PyFp8 {
  nb::object rows, scales, scale;
  Fp8Scaling scaling;
  ScaleType scale_type;
  std::size_t scale_token_stride, scale_group_stride;
};

void give_fp8(AllReduceRmsNormArgs& args, const PyFp8& of, Tensors& tensors) {
  args.fp8 = {.scaling = of.scaling,
              .scale_type = of.scale_type,
              .scale_token_stride = of.scale_token_stride,
              .scale_group_stride = of.scale_group_stride};
  const Tensor rows = tensors.output("fp8.rows", of.rows);
  const auto scales = tensors.optional("fp8.scales", of.scales, Access::write);
  const auto scale = tensors.optional("fp8.scale", of.scale, Access::read);
  weft::python::set_fp8(args, {&rows, address(scales), address(scale)});
}

void all_reduce_rms_norm(const PyGroup& self, nb::handle output, nb::handle residual_output, nb::handle input,
                         nb::handle gamma, nb::handle residual, const PyFp8* fp8, float epsilon, bool gamma_plus_one,
                         const char* algorithm, nb::handle stream, std::uint32_t tag, int blocks, int threads) {
  const auto build = [&](Tensors& tensors) {
    const Tensor in = tensors.input("input", input), weights = tensors.input("gamma", gamma);
    const Tensor sums = tensors.output("residual_output", residual_output);
    const auto normed = tensors.optional("output", output, Access::write);
    const auto before = tensors.optional("residual", residual, Access::read);
    AllReduceRmsNormArgs args = norm_args({address(normed), &sums, &in, &weights, address(before)});
    args.epsilon = epsilon;
    args.gamma_plus_one = gamma_plus_one;
    args.algorithm = value_of<Algorithm>("algorithm", algorithm);
    if (fp8 != nullptr) give_fp8(args, *fp8, tensors);
    return args;
  };
  make_call(self, {stream, tag, blocks, threads}, build, weft::all_reduce_rms_norm);
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
    next group's; 0: rows side by side. 1 and the padded number of tokens give the layout by columns of grouped GEMMs.)doc")
      .def(
          "__init__",
          [](PyFp8* self, nb::object rows, nb::object scales, nb::object scale, const char* scaling,
             const char* scale_type, std::size_t scale_token_stride, std::size_t scale_group_stride) {
            new (self) PyFp8{std::move(rows),
                             std::move(scales),
                             std::move(scale),
                             value_of<Fp8Scaling>("scaling", scaling),
                             value_of<ScaleType>("scale_type", scale_type),
                             scale_token_stride,
                             scale_group_stride};
          },
          nb::arg("rows"), nb::arg("scales") = nb::none(), nb::kw_only(), nb::arg("scale") = nb::none(),
          nb::arg("scaling") = "per_token", nb::arg("scale_type") = "f32", nb::arg("scale_token_stride") = 0,
          nb::arg("scale_group_stride") = 0,
          nb::sig("def __init__(self, rows: object, scales: object = None, *, scale: object = None, "
                  "scaling: str = 'per_token', scale_type: str = 'f32', scale_token_stride: int = 0, "
                  "scale_group_stride: int = 0) -> None"));

  group.def("all_reduce_rms_norm", all_reduce_rms_norm, nb::arg("output").none(), nb::arg("residual_output"),
            nb::arg("input"), nb::arg("gamma"), nb::arg("residual") = nb::none(), nb::kw_only(),
            nb::arg("fp8").none() = nb::none(), nb::arg("epsilon") = AllReduceRmsNormArgs().epsilon,
            nb::arg("gamma_plus_one") = false, nb::arg("algorithm") = "automatic", nb::arg("stream") = nb::none(),
            nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
            nb::sig("def all_reduce_rms_norm(self, output: object, residual_output: object, input: object, "
                    "gamma: object, residual: object = None, *, fp8: Fp8Output | None = None, epsilon: float = 1e-06, "
                    "gamma_plus_one: bool = False, algorithm: str = 'automatic', stream: object = None, tag: int = 0, "
                    "blocks: int = 0, threads: int = 0) -> None"),
            R"doc(
A layer's sum, residual and RMSNorm in one call, with the bits of the three calls one after the other.

residual_output = sum over ranks of inputs + residual; output = residual_output / rms(residual_output) · gamma.

Matrices are [tokens, hidden] of bf16 or f16, rows 16 bytes aligned; gamma is [hidden]. `residual`, the same on every
rank, may be None. `residual_output` may be `residual`, and `output` may be `input`. `output` may be None if `fp8` is
made. gamma_plus_one: the weights are 1 + gamma, as Gemma's are. algorithm: "automatic", "one_shot" or "two_shot".)doc");
}

}  // namespace weft::python
