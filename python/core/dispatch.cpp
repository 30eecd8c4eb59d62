// The calls of an exchange.
#include <algorithm>
#include <functional>

#include "binding.hpp"
#include "exchange_args.hpp"

namespace weft::python {

namespace {

struct Inputs {
  nb::handle input, topk_ids, topk_weights, scales, rank_mask, mask_ids, payloads;
};
PayloadTensors take_payloads(Tensors& tensors, const char* name, nb::handle given, Access access) {
  PayloadTensors all;
  if (given.is_none()) return all;
  std::vector<nb::object> objects;
  if (!nb::try_cast(given, objects)) reject_type(fmt::format("{}: must be a sequence of tensors", name));
  for (const nb::object& object : objects) all.push_back(&tensors.taken(name, object, access));
  return all;
}
void take_inputs(DispatchArgs& args, const ExchangeShapes& shapes, Tensors& tensors, const Inputs& given) {
  const Tensor& rows = tensors.input("input", given.input);
  const std::optional<Tensor> ids = tensors.optional("topk_ids", given.topk_ids, Access::read);
  const std::optional<Tensor> mask = tensors.optional("rank_mask", given.rank_mask, Access::read);
  const std::optional<Tensor> mask_ids = tensors.optional("mask_ids", given.mask_ids, Access::write);
  const std::optional<Tensor> weights = tensors.optional("topk_weights", given.topk_weights, Access::read);
  const std::optional<Tensor> scales = tensors.optional("scales", given.scales, Access::read);
  set_inputs(args, shapes,
             {&rows, address(ids), address(weights), address(scales), address(mask), address(mask_ids),
              take_payloads(tensors, "payloads", given.payloads, Access::read)});
}

void take_outputs(DispatchArgs& args, const ExchangeShapes& shapes, Tensors& tensors, nb::handle output,
                  nb::handle payloads, const nb::kwargs& others) {
  set_output(args, shapes, tensors.output("output", output));
  set_output_payloads(args, shapes, take_payloads(tensors, "output_payloads", payloads, Access::write));
  for (const auto& [key, tensor] : others) {
    const std::string name = nb::cast<std::string>(key);
    if (std::ranges::find(kDispatchOutputs, name) == std::end(kDispatchOutputs))
      reject_type(
          fmt::format("unexpected keyword argument '{}'; outputs are {}", name, fmt::join(kDispatchOutputs, ", ")));
    if (tensor.is_none()) continue;
    set_output(args, shapes, name,
               name == kHostCounts ? tensors.of_host(name.c_str(), tensor, Access::write)
                                   : tensors.output(name.c_str(), tensor));
  }
}

template <class Build, class Make>
auto make_dispatch(const PyExchange& self, const CallOptions& options, Build&& build, Make&& make) {
  const MoeExchange& exchange = self->exchange;
  const auto built = [&](Tensors& tensors) { return build(ExchangeShapes(exchange, self->group), tensors); };
  return make_call(
      self->group, options, built, [&](const DispatchArgs& args) { return make(exchange, args); },
      [&](const char* reason, Stream stream) { exchange.refuse_dispatch(reason, stream); });
}

DispatchHandle checked(const PyExchange& self, const char* name, const PyHandle& handle) {
  if (handle.of != &*self) reject(fmt::format("{}: of a dispatch of another exchange", name));
  return handle.handle;
}
// Null: none.
DispatchHandle checked_again(const PyExchange& self, const PyHandle* again) {
  return again != nullptr ? checked(self, "again", *again) : DispatchHandle{};
}

PyHandle named(const PyExchange& self, const DispatchHandle& handle) {
  return {handle, &*self};
}

PyHandle dispatch(const PyExchange& self, nb::handle output, nb::handle input, nb::handle topk_ids,
                  nb::handle topk_weights, nb::handle scales, nb::handle rank_mask, nb::handle mask_ids,
                  const PyHandle* again, nb::handle payloads, nb::handle output_payloads, nb::handle stream,
                  std::uint32_t tag, bool discard, nb::handle rounds, std::uint32_t most_tokens, std::uint32_t map,
                  int blocks, int threads, int cluster, const nb::kwargs& outputs) {
  const GivenRounds given = given_rounds(rounds);
  const auto build = [&](const ExchangeShapes& shapes, Tensors& tensors) {
    DispatchArgs args{.most_tokens = most_tokens,
                      .map = map,
                      .discard = discard,
                      .rounds = given.rounds(),
                      .again = checked_again(self, again)};
    take_inputs(args, shapes, tensors, {input, topk_ids, topk_weights, scales, rank_mask, mask_ids, payloads});
    take_outputs(args, shapes, tensors, output, output_payloads, outputs);
    return args;
  };
  return named(
      self, make_dispatch(self, {stream, tag, blocks, threads, cluster}, build, std::mem_fn(&MoeExchange::dispatch)));
}

PyHandle dispatch_send(const PyExchange& self, nb::handle input, nb::handle topk_ids, nb::handle topk_weights,
                       nb::handle scales, nb::handle rank_mask, nb::handle mask_ids, const PyHandle* again,
                       nb::handle payloads, nb::handle stream, std::uint32_t tag, bool discard, nb::handle rounds,
                       std::uint32_t most_tokens, std::uint32_t map, int blocks, int threads, int cluster) {
  const GivenRounds given = given_rounds(rounds);
  const auto build = [&](const ExchangeShapes& shapes, Tensors& tensors) {
    DispatchArgs args{.most_tokens = most_tokens,
                      .map = map,
                      .discard = discard,
                      .rounds = given.rounds(),
                      .again = checked_again(self, again)};
    take_inputs(args, shapes, tensors, {input, topk_ids, topk_weights, scales, rank_mask, mask_ids, payloads});
    return args;
  };
  return named(self, make_dispatch(self, {stream, tag, blocks, threads, cluster}, build,
                                   std::mem_fn(&MoeExchange::dispatch_send)));
}

void dispatch_wait(const PyExchange& self, const PyHandle& handle, nb::handle output, nb::handle output_payloads,
                   std::uint32_t round, nb::handle stream, std::uint32_t tag, int blocks, int threads, int cluster,
                   const nb::kwargs& outputs) {
  const auto build = [&](const ExchangeShapes& shapes, Tensors& tensors) {
    DispatchArgs args{.tokens = checked(self, "handle", handle).tokens, .round = round};
    take_outputs(args, shapes, tensors, output, output_payloads, outputs);
    return args;
  };
  make_dispatch(
      self, {stream, tag, blocks, threads, cluster}, build,
      [&](const MoeExchange& exchange, const DispatchArgs& args) { exchange.dispatch_wait(handle.handle, args); });
}

struct Combined {
  nb::handle output, input, topk_weights, residual, source_wait_ns;
};
// A part of a combine: the rounds of a send, and its own one.
struct CombineCall {
  void (MoeExchange::*make)(const CombineArgs&) const;
  ExpertRounds rounds = {};
  std::uint32_t round = 0;
};

void make_combine(const PyExchange& self, const PyHandle& handle, const Combined& given, const CallOptions& options,
                  const CombineCall& call) {
  const MoeExchange& exchange = self->exchange;
  const auto build = [&](Tensors& tensors) {
    const auto output = tensors.optional("output", given.output, Access::write);
    const auto input = tensors.optional("input", given.input, Access::read);
    const auto weights = tensors.optional("topk_weights", given.topk_weights, Access::read);
    const auto residual = tensors.optional("residual", given.residual, Access::read);
    const auto waits = tensors.optional("source_wait_ns", given.source_wait_ns, Access::write);
    CombineArgs args =
        combine_args(ExchangeShapes(exchange, self->group), checked(self, "handle", handle),
                     {address(output), address(input), address(weights), address(residual), address(waits)});
    args.rounds = call.rounds;
    args.round = call.round;
    return args;
  };
  make_call(
      self->group, options, build, [&](const CombineArgs& args) { (exchange.*call.make)(args); },
      [&](const char* reason, Stream stream) { exchange.refuse_combine(reason, stream); });
}

void combine(const PyExchange& self, nb::handle output, nb::handle input, const PyHandle& handle, nb::handle residual,
             nb::handle topk_weights, nb::handle source_wait_ns, nb::handle rounds, nb::handle stream,
             std::uint32_t tag, int blocks, int threads, int cluster) {
  const GivenRounds given = given_rounds(rounds);
  make_combine(self, handle, {output, input, topk_weights, residual, source_wait_ns},
               {stream, tag, blocks, threads, cluster}, {&MoeExchange::combine, given.rounds()});
}

void combine_send(const PyExchange& self, nb::handle input, const PyHandle& handle, nb::handle topk_weights,
                  nb::handle rounds, std::uint32_t round, nb::handle stream, std::uint32_t tag, int blocks, int threads,
                  int cluster) {
  const GivenRounds given = given_rounds(rounds);
  make_combine(self, handle, {nb::none(), input, topk_weights, nb::none(), nb::none()},
               {stream, tag, blocks, threads, cluster}, {&MoeExchange::combine_send, given.rounds(), round});
}

void combine_wait(const PyExchange& self, nb::handle output, const PyHandle& handle, nb::handle input,
                  nb::handle residual, nb::handle source_wait_ns, nb::handle stream, std::uint32_t tag, int blocks,
                  int threads, int cluster) {
  make_combine(self, handle, {output, input, nb::none(), residual, source_wait_ns},
               {stream, tag, blocks, threads, cluster}, {&MoeExchange::combine_wait});
}

}  // namespace

void bind_dispatch(nb::class_<PyExchange>& exchange) {
  exchange
      .def("dispatch", dispatch, nb::arg("output"), nb::arg("input"), nb::arg("topk_ids") = nb::none(),
           nb::arg("topk_weights") = nb::none(), nb::kw_only(), nb::arg("scales") = nb::none(),
           nb::arg("rank_mask") = nb::none(), nb::arg("mask_ids") = nb::none(), nb::arg("again").none() = nb::none(),
           nb::arg("payloads") = nb::none(), nb::arg("output_payloads") = nb::none(), nb::arg("stream") = nb::none(),
           nb::arg("tag") = 0, nb::arg("discard") = false, nb::arg("rounds") = 1, nb::arg("most_tokens") = 0,
           nb::arg("map") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::arg("outputs"),
           nb::sig("def dispatch(self, output: object, input: object, topk_ids: object = None, topk_weights: object = "
                   "None, *, scales: object = None, rank_mask: object = None, mask_ids: object = None, again: "
                   "DispatchHandle | None = None, payloads: object = None, output_payloads: object = None, stream: "
                   "object = None, tag: int = 0, discard: bool = False, rounds: int | collections.abc.Sequence[int] = "
                   "1, most_tokens: int = 0, map: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0, "
                   "output_scales: object = "
                   "None, counts: object = None, offsets: object = None, output_sources: object = None, "
                   "source_tokens: object = None, source_wait_ns: object = None, host_counts: object = None, "
                   "output_ids: object = None, output_weights: object = None, rank_prefix: object = None) -> "
                   "DispatchHandle"),
           R"doc(
Sends this rank's tokens to the ranks of their experts, and takes the rows of this rank's own.

input: [tokens, hidden]; topk_ids: [tokens, top_k] i32 or i64, others than 0 … experts − 1 stand for none;
topk_weights: [tokens, top_k] f32, if dispatch carries weights; scales: [tokens, scale_bytes], if it has them.
output: [output_rows, hidden], of the input's type, or e4m3 or u8 if rows are cast. Rows that no token takes are left.

Further outputs, by name: output_scales (f32, or bytes); counts i32 [local experts]; offsets i32 [local experts + 1]
(expert_contiguous); output_sources i32 [output_rows]: source rank · tokens + token; source_tokens i32 [ranks];
source_wait_ns u64 [ranks]; host_counts u64 [local experts + ranks] (rank_compact: 2 · ranks) in pinned memory of the
host; output_ids i32 and output_weights f32 [output_rows, top_k] (rank_major, rank_compact); rank_prefix i32 [ranks,
ranks] (rank_compact): in row i, the rows that the sources 0 … i have for each rank.

payloads: a list of tensors for payload_bytes, [tokens, bytes] of any type, and output_payloads: [output_rows, bytes],
which get them at the places of their rows.
rank_mask: instead of topk_ids, bool or u8 [tokens, ranks]: the ranks that get a token's row. For an exchange of as many
experts as ranks, expert r on rank r, and of as large a top_k. mask_ids: i32 of the same shape, which this writes.
again: the handle of an earlier dispatch of a repeatable exchange, instead of topk_ids and weights: rows come at the
places of that dispatch, for as many tokens. output, output_scales, output_payloads and source_wait_ns are the only
outputs, and others still hold. It takes that handle slot, and returns that handle.
discard: the handle slot taken may still wait for its combine, which is then never called.
rounds: in which rows are sent (dispatch_send). The peers must divide alike.
most_tokens: the most that a rank has in this call, the same on every rank. Up to the exchange's slot_tokens rows take
slots instead of the ring, here and in combine. The blocks that Weft chooses are for so many. 0: not known; rows take
the ring, and blocks are for the exchange's tokens.
map: of the exchange's maps of experts, the same on every rank.)doc")
      .def("dispatch_send", dispatch_send, nb::arg("input"), nb::arg("topk_ids") = nb::none(),
           nb::arg("topk_weights") = nb::none(), nb::kw_only(), nb::arg("scales") = nb::none(),
           nb::arg("rank_mask") = nb::none(), nb::arg("mask_ids") = nb::none(), nb::arg("again").none() = nb::none(),
           nb::arg("payloads") = nb::none(), nb::arg("stream") = nb::none(), nb::arg("tag") = 0,
           nb::arg("discard") = false, nb::arg("rounds") = 1, nb::arg("most_tokens") = 0, nb::arg("map") = 0,
           nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def dispatch_send(self, input: object, topk_ids: object = None, topk_weights: object = None, *, "
                   "scales: object = None, rank_mask: object = None, mask_ids: object = None, again: DispatchHandle | "
                   "None = None, payloads: object = None, stream: object = None, tag: int = 0, discard: bool = False, "
                   "rounds: int | collections.abc.Sequence[int] = 1, most_tokens: int = 0, map: int = 0, blocks: int "
                   "= 0, threads: int = 0, cluster: int = 0) -> DispatchHandle"),
           R"doc(
The first half of dispatch: waits for no rank. Sends and waits take turns.

rounds: into which each rank's experts are divided: their number, 1 to 16, as even as possible; or the experts of each
of them, as many together as the rank has that holds most. Such a dispatch has a wait for each round, and its combine
may have a send for each. Rows travel in the first round that needs them, so nothing is sent twice. Rounds ask for
weights at dispatch; by a ring they serve ring_rows tokens at most. most_tokens, map, rank_mask, mask_ids, again,
payloads: as in dispatch.)doc")
      .def("dispatch_wait", dispatch_wait, nb::arg("handle"), nb::arg("output"), nb::kw_only(),
           nb::arg("output_payloads") = nb::none(), nb::arg("round") = 0, nb::arg("stream") = nb::none(),
           nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::arg("outputs"),
           nb::sig("def dispatch_wait(self, handle: DispatchHandle, output: object, *, output_payloads: object = "
                   "None, round: int = 0, stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, "
                   "cluster: int = 0, "
                   "output_scales: object = None, counts: object = None, offsets: object = None, output_sources: "
                   "object = None, source_tokens: object = None, source_wait_ns: object = None, host_counts: object = "
                   "None, output_ids: object = None, output_weights: object = None, rank_prefix: object = None) -> "
                   "None"),
           "The second half: takes the outputs of dispatch. Waits of rounds come in ascending order. Behind that of "
           "round "
           "r all rows of experts of the rounds 0 to r have come, with their scales and payloads. Other outputs come "
           "with "
           "round 0.")
      .def("combine", combine, nb::arg("output"), nb::arg("input"), nb::arg("handle"), nb::arg("residual") = nb::none(),
           nb::kw_only(), nb::arg("topk_weights") = nb::none(), nb::arg("source_wait_ns") = nb::none(),
           nb::arg("rounds") = 1, nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0,
           nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def combine(self, output: object, input: object, handle: DispatchHandle, residual: object = None, "
                   "*, topk_weights: object = None, source_wait_ns: object = None, rounds: int | "
                   "collections.abc.Sequence[int] = 1, stream: object = None, tag: int = 0, blocks: int = 0, threads: "
                   "int = 0, cluster: int = 0) -> None"),
           R"doc(
output = for each of this rank's tokens the weighted sum of its experts' rows, then the residual.

input: [output_rows, hidden] of combine_type, rows at the places of dispatch; by rank: the sum of what this rank's
experts made of a token. residual, output: [handle.tokens, hidden].
topk_weights: [handle.tokens, top_k] f32, if the exchange has weights_at_combine.)doc")
      .def("combine_send", combine_send, nb::arg("input").none(), nb::arg("handle"), nb::kw_only(),
           nb::arg("topk_weights") = nb::none(), nb::arg("rounds") = 1, nb::arg("round") = 0,
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::arg("cluster") = 0,
           nb::sig("def combine_send(self, input: object, handle: DispatchHandle, *, topk_weights: object = None, "
                   "rounds: int | collections.abc.Sequence[int] = 1, round: int = 0, stream: object = None, tag: int "
                   "= 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           "The first half of combine: waits for no rank. With weights_at_combine, only the weights travel. In rounds "
           "(dispatch_send) it is called for each of them, in ascending order. It sends the sums that the round is the "
           "last one to touch.")
      .def("combine_wait", combine_wait, nb::arg("output"), nb::arg("handle"), nb::kw_only(),
           nb::arg("input") = nb::none(), nb::arg("residual") = nb::none(), nb::arg("source_wait_ns") = nb::none(),
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::arg("cluster") = 0,
           nb::sig("def combine_wait(self, output: object, handle: DispatchHandle, *, input: object = None, residual: "
                   "object = None, source_wait_ns: object = None, stream: object = None, tag: int = 0, blocks: int = "
                   "0, threads: int = 0, cluster: int = 0) -> None"),
           "The second half. An exchange for more tokens than `ring_rows`, or with weights_at_combine, reads `input` "
           "here, too.");
}

}  // namespace weft::python
