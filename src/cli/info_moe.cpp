// weft info --moe: what an exchange takes on each rank, beside what others take for the same layer.
#include <fmt/format.h>

#include <algorithm>

#include "info_moe.hpp"
#include "models.hpp"
#include "sizes.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

// DeepEP's low-latency buffers: every expert has room for every token of every rank, sent and received, for dispatch
// and for combine (of which the larger counts), twice.
std::size_t deepep_bytes(const ExchangeArgs& args) {
  const std::size_t result = std::size_t{args.hidden} * 2, message = result + 16;
  const std::size_t rows = std::size_t{args.experts} * args.tokens;
  const std::size_t send = std::max(args.tokens * message, rows * result), receive = rows * std::max(message, result);
  return 2 * (send + receive);
}

// NCCL EP's low-latency buffers, expert-major: a token once per rank on the way out, once per entry on the way back.
std::size_t nccl_ep_bytes(const ExchangeArgs& args, std::size_t ranks) {
  const std::size_t header = (4 + 2 * std::size_t{args.top_k} + 15) / 16 * 16, row = std::size_t{args.hidden} * 2;
  const std::size_t dispatch = args.tokens * (header + row) * (1 + ranks);
  const std::size_t combine = args.tokens * (row + row / 256 * 4) * (args.experts + args.top_k);
  return 2 * std::max(dispatch, combine);
}

}  // namespace

Table moe_memory_table(const std::string& model, int ranks, std::uint32_t tokens) {
  const ModelShape shape = preset(model);
  if (!shape.has_experts()) throw Error(Errc::invalid_argument, fmt::format("--moe {}: has no experts", model));
  Table table({"rows", "dispatch", "combine", "both banks", "tables", "window", "masked output", "contiguous",
               "rank-major", "DeepEP", "NCCL EP"});
  for (const RowCast cast : {RowCast::fp8, RowCast::none}) {
    ExchangeArgs args{.tokens = tokens,
                      .hidden = static_cast<std::uint32_t>(shape.hidden),
                      .experts = static_cast<std::uint32_t>(shape.num_experts),
                      .top_k = static_cast<std::uint32_t>(shape.top_k),
                      .cast = cast};
    const ExchangeMemory memory = exchange_memory(ranks, args);
    args.layout = RowLayout::expert_contiguous;
    args.alignment = 128;  // of DeepGEMM's contiguous grouped GEMM
    const std::size_t contiguous = exchange_memory(ranks, args).output;
    args.layout = RowLayout::rank_major;
    args.alignment = 1;
    const std::size_t by_rank = exchange_memory(ranks, args).output;
    table.add({cast == RowCast::none ? "bf16" : "fp8", format_bytes(memory.dispatch), format_bytes(memory.combine),
               format_bytes(2 * (memory.dispatch + memory.combine)), format_bytes(memory.tables),
               format_bytes(memory.window), format_bytes(memory.output), format_bytes(contiguous),
               format_bytes(by_rank), format_bytes(deepep_bytes(args)),
               format_bytes(nccl_ep_bytes(args, static_cast<std::size_t>(ranks)))});
  }
  return table;
}

}  // namespace weft::cli
