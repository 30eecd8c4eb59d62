// Ragged calls, counts, and rows that are taken out of their tensors.
#include <algorithm>
#include <array>

#include "c/collectives.hpp"

namespace weft::c {

template <>
struct Mirror<weft_gathered_tensor> {
  using Cpp = GatheredTensor;
  static constexpr const char* name = "weft_gathered_tensor";
  static constexpr std::size_t least = sizeof(weft_gathered_tensor);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.input, cpp.input);
    copy(c.output, cpp.output);
    copy(c.row_bytes, cpp.row_bytes);
    copy(c.input_stride, cpp.input_stride);
    copy(c.output_stride, cpp.output_stride);
  }
};

template <>
struct Mirror<weft_all_gather_v_args> {
  using Cpp = AllGatherVArgs;
  static constexpr const char* name = "weft_all_gather_v_args";
  static constexpr std::size_t least = offsetof(weft_all_gather_v_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {  // besides tensors and counts
    copy(c.input_rows, cpp.input_rows);
    copy(c.output_rows, cpp.output_rows);
    launch_fields(c, cpp, copy);
    copy(c.group_ranks, cpp.group_ranks);
  }
};

template <>
struct Mirror<weft_reduce_scatter_v_args> {
  using Cpp = ReduceScatterVArgs;
  static constexpr const char* name = "weft_reduce_scatter_v_args";
  static constexpr std::size_t least = offsetof(weft_reduce_scatter_v_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {  // besides counts
    row_fields(c, cpp, copy);
    copy(c.width, cpp.width);
    copy(c.type, cpp.type);
    copy(c.op, cpp.op);
    copy(c.input_rows, cpp.input_rows);
    copy(c.output_rows, cpp.output_rows);
    launch_fields(c, cpp, copy);
  }
};

template <>
struct Mirror<weft_all_gather_counts_args> {
  using Cpp = AllGatherCountsArgs;
  static constexpr const char* name = "weft_all_gather_counts_args";
  static constexpr std::size_t least = sizeof(weft_all_gather_counts_args);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.input, cpp.input);
    copy(c.output, cpp.output);
    copy(c.host_output, cpp.host_output);
    copy(c.columns, cpp.columns);
    copy(c.group_ranks, cpp.group_ranks);
    copy(c.sharding, cpp.sharding);
    copy(c.split_slots, cpp.split_slots);
    copy(c.padding, cpp.padding);
    copy(c.slot_rows, cpp.slot_rows);
    copy(c.tag, cpp.tag);
    copy(c.stream, cpp.stream);
  }
};

template <>
struct Mirror<weft_take_rows_args> {
  using Cpp = TakeRowsArgs;
  static constexpr const char* name = "weft_take_rows_args";
  static constexpr std::size_t least = sizeof(weft_take_rows_args);
  static void fields(auto& c, auto& cpp, auto copy) {  // besides counts
    row_fields(c, cpp, copy);
    copy(c.row_bytes, cpp.row_bytes);
    copy(c.slots, cpp.slots);
    copy(c.slot, cpp.slot);
    copy(c.shards, cpp.shards);
    copy(c.shard, cpp.shard);
    copy(c.split_slots, cpp.split_slots);
    copy(c.input_rows, cpp.input_rows);
    copy(c.output_rows, cpp.output_rows);
    copy(c.stream, cpp.stream);
  }
};

namespace {

using Tensors = std::array<GatheredTensor, kMaxGatheredTensors>;

// The tensors of a call. The call rejects a wrong number of them before it looks at any.
std::span<const GatheredTensor> tensors_of(const weft_all_gather_v_args& args, Tensors& tensors) {
  const std::span<GatheredTensor> all(tensors.data(), args.tensor_count);
  if (args.tensor_count <= tensors.size()) translate("tensors", args.tensors, all);
  return all;
}

}  // namespace
}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_counts_init(weft_counts* counts, size_t size) {
  return init(counts, size);
}
weft_code weft_gathered_tensor_init(weft_gathered_tensor* tensor, size_t size) {
  return init(tensor, size);
}

weft_code weft_all_gather_v_args_init(weft_all_gather_v_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_all_gather_v(const weft_group* group, const weft_all_gather_v_args* args) {
  return guarded([&] {
    const weft_all_gather_v_args full = whole(args);
    weft::AllGatherVArgs cpp = cpp_of(full);
    Tensors tensors;
    cpp.tensors = tensors_of(full, tensors);
    cpp.counts = cpp_or_defaults(full.counts);
    weft::all_gather_v(at("group", group).group, cpp);
  });
}

weft_code weft_reduce_scatter_v_args_init(weft_reduce_scatter_v_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_reduce_scatter_v(const weft_group* group, const weft_reduce_scatter_v_args* args) {
  return guarded([&] {
    const weft_reduce_scatter_v_args full = whole(args);
    weft::ReduceScatterVArgs cpp = cpp_of(full);
    cpp.counts = cpp_or_defaults(full.counts);
    weft::reduce_scatter_v(at("group", group).group, cpp);
  });
}

weft_code weft_gathered_counts_of(size_t ranks, size_t columns, size_t group_ranks, weft_gathered_counts* parts) {
  return guarded([&] {
    if (group_ranks == 0) throw weft::Error(weft::Errc::invalid_argument, "group_ranks: 0");
    const weft::GatheredCounts of{.ranks = ranks, .columns = columns, .group_ranks = group_ranks};
    give<weft_gathered_counts>("parts", parts,
                               {.size = sizeof *parts,
                                .groups = of.groups(),
                                .rows = of.rows(),
                                .slots = of.slots(),
                                .offsets = of.offsets(),
                                .most = of.most(),
                                .total = of.total(),
                                .shards = of.shards(),
                                .shard_slots = of.shard_slots(),
                                .any = of.any(),
                                .every = of.every(),
                                .all = of.all(),
                                .words = of.words()});
  });
}

weft_code weft_all_gather_counts_args_init(weft_all_gather_counts_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_all_gather_counts(const weft_group* group, const weft_all_gather_counts_args* args) {
  return call(weft::all_gather_counts, group, args);
}

weft_code weft_take_rows_args_init(weft_take_rows_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_take_rows(const weft_group* group, const weft_take_rows_args* args) {
  return guarded([&] {
    const weft_take_rows_args full = whole(args);
    weft::TakeRowsArgs cpp = cpp_of(full);
    cpp.counts = cpp_or_defaults(full.counts);
    weft::take_rows(at("group", group).group, cpp);
  });
}

}  // extern "C"
