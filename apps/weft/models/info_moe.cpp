#include "models/info_moe.hpp"

#include "common/sizes.hpp"
#include "models/moe_cast.hpp"
#include "models/moe_peers.hpp"

namespace weft::cli {
namespace {

MoeExchangeArgs exchange_of(const ModelShape& model, const MoeWaysArgs& ways, RowLayout layout, RowCast cast) {
  return {.tokens = ways.tokens,
          .hidden = static_cast<std::uint32_t>(model.row_width()),
          .experts = static_cast<std::uint32_t>(model.num_experts),
          .top_k = static_cast<std::uint32_t>(model.top_k),
          .cast = cast,
          .layout = layout,
          // as DeepGEMM's contiguous grouped GEMM wants it
          .alignment = layout == RowLayout::expert_contiguous ? 128u : 1u};
}

struct Other {
  std::string_view name;
  RowLayout layout;
  PeerMemory (*memory)(const PeerLayer& layer);
};
constexpr Other kOthers[] = {{"DeepEP V1 low-latency", RowLayout::expert_masked, deepep_v1},
                             {"DeepEP V2", RowLayout::expert_contiguous, deepep_v2},
                             {"NCCL EP expert-major", RowLayout::expert_masked, nccl_ep_expert_major},
                             {"NCCL EP rank-major", RowLayout::rank_major, nccl_ep_rank_major}};

void add_ways(std::vector<MoeWay>& all, const ModelShape& model, const MoeWaysArgs& args, RowCast cast) {
  const auto wanted = [&](RowLayout layout) { return !args.layout || *args.layout == layout; };
  for (const RowLayout layout :
       {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major, RowLayout::rank_compact}) {
    if (!wanted(layout)) continue;
    const MoeExchangeMemory memory = moe_exchange_memory(args.ranks, exchange_of(model, args, layout, cast));
    all.push_back({"Weft", layout, cast, memory, memory.window, memory.output});
  }
  const PeerLayer layer{.ranks = static_cast<std::size_t>(args.ranks),
                        .tokens = args.tokens,
                        .hidden = static_cast<std::size_t>(model.row_width()),
                        .experts = static_cast<std::size_t>(model.num_experts),
                        .top_k = static_cast<std::size_t>(model.top_k),
                        .fp8 = cast != RowCast::none};
  for (const Other& other : kOthers) {
    if (!wanted(other.layout)) continue;
    const PeerMemory memory = other.memory(layer);
    all.push_back({other.name, other.layout, cast, {}, memory.buffers, memory.output});
  }
}

// `bytes` makes a cell of a number of bytes.
template <class Bytes>
std::vector<std::string> cells_of(const MoeWay& way, Bytes bytes) {
  const auto part = [&](std::size_t of) { return of != 0 ? bytes(of) : std::string(); };
  const auto number = [](std::uint32_t of) { return of != 0 ? std::to_string(of) : std::string(); };
  return {std::string(way.name),
          std::string(name(way.layout)),
          std::string(cast_name(way.cast)),
          part(way.exchange.dispatch),
          part(way.exchange.combine),
          part(way.exchange.tables),
          bytes(way.buffers),
          bytes(way.output),
          number(way.exchange.ring_rows),
          number(way.exchange.half_tokens)};
}

}  // namespace

const char* const kMoeLegend =
    R"(buffers: all that the library takes. For Weft: two banks of dispatch and combine, and tables.
output: the caller's tensors that dispatch fills: rows and scales; by rank: ids and weights, too.
places: for each rank's rows in Weft's ring; none: there is a slot for every token.
halves: most tokens of a rank in a send or a wait alone; joined calls take all.
The others' bytes are computed, for 8-byte expert ids and f32 scales:
  DeepEP V1: low-latency mode, csrc/legacy/config.hpp of github.com/deepseek-ai/DeepEP, July 2026
  DeepEP V2: ElasticBuffer, one NVLink domain, csrc/elastic/buffer.hpp there, July 2026; no pads in its output
  NCCL EP: low-latency mode, common.hpp of nccl_ep 0.1.0, github.com/NVIDIA/nccl-extensions, August 2026
)";

std::vector<MoeWay> moe_ways(const ModelShape& model, const MoeWaysArgs& args) {
  std::vector<MoeWay> all;
  if (args.cast) {
    add_ways(all, model, args, *args.cast);
    return all;
  }
  if (const RowCast usual = usual_cast(model); usual != RowCast::none) add_ways(all, model, args, usual);
  add_ways(all, model, args, RowCast::none);
  return all;
}

Table moe_table(const std::vector<MoeWay>& ways) {
  Table table({"way", "layout", "rows", "dispatch", "combine", "tables", "buffers", "output", "places", "halves"}, 3);
  for (const MoeWay& way : ways) table.add(cells_of(way, format_bytes));
  return table;
}

std::string to_csv(const std::vector<MoeWay>& ways) {
  Table table({"way", "layout", "rows", "dispatch_bytes", "combine_bytes", "tables_bytes", "buffers_bytes",
               "output_bytes", "ring_rows", "half_tokens"});
  for (const MoeWay& way : ways) table.add(cells_of(way, [](std::size_t bytes) { return std::to_string(bytes); }));
  return table.csv();
}

nlohmann::json to_json(const MoeExchangeMemory& memory) {
  return {{"dispatch_bytes", memory.dispatch},
          {"combine_bytes", memory.combine},
          {"tables_bytes", memory.tables},
          {"window_bytes", memory.window}};
}

nlohmann::json to_json(const std::vector<MoeWay>& ways) {
  nlohmann::json all = nlohmann::json::array();
  for (const MoeWay& way : ways) {
    nlohmann::json one = way.exchange.window != 0 ? to_json(way.exchange) : nlohmann::json::object();
    if (way.exchange.window != 0) {
      one.update({{"ring_rows", way.exchange.ring_rows}, {"half_tokens", way.exchange.half_tokens}});
    }
    one.update({{"way", way.name},
                {"layout", name(way.layout)},
                {"rows", cast_name(way.cast)},
                {"buffers_bytes", way.buffers},
                {"output_bytes", way.output}});
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace weft::cli
