#include "support/rejections.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "support/cases.hpp"

namespace weft::test {
namespace {

const char* const kStream = "stream: must be null on CPU ranks";
const char* const kTypeNames = "bf16, f16, f32, i32, i64 or u8";
const char* const kOpNames = "sum, max, min or avg";

}  // namespace

std::vector<RejectedAllReduce> rejected_all_reduces(std::byte* memory, Device device) {
  std::vector<RejectedAllReduce> all;
  // GPUs allow as many blocks as they have room for.
  const char* const allowed_blocks = device == Device::cpu ? "2" : "between 2 and ";
  const AllReduceArgs good{.input = memory, .output = memory + 4096, .count = 64};
  const auto add = [&](const std::string& part, auto&& spoil) {
    AllReduceArgs args = good;
    spoil(args);
    all.push_back({part, args});
  };
  for (const DataType type : kTypes) {
    for (const Algorithm algorithm :
         {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined}) {
      const auto base = [&](AllReduceArgs& a) {
        a.type = type;
        a.algorithm = algorithm;
      };
      add("input: null, with count 64", [&](auto& a) { base(a), a.input = nullptr; });
      add("output: null, with count 1", [&](auto& a) { base(a), a.output = nullptr, a.count = 1; });
      const auto overlap = [&](std::size_t elements) {
        return fmt::format("output: overlaps input ({} bytes apart, {} bytes long) without being equal to it",
                           elements * size_of(type), 64 * size_of(type));
      };
      add(overlap(1), [&](auto& a) { base(a), a.output = memory + size_of(type); });
      add(overlap(63), [&](auto& a) { base(a), a.input = memory + 63 * size_of(type), a.output = memory; });
    }
    const std::size_t most = SIZE_MAX / 8 / size_of(type);
    for (const std::size_t count : {SIZE_MAX, most + 1}) {
      add(fmt::format("count: {} elements of {} bytes are not between 0 and {}", count, size_of(type), most),
          [&](auto& a) { a.type = type, a.count = count; });
    }
    const auto unaligned = [&](const char* argument, const std::byte* data) {
      return fmt::format("{}: {} is not aligned to the {} bytes of {}", argument, static_cast<const void*>(data),
                         size_of(type), name(type));
    };
    for (std::size_t shift = 1; shift < size_of(type); ++shift) {
      add(unaligned("input", memory + shift), [&](auto& a) { a.type = type, a.input = memory + shift; });
      add(unaligned("output", memory + 4096 + shift),
          [&](auto& a) { a.type = type, a.output = memory + 4096 + shift; });
    }
  }
  for (const int value : {7, 8, 100, 255}) {
    add(fmt::format("type: {} is not {}", value, kTypeNames), [&](auto& a) { a.type = static_cast<DataType>(value); });
    add(fmt::format("algorithm: {} is not automatic, one-shot, two-shot, pipelined, nccl, multimem-one-shot or "
                    "multimem-two-shot",
                    value),
        [&](auto& a) { a.algorithm = static_cast<Algorithm>(value); });
  }
  for (const Algorithm algorithm : {Algorithm::multimem_one_shot, Algorithm::multimem_two_shot}) {
    const auto add_multimem = [&](DataType type, ReduceOp op) {
      add(fmt::format("algorithm: {} makes sums of bf16, f16 or f32, and this is a {} of {}", name(algorithm), name(op),
                      name(type)),
          [&](auto& a) { a.algorithm = algorithm, a.type = type, a.op = op; });
    };
    for (const DataType type : {DataType::i32, DataType::i64, DataType::u8}) add_multimem(type, ReduceOp::sum);
    for (const DataType type : kTypes) add_multimem(type, ReduceOp::max);
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::avg}) add_multimem(DataType::bf16, op);
  }
  for (const int value : {4, 5, 255}) {
    add(fmt::format("op: {} is not {}", value, kOpNames), [&](auto& a) { a.op = static_cast<ReduceOp>(value); });
  }
  for (const int blocks : {-1000, -1, 1, 100000}) {
    add(fmt::format("launch.blocks: {} is not 0 or {}", blocks, allowed_blocks),
        [&](auto& a) { a.launch.blocks = blocks; });
  }
  for (const int threads : {-32, 1, 31, 33, 63, 1056, 2048, 100000}) {
    add(fmt::format("launch.threads: {} is not 0 or a multiple of 32 between 32 and ", threads),
        [&](auto& a) { a.launch.threads = threads; });
  }
  if (device == Device::cpu) {
    add("launch.blocks: 3 is not 0 or 2", [&](auto& a) { a.launch.blocks = 3; });
    add(kStream, [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
    add(kStream, [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory), a.count = 0; });
  }
  // A mistake counts even if there is nothing to do.
  add("launch.threads: 7 is not 0 or a multiple of 32 between 32 and ",
      [&](auto& a) { a.launch.threads = 7, a.count = 0; });
  add(fmt::format("type: 9 is not {}", kTypeNames), [&](auto& a) { a.type = static_cast<DataType>(9), a.count = 0; });
  return all;
}

std::vector<RejectedMove> rejected_moves(std::byte* memory, const std::int32_t* counts, Device device) {
  std::vector<RejectedMove> all;
  // GPU streams are left out: CUDA must not be asked about a pointer that is no stream.
  const bool streams = device == Device::cpu;
  const auto tensors = std::make_shared<std::array<GatheredTensor, 9>>();          // the calls share them
  tensors->front() = {.input = memory, .output = memory + 4096, .row_bytes = 16};  // the others are empty
  const auto add = [&](const std::string& part, auto args, auto function, auto&& spoil) {
    spoil(args);
    all.push_back({part, [args, function, tensors](const Group& group) { function(group, args); }});
  };
  const auto copies = [&](auto args, auto function) {
    args.input = memory;
    args.output = memory + 4096;
    args.rows = 2;
    args.row_bytes = 64;
    add("input: null, with ", args, function, [](auto& a) { a.input = nullptr; });
    add("output: null, with ", args, function, [](auto& a) { a.output = nullptr; });
    add("input_stride: 63 bytes from row to row are less than the 64 bytes of a row", args, function,
        [](auto& a) { a.input_stride = 63; });
    add("output_stride: 1 bytes from row to row are less than the 64 bytes of a row", args, function,
        [](auto& a) { a.output_stride = 1; });
    add("output_stride: 18446744073709551615 is not between 0 and 2^40", args, function,
        [](auto& a) { a.output_stride = SIZE_MAX; });
    add("rows: 18446744073709551615 is not between 0 and 2^40", args, function, [](auto& a) { a.rows = SIZE_MAX; });
    add("row_bytes: 18446744073709551615 is not between 0 and 2^40", args, function,
        [](auto& a) { a.row_bytes = SIZE_MAX; });
    const std::size_t bytes = std::is_same_v<decltype(args), BroadcastArgs> ? 128 : 384;
    add(fmt::format("; {} bytes at {}): must be apart from it", bytes, static_cast<void*>(memory + 32)), args, function,
        [&](auto& a) { a.output = memory + 32; });
    add("input: overlaps output (", args, function, [&](auto& a) { a.output = memory + 32; });
    add("launch.blocks: 1 is not 0 or ", args, function, [](auto& a) { a.launch.blocks = 1; });
    add("launch.threads: 33 is not 0 or a multiple of 32 between 32 and 512", args, function,
        [](auto& a) { a.launch.threads = 33; });
    if (streams) add(kStream, args, function, [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
  };
  copies(AllGatherArgs{}, all_gather_into_tensor);
  copies(AllToAllArgs{}, all_to_all);
  copies(BroadcastArgs{}, [](const Group& group, BroadcastArgs args) {
    args.root = group.rank();  // its input is checked
    broadcast(group, args);
  });
  add("root: 3 is not a rank of the group, 0 … 2", BroadcastArgs{}, broadcast, [](auto& a) { a.root = 3; });
  add("root: -1 is not a rank of the group, 0 … 2", BroadcastArgs{}, broadcast, [](auto& a) { a.root = -1; });
  add(fmt::format(
          "input: overlaps output (96 bytes at {0}, 16 from row to row; 96 bytes at {0}): must be apart from it",
          static_cast<void*>(memory)),
      AllToAllArgs{}, all_to_all, [&](auto& a) { a.input = a.output = memory, a.rows = 2, a.row_bytes = 16; });

  const ReduceScatterArgs scatter{.input = memory, .output = memory + 4096, .rows = 2, .width = 32};
  add(fmt::format("type: 9 is not {}", kTypeNames), scatter, reduce_scatter_tensor,
      [](auto& a) { a.type = static_cast<DataType>(9); });
  add(fmt::format("op: 4 is not {}", kOpNames), scatter, reduce_scatter_tensor,
      [](auto& a) { a.op = static_cast<ReduceOp>(4); });
  add("is not aligned to the 2 bytes of its elements", scatter, reduce_scatter_tensor,
      [&](auto& a) { a.input = memory + 1; });
  add(fmt::format(
          "output: overlaps input (128 bytes at {}, 64 from row to row; 384 bytes at {}): must be apart from it, "
          "or this rank's own part of it, which begins ",
          static_cast<void*>(memory + 2), static_cast<void*>(memory)),
      scatter, reduce_scatter_tensor, [&](auto& a) { a.output = memory + 2; });
  add("width: 18446744073709551615 is not between 0 and 2^40", scatter, reduce_scatter_tensor,
      [](auto& a) { a.width = SIZE_MAX; });
  add("output_stride: 6 bytes from row to row are less than the 64 bytes of a row", scatter, reduce_scatter_tensor,
      [](auto& a) { a.output_stride = 3; });
  // Multiplied by the element size before a check, this would wrap to 16 bytes.
  add("input_stride: 9223372036854775816 is not between 0 and 2^40", scatter, reduce_scatter_tensor,
      [](auto& a) { a.width = 8, a.input_stride = (std::size_t{1} << 63) + 8; });

  const ReduceArgs reduction{.input = memory, .output = memory + 4096, .count = 64};
  const auto as_root = [](const Group& group, ReduceArgs args) {
    args.root = group.rank();  // its output is checked
    reduce(group, args);
  };
  add("root: 3 is not a rank of the group, 0 … 2", reduction, weft::reduce, [](auto& a) { a.root = 3; });
  add("root: -1 is not a rank of the group, 0 … 2", reduction, weft::reduce, [](auto& a) { a.root = -1; });
  add(fmt::format("type: 6 is not {}", kTypeNames), reduction, weft::reduce,
      [](auto& a) { a.type = static_cast<DataType>(6); });
  add(fmt::format("op: 255 is not {}", kOpNames), reduction, weft::reduce,
      [](auto& a) { a.op = static_cast<ReduceOp>(255); });
  add("count: 18446744073709551615 is not between 0 and 2^40", reduction, weft::reduce,
      [](auto& a) { a.count = SIZE_MAX; });
  add("input: null, with ", reduction, weft::reduce, [](auto& a) { a.input = nullptr; });
  add("output: null, with ", reduction, as_root, [](auto& a) { a.output = nullptr; });
  add("is not aligned to the 8 bytes of its elements", reduction, weft::reduce,
      [&](auto& a) { a.type = DataType::i64, a.input = memory + 4; });
  add("output: overlaps input (", reduction, as_root, [&](auto& a) { a.output = memory + 2; });
  add("launch.blocks: 1 is not 0 or ", reduction, weft::reduce, [](auto& a) { a.launch.blocks = 1; });
  add("launch.threads: 33 is not 0 or a multiple of 32 between 32 and 512", reduction, weft::reduce,
      [](auto& a) { a.launch.threads = 33; });
  if (streams) add(kStream, reduction, weft::reduce, [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });

  const AllGatherVArgs gather{
      .tensors = std::span(*tensors).first(1), .counts = {.rows = counts}, .input_rows = 2, .output_rows = 6};
  add("input_rows: 18446744073709551615 is not between 0 and 2^40", gather, all_gather_v,
      [](auto& a) { a.input_rows = SIZE_MAX; });
  add("output_rows: 18446744073709551615 is not between 0 and 2^40", gather, all_gather_v,
      [](auto& a) { a.output_rows = SIZE_MAX; });
  // The message names one of several tensors.
  const auto second = [&](const std::string& part, const GatheredTensor& spoiled) {
    const auto two = std::make_shared<std::array<GatheredTensor, 2>>();
    *two = {tensors->front(), spoiled};
    all.push_back({part, [gather, two](const Group& group) {
                     AllGatherVArgs args = gather;
                     args.tensors = *two;
                     all_gather_v(group, args);
                   }});
  };
  second("tensors[1].input: null, with 2 rows of 8 bytes", {.output = memory + 6144, .row_bytes = 8});
  second("tensors[1].output: null, with 6 rows of 8 bytes", {.input = memory + 2048, .row_bytes = 8});
  second("tensors[1].row_bytes: 18446744073709551615 is not between 0 and 2^40", {.row_bytes = SIZE_MAX});
  second("tensors[1].input_stride: 7 bytes from row to row are less than the 8 bytes of a row",
         {.input = memory + 2048, .output = memory + 6144, .row_bytes = 8, .input_stride = 7});
  // The place that counts give a rank's rows is unknown here, but impossible places are rejected.
  second("tensors[1].input: overlaps tensors[1].output (", {.input = memory + 4, .output = memory, .row_bytes = 8});
  second(" and has 8 bytes from row to row",
         {.input = memory + 8, .output = memory, .row_bytes = 8, .input_stride = 16});
  second("tensors[1].input: overlaps tensors[1].output (", {.input = memory, .output = memory + 8, .row_bytes = 8});
  // It may not share a byte with another tensor, or with the counts.
  second("tensors[1].output: overlaps tensors[0].input (",
         {.input = memory + 2048, .output = memory + 16, .row_bytes = 8});
  second("tensors[1].output: overlaps tensors[0].output (",
         {.input = memory + 2048, .output = memory + 4096 + 40, .row_bytes = 8});
  second("tensors[1].input: overlaps tensors[0].output (",
         {.input = memory + 4096 + 80, .output = memory + 6144, .row_bytes = 8});
  second("tensors[1].output: overlaps tensors[0].output (",
         {.input = memory + 2048, .output = memory + 4096 + 12, .row_bytes = 8, .output_stride = 16});
  auto* const numbers = const_cast<std::int32_t*>(counts);
  second("counts.rows: overlaps tensors[1].output (", {.input = memory + 2048, .output = numbers + 1, .row_bytes = 8});
  add("tensors: 0 is not between 1 and 8", gather, all_gather_v, [](auto& a) { a.tensors = {}; });
  add("tensors: 9 is not between 1 and 8", gather, all_gather_v, [&](auto& a) { a.tensors = *tensors; });
  add("counts.rows: null", gather, all_gather_v, [](auto& a) { a.counts.rows = nullptr; });
  add("is not aligned to 4 bytes", gather, all_gather_v, [&](auto& a) {
    a.counts.rows = reinterpret_cast<const std::int32_t*>(reinterpret_cast<std::uintptr_t>(counts) + 1);
  });
  add("counts.padding: 7 is not none, aligned, max, fixed or per-rank", gather, all_gather_v,
      [](auto& a) { a.counts.padding = static_cast<Padding>(7); });
  add("counts.sharding: 7 is not none, balanced or ceil", gather, all_gather_v,
      [](auto& a) { a.counts.sharding = static_cast<Sharding>(7); });
  add("counts.slot_rows: 0 is not between 1 and 2147483647", gather, all_gather_v,
      [](auto& a) { a.counts.padding = Padding::aligned; });
  add("counts.slot_rows: 2147483648 is not between 0 and 2147483647", gather, all_gather_v,
      [](auto& a) { a.counts.padding = Padding::fixed, a.counts.slot_rows = std::size_t{1} << 31; });
  add("counts.slots: null", gather, all_gather_v, [](auto& a) { a.counts.padding = Padding::per_rank; });
  add("counts.slots: not null, and padding is max", gather, all_gather_v,
      [&](auto& a) { a.counts.padding = Padding::max, a.counts.slots = counts; });
  add("is not aligned to 4 bytes", gather, all_gather_v, [&](auto& a) {
    a.counts.padding = Padding::per_rank;
    a.counts.slots = reinterpret_cast<const std::int32_t*>(reinterpret_cast<std::uintptr_t>(counts) + 1);
  });
  const ReduceScatterVArgs scatter_v{.input = memory,
                                     .output = memory + 4096,
                                     .width = 8,
                                     .counts = {.rows = counts},
                                     .input_rows = 6,
                                     .output_rows = 2};
  add("counts.rows: null", scatter_v, reduce_scatter_v, [](auto& a) { a.counts.rows = nullptr; });
  add("counts.rows: overlaps output (", scatter_v, reduce_scatter_v, [&](auto& a) { a.output = numbers; });
  add("counts.slots: overlaps output (", scatter_v, reduce_scatter_v, [&](auto& a) {
    a.counts.padding = Padding::per_rank;
    a.counts.rows = reinterpret_cast<const std::int32_t*>(memory + 6144);
    a.counts.slots = counts;
    a.output = numbers + 1;
  });
  add("counts.slots: null", scatter_v, reduce_scatter_v, [](auto& a) { a.counts.padding = Padding::per_rank; });
  add("input_rows: 18446744073709551615 is not between 0 and 2^40", scatter_v, reduce_scatter_v,
      [](auto& a) { a.input_rows = SIZE_MAX; });
  add("output_rows: 18446744073709551615 is not between 0 and 2^40", scatter_v, reduce_scatter_v,
      [](auto& a) { a.output_rows = SIZE_MAX; });
  add("output_stride: 9223372036854775816 is not between 0 and 2^40", scatter_v, reduce_scatter_v,
      [](auto& a) { a.output_stride = (std::size_t{1} << 63) + 8; });
  add("output: overlaps input (", scatter_v, reduce_scatter_v, [&](auto& a) { a.output = memory + 2; });
  add("output: overlaps input (", scatter_v, reduce_scatter_v,
      [&](auto& a) { a.output = memory, a.output_stride = 16; });
  all.push_back({"output: overlaps input (", [scatter_v, memory](const Group& group) {
                   ReduceScatterVArgs args = scatter_v;  // fixed slots: the place is known
                   args.counts.padding = Padding::fixed, args.counts.slot_rows = 2;
                   args.output = memory + 16 * ((static_cast<std::size_t>(group.rank()) * 2 + 1) % 6);
                   reduce_scatter_v(group, args);
                 }});
  add(fmt::format("type: 6 is not {}", kTypeNames), scatter_v, reduce_scatter_v,
      [](auto& a) { a.type = static_cast<DataType>(6); });
  add(fmt::format("op: 4 is not {}", kOpNames), scatter_v, reduce_scatter_v,
      [](auto& a) { a.op = static_cast<ReduceOp>(4); });
  if (streams) add(kStream, BarrierArgs{}, barrier, [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
  return all;
}

}  // namespace weft::test
