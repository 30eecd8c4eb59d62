// weft info --moe: the memory that an exchange takes on each rank, compared with other libraries.
#include <fmt/format.h>

#include <algorithm>

#include "common/sizes.hpp"
#include "models/info_moe.hpp"
#include "models/moe_cast.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

// Bytes of a returned row of bf16 in both libraries below: they add 4 bytes per 128 columns.
std::size_t returned_row(const MoeExchangeArgs& args) {
  return std::size_t{args.hidden} * 2 + args.hidden / kScaleColumns * 4;
}
// A word for each expert, rounded up to 128 bytes.
std::size_t signals(const MoeExchangeArgs& args) {
  return (std::size_t{args.experts} * 4 + 127) / 128 * 128;
}

// DeepEP's low-latency buffers. Every expert has room for every token of every rank, to send and to receive. Dispatch
// and combine share this room, so the larger counts. There are two such buffers.
std::size_t deepep_bytes(const MoeExchangeArgs& args) {
  const std::size_t message = std::size_t{args.hidden} * 2 + 16, result = returned_row(args);
  const std::size_t rows = std::size_t{args.experts} * args.tokens;
  const std::size_t send = std::max(args.tokens * message, rows * result), receive = rows * std::max(message, result);
  return 2 * (send + receive + signals(args));
}

// NCCL EP's low-latency buffers. In both layouts a token is sent once per rank. Expert-major: an entry of the header
// has an expert's number, and results are sent from a slot for each token of each expert. Rank-major: an entry has a
// weight, too, and results are sent from a slot for each token of each rank. Each entry has a slot to receive results.
std::size_t nccl_ep_bytes(const MoeExchangeArgs& args, std::size_t ranks, bool by_rank) {
  const std::size_t entry = by_rank ? 8 : 2, row = std::size_t{args.hidden} * 2;
  const std::size_t header = (4 + entry * args.top_k + 15) / 16 * 16;
  const std::size_t dispatch = args.tokens * (header + row) * (1 + ranks);
  const std::size_t combine = args.tokens * returned_row(args) * ((by_rank ? ranks : args.experts) + args.top_k);
  return 2 * (std::max(dispatch, combine) + signals(args));
}

// The columns of a table.
std::vector<std::size_t> bytes_of(const MoeMemory& memory) {
  const MoeExchangeMemory& exchange = memory.exchange;
  return {exchange.dispatch, exchange.combine,      2 * (exchange.dispatch + exchange.combine),
          exchange.tables,   exchange.window,       exchange.output,
          memory.contiguous, memory.rank_major,     memory.deepep,
          memory.nccl_ep,    memory.nccl_ep_by_rank};
}

}  // namespace

std::vector<MoeMemory> moe_memory(const ModelShape& shape, int ranks, std::uint32_t tokens) {
  std::vector<MoeMemory> casts;
  for (const RowCast cast : {RowCast::fp8, RowCast::none}) {
    if (cast == RowCast::fp8 && usual_cast(shape) != cast) continue;
    MoeExchangeArgs args{.tokens = tokens,
                         .hidden = static_cast<std::uint32_t>(shape.row_width()),
                         .experts = static_cast<std::uint32_t>(shape.num_experts),
                         .top_k = static_cast<std::uint32_t>(shape.top_k),
                         .cast = cast};
    MoeMemory memory{.cast = cast, .exchange = moe_exchange_memory(ranks, args)};
    args.layout = RowLayout::expert_contiguous;
    args.alignment = 128;  // as DeepGEMM's contiguous grouped GEMM wants it
    memory.contiguous = moe_exchange_memory(ranks, args).output;
    args.layout = RowLayout::rank_major;
    args.alignment = 1;
    memory.rank_major = moe_exchange_memory(ranks, args).output;
    memory.deepep = deepep_bytes(args);
    memory.nccl_ep = nccl_ep_bytes(args, static_cast<std::size_t>(ranks), false);
    memory.nccl_ep_by_rank = nccl_ep_bytes(args, static_cast<std::size_t>(ranks), true);
    casts.push_back(memory);
  }
  return casts;
}

Table moe_memory_table(const std::vector<MoeMemory>& casts) {
  Table table({"rows", "dispatch", "combine", "both banks", "tables", "window", "masked output", "contiguous",
               "rank-major", "DeepEP", "NCCL EP expert-major", "NCCL EP rank-major"});
  for (const MoeMemory& memory : casts) {
    std::vector<std::string> cells = {std::string(cast_name(memory.cast))};
    for (const std::size_t bytes : bytes_of(memory)) cells.push_back(format_bytes(bytes));
    table.add(std::move(cells));
  }
  return table;
}

std::string to_csv(const std::vector<MoeMemory>& casts) {
  Table table({"rows", "dispatch_bytes", "combine_bytes", "both_banks_bytes", "tables_bytes", "window_bytes",
               "masked_output_bytes", "contiguous_output_bytes", "rank_major_output_bytes", "deepep_bytes",
               "nccl_ep_bytes", "nccl_ep_rank_major_bytes"});
  for (const MoeMemory& memory : casts) {
    std::vector<std::string> cells = {std::string(cast_name(memory.cast))};
    for (const std::size_t bytes : bytes_of(memory)) cells.push_back(std::to_string(bytes));
    table.add(std::move(cells));
  }
  return table.csv();
}

nlohmann::json to_json(const MoeExchangeMemory& memory) {
  return {{"dispatch_bytes", memory.dispatch},
          {"combine_bytes", memory.combine},
          {"tables_bytes", memory.tables},
          {"window_bytes", memory.window}};
}

nlohmann::json to_json(const std::vector<MoeMemory>& casts) {
  nlohmann::json all = nlohmann::json::array();
  for (const MoeMemory& memory : casts) {
    nlohmann::json one = to_json(memory.exchange);
    one.update({{"rows", cast_name(memory.cast)},
                {"masked_output_bytes", memory.exchange.output},
                {"contiguous_output_bytes", memory.contiguous},
                {"rank_major_output_bytes", memory.rank_major},
                {"deepep_bytes", memory.deepep},
                {"nccl_ep_bytes", memory.nccl_ep},
                {"nccl_ep_rank_major_bytes", memory.nccl_ep_by_rank}});
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace weft::cli
