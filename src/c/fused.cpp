#include "c/collectives.hpp"

namespace weft::c {

template <>
struct Mirror<weft_fp8_output> {
  using Cpp = Fp8Output;
  static constexpr const char* name = "weft_fp8_output";
  static constexpr std::size_t least = offsetof(weft_fp8_output, floor);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.rows, cpp.rows);
    copy(c.stride, cpp.stride);
    copy(c.scale, cpp.scale);
    copy(c.scales, cpp.scales);
    copy(c.scaling, cpp.scaling);
    copy(c.scale_type, cpp.scale_type);
    copy(c.scale_token_stride, cpp.scale_token_stride);
    copy(c.scale_group_stride, cpp.scale_group_stride);
    copy(c.floor, cpp.floor);
  }
};

// Fields of every call with a norm, besides fp8.
void norm_fields(auto& c, auto& cpp, auto copy) {
  row_fields(c, cpp, copy);
  copy(c.residual, cpp.residual);
  copy(c.residual_output, cpp.residual_output);
  copy(c.gamma, cpp.gamma);
  copy(c.hidden, cpp.hidden);
  copy(c.residual_stride, cpp.residual_stride);
  copy(c.residual_output_stride, cpp.residual_output_stride);
  copy(c.type, cpp.type);
  copy(c.epsilon, cpp.epsilon);
  copy(c.gamma_plus_one, cpp.gamma_plus_one);
  copy(c.gamma_f32, cpp.gamma_f32);
  launch_fields(c, cpp, copy);
}

template <>
struct Mirror<weft_all_reduce_rms_norm_args> {
  using Cpp = AllReduceRmsNormArgs;
  static constexpr const char* name = "weft_all_reduce_rms_norm_args";
  static constexpr std::size_t least = offsetof(weft_all_reduce_rms_norm_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {  // besides fp8
    norm_fields(c, cpp, copy);
    copy(c.tokens, cpp.tokens);
    copy(c.algorithm, cpp.algorithm);
  }
};

template <>
struct Mirror<weft_crossing_rms_norm_args> {
  using Cpp = CrossingRmsNormArgs;
  static constexpr const char* name = "weft_crossing_rms_norm_args";
  static constexpr std::size_t least = offsetof(weft_crossing_rms_norm_args, gamma_f32);
  static void fields(auto& c, auto& cpp, auto copy) {  // besides fp8 and counts
    norm_fields(c, cpp, copy);
    copy(c.group_ranks, cpp.group_ranks);
    copy(c.input_rows, cpp.input_rows);
    copy(c.shard_rows, cpp.shard_rows);
    copy(c.output_rows, cpp.output_rows);
  }
};

namespace {

weft_code cross_with_norm(void (*run)(const Group&, const CrossingRmsNormArgs&), const weft_group* group,
                          const weft_crossing_rms_norm_args* args) {
  return guarded([&] {
    const weft_crossing_rms_norm_args full = whole(args);
    CrossingRmsNormArgs cpp = cpp_of(full);
    cpp.fp8 = cpp_or_defaults(full.fp8);
    cpp.counts = cpp_or_defaults(full.counts);
    run(at("group", group).group, cpp);
  });
}

}  // namespace
}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_fp8_output_init(weft_fp8_output* output, size_t size) {
  return init(output, size);
}

weft_code weft_all_reduce_rms_norm_args_init(weft_all_reduce_rms_norm_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_all_reduce_rms_norm(const weft_group* group, const weft_all_reduce_rms_norm_args* args) {
  return guarded([&] {
    const weft_all_reduce_rms_norm_args full = whole(args);
    weft::AllReduceRmsNormArgs cpp = cpp_of(full);
    cpp.fp8 = cpp_or_defaults(full.fp8);
    weft::all_reduce_rms_norm(at("group", group).group, cpp);
  });
}

weft_code weft_crossing_rms_norm_args_init(weft_crossing_rms_norm_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_gather_sums_rms_norm(const weft_group* group, const weft_crossing_rms_norm_args* args) {
  return cross_with_norm(weft::gather_sums_rms_norm, group, args);
}
weft_code weft_scatter_sums_rms_norm(const weft_group* group, const weft_crossing_rms_norm_args* args) {
  return cross_with_norm(weft::scatter_sums_rms_norm, group, args);
}

}  // extern "C"
