// Gathers and scatters of as many rows as counts in memory say, and the exchange of counts.
#include "binding.hpp"
#include "operations.hpp"
#include "py_counts.hpp"

namespace weft::python {

namespace {

// A list of numbers as an array that exports its memory; everything else as it is.
nb::object in_memory(nb::object given) {
  if (!nb::isinstance<nb::list>(given) && !nb::isinstance<nb::tuple>(given)) return given;
  return nb::module_::import_("array").attr("array")("i", given);
}

Counts counts_of(const PyCounts& of, Tensors& tensors, std::size_t numbers, std::size_t slots) {
  Counts counts{.sharding = of.sharding, .padding = of.padding, .slot_rows = of.slot_rows};
  const Tensor& rows = tensors.of_host("counts.rows", of.rows, Access::read);
  std::optional<Tensor> slot_tensor;
  if (!of.slots.is_none()) slot_tensor = tensors.of_host("counts.slots", of.slots, Access::read);
  set_counts(counts, tensors.group, {&rows, address(slot_tensor), numbers, slots});
  return counts;
}

// A tensor, or a list or tuple of them.
std::vector<nb::object> several(nb::handle given) {
  if (!nb::isinstance<nb::list>(given) && !nb::isinstance<nb::tuple>(given)) return {nb::borrow(given)};
  std::vector<nb::object> tensors;
  for (nb::handle one : nb::iter(given)) tensors.push_back(nb::borrow(one));
  return tensors;
}

void all_gather_v(const PyGroup& self, nb::handle output, nb::handle input, const PyCounts& counts,
                  std::size_t group_ranks, nb::handle stream, std::uint32_t tag, int blocks, int threads, int cluster) {
  std::vector<GatheredTensor> gathered;
  const auto build = [&](Tensors& tensors) {
    const std::vector<nb::object> outputs = several(output), inputs = several(input);
    if (outputs.size() != inputs.size())
      reject(fmt::format("output: {} tensors, but {} inputs", outputs.size(), inputs.size()));
    AllGatherVArgs args;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const GatheredPair pair = gathered_pair(tensors.output("output", outputs[i]), tensors.input("input", inputs[i]));
      gathered.push_back(pair.tensor);
      args.input_rows = i == 0 ? pair.input_rows : std::min(args.input_rows, pair.input_rows);
      args.output_rows = i == 0 ? pair.output_rows : std::min(args.output_rows, pair.output_rows);
    }
    args.tensors = gathered;
    args.counts = counts_of(counts, tensors);
    args.group_ranks = group_ranks;
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::all_gather_v);
}

void reduce_scatter_v(const PyGroup& self, nb::handle output, nb::handle input, const PyCounts& counts,
                      Word<ReduceOp> op, nb::handle stream, std::uint32_t tag, int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    ReduceScatterVArgs args = reduce_scatter_v_args(tensors.output("output", output), tensors.input("input", input));
    args.op = value_of("op", op);
    args.counts = counts_of(counts, tensors);
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::reduce_scatter_v);
}

template <void run(const Group&, const CrossingArgs&)>
void cross(const PyGroup& self, nb::handle output, nb::handle input, const PyCounts& counts, std::size_t group_ranks,
           nb::handle stream, std::uint32_t tag, int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    CrossingArgs args = crossing_args(tensors.output("output", output), tensors.input("input", input));
    args.group_ranks = group_ranks;
    args.counts = counts_of(counts, tensors);
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, run);
}

void all_to_all_columns(const PyGroup& self, nb::handle output, nb::handle input, const PyCounts& counts,
                        std::size_t group_ranks, bool even_shards, float scale, float soft_cap, nb::handle stream,
                        std::uint32_t tag, int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    AllToAllColumnsArgs args = all_to_all_columns_args(tensors.output("output", output), tensors.input("input", input));
    args.group_ranks = group_ranks;
    const std::size_t groups = groups_of(tensors.group, group_ranks);
    args.counts = counts_of(counts, tensors, counts.sharding == Sharding::none ? groups : 1, groups);
    args.even_shards = even_shards;
    args.scale = scale;
    args.soft_cap = soft_cap;
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::all_to_all_columns);
}

void take_rows(const PyGroup& self, nb::handle output, nb::handle input, const PyCounts& counts, std::size_t slots,
               std::size_t slot, std::size_t shards, std::size_t shard, bool split_slots, nb::handle stream) {
  const auto build = [&](Tensors& tensors) {
    TakeRowsArgs args = take_rows_args(tensors.output("output", output), tensors.input("input", input));
    args.counts = counts_of(counts, tensors, slots, slots);
    args.slots = slots;
    args.slot = slot;
    args.shards = shards;
    args.shard = shard;
    args.split_slots = split_slots;
    return args;
  };
  make_untold_call(self, {stream}, build, weft::take_rows);
}

void all_gather_counts(const PyGroup& self, nb::handle output, nb::handle input, nb::handle host_output,
                       std::size_t group_ranks, Word<Sharding> sharding, bool split_slots, Word<Padding> padding,
                       std::size_t slot_rows, nb::handle stream, std::uint32_t tag) {
  const auto build = [&](Tensors& tensors) {
    const Tensor &out = tensors.output("output", output), &in = tensors.input("input", input);
    const GatheredCounts places = gathered_counts(tensors.group.size(), in.count(), group_ranks);
    AllGatherCountsArgs args = all_gather_counts_args(out, in, places);
    args.sharding = value_of("sharding", sharding);
    args.split_slots = split_slots;
    args.padding = value_of("padding", padding);
    args.slot_rows = slot_rows;
    if (host_output.is_none()) return args;
    const Tensor& host = tensors.of_host("host_output", host_output, Access::write);
    check_dense("host_output", host, {places.words(), "i32"});
    args.host_output = reinterpret_cast<std::int32_t*>(host.data);
    return args;
  };
  make_call(self, {stream, tag}, build, weft::all_gather_counts);
}

}  // namespace

Counts counts_of(const PyCounts& of, Tensors& tensors) {
  const std::size_t ranks = tensors.group.size();
  return counts_of(of, tensors, of.sharding == Sharding::none ? ranks : 1, ranks);
}

void bind_ragged(nb::module_& module, nb::class_<PyGroup>& group) {
  nb::class_<PyCounts>(module, "Counts", nb::type_slots(collected<PyCounts, &PyCounts::rows, &PyCounts::slots>),
                       R"doc(
The number of rows of each rank. In memory of the group's device, one captured graph serves every batch. GPU ranks
read a list, or a tensor in the CPU's memory, when the call is made. A captured graph keeps its numbers.

rows: i32 [size], a tensor or a list; with a `sharding` [1]. The same on all ranks when the call runs.
sharding: "none", or how ranks share rows[0]: "balanced" (torch.tensor_split) or "ceil" (vLLM's chunks).
padding: how long the slot of a rank with n rows is. "none": n; "aligned": n rounded up to a multiple of `slot_rows`;
    "max": the largest n; "fixed": `slot_rows`; "per_rank": as `slots` says.
slots: i32 [size], for "per_rank" alone; in memory like `rows`.)doc")
      .def(
          "__init__",
          [](PyCounts* self, nb::object rows, Word<Sharding> sharding, Word<Padding> padding, std::size_t slot_rows,
             nb::object slots) {
            new (self) PyCounts{in_memory(std::move(rows)), in_memory(std::move(slots)), value_of("sharding", sharding),
                                value_of("padding", padding), slot_rows};
          },
          nb::arg("rows"), nb::kw_only(), nb::arg("sharding") = "none", nb::arg("padding") = "none",
          nb::arg("slot_rows") = 0, nb::arg("slots") = nb::none(),
          nb::sig("def __init__(self, rows: object, *, sharding: weft._words.Sharding = 'none', padding: "
                  "weft._words.Padding = 'none', slot_rows: int = 0, slots: object = None) -> None"));

  nb::class_<GatheredCounts>(module, "GatheredCounts", R"doc(
The begins of the parts of all_gather_counts' output, in words of i32.

rows [groups] · slots [groups] · offsets [groups + 1] · most [1] · total [1] · shards [ranks] · shard_slots [ranks] ·
any [columns] · every [columns] · all [ranks, columns]; `words` of them together.)doc")
      .def(
          "__init__",
          [](GatheredCounts* self, std::size_t ranks, std::size_t columns, std::size_t group_ranks) {
            new (self) GatheredCounts(gathered_counts(ranks, columns, group_ranks));
          },
          nb::arg("ranks"), nb::arg("columns") = 1, nb::arg("group_ranks") = 1)
      .def_prop_ro("groups", &GatheredCounts::groups, "The number of groups: ranks / group_ranks.")
      .def_prop_ro("rows", &GatheredCounts::rows, "Begin of [groups]: rows of each group.")
      .def_prop_ro("slots", &GatheredCounts::slots, "Begin of [groups]: rows of each group's slot.")
      .def_prop_ro("offsets", &GatheredCounts::offsets,
                   "Begin of [groups + 1]: where each slot begins; the last: rows of all slots.")
      .def_prop_ro("most", &GatheredCounts::most, "Place of the largest of `rows`.")
      .def_prop_ro("total", &GatheredCounts::total, "Place of the sum of `rows`.")
      .def_prop_ro("shards", &GatheredCounts::shards, "Begin of [ranks]: each rank's own part of `rows`.")
      .def_prop_ro("shard_slots", &GatheredCounts::shard_slots,
                   "Begin of [ranks]: the same with pads, for split_slots.")
      .def_prop_ro("any", &GatheredCounts::any, "Begin of [columns]: bits that any rank has set.")
      .def_prop_ro("every", &GatheredCounts::every, "Begin of [columns]: bits that every rank has set.")
      .def_prop_ro("all", &GatheredCounts::all, "Begin of [ranks, columns]: the inputs.")
      .def_prop_ro("words", &GatheredCounts::words, "Words of all parts together.");

  group
      .def("all_gather_v", all_gather_v, nb::arg("output"), nb::arg("input"), nb::arg("counts"), nb::kw_only(),
           nb::arg("group_ranks") = 1, nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0,
           nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def all_gather_v(self, output: object, input: object, counts: Counts, *, group_ranks: int = 1, "
                   "stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
output = the rows of all ranks, each in its slot, and zero in the slots' pads.

input: [capacity, …], of which the first counts.rows[rank] rows are sent; output: [capacity for all slots, …]. Or lists
of 1 to 8 such tensors: hidden state, scales, ids. Rows of one dimension are single elements. Counts that do not fit end
the call with Errc.capacity. group_ranks: so many neighbours have the same rows. An input then has the rows of all of them,
shard behind shard, and a rank sends its own shard (SGLang's dp_gather_replicate).)doc")
      .def("reduce_scatter_v", reduce_scatter_v, nb::arg("output"), nb::arg("input"), nb::arg("counts"), nb::kw_only(),
           nb::arg("op") = "sum", nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0,
           nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def reduce_scatter_v(self, output: object, input: object, counts: Counts, *, op: "
                   "weft._words.ReduceOp = 'sum', stream: object = None, tag: int = 0, blocks: int = 0, threads: "
                   "int = 0, cluster: int = 0) -> None"),
           R"doc(
output = this rank's slot of the reduction of all inputs, and zero in its pads, with the bits of all_reduce.

input: [capacity for all slots, …], of all_reduce's types; output: [capacity for this rank's slot, …]. op: as in
all_reduce.)doc")
      .def("gather_sums", cross<weft::gather_sums>, nb::arg("output"), nb::arg("input"), nb::arg("counts"),
           nb::kw_only(), nb::arg("group_ranks"), nb::arg("stream") = nb::none(), nb::arg("tag") = 0,
           nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def gather_sums(self, output: object, input: object, counts: Counts, *, group_ranks: int, "
                   "stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
output = the sums of each group's rows, on every rank, in all ranks' slots; zero in the slots' pads.

One kernel for reduce_scatter_v inside of each group and all_gather_v among all ranks, with the same bits (SGLang's
dp_gather_partial). Groups are `group_ranks` neighbours (ParallelLayout.attn_tp). counts: of every rank's shard of its
group's rows, as all_gather_counts makes them. input: [capacity for a group's rows, …]: this rank's part of the sums of
its group's rows, shard behind shard; bf16, f16, f32 or i32. output: [capacity for all slots, …].)doc")
      .def("scatter_sums", cross<weft::scatter_sums>, nb::arg("output"), nb::arg("input"), nb::arg("counts"),
           nb::kw_only(), nb::arg("group_ranks"), nb::arg("stream") = nb::none(), nb::arg("tag") = 0,
           nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def scatter_sums(self, output: object, input: object, counts: Counts, *, group_ranks: int, "
                   "stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
output = the sums of all ranks' rows of this rank's group, shard behind shard, and zero behind them for its slots' pads.

The way back of gather_sums: one kernel for reduce_scatter_v among all ranks and all_gather_v inside of each group
(SGLang's dp_reduce_scatter_tensor). input: [capacity for all slots, …]; output: [capacity for the group's slots, …].)doc")
      .def("all_to_all_columns", all_to_all_columns, nb::arg("output"), nb::arg("input"), nb::arg("counts"),
           nb::kw_only(), nb::arg("group_ranks") = 1, nb::arg("even_shards") = false, nb::arg("scale") = 1.0f,
           nb::arg("soft_cap") = 0.0f, nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0,
           nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def all_to_all_columns(self, output: object, input: object, counts: Counts, *, "
                   "group_ranks: int = 1, even_shards: bool = False, scale: float = 1.0, soft_cap: float = 0.0, "
                   "stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
output = all columns of the rows of this rank's group: logits for the ranks that own their tokens alone.

Groups are `group_ranks` neighbours (ParallelLayout.attn_tp). counts: of groups, as all_gather_counts makes them (rows,
slots). input: [capacity for all groups' slots, shard columns], of all_reduce's types: this rank's columns of all rows.
output: [capacity for the group's rows, columns] of the same type, or f32. Rows behind the group's are not written.
Columns, even_shards, scale and soft_cap: as in all_gather_columns.)doc")
      .def("take_rows", take_rows, nb::arg("output"), nb::arg("input"), nb::arg("counts"), nb::kw_only(),
           nb::arg("slots"), nb::arg("slot"), nb::arg("shards") = 1, nb::arg("shard") = 0,
           nb::arg("split_slots") = false, nb::arg("stream") = nb::none(),
           nb::sig("def take_rows(self, output: object, input: object, counts: Counts, *, slots: int, slot: int, "
                   "shards: int = 1, shard: int = 0, split_slots: bool = False, stream: object = None) -> None"),
           R"doc(
output = the rows of one slot of a tensor that all_gather_v has made, and zero behind them. Local: nothing is sent.

input: [rows of all slots, …]; output: [rows, …]. counts.rows and counts.slots are [slots]. With counts.sharding it takes
part `shard` of the slot's `shards` parts; with split_slots the slot is split, of which its rows are the first.)doc")
      .def("all_gather_counts", all_gather_counts, nb::arg("output"), nb::arg("input"), nb::kw_only(),
           nb::arg("host_output") = nb::none(), nb::arg("group_ranks") = 1, nb::arg("sharding") = "balanced",
           nb::arg("split_slots") = false, nb::arg("padding") = "none", nb::arg("slot_rows") = 0,
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0,
           nb::sig("def all_gather_counts(self, output: object, input: object, *, host_output: object = None, "
                   "group_ranks: int = 1, sharding: weft._words.Sharding = 'balanced', split_slots: bool = False, "
                   "padding: weft._words.Padding = 'none', slot_rows: int = 0, stream: object = None, tag: int = "
                   "0) -> None"),
           R"doc(
output = what all ranks' words say: rows, slots, offsets, shards (GatheredCounts names the places), on every rank.

input: i32 [columns], 1 to 64: rows of this rank's group, then any other words. output: i32 [GatheredCounts.words].
host_output: a second copy that the host can read, complete when the stream is; pinned memory, or null.
group_ranks: ranks that have the same rows (ParallelLayout.attn_tp); they share them as `sharding` says.)doc");
}

}  // namespace weft::python
