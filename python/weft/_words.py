"""The words that calls take, as types: weft.ReduceOp is Literal["sum", "max", "min", "avg"]."""

from typing import Literal

Device = Literal["automatic", "cpu", "cuda"]
ReduceOp = Literal["sum", "max", "min", "avg"]
Algorithm = Literal["automatic", "one_shot", "two_shot", "pipelined", "nccl", "multimem_one_shot", "multimem_two_shot"]
Padding = Literal["none", "aligned", "max", "fixed", "per_rank"]
Sharding = Literal["none", "balanced", "ceil"]
Fp8Scaling = Literal["fixed", "per_token", "per_128_columns"]
ScaleType = Literal["f32", "ue8m0"]
RowType = Literal["bf16", "f16", "fp8"]
RowCast = Literal["none", "fp8", "fp8_ue8m0", "fp8_pow2"]
RowLayout = Literal["expert_masked", "expert_contiguous", "rank_major", "rank_compact"]
ScaleOrder = Literal["rows", "columns"]
RowPath = Literal["automatic", "slots", "ring"]
LayerSchedule = Literal["plain", "rounds", "combine_rounds", "automatic"]
Overflow = Literal["error", "drop"]
DataType = Literal["bf16", "f16", "f32", "i32", "i64", "u8"]
