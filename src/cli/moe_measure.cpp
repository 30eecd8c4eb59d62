#include "moe_measure.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "measure.hpp"

namespace weft::cli {

// Everything one rank needs.
struct MoeMeasurement::RankMoe {
  std::unique_ptr<RankDevice> device;
  Exchange exchange;
  void *rows, *ids, *weights, *output, *scales, *counts, *offsets, *source_tokens, *local_ids, *local_weights,
      *expert_rows, *combined;
  std::size_t row_bytes, scale_bytes;
};

namespace {

template <class RankMoe>
RankMoe open_rank(Ranks& ranks, const Ranks::Seat& seat, const ExchangeArgs& args) {
  RankMoe rank{.device = open_rank_device(ranks, seat),
               .exchange = Exchange::create(seat.communicator(), args),
               .rows = nullptr,
               .ids = nullptr,
               .weights = nullptr,
               .output = nullptr,
               .scales = nullptr,
               .counts = nullptr,
               .offsets = nullptr,
               .source_tokens = nullptr,
               .local_ids = nullptr,
               .local_weights = nullptr,
               .expert_rows = nullptr,
               .combined = nullptr,
               .row_bytes = args.hidden * (args.cast == RowCast::none ? 2u : 1u),
               .scale_bytes = args.cast == RowCast::none ? 0 : args.hidden / kScaleColumns * 4};
  const std::size_t places = rank.exchange.output_rows();
  const std::size_t entries = std::size_t{args.tokens} * args.top_k;
  rank.rows = rank.device->allocate(std::size_t{args.tokens} * args.hidden * 2);
  rank.ids = rank.device->allocate(entries * 4);
  rank.weights = rank.device->allocate(entries * 4);
  rank.output = rank.device->allocate(places * rank.row_bytes);
  rank.scales = rank.device->allocate(std::max<std::size_t>(places * rank.scale_bytes, 4));
  rank.counts = rank.device->allocate(rank.exchange.local_experts() * 4);
  rank.source_tokens = rank.device->allocate(static_cast<std::size_t>(ranks.world_size()) * 4);
  if (args.layout == RowLayout::expert_contiguous) {
    rank.offsets = rank.device->allocate((rank.exchange.local_experts() + 1) * 4);
  }
  if (args.layout == RowLayout::rank_major) {
    rank.local_ids = rank.device->allocate(places * args.top_k * 4);
    rank.local_weights = rank.device->allocate(places * args.top_k * 4);
  }
  rank.expert_rows = rank.device->allocate(places * args.hidden * 2);
  rank.combined = rank.device->allocate(std::size_t{args.tokens} * args.hidden * 2);
  return rank;
}

// Where dispatch must put a row: which of whose, and where it lies.
struct PlacedRow {
  std::uint32_t expert;
  std::size_t place, row;
};
std::vector<PlacedRow> placed_rows(const Exchange& exchange, const MoeTraffic& traffic) {
  const ExchangeArgs& args = exchange.args();
  std::vector<PlacedRow> all;
  std::size_t next = 0;
  for (std::uint32_t local = 0; local < exchange.local_experts(); ++local) {
    const std::uint32_t expert = exchange.experts()[local];
    const std::size_t count = traffic.arrivals(expert).size();
    if (args.layout == RowLayout::expert_masked) next = std::size_t{local} * exchange.capacity();
    for (std::size_t place = 0; place < count; ++place) {
      const auto& arrival = traffic.arrivals(expert)[place];
      const bool by_rank = args.layout == RowLayout::rank_major;
      all.push_back({expert, place, by_rank ? std::size_t{arrival.rank} * args.tokens + arrival.token : next + place});
    }
    next += (count + args.alignment - 1) / args.alignment * args.alignment;
  }
  return all;
}

template <class RankMoe>
void upload(RankMoe& rank, const MoeTraffic& traffic, int number, const ExchangeArgs& args) {
  const RankTokens& mine = traffic.tokens(number);
  rank.device->upload(rank.rows, mine.rows.data(), mine.rows.size() * 2);
  rank.device->upload(rank.ids, mine.ids.data(), mine.ids.size() * 4);
  rank.device->upload(rank.weights, mine.weights.data(), mine.weights.size() * 4);
  for (const PlacedRow& placed : placed_rows(rank.exchange, traffic)) {
    const auto& arrival = traffic.arrivals(placed.expert)[placed.place];
    const auto row = args.layout == RowLayout::rank_major ? traffic.joint_row(rank.exchange.experts(), arrival)
                                                          : traffic.expert_row(placed.expert, arrival);
    rank.device->upload(static_cast<std::byte*>(rank.expert_rows) + placed.row * args.hidden * 2, row.data(),
                        row.size() * 2);
  }
}

template <class RankMoe>
std::string verify(RankMoe& rank, const MoeTraffic& traffic, int number, const ExchangeArgs& args,
                   std::uint32_t tokens) {
  std::vector<std::int32_t> counts(rank.exchange.local_experts());
  rank.device->download(counts.data(), rank.counts, counts.size() * 4);
  for (std::uint32_t local = 0; local < counts.size(); ++local) {
    const std::string wrong = traffic.check_count(rank.exchange.experts()[local], counts[local]);
    if (!wrong.empty()) return fmt::format("rank {}: {}", number, wrong);
  }
  std::vector<std::uint8_t> row(rank.row_bytes), scales(rank.scale_bytes);
  for (const PlacedRow& placed : placed_rows(rank.exchange, traffic)) {
    rank.device->download(row.data(), static_cast<std::byte*>(rank.output) + placed.row * row.size(), row.size());
    rank.device->download(scales.data(), static_cast<std::byte*>(rank.scales) + placed.row * scales.size(),
                          scales.size());
    const std::string wrong = traffic.check_row(placed.expert, placed.place, row.data(), scales.data());
    if (!wrong.empty()) return fmt::format("rank {}: {}", number, wrong);
  }
  std::vector<std::uint16_t> combined(std::size_t{tokens} * args.hidden);
  rank.device->download(combined.data(), rank.combined, combined.size() * 2);
  const std::string wrong = traffic.check_combined(number, combined.data());
  return wrong.empty() ? "" : fmt::format("rank {}: {}", number, wrong);
}

template <class RankMoe>
void measure(Ranks::Seat& seat, RankMoe& rank, const MoeTraffic& traffic, const ExchangeArgs& args, int samples,
             Launch launch, bool apart, MoeResult& result, std::string& wrong) {
  upload(rank, traffic, seat.rank(), args);
  const auto dispatch = [&](bool discard) {
    const DispatchArgs call{.input = rank.rows,
                            .topk_ids = rank.ids,
                            .topk_weights = static_cast<const float*>(rank.weights),
                            .tokens = result.tokens,
                            .output = rank.output,
                            .output_scales = rank.scales,
                            .counts = static_cast<std::int32_t*>(rank.counts),
                            .offsets = static_cast<std::int32_t*>(rank.offsets),
                            .source_tokens = static_cast<std::int32_t*>(rank.source_tokens),
                            .output_ids = static_cast<std::int32_t*>(rank.local_ids),
                            .output_weights = static_cast<float*>(rank.local_weights),
                            .stream = rank.device->stream(),
                            .discard = discard,
                            .launch = launch};
    if (!apart) return rank.exchange.dispatch(call);
    const Ticket ticket = rank.exchange.dispatch_send(call);
    rank.exchange.dispatch_wait(ticket, call);
    return ticket;
  };
  const auto combine = [&](Ticket ticket) {
    const CombineArgs call{.ticket = ticket,
                           .input = rank.expert_rows,
                           .output = rank.combined,
                           .stream = rank.device->stream(),
                           .launch = launch};
    if (!apart) return rank.exchange.combine(call);
    rank.exchange.combine_send(call);
    rank.exchange.combine_wait(call);
  };
  const Ticket ticket = dispatch(true);
  const auto clear = [&] {
    rank.device->fill(rank.output, 0xff, rank.exchange.output_rows() * rank.row_bytes);
    rank.device->fill(rank.combined, 0xff, std::size_t{result.tokens} * args.hidden * 2);
    rank.device->fill(rank.counts, 0xff, rank.exchange.local_experts() * 4);
  };
  const std::function<void()> operations[] = {[&] { dispatch(true); }, [&] { combine(ticket); },
                                              [&] { combine(dispatch(true)); }};
  // Combine alone is measured first: its ticket must not be taken by another dispatch.
  for (const int i : {1, 0, 2}) {
    rank.device->run(seat, operations[i]);
    seat.barrier();
    auto all = seat.gather(rank.device->time(seat, {.method = methods_of(seat.communicator().device()).front(),
                                                    .samples = samples,
                                                    .operation = operations[i],
                                                    .poison = clear}));
    if (seat.local_index() == 0) result.samples[i] = std::move(all);
  }
  wrong = verify(rank, traffic, seat.rank(), args, result.tokens);
}

}  // namespace

nlohmann::json to_json(const std::vector<MoeResult>& results) {
  constexpr const char* operations[] = {"dispatch", "combine", "both"};
  nlohmann::json points = nlohmann::json::array();
  for (const MoeResult& result : results) {
    for (int i = 0; i < 3; ++i) {
      points.push_back({{"operation", operations[i]},
                        {"tokens", result.tokens},
                        {"contender", name(Contender::automatic)},
                        {"blocks", result.launch.blocks},
                        {"threads", result.launch.threads},
                        {"wire_rows", result.wire_rows},
                        {"logical_rows", result.logical_rows},
                        {"verdict", result.wrong.empty() ? "ok" : "wrong"},
                        {"us", result.us[i]},
                        {"samples_us", result.samples[i]}});
      if (!result.wrong.empty()) points.back()["detail"] = result.wrong;
    }
  }
  return points;
}

bool all_correct(const std::vector<MoeResult>& results) {
  return std::all_of(results.begin(), results.end(), [](const MoeResult& r) { return r.wrong.empty(); });
}

MoeMeasurement::MoeMeasurement(Ranks& ranks, const ExchangeArgs& args, bool apart)
    : ranks_(ranks), args_(args), apart_(apart), opened_(static_cast<std::size_t>(ranks.local_size())) {
  ranks_.each([&](Ranks::Seat& seat) {
    opened_[static_cast<std::size_t>(seat.local_index())] =
        std::make_unique<RankMoe>(open_rank<RankMoe>(ranks_, seat, args_));
  });
}

MoeMeasurement::~MoeMeasurement() = default;

MoeResult MoeMeasurement::run(const MoeTraffic& traffic, std::uint32_t tokens, int samples, Launch launch) {
  MoeResult result{};
  result.tokens = tokens;
  result.launch = launch;
  result.wire_rows = traffic.wire_rows();
  result.logical_rows = traffic.logical_rows();
  std::vector<std::string> wrong(opened_.size());
  ranks_.each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    MoeResult other = result;
    measure(seat, *opened_[index], traffic, args_, samples, launch, apart_, index == 0 ? result : other, wrong[index]);
  });
  for (const std::string& detail : wrong) {
    if (result.wrong.empty()) result.wrong = detail;
  }
  for (int i = 0; i < 3; ++i) {
    for (const auto& times : result.samples[i]) result.us[i] = std::max(result.us[i], median(times));
  }
  return result;
}

}  // namespace weft::cli
