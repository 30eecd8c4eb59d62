// Crossings and calls with a norm, through C (through_c.hpp).
#include "twins/through_c.hpp"

namespace weft::test {
namespace {

void cross(weft_code (*run)(const weft_group*, const weft_crossing_args*), const Group& group,
           const CrossingArgs& args) {
  const weft_counts counts = c_counts(args.counts);
  weft_crossing_args c = init(weft_crossing_args_init);
  fill_rows(c, args);
  c.width = args.width;
  c.group_ranks = args.group_ranks;
  c.counts = &counts;
  c.input_rows = args.input_rows;
  c.output_rows = args.output_rows;
  c.type = number(args.type);
  fill_launch(c, args);
  call_c(run, handle(group), &c);
}

weft_fp8_output c_of(const Fp8Output& fp8) {
  weft_fp8_output c = init(weft_fp8_output_init);
  c.rows = fp8.rows;
  c.stride = fp8.stride;
  c.scaling = number(fp8.scaling);
  c.scale = fp8.scale;
  c.scales = fp8.scales;
  c.scale_type = number(fp8.scale_type);
  c.scale_token_stride = fp8.scale_token_stride;
  c.scale_group_stride = fp8.scale_group_stride;
  c.floor = fp8.floor;
  return c;
}

void fill_norm(auto& c, const auto& args) {
  fill_rows(c, args);
  c.residual = args.residual;
  c.residual_output = args.residual_output;
  c.gamma = args.gamma;
  c.hidden = args.hidden;
  c.residual_stride = args.residual_stride;
  c.residual_output_stride = args.residual_output_stride;
  c.type = number(args.type);
  c.epsilon = args.epsilon;
  c.gamma_plus_one = args.gamma_plus_one;
  c.gamma_f32 = args.gamma_f32;
  fill_launch(c, args);
}

void cross(weft_code (*run)(const weft_group*, const weft_crossing_rms_norm_args*), const Group& group,
           const CrossingRmsNormArgs& args) {
  const weft_fp8_output fp8 = c_of(args.fp8);
  const weft_counts counts = c_counts(args.counts);
  weft_crossing_rms_norm_args c = init(weft_crossing_rms_norm_args_init);
  fill_norm(c, args);
  c.fp8 = &fp8;
  c.group_ranks = args.group_ranks;
  c.counts = &counts;
  c.input_rows = args.input_rows;
  c.shard_rows = args.shard_rows;
  c.output_rows = args.output_rows;
  call_c(run, handle(group), &c);
}

}  // namespace
}  // namespace weft::test

using namespace weft;
using namespace weft::test;

extern "C" {

void __real__ZN4weft19all_reduce_rms_normERKNS_5GroupERKNS_20AllReduceRmsNormArgsE(const Group&,
                                                                                   const AllReduceRmsNormArgs&);
void __wrap__ZN4weft19all_reduce_rms_normERKNS_5GroupERKNS_20AllReduceRmsNormArgsE(const Group& group,
                                                                                   const AllReduceRmsNormArgs& args) {
  if (in_c) return __real__ZN4weft19all_reduce_rms_normERKNS_5GroupERKNS_20AllReduceRmsNormArgsE(group, args);
  const weft_fp8_output fp8 = c_of(args.fp8);
  weft_all_reduce_rms_norm_args c = init(weft_all_reduce_rms_norm_args_init);
  fill_norm(c, args);
  c.fp8 = &fp8;
  c.tokens = args.tokens;
  c.algorithm = number(args.algorithm);
  call_c(weft_all_reduce_rms_norm, handle(group), &c);
}

void __real__ZN4weft11gather_sumsERKNS_5GroupERKNS_12CrossingArgsE(const Group&, const CrossingArgs&);
void __wrap__ZN4weft11gather_sumsERKNS_5GroupERKNS_12CrossingArgsE(const Group& group, const CrossingArgs& args) {
  if (in_c) return __real__ZN4weft11gather_sumsERKNS_5GroupERKNS_12CrossingArgsE(group, args);
  cross(weft_gather_sums, group, args);
}

void __real__ZN4weft12scatter_sumsERKNS_5GroupERKNS_12CrossingArgsE(const Group&, const CrossingArgs&);
void __wrap__ZN4weft12scatter_sumsERKNS_5GroupERKNS_12CrossingArgsE(const Group& group, const CrossingArgs& args) {
  if (in_c) return __real__ZN4weft12scatter_sumsERKNS_5GroupERKNS_12CrossingArgsE(group, args);
  cross(weft_scatter_sums, group, args);
}

void __real__ZN4weft20gather_sums_rms_normERKNS_5GroupERKNS_19CrossingRmsNormArgsE(const Group&,
                                                                                   const CrossingRmsNormArgs&);
void __wrap__ZN4weft20gather_sums_rms_normERKNS_5GroupERKNS_19CrossingRmsNormArgsE(const Group& group,
                                                                                   const CrossingRmsNormArgs& args) {
  if (in_c) return __real__ZN4weft20gather_sums_rms_normERKNS_5GroupERKNS_19CrossingRmsNormArgsE(group, args);
  cross(weft_gather_sums_rms_norm, group, args);
}

void __real__ZN4weft21scatter_sums_rms_normERKNS_5GroupERKNS_19CrossingRmsNormArgsE(const Group&,
                                                                                    const CrossingRmsNormArgs&);
void __wrap__ZN4weft21scatter_sums_rms_normERKNS_5GroupERKNS_19CrossingRmsNormArgsE(const Group& group,
                                                                                    const CrossingRmsNormArgs& args) {
  if (in_c) return __real__ZN4weft21scatter_sums_rms_normERKNS_5GroupERKNS_19CrossingRmsNormArgsE(group, args);
  cross(weft_scatter_sums_rms_norm, group, args);
}

}  // extern "C"
