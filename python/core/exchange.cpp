// Exchange: its definition, and what it says of itself.
#include "binding.hpp"

namespace weft::python {

// The type of a record of memory, for its name in signatures.
struct ExchangeMemoryRecord {};

}  // namespace weft::python

template <>
struct nanobind::detail::type_caster<weft::python::ExchangeMemoryRecord> {
  static constexpr auto Name = const_name("weft._records.ExchangeMemory");
};

namespace weft::python {

namespace {

// A function of what is there `first`, and of the arguments of an exchange.
template <class First, class Use>
auto with_exchange_args(Use use) {
  return [use](First first, std::uint32_t tokens, std::uint32_t hidden, std::uint32_t experts, std::uint32_t top_k,
               Word<RowType> type, Word<RowCast> cast, Word<ScaleOrder> scale_order, std::uint32_t scale_bytes,
               Word<DataType> combine_type, Word<RowLayout> layout, std::uint32_t alignment, std::uint32_t capacity,
               Word<Overflow> overflow, bool weighted, std::vector<std::uint32_t> rank_of_expert,
               std::vector<std::vector<std::uint32_t>> ranks_of_expert, std::uint32_t handles, Word<RowPath> path,
               std::uint32_t ring_rows, bool weights_at_combine, std::uint32_t slot_tokens,
               std::vector<std::int32_t> experts_of_rank, std::uint32_t maps, bool repeatable,
               std::vector<std::uint32_t> payload_bytes, int blocks) {
    return use(first, MoeExchangeArgs{.tokens = tokens,
                                      .hidden = hidden,
                                      .experts = experts,
                                      .top_k = top_k,
                                      .type = value_of("type", type),
                                      .cast = value_of("cast", cast),
                                      .scale_order = value_of("scale_order", scale_order),
                                      .scale_bytes = scale_bytes,
                                      .payload_bytes = std::move(payload_bytes),
                                      .combine_type = value_of("combine_type", combine_type),
                                      .layout = value_of("layout", layout),
                                      .alignment = alignment,
                                      .capacity = capacity,
                                      .overflow = value_of("overflow", overflow),
                                      .weighted = weighted,
                                      .weights_at_combine = weights_at_combine,
                                      .rank_of_expert = std::move(rank_of_expert),
                                      .ranks_of_expert = std::move(ranks_of_expert),
                                      .experts_of_rank = std::move(experts_of_rank),
                                      .maps = maps,
                                      .handles = handles,
                                      .path = value_of("path", path),
                                      .ring_rows = ring_rows,
                                      .slot_tokens = slot_tokens,
                                      .blocks = blocks,
                                      .repeatable = repeatable});
  };
}

PyExchange created(const PyGroup& group, const MoeExchangeArgs& args) {
  return GroupedExchange{waiting([&] { return MoeExchange::create(*group, args); }), *group};
}

std::vector<std::int32_t> experts(const PyExchange& self, std::uint32_t map) {
  const auto own = self->exchange.experts(map);
  return {own.begin(), own.end()};
}

void set_experts(const PyExchange& self, const std::vector<std::int32_t>& experts_of_rank, std::uint32_t first_map,
                 nb::handle stream) {
  const Stream at = stream_of(stream, self->group);
  waiting([&] { MoeExchange(self->exchange).set_experts(experts_of_rank, first_map, at); });
}

nb::typed<nb::object, ExchangeMemoryRecord> memory_of_exchange(int ranks, const MoeExchangeArgs& args) {
  const MoeExchangeMemory memory = moe_exchange_memory(ranks, args);
  return nb::typed<nb::object, ExchangeMemoryRecord>(
      record("ExchangeMemory")(memory.window, memory.output, memory.ring_rows, memory.half_tokens));
}

nb::list read_host_counts(nb::handle words) {
  const Tensor tensor = tensor_of("words", words, Access::write);
  if (tensor.on_gpu()) reject(fmt::format("words: on {}; they are in the host's memory", device_text(tensor)));
  check_dense("words", tensor, {0, "u64", "i64"});
  auto* const first = reinterpret_cast<std::uint64_t*>(tensor.data);
  nb::list counts;
  for (std::size_t i = 0; i < tensor.count(); ++i) {
    const HostCount read = weft::read_host_count(first + i);
    counts.append(record("HostCount")(read.count, read.stamp));
  }
  return counts;
}

}  // namespace

void bind_exchange(nb::module_& module) {
  module.def("read_host_counts", read_host_counts, nb::arg("words"),
             nb::sig("def read_host_counts(words: object) -> list[weft._records.HostCount]"), R"doc(
Reads `host_counts` of a dispatch, u64 or i64 words in the host's memory, while it runs: rows of each expert, then tokens
of each source (rank_compact: then rows). A word that this dispatch has not written yet has the stamp of before, so note it, and read until all
have another one. Ask check() meanwhile: a dispatch that fails may leave words as they were.)doc");
  const MoeExchangeArgs defaults;
  nb::class_<PyHandle>(module, "DispatchHandle", "Names a dispatch to its combine. Pass it on unchanged.")
      .def_prop_ro(
          "tokens", [](const PyHandle& self) { return self.handle.tokens; }, "This rank's tokens.")
      .def(
          "__eq__", [](const PyHandle& a, const PyHandle& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const PyHandle& self) { return self.handle.number << 8 ^ self.handle.exchange; })
      .def("__repr__", [](const PyHandle& self) {
        return fmt::format("weft.DispatchHandle(exchange {}, dispatch {}, {} tokens)", self.handle.exchange,
                           self.handle.number, self.handle.tokens);
      });

  nb::class_<PyExchange> exchange(module, "Exchange", R"doc(
Dispatch and combine of a mixture of experts among the ranks of a group, with memory of its own.

Dispatch sends each token once to every rank that holds one of its experts; rows of an expert come in (source rank,
token) order, the same in every run. Combine returns each token's owner the weighted sum of what its experts made: f32
sums in a fixed order.

A handle's dispatch comes before its combine, and a combine before the dispatch that takes its handle slot, `handles`
dispatches later. Tensors are dense; no two of a call overlap, but combine's output may be its residual.
Streams, graphs, tags and errors are as in Group.)doc");
  const auto define = [&](const char* name, auto function, const char* first, const char* doc) {
    exchange.def_static(
        name, function, nb::arg(first), nb::kw_only(), nb::arg("tokens"), nb::arg("hidden"), nb::arg("experts"),
        nb::arg("top_k"), nb::arg("type") = "bf16", nb::arg("cast") = "none", nb::arg("scale_order") = "rows",
        nb::arg("scale_bytes") = 0, nb::arg("combine_type") = "bf16", nb::arg("layout") = "expert_masked",
        nb::arg("alignment") = 1, nb::arg("capacity") = 0, nb::arg("overflow") = "error", nb::arg("weighted") = true,
        nb::arg("rank_of_expert") = std::vector<std::uint32_t>(),
        nb::arg("ranks_of_expert") = std::vector<std::vector<std::uint32_t>>(), nb::arg("handles") = defaults.handles,
        nb::arg("path") = "automatic", nb::arg("ring_rows") = 0, nb::arg("weights_at_combine") = false,
        nb::arg("slot_tokens") = 0, nb::arg("experts_of_rank") = std::vector<std::int32_t>(), nb::arg("maps") = 1,
        nb::arg("repeatable") = false, nb::arg("payload_bytes") = std::vector<std::uint32_t>(), nb::arg("blocks") = 0,
        doc);
  };
  define("create", with_exchange_args<const PyGroup&>(created), "group", R"doc(
Collective over the whole communicator; ranks of several groups make theirs at once. The same on every rank of a group:

tokens: most of one rank in one dispatch, 1 … 16384. hidden: columns of a row, of a multiple of 16 bytes.
experts: of all ranks, 1 … 4096. top_k: most experts of a token, 1 … 32.
type: of rows that dispatch takes: "bf16", "f16" or "fp8" (e4m3). combine_type: of combine's rows, "bf16" or "f16".
cast: what dispatch makes of rows on their way: "none", "fp8" (f32 scales per 128 columns), "fp8_ue8m0", "fp8_pow2".
scale_order: "rows", or "columns" as grouped GEMMs read them. scale_bytes: of a row's scales, for fp8 rows given with them.
payload_bytes: of a token, for each of up to four payloads that travel unread beside its row: multiples of 4, with the
    scales 4 per column and 4 KiB more at most. Not with a cast.
layout: "expert_masked" [local experts, capacity, hidden]; "expert_contiguous" [capacity, hidden], experts one behind
    the other, each beginning at a multiple of `alignment`; "rank_major" [ranks, tokens, hidden]; "rank_compact"
    [capacity, hidden], the same rows without holes, which always take the ring.
capacity: rows of one expert (expert_contiguous, rank_compact: of all). 0: as many as there can be.
overflow: "error", or "drop" rows for which there is no room.
weighted: combine multiplies by the weights that dispatch was given; weights_at_combine: that combine is given itself.
rank_of_expert: the rank of each expert; empty: even blocks. ranks_of_expert: instead, the ranks of its replicas.
experts_of_rank: instead, for set_experts(): the expert at each place of each rank, [maps, ranks, places] in one list,
    −1 at empty places. maps: how many, 1 … 1024; a dispatch names its own.
handles: most dispatches whose combine has not ended, 1 … 64.
path: "automatic" (slots up to 1024 tokens, else the ring, and slots for 128 beside it), "slots" or "ring".
blocks: those that calls will be given, 2 … 256; 0: all. From few blocks "automatic" takes the ring for fewer tokens.
ring_rows: places for each rank's rows. slot_tokens: tokens with slots beside the ring, for calls of so many most_tokens.
repeatable: dispatches can be made again with an earlier routing (dispatch's `again`). Rows take the ring alone: path is
    not "slots", and slot_tokens is 0. A dispatch has one round.)doc");
  define("memory", with_exchange_args<int>(memory_of_exchange), "ranks", R"doc(
Bytes that create() of these arguments takes on each of `ranks` ranks of a group, without taking them.)doc");
  exchange
      .def(
          "free", [](const PyExchange& self) { waiting([&] { self->exchange.free(); }); },
          "Gives the memory back on all ranks. Collective like create(); later calls raise Errc.released.")
      .def("set_experts", set_experts, nb::arg("experts_of_rank"), nb::kw_only(), nb::arg("first_map") = 0,
           nb::arg("stream") = nb::none(),
           nb::sig("def set_experts(self, experts_of_rank: collections.abc.Sequence[int], *, first_map: int = 0, "
                   "stream: object = None) -> None"),
           R"doc(
Experts move: the maps from `first_map` on become these, one list as in create(). Collective like create(), at one place
in the order of dispatches. Dispatches behind it on `stream` take the new maps, replays of graphs and recordings of
before included. Handles in flight stay valid, with the map of their dispatch. After an error (Errc.mismatch: ranks give
different maps) the old maps are in force on all ranks.)doc")
      .def(
          "experts_of_map", [](const PyExchange& self, std::uint32_t map) { return experts(self, map); },
          nb::arg("map"), "Global numbers of this rank's experts in one of the maps; −1 for an empty place.")
      .def_prop_ro(
          "local_experts", [](const PyExchange& self) { return self->exchange.local_experts(); },
          "Experts, or places for them, of this rank.")
      .def_prop_ro(
          "experts", [](const PyExchange& self) { return experts(self, 0); },
          "Global numbers of this rank's experts, in the order of the output; −1 for an empty place. Of map 0.")
      .def_prop_ro(
          "capacity", [](const PyExchange& self) { return self->exchange.capacity(); },
          "Rows of one expert; expert_contiguous, rank_compact: of all; rank_major: of one rank.")
      .def_prop_ro(
          "output_rows", [](const PyExchange& self) { return self->exchange.output_rows(); },
          "Rows of dispatch's output and combine's input.")
      .def_prop_ro(
          "tokens", [](const PyExchange& self) { return self->exchange.args().tokens; },
          "Most tokens of a rank in one dispatch.")
      .def_prop_ro(
          "hidden", [](const PyExchange& self) { return self->exchange.args().hidden; }, "Columns of a row.")
      .def_prop_ro(
          "top_k", [](const PyExchange& self) { return self->exchange.args().top_k; }, "Most experts of a token.")
      .def_prop_ro(
          "layout", [](const PyExchange& self) { return word_of(self->exchange.args().layout); },
          nb::sig("def layout(self) -> weft._words.RowLayout"), "The places of rows in dispatch's output.");
  bind_dispatch(exchange);
}

}  // namespace weft::python
