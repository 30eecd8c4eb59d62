// Enumerations: their values are those of C++, and so are their names.
#include "weft/c/types.h"

#include <string_view>

#include "base/build_info.hpp"
#include "weft/c/error.h"
#include "weft/c/fused.h"
#include "weft/c/moe.h"
#include "weft/c/moe_layer.h"
#include "weft/weft.hpp"

namespace weft::c {
namespace {

template <class Enum>
constexpr bool same(std::int32_t value, Enum enumerator) {
  return value == static_cast<std::int32_t>(enumerator);
}

static_assert(same(WEFT_OK, Errc::ok) && same(WEFT_INVALID_ARGUMENT, Errc::invalid_argument) &&
              same(WEFT_TIMEOUT, Errc::timeout) && same(WEFT_MISMATCH, Errc::mismatch) &&
              same(WEFT_PEER_DIED, Errc::peer_died) && same(WEFT_PEER_FAILED, Errc::peer_failed) &&
              same(WEFT_ABORTED, Errc::aborted) && same(WEFT_OVERLAP, Errc::overlap) &&
              same(WEFT_RELEASED, Errc::released) && same(WEFT_RENDEZVOUS, Errc::rendezvous) &&
              same(WEFT_UNSUPPORTED, Errc::unsupported) && same(WEFT_SYSTEM, Errc::system) &&
              same(WEFT_IN_FLIGHT, Errc::in_flight) && same(WEFT_OVERFLOW, Errc::overflow) &&
              same(WEFT_CAPACITY, Errc::capacity));
static_assert(same(WEFT_BF16, DataType::bf16) && same(WEFT_F16, DataType::f16) && same(WEFT_F32, DataType::f32) &&
              same(WEFT_I32, DataType::i32) && same(WEFT_I64, DataType::i64) && same(WEFT_U8, DataType::u8));
static_assert(same(WEFT_SUM, ReduceOp::sum) && same(WEFT_MAX, ReduceOp::max) && same(WEFT_MIN, ReduceOp::min) &&
              same(WEFT_AVG, ReduceOp::avg));
static_assert(same(WEFT_ALGORITHM_AUTOMATIC, Algorithm::automatic) &&
              same(WEFT_ALGORITHM_ONE_SHOT, Algorithm::one_shot) &&
              same(WEFT_ALGORITHM_TWO_SHOT, Algorithm::two_shot) &&
              same(WEFT_ALGORITHM_PIPELINED, Algorithm::pipelined) && same(WEFT_ALGORITHM_NCCL, Algorithm::nccl) &&
              same(WEFT_ALGORITHM_MULTIMEM_ONE_SHOT, Algorithm::multimem_one_shot) &&
              same(WEFT_ALGORITHM_MULTIMEM_TWO_SHOT, Algorithm::multimem_two_shot));
static_assert(same(WEFT_PADDING_NONE, Padding::none) && same(WEFT_PADDING_ALIGNED, Padding::aligned) &&
              same(WEFT_PADDING_MAX, Padding::max) && same(WEFT_PADDING_FIXED, Padding::fixed) &&
              same(WEFT_PADDING_PER_RANK, Padding::per_rank));
static_assert(same(WEFT_SHARDING_NONE, Sharding::none) && same(WEFT_SHARDING_BALANCED, Sharding::balanced) &&
              same(WEFT_SHARDING_CEIL, Sharding::ceil));
static_assert(same(WEFT_DEVICE_AUTOMATIC, Device::automatic) && same(WEFT_DEVICE_CPU, Device::cpu) &&
              same(WEFT_DEVICE_CUDA, Device::cuda));
static_assert(same(WEFT_FP8_FIXED, Fp8Scaling::fixed) && same(WEFT_FP8_PER_TOKEN, Fp8Scaling::per_token) &&
              same(WEFT_FP8_PER_128_COLUMNS, Fp8Scaling::per_128_columns));
static_assert(same(WEFT_SCALE_F32, ScaleType::f32) && same(WEFT_SCALE_UE8M0, ScaleType::ue8m0));
static_assert(same(WEFT_ROW_BF16, RowType::bf16) && same(WEFT_ROW_F16, RowType::f16) &&
              same(WEFT_ROW_FP8, RowType::fp8));
static_assert(same(WEFT_CAST_NONE, RowCast::none) && same(WEFT_CAST_FP8, RowCast::fp8) &&
              same(WEFT_CAST_FP8_UE8M0, RowCast::fp8_ue8m0) && same(WEFT_CAST_FP8_POW2, RowCast::fp8_pow2));
static_assert(same(WEFT_EXPERT_MASKED, RowLayout::expert_masked) &&
              same(WEFT_EXPERT_CONTIGUOUS, RowLayout::expert_contiguous) &&
              same(WEFT_RANK_MAJOR, RowLayout::rank_major) && same(WEFT_RANK_COMPACT, RowLayout::rank_compact));
static_assert(same(WEFT_SCALES_BY_ROWS, ScaleOrder::rows) && same(WEFT_SCALES_BY_COLUMNS, ScaleOrder::columns));
static_assert(same(WEFT_PATH_AUTOMATIC, RowPath::automatic) && same(WEFT_PATH_SLOTS, RowPath::slots) &&
              same(WEFT_PATH_RING, RowPath::ring));
static_assert(same(WEFT_OVERFLOW_ERROR, Overflow::error) && same(WEFT_OVERFLOW_DROP, Overflow::drop));

// Names of C++ are literals, which end with a zero.
template <class Enum>
const char* name_of(std::int32_t value, Enum last) {
  const bool known = value >= 0 && value <= static_cast<std::int32_t>(last);
  return known ? name(static_cast<Enum>(value)).data() : "unknown";
}

}  // namespace
}  // namespace weft::c

using weft::c::name_of;

extern "C" {

size_t weft_size_of(weft_data_type type) {
  const bool known = type >= WEFT_BF16 && type <= WEFT_U8;
  return known ? weft::size_of(static_cast<weft::DataType>(type)) : 0;
}

const char* weft_code_name(weft_code code) {
  return name_of(code, weft::Errc::capacity);
}
const char* weft_data_type_name(weft_data_type type) {
  return name_of(type, weft::DataType::u8);
}
const char* weft_reduce_op_name(weft_reduce_op op) {
  return name_of(op, weft::ReduceOp::avg);
}
const char* weft_algorithm_name(weft_algorithm algorithm) {
  return name_of(algorithm, weft::Algorithm::multimem_two_shot);
}
const char* weft_padding_name(weft_padding padding) {
  return name_of(padding, weft::Padding::per_rank);
}
const char* weft_sharding_name(weft_sharding sharding) {
  return name_of(sharding, weft::Sharding::ceil);
}
const char* weft_device_name(weft_device device) {
  return name_of(device, weft::Device::cuda);
}
const char* weft_fp8_scaling_name(weft_fp8_scaling scaling) {
  return name_of(scaling, weft::Fp8Scaling::per_128_columns);
}
const char* weft_row_layout_name(weft_row_layout layout) {
  return name_of(layout, weft::RowLayout::rank_compact);
}
const char* weft_scale_order_name(weft_scale_order order) {
  return name_of(order, weft::ScaleOrder::columns);
}
const char* weft_layer_part_which_name(weft_layer_part_which which) {
  return name_of(which, weft::LayerPart::Which::shared);
}
const char* weft_layer_schedule_name(weft_layer_schedule schedule) {
  return name_of(schedule, weft::LayerSchedule::automatic);
}
const char* weft_row_path_name(weft_row_path path) {
  return name_of(path, weft::RowPath::ring);
}

const char* weft_version() {
  return weft::detail::build_info().version.data();
}

}  // extern "C"
