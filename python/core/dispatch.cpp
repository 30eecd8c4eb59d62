// The calls of an exchange.
#include <functional>

#include "binding.hpp"

namespace weft::python {

namespace {

template <class T>
T* data_of(const Tensor& tensor) {
  return reinterpret_cast<T*>(tensor.data);
}

// What the tensors of an exchange's calls must have.
class Shapes {
 public:
  Shapes(const GroupedExchange& of, Tensors& of_call)
      : tensors(of_call),
        args(of.exchange.args()),
        rows(of.exchange.output_rows()),
        local_experts(of.exchange.local_experts()),
        ranks(of.group.size()) {}

  Tensor checked(const char* argument, nb::handle given, Access access, const Expected& expected) const {
    const Tensor tensor = tensors.taken(argument, given, access);
    check_dense(argument, tensor, expected);
    return tensor;
  }
  Tensor bytes(const char* argument, nb::handle given, Access access, std::size_t bytes) const {
    const Tensor tensor = tensors.taken(argument, given, access);
    check_dense(argument, tensor, {(bytes + tensor.item() - 1) / tensor.item(), name_of(tensor.type)});
    return tensor;
  }
  // Rows of the exchange's type, or fp8 if they were cast.
  Expected exchanged(std::size_t rows_of_all, bool cast) const {
    const std::size_t count = rows_of_all * args.hidden;
    if (cast || args.type == RowType::fp8) return {count, "e4m3", "u8", args.hidden};
    return {count, args.type == RowType::bf16 ? "bf16" : "f16", {}, args.hidden};
  }
  Expected combined(std::size_t rows_of_all) const {
    return {rows_of_all * args.hidden, name(args.combine_type), {}, args.hidden};
  }
  std::size_t scale_bytes() const {
    if (args.cast == RowCast::none) return rows * args.scale_bytes;
    const std::size_t scales = args.hidden / kScaleColumns;
    if (args.cast != RowCast::fp8_ue8m0) return rows * scales * 4;
    return args.scale_order == ScaleOrder::columns ? rows * ((scales + 3) / 4) * 4 : rows * scales;
  }

  Tensors& tensors;
  const MoeExchangeArgs& args;
  std::size_t rows, local_experts, ranks;
};

struct Inputs {
  nb::handle input, topk_ids, topk_weights, scales;
};
void set_inputs(DispatchArgs& args, const Shapes& shapes, const Inputs& given) {
  const Tensor ids = shapes.tensors.input("topk_ids", given.topk_ids);
  if (ids.dimensions != 2 || ids.shape[1] != shapes.args.top_k)
    reject(fmt::format("topk_ids: shape {}; it must be [tokens, {}]", ids.shape_text(), shapes.args.top_k));
  const auto tokens = static_cast<std::size_t>(ids.shape[0]);
  if (tokens > shapes.args.tokens)
    reject(fmt::format("topk_ids: {} tokens; the exchange is for {} at most", tokens, shapes.args.tokens));
  const std::size_t entries = tokens * shapes.args.top_k;
  check_dense("topk_ids", ids, {entries, "i32", "i64"});
  args.tokens = static_cast<std::uint32_t>(tokens);
  args.topk_ids = ids.data;
  args.topk_ids_are_i64 = name_of(ids.type) == "i64";
  args.input = shapes.checked("input", given.input, Access::read, shapes.exchanged(tokens, false)).data;
  if (!given.topk_weights.is_none())
    args.topk_weights = data_of<float>(
        shapes.checked("topk_weights", given.topk_weights, Access::read, {entries, "f32", {}, shapes.args.top_k}));
  if (!given.scales.is_none())
    args.scales = shapes.bytes("scales", given.scales, Access::read, tokens * shapes.args.scale_bytes).data;
}

void check_known(std::string_view name) {
  for (const char* known : {"output_scales", "counts", "offsets", "output_sources", "source_tokens", "source_wait_ns",
                            "host_counts", "output_ids", "output_weights"})
    if (name == known) return;
  reject_type(
      fmt::format("unexpected keyword argument '{}'; outputs are output_scales, counts, offsets, output_sources, "
                  "source_tokens, source_wait_ns, host_counts, output_ids and output_weights",
                  name));
}

// Sets one output by its name.
void set_output(DispatchArgs& args, const Shapes& shapes, std::string_view name, nb::handle given) {
  const auto take = [&](const Expected& expected) {
    return shapes.checked(std::string(name).c_str(), given, Access::write, expected);
  };
  const std::size_t entries = shapes.rows * shapes.args.top_k;
  if (given.is_none()) {
    check_known(name);
  } else if (name == "output") {
    args.output = take(shapes.exchanged(shapes.rows, shapes.args.cast != RowCast::none)).data;
  } else if (name == "output_scales") {
    args.output_scales = shapes.bytes("output_scales", given, Access::write, shapes.scale_bytes()).data;
  } else if (name == "counts") {
    args.counts = data_of<std::int32_t>(take({shapes.local_experts, "i32"}));
  } else if (name == "offsets") {
    args.offsets = data_of<std::int32_t>(take({shapes.local_experts + 1, "i32"}));
  } else if (name == "output_sources") {
    args.output_sources = data_of<std::int32_t>(take({shapes.rows, "i32"}));
  } else if (name == "source_tokens") {
    args.source_tokens = data_of<std::int32_t>(take({shapes.ranks, "i32"}));
  } else if (name == "source_wait_ns") {
    args.source_wait_ns = data_of<std::uint64_t>(take({shapes.ranks, "u64", "i64"}));
  } else if (name == "host_counts") {  // pinned memory of the host
    const Tensor tensor = shapes.tensors.of_host("host_counts", given);
    check_dense("host_counts", tensor, {shapes.local_experts + shapes.ranks, "u64", "i64"});
    args.host_counts = data_of<std::uint64_t>(tensor);
  } else if (name == "output_ids") {
    args.output_ids = data_of<std::int32_t>(take({entries, "i32"}));
  } else if (name == "output_weights") {
    args.output_weights = data_of<float>(take({entries, "f32"}));
  } else {
    check_known(name);
  }
}

void set_outputs(DispatchArgs& args, const Shapes& shapes, nb::handle output, const nb::kwargs& others) {
  set_output(args, shapes, "output", output);
  for (const auto& [name, tensor] : others) set_output(args, shapes, nb::cast<const char*>(name), tensor);
}

template <class Build, class Make>
auto make_dispatch(const PyExchange& self, const CallOptions& options, Build&& build, Make&& make) {
  const MoeExchange& exchange = self->exchange;
  const auto built = [&](Tensors& tensors) { return build(Shapes(*self, tensors)); };
  return make_call(
      self->group, options, built, [&](const DispatchArgs& args) { return make(exchange, args); },
      [&](const char* reason, Stream stream) { exchange.refuse_dispatch(reason, stream); });
}

PyHandle named(const PyExchange& self, const DispatchHandle& handle) {
  return {handle, &*self};
}

PyHandle dispatch(const PyExchange& self, nb::handle output, nb::handle input, nb::handle topk_ids,
                  nb::handle topk_weights, nb::handle scales, nb::handle stream, std::uint32_t tag, bool discard,
                  int blocks, int threads, const nb::kwargs& outputs) {
  const auto build = [&](const Shapes& shapes) {
    DispatchArgs args{.discard = discard};
    set_inputs(args, shapes, {input, topk_ids, topk_weights, scales});
    set_outputs(args, shapes, output, outputs);
    return args;
  };
  return named(self, make_dispatch(self, {stream, tag, blocks, threads}, build, std::mem_fn(&MoeExchange::dispatch)));
}

PyHandle dispatch_send(const PyExchange& self, nb::handle input, nb::handle topk_ids, nb::handle topk_weights,
                       nb::handle scales, nb::handle stream, std::uint32_t tag, bool discard, int blocks, int threads) {
  const auto build = [&](const Shapes& shapes) {
    DispatchArgs args{.discard = discard};
    set_inputs(args, shapes, {input, topk_ids, topk_weights, scales});
    return args;
  };
  return named(self,
               make_dispatch(self, {stream, tag, blocks, threads}, build, std::mem_fn(&MoeExchange::dispatch_send)));
}

DispatchHandle checked(const PyExchange& self, const PyHandle& handle) {
  if (handle.of != &*self) reject("handle: of a dispatch of another exchange");
  return handle.handle;
}

void dispatch_wait(const PyExchange& self, const PyHandle& handle, nb::handle output, nb::handle stream,
                   std::uint32_t tag, int blocks, int threads, const nb::kwargs& outputs) {
  const auto build = [&](const Shapes& shapes) {
    DispatchArgs args{.tokens = checked(self, handle).tokens};
    set_outputs(args, shapes, output, outputs);
    return args;
  };
  make_dispatch(
      self, {stream, tag, blocks, threads}, build,
      [&](const MoeExchange& exchange, const DispatchArgs& args) { exchange.dispatch_wait(handle.handle, args); });
}

struct Combined {
  nb::handle output, input, residual, source_wait_ns;
};
using CombineCall = void (MoeExchange::*)(const CombineArgs&) const;

void make_combine(const PyExchange& self, const PyHandle& handle, const Combined& given, const CallOptions& options,
                  CombineCall make) {
  const MoeExchange& exchange = self->exchange;
  const auto build = [&](Tensors& tensors) {
    const Shapes shapes(*self, tensors);
    CombineArgs args{.handle = checked(self, handle)};
    const Expected tokens = shapes.combined(args.handle.tokens);
    if (!given.input.is_none())
      args.input = shapes.checked("input", given.input, Access::read, shapes.combined(shapes.rows)).data;
    if (!given.output.is_none()) args.output = shapes.checked("output", given.output, Access::write, tokens).data;
    if (!given.residual.is_none())
      args.residual = shapes.checked("residual", given.residual, Access::read, tokens).data;
    if (!given.source_wait_ns.is_none())
      args.source_wait_ns = data_of<std::uint64_t>(
          shapes.checked("source_wait_ns", given.source_wait_ns, Access::write, {shapes.ranks, "u64", "i64"}));
    return args;
  };
  make_call(
      self->group, options, build, [&](const CombineArgs& args) { (exchange.*make)(args); },
      [&](const char* reason, Stream stream) { exchange.refuse_combine(reason, stream); });
}

void combine(const PyExchange& self, nb::handle output, nb::handle input, const PyHandle& handle, nb::handle residual,
             nb::handle source_wait_ns, nb::handle stream, std::uint32_t tag, int blocks, int threads) {
  make_combine(self, handle, {output, input, residual, source_wait_ns}, {stream, tag, blocks, threads},
               &MoeExchange::combine);
}

void combine_send(const PyExchange& self, nb::handle input, const PyHandle& handle, nb::handle stream,
                  std::uint32_t tag, int blocks, int threads) {
  make_combine(self, handle, {nb::none(), input, nb::none(), nb::none()}, {stream, tag, blocks, threads},
               &MoeExchange::combine_send);
}

void combine_wait(const PyExchange& self, nb::handle output, const PyHandle& handle, nb::handle input,
                  nb::handle residual, nb::handle source_wait_ns, nb::handle stream, std::uint32_t tag, int blocks,
                  int threads) {
  make_combine(self, handle, {output, input, residual, source_wait_ns}, {stream, tag, blocks, threads},
               &MoeExchange::combine_wait);
}

}  // namespace

void bind_dispatch(nb::class_<PyExchange>& exchange) {
  exchange
      .def(
          "dispatch", dispatch, nb::arg("output"), nb::arg("input"), nb::arg("topk_ids"),
          nb::arg("topk_weights") = nb::none(), nb::kw_only(), nb::arg("scales") = nb::none(),
          nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("discard") = false, nb::arg("blocks") = 0,
          nb::arg("threads") = 0, nb::arg("outputs"),
          nb::sig("def dispatch(self, output: object, input: object, topk_ids: object, topk_weights: object = None, *, "
                  "scales: object = None, stream: object = None, tag: int = 0, discard: bool = False, "
                  "blocks: int = 0, threads: int = 0, **outputs: object) -> DispatchHandle"),
          R"doc(
Sends this rank's tokens to the ranks of their experts, and takes the rows of this rank's own.

input: [tokens, hidden]; topk_ids: [tokens, top_k] i32 or i64, others than 0 … experts − 1 stand for none;
topk_weights: [tokens, top_k] f32, if the exchange is weighted; scales: [tokens, scale_bytes], if it has them.
output: [output_rows, hidden], of the input's type, or e4m3 or u8 if rows are cast. Rows that no token takes are left.

Further outputs, by name: output_scales (f32, or bytes); counts i32 [local experts]; offsets i32 [local experts + 1]
(expert_contiguous); output_sources i32 [output_rows]: source rank · tokens + token; source_tokens i32 [ranks];
source_wait_ns u64 [ranks]; host_counts u64 [local experts + ranks] in pinned memory of the host; output_ids i32 and
output_weights f32 [output_rows, top_k] (rank_major).

discard: the handle slot taken may still wait for its combine, which is then never called.)doc")
      .def("dispatch_send", dispatch_send, nb::arg("input"), nb::arg("topk_ids"), nb::arg("topk_weights") = nb::none(),
           nb::kw_only(), nb::arg("scales") = nb::none(), nb::arg("stream") = nb::none(), nb::arg("tag") = 0,
           nb::arg("discard") = false, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::sig("def dispatch_send(self, input: object, topk_ids: object, topk_weights: object = None, *, "
                   "scales: object = None, stream: object = None, tag: int = 0, discard: bool = False, "
                   "blocks: int = 0, threads: int = 0) -> DispatchHandle"),
           "The first half of dispatch: waits for no rank. Sends and waits take turns.")
      .def("dispatch_wait", dispatch_wait, nb::arg("handle"), nb::arg("output"), nb::kw_only(),
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::arg("outputs"),
           nb::sig("def dispatch_wait(self, handle: DispatchHandle, output: object, *, stream: object = None, "
                   "tag: int = 0, blocks: int = 0, threads: int = 0, **outputs: object) -> None"),
           "The second half: takes the outputs of dispatch.")
      .def("combine", combine, nb::arg("output"), nb::arg("input"), nb::arg("handle"), nb::arg("residual") = nb::none(),
           nb::kw_only(), nb::arg("source_wait_ns") = nb::none(), nb::arg("stream") = nb::none(), nb::arg("tag") = 0,
           nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::sig("def combine(self, output: object, input: object, handle: DispatchHandle, residual: object = None, "
                   "*, source_wait_ns: object = None, stream: object = None, tag: int = 0, blocks: int = 0, "
                   "threads: int = 0) -> None"),
           R"doc(
output = for each of this rank's tokens the weighted sum of its experts' rows, then the residual.

input: [output_rows, hidden] of combine_type, rows at the places of dispatch; rank_major: the sum of what this rank's
experts made of a token. residual, output: [handle.tokens, hidden].)doc")
      .def("combine_send", combine_send, nb::arg("input"), nb::arg("handle"), nb::kw_only(),
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::sig("def combine_send(self, input: object, handle: DispatchHandle, *, stream: object = None, "
                   "tag: int = 0, blocks: int = 0, threads: int = 0) -> None"),
           "The first half of combine: waits for no rank.")
      .def("combine_wait", combine_wait, nb::arg("output"), nb::arg("handle"), nb::kw_only(),
           nb::arg("input") = nb::none(), nb::arg("residual") = nb::none(), nb::arg("source_wait_ns") = nb::none(),
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::sig("def combine_wait(self, output: object, handle: DispatchHandle, *, input: object = None, "
                   "residual: object = None, source_wait_ns: object = None, stream: object = None, tag: int = 0, "
                   "blocks: int = 0, threads: int = 0) -> None"),
           "The second half. An exchange for more tokens than `ring_rows` reads `input` here, too.");
}

}  // namespace weft::python
