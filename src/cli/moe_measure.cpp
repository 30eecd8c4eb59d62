#include "moe_measure.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "measure.hpp"

namespace weft::cli {

// Everything one rank needs.
struct MoeMeasurement::RankMoe {
  std::unique_ptr<RankDevice> device;
  Exchange exchange;
  void *rows, *ids, *weights, *output, *scales, *counts, *expert_rows, *combined;
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
               .expert_rows = nullptr,
               .combined = nullptr,
               .row_bytes = args.hidden * (args.cast == RowCast::none ? 2u : 1u),
               .scale_bytes = args.cast == RowCast::none ? 0 : args.hidden / kScaleColumns * 4};
  const std::size_t places = std::size_t{rank.exchange.local_experts()} * rank.exchange.capacity();
  const std::size_t entries = std::size_t{args.tokens} * args.top_k;
  rank.rows = rank.device->allocate(std::size_t{args.tokens} * args.hidden * 2);
  rank.ids = rank.device->allocate(entries * 4);
  rank.weights = rank.device->allocate(entries * 4);
  rank.output = rank.device->allocate(places * rank.row_bytes);
  rank.scales = rank.device->allocate(std::max<std::size_t>(places * rank.scale_bytes, 4));
  rank.counts = rank.device->allocate(rank.exchange.local_experts() * 4);
  rank.expert_rows = rank.device->allocate(places * args.hidden * 2);
  rank.combined = rank.device->allocate(std::size_t{args.tokens} * args.hidden * 2);
  return rank;
}

template <class RankMoe>
void upload(RankMoe& rank, const MoeTraffic& traffic, int number, const ExchangeArgs& args) {
  const RankTokens& mine = traffic.tokens(number);
  rank.device->upload(rank.rows, mine.rows.data(), mine.rows.size() * 2);
  rank.device->upload(rank.ids, mine.ids.data(), mine.ids.size() * 4);
  rank.device->upload(rank.weights, mine.weights.data(), mine.weights.size() * 4);
  for (std::uint32_t local = 0; local < rank.exchange.local_experts(); ++local) {
    const std::uint32_t expert = rank.exchange.experts()[local];
    std::vector<std::uint16_t> rows;
    for (const auto& arrival : traffic.arrivals(expert)) {
      const auto row = traffic.expert_row(expert, arrival);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    const std::size_t at = std::size_t{local} * rank.exchange.capacity() * args.hidden * 2;
    rank.device->upload(static_cast<std::byte*>(rank.expert_rows) + at, rows.data(), rows.size() * 2);
  }
}

template <class RankMoe>
std::string verify(RankMoe& rank, const MoeTraffic& traffic, int number, const ExchangeArgs& args,
                   std::uint32_t tokens) {
  const std::uint32_t experts = rank.exchange.local_experts(), capacity = rank.exchange.capacity();
  std::vector<std::int32_t> counts(experts);
  rank.device->download(counts.data(), rank.counts, counts.size() * 4);
  for (std::uint32_t local = 0; local < experts; ++local) {
    const std::uint32_t expert = rank.exchange.experts()[local];
    const std::size_t wanted = std::min<std::size_t>(traffic.arrivals(expert).size(), capacity);
    std::vector<std::uint8_t> rows(wanted * rank.row_bytes), scales(wanted * rank.scale_bytes);
    const std::size_t first = std::size_t{local} * capacity;
    rank.device->download(rows.data(), static_cast<std::byte*>(rank.output) + first * rank.row_bytes, rows.size());
    rank.device->download(scales.data(), static_cast<std::byte*>(rank.scales) + first * rank.scale_bytes,
                          scales.size());
    const std::string wrong = traffic.check_expert(expert, counts[local], rows.data(), scales.data(), capacity);
    if (!wrong.empty()) return fmt::format("rank {}: {}", number, wrong);
  }
  std::vector<std::uint16_t> combined(std::size_t{tokens} * args.hidden);
  rank.device->download(combined.data(), rank.combined, combined.size() * 2);
  const std::string wrong = traffic.check_combined(number, combined.data());
  return wrong.empty() ? "" : fmt::format("rank {}: {}", number, wrong);
}

template <class RankMoe>
void measure(Ranks::Seat& seat, RankMoe& rank, const MoeTraffic& traffic, const ExchangeArgs& args, int samples,
             Launch launch, MoeResult& result, std::string& wrong) {
  upload(rank, traffic, seat.rank(), args);
  const auto dispatch = [&](bool discard) {
    return rank.exchange.dispatch({.input = rank.rows,
                                   .topk_ids = rank.ids,
                                   .topk_weights = static_cast<const float*>(rank.weights),
                                   .tokens = result.tokens,
                                   .output = rank.output,
                                   .output_scales = rank.scales,
                                   .counts = static_cast<std::int32_t*>(rank.counts),
                                   .stream = rank.device->stream(),
                                   .discard = discard,
                                   .launch = launch});
  };
  const auto combine = [&](Ticket ticket) {
    rank.exchange.combine({.ticket = ticket,
                           .input = rank.expert_rows,
                           .output = rank.combined,
                           .stream = rank.device->stream(),
                           .launch = launch});
  };
  const Ticket ticket = dispatch(true);
  const auto clear = [&] {
    const std::size_t places = std::size_t{rank.exchange.local_experts()} * rank.exchange.capacity();
    rank.device->fill(rank.output, 0xff, places * rank.row_bytes);
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

MoeMeasurement::MoeMeasurement(Ranks& ranks, const ExchangeArgs& args)
    : ranks_(ranks), args_(args), opened_(static_cast<std::size_t>(ranks.local_size())) {
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
    measure(seat, *opened_[index], traffic, args_, samples, launch, index == 0 ? result : other, wrong[index]);
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
