// ParallelLayout: which ranks belong together when attention is data parallel, and host forms of what kernels count.
#include "binding.hpp"

namespace weft::python {

namespace {

using Numbers = std::vector<std::int32_t>;

nb::object range_of(const RowRange& range) {
  return record("RowRange")(range.begin, range.end);
}

}  // namespace

void bind_parallel(nb::module_& module) {
  nb::class_<ParallelLayout>(module, "ParallelLayout", R"doc(
Turns tp, dp, ep and moe_dense_tp into groups, slots and shards. Attention's data parallelism is inside of tensor
parallelism, as in SGLang: dp groups of attn_tp = tp / dp ranks each, side by side.

Methods `…_group(rank)` give the members of a rank's group, `…_color(rank)` its color for Communicator.split.)doc")
      .def(
          "__init__",
          [](ParallelLayout* self, int tp, int dp, int ep, int moe_dense_tp) {
            const ParallelLayout layout{.tp = tp, .dp = dp, .ep = ep, .moe_dense_tp = moe_dense_tp};
            layout.check();
            new (self) ParallelLayout(layout);
          },
          nb::arg("tp") = 1, nb::kw_only(), nb::arg("dp") = 1, nb::arg("ep") = 1, nb::arg("moe_dense_tp") = 0)
      .def_ro("tp", &ParallelLayout::tp, "Ranks.")
      .def_ro("dp", &ParallelLayout::dp, "Attention groups.")
      .def_ro("ep", &ParallelLayout::ep, "Expert groups.")
      .def_ro("moe_dense_tp", &ParallelLayout::moe_dense_tp, "As given; 0: all ranks share a dense layer.")
      .def_prop_ro("attn_tp", &ParallelLayout::attn_tp, "Ranks of an attention group: tp / dp.")
      .def_prop_ro("moe_tp", &ParallelLayout::moe_tp, "Ranks that share experts: tp / ep.")
      .def_prop_ro("dense_tp", &ParallelLayout::dense_tp, "Ranks that share a dense feed-forward layer.")
      .def("attn_dp_rank", &ParallelLayout::attn_dp_rank, nb::arg("rank"), "The slot that holds the rank's tokens.")
      .def("attn_tp_rank", &ParallelLayout::attn_tp_rank, nb::arg("rank"), "The rank's own shard of the slot.")
      .def("moe_ep_rank", &ParallelLayout::moe_ep_rank, nb::arg("rank"), "The expert group of the rank.")
      .def("moe_tp_rank", &ParallelLayout::moe_tp_rank, nb::arg("rank"),
           "The rank's place among those that share its experts.")
      .def("attn_tp_group", &ParallelLayout::attn_tp_group, nb::arg("rank"),
           "Ranks that share the heads of some tokens.")
      .def("attn_dp_group", &ParallelLayout::attn_dp_group, nb::arg("rank"), "Ranks with the same heads of all tokens.")
      .def("moe_tp_group", &ParallelLayout::moe_tp_group, nb::arg("rank"), "Ranks that share experts.")
      .def("moe_ep_group", &ParallelLayout::moe_ep_group, nb::arg("rank"), "Ranks with the same part of all experts.")
      .def("dense_tp_group", &ParallelLayout::dense_tp_group, nb::arg("rank"),
           "Ranks that share a dense feed-forward layer.")
      .def("attn_tp_color", &ParallelLayout::attn_tp_color, nb::arg("rank"), "The color of attn_tp_group.")
      .def("attn_dp_color", &ParallelLayout::attn_dp_color, nb::arg("rank"), "The color of attn_dp_group.")
      .def("moe_tp_color", &ParallelLayout::moe_tp_color, nb::arg("rank"), "The color of moe_tp_group.")
      .def("moe_ep_color", &ParallelLayout::moe_ep_color, nb::arg("rank"), "The color of moe_ep_group.")
      .def("dense_tp_color", &ParallelLayout::dense_tp_color, nb::arg("rank"), "The color of dense_tp_group.")
      .def("__repr__", [](const ParallelLayout& self) {
        return fmt::format("weft.ParallelLayout(tp={}, dp={}, ep={}, moe_dense_tp={})", self.tp, self.dp, self.ep,
                           self.moe_dense_tp);
      });

  module.def(
      "shard_of",
      [](std::size_t rows, int parts, int part, Word<Sharding> sharding) {
        return range_of(weft::shard_of(rows, parts, part, value_of("sharding", sharding)));
      },
      nb::arg("rows"), nb::arg("parts"), nb::arg("part"), nb::arg("sharding") = "balanced",
      nb::sig("def shard_of(rows: int, parts: int, part: int, sharding: weft._words.Sharding = 'balanced') "
              "-> weft._records.RowRange"),
      "Part `part` of `rows` rows that `parts` ranks share.");
  module.def(
      "slot_rows_of",
      [](std::size_t rows, Word<Padding> padding, std::size_t slot_rows) {
        return weft::slot_rows_of(rows, value_of("padding", padding), slot_rows);
      },
      nb::arg("rows"), nb::arg("padding") = "none", nb::arg("slot_rows") = 0,
      "Rows of a slot for `rows` rows. slot_rows: the multiple, the slot's rows, or for \"max\" the largest of all.");
  module.def(
      "slots_of",
      [](const Numbers& rows, Word<Padding> padding, std::size_t slot_rows, const std::optional<Numbers>& slots) {
        nb::list ranges;
        const Padding kind = value_of("padding", padding);
        if ((kind == Padding::per_rank) != slots.has_value())
          reject(fmt::format("slots: {}; it is for padding 'per_rank', which is '{}'", slots ? "given" : "none",
                             padding.text));
        if (slots && slots->size() != rows.size())
          reject(fmt::format("slots: {} numbers; rows has {}", slots->size(), rows.size()));
        for (const RowRange& range : slots ? weft::slots_of(rows, *slots) : weft::slots_of(rows, kind, slot_rows))
          ranges.append(range_of(range));
        return ranges;
      },
      nb::arg("rows"), nb::arg("padding") = "none", nb::arg("slot_rows") = 0, nb::arg("slots") = nb::none(),
      nb::sig("def slots_of(rows: collections.abc.Sequence[int], padding: weft._words.Padding = 'none', "
              "slot_rows: int = 0, slots: collections.abc.Sequence[int] | None = None) -> "
              "list[weft._records.RowRange]"),
      "Every rank's slot in a tensor that holds them all, as all_gather_v places them.");
  module.def(
      "shard_counts",
      [](const ParallelLayout& layout, const Numbers& group_rows, Word<Sharding> sharding, std::size_t slot_rows) {
        return weft::shard_counts(layout, group_rows, value_of("sharding", sharding), slot_rows);
      },
      nb::arg("layout"), nb::arg("group_rows"), nb::arg("sharding") = "balanced", nb::arg("slot_rows") = 0,
      "Rows of every rank's shard, from the rows of every attention group: Counts.rows of a call over all ranks.");
}

}  // namespace weft::python
