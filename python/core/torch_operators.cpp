// torch's operators, for tensors on CPUs and GPUs. weft/torch.py has their fakes and the functions around them.
#include <algorithm>

#include "torch_call.hpp"
#include "torch_module.hpp"

namespace weft::python::torch {

namespace {

// all_reduce_(Tensor(a!) x, int group, int options) -> ()
// all_reduce(Tensor x, …) -> Tensor
template <bool InPlace>
void all_reduce(Stack& stack) {
  const Tensor in = stack.tensor();
  const Group group = stack.group();
  Tensor made;
  make(
      group,
      [&] {
        check_device(group, in);
        if (!InPlace) made = empty_like(in);
        AllReduceArgs args = all_reduce_args(InPlace ? in : made, in);
        args.algorithm = set_options(args, stack).algorithm();
        return args;
      },
      weft::all_reduce);
  if (!InPlace) stack.give(made);
}

// reduce(Tensor(a!)? output, Tensor(b!) input, int group, int root, int options) -> (): the input seems to change, as
// ranks but the root may have no output, and a compiler drops a call that changes nothing.
void reduce(Stack& stack) {
  const std::optional<Tensor> out = stack.optional();
  const Tensor in = stack.tensor();
  const Group group = stack.group();
  make(
      group,
      [&] {
        const int root = stack.rank();
        const Tensor* const result = checked_of_root("output", group, root, out);
        check_device(group, in);
        ReduceArgs args = reduce_args(result, in);
        args.root = root;
        set_options(args, stack);
        return args;
      },
      weft::reduce);
}

// An output and an input that a function turns into arguments.
template <auto ArgsOf, auto Call>
void moves(Stack& stack) {
  const Tensor out = stack.tensor(), in = stack.tensor();
  const Group group = stack.group();
  make(
      group,
      [&] {
        check_device(group, out);
        check_device(group, in);
        auto args = ArgsOf(out, in, static_cast<std::size_t>(group.size()));
        set_options(args, stack);
        return args;
      },
      Call);
}

// all_gather_columns(Tensor(a!) output, Tensor input, int group, bool even_shards, float scale,
//   float soft_cap, int options) -> ()
void all_gather_columns(Stack& stack) {
  const Tensor out = stack.tensor(), in = stack.tensor();
  const Group group = stack.group();
  make(
      group,
      [&] {
        check_device(group, out);
        check_device(group, in);
        AllGatherColumnsArgs args = all_gather_columns_args(out, in);
        args.even_shards = stack.flag();
        args.scale = stack.real();
        args.soft_cap = stack.real();
        set_options(args, stack);
        return args;
      },
      weft::all_gather_columns);
}

// top_k_columns(Tensor(a!)? values, Tensor(b!) indices, Tensor input, int group, int columns,
//   bool even_shards, int options) -> ()
void top_k_columns(Stack& stack) {
  const std::optional<Tensor> values = stack.optional();
  const Tensor indices = stack.tensor(), in = stack.tensor();
  const Group group = stack.group();
  make(
      group,
      [&] {
        if (values) check_device(group, *values);
        check_device(group, indices);
        check_device(group, in);
        TopKColumnsArgs args = top_k_columns_args(address(values), indices, in);
        const std::int64_t columns = stack.integer();
        if (columns < 0) reject(fmt::format("columns: {} is below 0", columns));
        args.columns = static_cast<std::size_t>(columns);
        args.even_shards = stack.flag();
        set_options(args, stack);
        return args;
      },
      weft::top_k_columns);
}

// broadcast_(Tensor(a!) x, int group, int root, int options) -> ()
void broadcast(Stack& stack) {
  const Tensor x = stack.tensor();
  const Group group = stack.group();
  make(
      group,
      [&] {
        check_device(group, x);
        BroadcastArgs args = broadcast_args(x, x);
        args.root = stack.rank();
        set_options(args, stack);
        return args;
      },
      weft::broadcast);
}

// barrier(Tensor(a!) x, int group, int options) -> (): torch finds an operator by a tensor's device, and a compiler
// drops one that seems to change nothing.
void barrier(Stack& stack) {
  const Tensor x = stack.tensor();
  const Group group = stack.group();
  make(
      group,
      [&] {
        check_device(group, x);
        return BarrierArgs{.tag = stack.options().tag()};
      },
      weft::barrier);
}

// all_gather_v(Tensor(a!)[] outputs, Tensor[] inputs, Tensor rows, Tensor? slots, int group, int sharding,
//   int padding, int slot_rows, int group_ranks, int options) -> ()
void all_gather_v(Stack& stack) {
  const std::vector<Tensor> outputs = stack.tensors(), inputs = stack.tensors();
  const Tensor rows = stack.tensor();
  const RaggedCounts counts{rows, stack.optional()};
  const Group group = stack.group();
  std::vector<GatheredTensor> gathered;
  make(
      group,
      [&] {
        if (outputs.size() != inputs.size())
          reject(fmt::format("output: {} tensors, but {} inputs", outputs.size(), inputs.size()));
        AllGatherVArgs args;
        for (std::size_t i = 0; i < outputs.size(); ++i) {
          check_device(group, outputs[i]);
          check_device(group, inputs[i]);
          const GatheredPair pair = gathered_pair(outputs[i], inputs[i]);
          gathered.push_back(pair.tensor);
          args.input_rows = i == 0 ? pair.input_rows : std::min(args.input_rows, pair.input_rows);
          args.output_rows = i == 0 ? pair.output_rows : std::min(args.output_rows, pair.output_rows);
        }
        args.tensors = gathered;
        const auto ranks = static_cast<std::size_t>(group.size());
        args.counts = counts.taken(stack, group, ranks, ranks);
        args.group_ranks = static_cast<std::size_t>(stack.integer());
        set_options(args, stack);
        return args;
      },
      weft::all_gather_v);
}

// Ragged calls that sum rows: reduce_scatter_v(Tensor(a!) output, Tensor input, Tensor rows, Tensor? slots, int group,
//   int sharding, int padding, int slot_rows, int options) -> (); crossings have group_ranks before the options.
template <auto args_of, auto run>
void ragged_sums(Stack& stack) {
  const Tensor out = stack.tensor(), in = stack.tensor(), rows = stack.tensor();
  const RaggedCounts counts{rows, stack.optional()};
  const Group group = stack.group();
  make(
      group,
      [&] {
        check_device(group, out);
        check_device(group, in);
        auto args = args_of(out, in);
        const auto ranks = static_cast<std::size_t>(group.size());
        args.counts = counts.taken(stack, group, ranks, ranks);
        if constexpr (requires { args.group_ranks; }) args.group_ranks = static_cast<std::size_t>(stack.integer());
        set_options(args, stack);
        return args;
      },
      run);
}
constexpr const char* kCrossing =
    "(Tensor(a!) output, Tensor input, Tensor rows, Tensor? slots, int group, int sharding, int padding, "
    "int slot_rows, int group_ranks, int options) -> ()";

// all_to_all_columns(Tensor(a!) output, Tensor input, Tensor rows, Tensor? slots, int group, int group_ranks,
//   int sharding, int padding, int slot_rows, bool even_shards, float scale, float soft_cap, int options) -> ()
void all_to_all_columns(Stack& stack) {
  const Tensor out = stack.tensor(), in = stack.tensor(), rows = stack.tensor();
  const RaggedCounts counts{rows, stack.optional()};
  const Group group = stack.group();
  make(
      group,
      [&] {
        check_device(group, out);
        check_device(group, in);
        AllToAllColumnsArgs args = all_to_all_columns_args(out, in);
        args.group_ranks = static_cast<std::size_t>(stack.integer());
        const std::size_t groups = groups_of(group, args.group_ranks);
        args.counts = counts.taken(stack, group, groups, groups);
        args.even_shards = stack.flag();
        args.scale = stack.real();
        args.soft_cap = stack.real();
        set_options(args, stack);
        return args;
      },
      weft::all_to_all_columns);
}

// take_rows(Tensor(a!) output, Tensor input, Tensor rows, Tensor? slots, int group, int sharding, int padding,
//   int slot_rows, int slots, int slot, int shards, int shard, bool split_slots) -> ()
void take_rows(Stack& stack) {
  const Tensor out = stack.tensor(), in = stack.tensor(), rows = stack.tensor();
  const RaggedCounts counts{rows, stack.optional()};
  const Group group = stack.group();
  check_device(group, out);
  check_device(group, in);
  TakeRowsArgs args = take_rows_args(out, in);
  args.counts = counts.taken(stack, group, 1, 1);
  args.slots = static_cast<std::size_t>(stack.integer());
  args.slot = static_cast<std::size_t>(stack.integer());
  args.shards = static_cast<std::size_t>(stack.integer());
  args.shard = static_cast<std::size_t>(stack.integer());
  args.split_slots = stack.flag();
  set_counts(args.counts, group, {&rows, address(counts.slots), args.slots, args.slots});
  args.stream = current_stream(group.cuda_device());
  weft::take_rows(group, args);
}

// all_gather_counts(Tensor(a!) output, Tensor input, int group, int group_ranks, int sharding, bool split_slots,
//   int padding, int slot_rows, int options) -> ()
void all_gather_counts(Stack& stack) {
  const Tensor out = stack.tensor(), in = stack.tensor();
  const Group group = stack.group();
  make(
      group,
      [&] {
        check_device(group, out);
        check_device(group, in);
        const auto group_ranks = static_cast<std::size_t>(stack.integer());
        const GatheredCounts places = gathered_counts(static_cast<std::size_t>(group.size()), in.count(), group_ranks);
        AllGatherCountsArgs args = all_gather_counts_args(out, in, places);
        args.sharding = static_cast<Sharding>(stack.integer());
        args.split_slots = stack.flag();
        args.padding = static_cast<Padding>(stack.integer());
        args.slot_rows = static_cast<std::size_t>(stack.integer());
        set_options(args, stack);
        return args;
      },
      weft::all_gather_counts);
}

const Operator kOperators[] = {
    {"all_reduce_", "(Tensor(a!) x, int group, int options) -> ()", kernel<all_reduce<true>>},
    {"all_reduce", "(Tensor x, int group, int options) -> Tensor", kernel<all_reduce<false>>},
    {"reduce", "(Tensor(a!)? output, Tensor(b!) input, int group, int root, int options) -> ()", kernel<reduce>},
    {"all_gather_into_tensor", "(Tensor(a!) output, Tensor input, int group, int options) -> ()",
     kernel<moves<all_gather_args, weft::all_gather_into_tensor>>},
    {"all_to_all", "(Tensor(a!) output, Tensor input, int group, int options) -> ()",
     kernel<moves<all_to_all_args, weft::all_to_all>>},
    {"reduce_scatter_tensor", "(Tensor(a!) output, Tensor input, int group, int options) -> ()",
     kernel<moves<reduce_scatter_args, weft::reduce_scatter_tensor>>},
    {"all_gather_columns",
     "(Tensor(a!) output, Tensor input, int group, bool even_shards, float scale, float soft_cap, int options) -> ()",
     kernel<all_gather_columns>},
    {"all_to_all_columns",
     "(Tensor(a!) output, Tensor input, Tensor rows, Tensor? slots, int group, int group_ranks, int sharding, "
     "int padding, int slot_rows, bool even_shards, float scale, float soft_cap, int options) -> ()",
     kernel<all_to_all_columns>},
    {"top_k_columns",
     "(Tensor(a!)? values, Tensor(b!) indices, Tensor input, int group, int columns, bool even_shards, "
     "int options) -> ()",
     kernel<top_k_columns>},
    {"broadcast_", "(Tensor(a!) x, int group, int root, int options) -> ()", kernel<broadcast>},
    {"barrier", "(Tensor(a!) x, int group, int options) -> ()", kernel<barrier>},
    {"all_gather_v",
     "(Tensor(a!)[] outputs, Tensor[] inputs, Tensor rows, Tensor? slots, int group, int sharding, int padding, "
     "int slot_rows, int group_ranks, int options) -> ()",
     kernel<all_gather_v>},
    {"reduce_scatter_v",
     "(Tensor(a!) output, Tensor input, Tensor rows, Tensor? slots, int group, int sharding, int padding, "
     "int slot_rows, int options) -> ()",
     kernel<ragged_sums<reduce_scatter_v_args, weft::reduce_scatter_v>>},
    {"gather_sums", kCrossing, kernel<ragged_sums<crossing_args, weft::gather_sums>>},
    {"scatter_sums", kCrossing, kernel<ragged_sums<crossing_args, weft::scatter_sums>>},
    {"take_rows",
     "(Tensor(a!) output, Tensor input, Tensor rows, Tensor? slots, int group, int sharding, int padding, "
     "int slot_rows, int of_slots, int slot, int shards, int shard, bool split_slots) -> ()",
     kernel<take_rows>},
    {"all_gather_counts",
     "(Tensor(a!) output, Tensor input, int group, int group_ranks, int sharding, bool split_slots, int padding, "
     "int slot_rows, int options) -> ()",
     kernel<all_gather_counts>},
};

}  // namespace

void define_operators() {
  // Of torch 2.10: the meaning of values on the stack.
  constexpr std::uint64_t kAbi = std::uint64_t{2} << 56 | std::uint64_t{10} << 48;
  const Functions& f = functions();
  LibraryHandle library = nullptr;  // it stays: operators live as long as the process
  check(f.aoti_torch_library_init_def("weft", "weft", 0, &library), "library_init_def");
  std::vector<Operator> all(std::begin(kOperators), std::end(kOperators));
  for (const std::vector<Operator>& more : {norm_operators(), message_operators(), exchange_operators()})
    all.insert(all.end(), more.begin(), more.end());
  for (const Operator& of : all)
    check(f.aoti_torch_library_def(library, fmt::format("{}{}", of.name, of.schema).c_str()), of.name);
  for (const char* key : {"CPU", "CUDA"}) {
    LibraryHandle implementation = nullptr;
    check(f.aoti_torch_library_init_impl("weft", key, "weft", 0, &implementation), key);
    for (const Operator& of : all) check(f.torch_library_impl(implementation, of.name, of.kernel, kAbi), of.name);
  }
}

}  // namespace weft::python::torch
