// Reductions, gathers and scatters with as many rows on every rank.
#include "binding.hpp"
#include "operations.hpp"

namespace weft::python {

namespace {

// The tensors of an operation; "none" as its input stands for the output.
struct Pair {
  const Tensor &out, &in;
};
Pair pair_of(Tensors& tensors, nb::handle output, nb::handle input) {
  const Tensor& out = tensors.output("output", output);
  return {out, input.is_none() ? out : tensors.input("input", input)};
}

void all_reduce(const PyGroup& self, nb::handle output, nb::handle input, Word<ReduceOp> op, Word<Algorithm> algorithm,
                nb::handle stream, std::uint32_t tag, int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    const auto [out, in] = pair_of(tensors, output, input);
    AllReduceArgs args = all_reduce_args(out, in);
    args.op = value_of("op", op);
    args.algorithm = value_of("algorithm", algorithm);
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::all_reduce);
}

void reduce(const PyGroup& self, nb::handle output, nb::handle input, Word<ReduceOp> op, int root, nb::handle stream,
            std::uint32_t tag, int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    const bool at_root = tensors.group.rank() == root;
    const auto out = at_root ? tensors.optional("output", output, Access::write) : std::nullopt;
    const Tensor* const result = of_root("output", at_root, out);
    const bool in_place = input.is_none();
    const Tensor& in = in_place && result != nullptr
                           ? *result
                           : tensors.input(in_place ? "output" : "input", in_place ? output : input);
    ReduceArgs args = reduce_args(result, in);
    args.op = value_of("op", op);
    args.root = root;
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::reduce);
}

void all_gather_into_tensor(const PyGroup& self, nb::handle output, nb::handle input, nb::handle stream,
                            std::uint32_t tag, int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    const auto [out, in] = pair_of(tensors, output, input);
    return all_gather_args(out, in, tensors.group.size());
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::all_gather_into_tensor);
}

void all_to_all(const PyGroup& self, nb::handle output, nb::handle input, nb::handle stream, std::uint32_t tag,
                int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    const auto [out, in] = pair_of(tensors, output, input);
    return all_to_all_args(out, in, tensors.group.size());
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::all_to_all);
}

void broadcast(const PyGroup& self, nb::handle output, nb::handle input, int root, nb::handle stream, std::uint32_t tag,
               int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    const auto [out, in] = pair_of(tensors, output, tensors.group.rank() == root ? input : nb::none());
    BroadcastArgs args = broadcast_args(out, in);
    args.root = root;
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::broadcast);
}

void reduce_scatter_tensor(const PyGroup& self, nb::handle output, nb::handle input, Word<ReduceOp> op,
                           nb::handle stream, std::uint32_t tag, int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    const auto [out, in] = pair_of(tensors, output, input);
    ReduceScatterArgs args = reduce_scatter_args(out, in, tensors.group.size());
    args.op = value_of("op", op);
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::reduce_scatter_tensor);
}

void all_gather_columns(const PyGroup& self, nb::handle output, nb::handle input, bool even_shards, float scale,
                        float soft_cap, nb::handle stream, std::uint32_t tag, int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    AllGatherColumnsArgs args =
        all_gather_columns_args(tensors.output("output", output), tensors.input("input", input));
    args.even_shards = even_shards;
    args.scale = scale;
    args.soft_cap = soft_cap;
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::all_gather_columns);
}

void top_k_columns(const PyGroup& self, nb::handle values, nb::handle indices, nb::handle input, std::size_t columns,
                   bool even_shards, nb::handle stream, std::uint32_t tag, int blocks, int threads, int cluster) {
  const auto build = [&](Tensors& tensors) {
    const std::optional<Tensor> found = tensors.optional("values", values, Access::write);
    TopKColumnsArgs args =
        top_k_columns_args(address(found), tensors.output("indices", indices), tensors.input("input", input));
    args.columns = columns;
    args.even_shards = even_shards;
    return args;
  };
  make_call(self, {stream, tag, blocks, threads, cluster}, build, weft::top_k_columns);
}

void barrier(const PyGroup& self, nb::handle stream, std::uint32_t tag) {
  make_call(
      self, {stream, tag}, [](Tensors&) { return BarrierArgs(); }, weft::barrier);
}

}  // namespace

void bind_collectives(nb::class_<PyGroup>& group) {
  group
      .def("all_reduce", all_reduce, nb::arg("output"), nb::arg("input") = nb::none(), nb::kw_only(),
           nb::arg("op") = "sum", nb::arg("algorithm") = "automatic", nb::arg("stream") = nb::none(),
           nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def all_reduce(self, output: object, input: object = None, *, op: weft._words.ReduceOp = "
                   "'sum', algorithm: weft._words.Algorithm = 'automatic', stream: object = None, tag: int = 0, "
                   "blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
output = the reduction over ranks of their inputs. Results have the same bits on every rank, in every run, with every
algorithm of Weft's own, on CPU and GPU.

output: elements side by side, of any shape: bf16, f16, f32, i32, i64 or u8. input: as many of the same type; None:
    `output`.
op: "sum" (integers modulo 2^bits); "max" or "min" (NaN wins over every number); "avg", the sum divided by the number of
    ranks (integers: rounded toward zero).
algorithm: "automatic", "one_shot", "two_shot", "pipelined", "nccl", "multimem_one_shot" or "multimem_two_shot".)doc")
      .def("reduce", reduce, nb::arg("output").none(), nb::arg("input") = nb::none(), nb::kw_only(),
           nb::arg("op") = "sum", nb::arg("root") = 0, nb::arg("stream") = nb::none(), nb::arg("tag") = 0,
           nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def reduce(self, output: object, input: object = None, *, op: weft._words.ReduceOp = 'sum', "
                   "root: int = 0, stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: "
                   "int = 0) -> None"),
           R"doc(
output = on rank `root` of the group, the reduction over ranks of their inputs, with the bits of all_reduce.

output: as in all_reduce. Other ranks may give None, and nothing is written there. input: as many elements of the same
type on every rank; None: `output`, of which ranks but the root read alone.
op: as in all_reduce.)doc")
      .def("all_gather_into_tensor", all_gather_into_tensor, nb::arg("output"), nb::arg("input"), nb::kw_only(),
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::arg("cluster") = 0,
           nb::sig("def all_gather_into_tensor(self, output: object, input: object, *, stream: object = None, "
                   "tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
output = the inputs of all ranks, in rank order, bit for bit.

input: [rows, …], the same shape on every rank; or one dimension. Elements of a row lie side by side, rows may have gaps.
output: [size · rows, …], or any dense tensor of as many bytes, as [size, rows, …].)doc")
      .def("all_to_all", all_to_all, nb::arg("output"), nb::arg("input"), nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def all_to_all(self, output: object, input: object, *, stream: object = None, tag: int = 0, "
                   "blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
Part q of the input goes to rank q, and part r of the output comes from rank r (torch's all_to_all_single).

input: [size · rows, …], or one dimension with a multiple of `size` elements; the same shape on every rank.
output: of the same shape, apart from the input.)doc")
      .def("broadcast", broadcast, nb::arg("output"), nb::arg("input") = nb::none(), nb::kw_only(), nb::arg("root") = 0,
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::arg("cluster") = 0,
           nb::sig("def broadcast(self, output: object, input: object = None, *, root: int = 0, "
                   "stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) -> None"),
           "output = the input of rank `root` of the group. input: of the same shape; None: `output`; only the root's "
           "is "
           "read.")
      .def("reduce_scatter_tensor", reduce_scatter_tensor, nb::arg("output"), nb::arg("input"), nb::kw_only(),
           nb::arg("op") = "sum", nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0,
           nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def reduce_scatter_tensor(self, output: object, input: object, *, op: weft._words.ReduceOp = "
                   "'sum', stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, cluster: int = 0) "
                   "-> None"),
           R"doc(
output = this rank's part of the reduction of all inputs, with the bits of all_reduce.

output: [rows, …], or one dimension, of all_reduce's types; the same shape on every rank.
input: [size · rows, …], or any dense tensor of as many bytes. op: as in all_reduce.)doc")
      .def("all_gather_columns", all_gather_columns, nb::arg("output"), nb::arg("input"), nb::kw_only(),
           nb::arg("even_shards") = false, nb::arg("scale") = 1.0f, nb::arg("soft_cap") = 0.0f,
           nb::arg("stream") = nb::none(), nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0,
           nb::arg("cluster") = 0,
           nb::sig("def all_gather_columns(self, output: object, input: object, *, even_shards: bool = False, "
                   "scale: float = 1.0, soft_cap: float = 0.0, stream: object = None, tag: int = 0, blocks: int = 0, "
                   "threads: int = 0, cluster: int = 0) -> None"),
           R"doc(
output = the inputs of all ranks beside each other, as a vocabulary's logits from the ranks that share it.

input: [rows, shard columns] of all_reduce's types, the same shape on every rank. Rows may have gaps.
output: [rows, columns] of the same type, or f32 for an input of bf16 or f16. It has 1 to size · shard columns: columns
    behind it are pads of the last shards. It may have gaps between rows, which are not written.
even_shards: the columns are divided as torch.tensor_split does. The first columns % size ranks have one more than the
    others, and what a shard has behind its own are pads.
scale, soft_cap: elements of bf16, f16 and f32 become scale · x, and with a soft cap soft_cap · tanh(x · (scale /
    soft_cap)), with the same bits on every rank, CPU and GPU.)doc")
      .def("top_k_columns", top_k_columns, nb::arg("values").none(), nb::arg("indices"), nb::arg("input"),
           nb::kw_only(), nb::arg("columns") = 0, nb::arg("even_shards") = false, nb::arg("stream") = nb::none(),
           nb::arg("tag") = 0, nb::arg("blocks") = 0, nb::arg("threads") = 0, nb::arg("cluster") = 0,
           nb::sig("def top_k_columns(self, values: object, indices: object, input: object, *, columns: int = 0, "
                   "even_shards: bool = False, stream: object = None, tag: int = 0, blocks: int = 0, threads: int = 0, "
                   "cluster: int = 0) "
                   "-> None"),
           R"doc(
values, indices = for each row the k largest of all ranks' columns, on every rank: candidates for the next token.

input: [rows, shard columns] of bf16, f16 or f32, the same shape on every rank. Rows may have gaps.
indices: [rows, k] i32, k from 1 to 64: the columns among all ranks', the smaller one of equal numbers first.
values: [rows, k] of the input's type, descending, or None. NaN comes before all numbers, and −0 as +0.
columns: of all ranks; those behind them are pads of the last shards, and no candidates. 0: all.
even_shards: as in all_gather_columns.)doc")
      .def("barrier", barrier, nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("tag") = 0,
           nb::sig("def barrier(self, *, stream: object = None, tag: int = 0) -> None"),
           "No rank's barrier ends before every rank's has begun.");
}

}  // namespace weft::python
