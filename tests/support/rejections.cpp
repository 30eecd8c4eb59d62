#include "support/rejections.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "support/cases.hpp"

namespace weft::test {

std::vector<RejectedAllReduce> rejected_all_reduces(std::byte* memory, Device device) {
  std::vector<RejectedAllReduce> all;
  const AllReduceArgs good{.input = memory, .output = memory + 4096, .count = 64};
  const auto add = [&](const std::string& part, auto&& spoil) {
    AllReduceArgs args = good;
    spoil(args);
    all.push_back({part, args});
  };
  for (const DataType type : kTypes) {
    for (const Algorithm algorithm :
         {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::bulk}) {
      const auto base = [&](AllReduceArgs& a) {
        a.type = type;
        a.algorithm = algorithm;
      };
      add("input: null, with count 64", [&](auto& a) { base(a), a.input = nullptr; });
      add("output: null, with count 1", [&](auto& a) { base(a), a.output = nullptr, a.count = 1; });
      add("output: overlaps input", [&](auto& a) { base(a), a.output = memory + size_of(type); });
      add("output: overlaps input",
          [&](auto& a) { base(a), a.input = memory + 63 * size_of(type), a.output = memory; });
    }
    add("count: ", [&](auto& a) { a.type = type, a.count = SIZE_MAX; });
    add("count: ", [&](auto& a) { a.type = type, a.count = SIZE_MAX / 8 / size_of(type) + 1; });
    for (std::size_t shift = 1; shift < size_of(type); ++shift) {
      add("input: ", [&](auto& a) { a.type = type, a.input = memory + shift; });
      add("output: ", [&](auto& a) { a.type = type, a.output = memory + 4096 + shift; });
    }
  }
  for (const int value : {5, 6, 100, 255}) {
    add("type: " + std::to_string(value) + " is not", [&](auto& a) { a.type = static_cast<DataType>(value); });
    add("algorithm: " + std::to_string(value) + " is not",
        [&](auto& a) { a.algorithm = static_cast<Algorithm>(value); });
  }
  for (const int value : {2, 3, 255}) {
    add("op: " + std::to_string(value) + " is not", [&](auto& a) { a.op = static_cast<ReduceOp>(value); });
  }
  for (const int blocks : {-1000, -1, 1, 100000}) {
    add("launch.blocks: " + std::to_string(blocks), [&](auto& a) { a.launch.blocks = blocks; });
  }
  for (const int threads : {-32, 1, 31, 33, 63, 1056, 2048, 100000}) {
    add("launch.threads: " + std::to_string(threads), [&](auto& a) { a.launch.threads = threads; });
  }
  if (device == Device::cpu) {
    add("launch.blocks: 3", [&](auto& a) { a.launch.blocks = 3; });
    add("stream: ", [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
    add("stream: ", [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory), a.count = 0; });
  }
  // A mistake counts with nothing to do, too.
  add("launch.threads: 7", [&](auto& a) { a.launch.threads = 7, a.count = 0; });
  add("type: 9", [&](auto& a) { a.type = static_cast<DataType>(9), a.count = 0; });
  return all;
}

std::vector<RejectedMove> rejected_moves(std::byte* memory, const std::int32_t* counts, Device device) {
  std::vector<RejectedMove> all;
  // No Stream: on GPUs a pointer to something else must not be asked.
  const bool streams = device == Device::cpu;
  const auto tensors = std::make_shared<std::array<GatheredTensor, 9>>();          // of which the calls keep a share
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
    add("input: null, with", args, function, [](auto& a) { a.input = nullptr; });
    add("output: null, with", args, function, [](auto& a) { a.output = nullptr; });
    add("input_stride: 63 bytes", args, function, [](auto& a) { a.input_stride = 63; });
    add("output_stride: 1 bytes", args, function, [](auto& a) { a.output_stride = 1; });
    add("rows: ", args, function, [](auto& a) { a.rows = SIZE_MAX; });
    add("row_bytes: ", args, function, [](auto& a) { a.row_bytes = SIZE_MAX; });
    add("input: overlaps output", args, function, [&](auto& a) { a.output = memory + 32; });
    add("launch.blocks: 1 ", args, function, [](auto& a) { a.launch.blocks = 1; });
    add("launch.threads: 33 ", args, function, [](auto& a) { a.launch.threads = 33; });
    if (streams) add("stream: ", args, function, [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
  };
  copies(AllGatherArgs{}, all_gather_into_tensor);
  copies(AllToAllArgs{}, all_to_all);
  copies(BroadcastArgs{}, [](const Group& group, BroadcastArgs args) {
    args.root = group.rank();  // whose input is looked at
    broadcast(group, args);
  });
  add("root: 3 is not a rank", BroadcastArgs{}, broadcast, [](auto& a) { a.root = 3; });
  add("root: -1 is not a rank", BroadcastArgs{}, broadcast, [](auto& a) { a.root = -1; });
  add("input: overlaps output", AllToAllArgs{}, all_to_all,
      [&](auto& a) { a.input = a.output = memory, a.row_bytes = 16; });

  const ReduceScatterArgs scatter{.input = memory, .output = memory + 4096, .rows = 2, .width = 32};
  add("type: 9", scatter, reduce_scatter_tensor, [](auto& a) { a.type = static_cast<DataType>(9); });
  add("input: ", scatter, reduce_scatter_tensor, [&](auto& a) { a.input = memory + 1; });
  add("output: overlaps input", scatter, reduce_scatter_tensor, [&](auto& a) { a.output = memory + 2; });
  add("width: ", scatter, reduce_scatter_tensor, [](auto& a) { a.width = SIZE_MAX; });
  add("output_stride: 6 bytes", scatter, reduce_scatter_tensor, [](auto& a) { a.output_stride = 3; });

  const AllGatherVArgs gather{
      .tensors = std::span(*tensors).first(1), .counts = {.rows = counts}, .input_rows = 2, .output_rows = 6};
  add("tensors: 0 is not between", gather, all_gather_v, [](auto& a) { a.tensors = {}; });
  add("tensors: 9 is not between", gather, all_gather_v, [&](auto& a) { a.tensors = *tensors; });
  add("counts.rows: null", gather, all_gather_v, [](auto& a) { a.counts.rows = nullptr; });
  add("counts.rows: ", gather, all_gather_v, [&](auto& a) {
    a.counts.rows = reinterpret_cast<const std::int32_t*>(reinterpret_cast<std::uintptr_t>(counts) + 1);
  });
  add("counts.slot: 7", gather, all_gather_v, [](auto& a) { a.counts.slot = static_cast<SlotKind>(7); });
  add("counts.split: 7", gather, all_gather_v, [](auto& a) { a.counts.split = static_cast<Split>(7); });
  add("counts.slot_rows: 0", gather, all_gather_v, [](auto& a) { a.counts.slot = SlotKind::aligned; });
  add("counts.slot_rows: ", gather, all_gather_v, [](auto& a) { a.counts.slot_rows = std::size_t{1} << 31; });
  const ReduceScatterVArgs scatter_v{.input = memory,
                                     .output = memory + 4096,
                                     .width = 8,
                                     .counts = {.rows = counts},
                                     .input_rows = 6,
                                     .output_rows = 2};
  add("counts.rows: null", scatter_v, reduce_scatter_v, [](auto& a) { a.counts.rows = nullptr; });
  add("type: 5", scatter_v, reduce_scatter_v, [](auto& a) { a.type = static_cast<DataType>(5); });
  if (streams) add("stream: ", BarrierArgs{}, barrier, [&](auto& a) { a.stream = reinterpret_cast<Stream>(memory); });
  return all;
}

}  // namespace weft::test
