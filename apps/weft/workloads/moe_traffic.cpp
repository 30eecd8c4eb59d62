#include "workloads/moe_traffic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace weft::cli {
namespace {

// The `count` highest scores.
std::vector<std::int32_t> best(const std::vector<double>& scores, std::size_t count) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(order.begin(), middle, order.end(), [&](std::int32_t a, std::int32_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(count);
  return order;
}

std::vector<std::int32_t> choose(std::mt19937& random, const ModelShape& model, Traffic traffic, std::size_t experts,
                                 std::size_t top_k) {
  std::uniform_real_distribution<double> uniform(1e-9, 1.0);
  std::vector<double> scores(experts);
  for (std::size_t e = 0; e < experts; ++e) {
    // The largest values of log(u) / w are a choice with weights w, without repetition.
    const double weight = traffic == Traffic::zipf ? 1.0 / static_cast<double>((e * 97 + 13) % experts + 1) : 1.0;
    scores[e] = traffic == Traffic::zipf ? std::log(uniform(random)) / weight : uniform(random);
  }
  if (traffic == Traffic::hot) scores[0] = 2;
  if (traffic == Traffic::grouped) {
    const std::size_t size = experts / static_cast<std::size_t>(model.n_group);
    std::vector<double> groups;
    for (std::size_t first = 0; first + size <= experts; first += size) {
      const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(first);
      std::vector<double> group(begin, begin + static_cast<std::ptrdiff_t>(size));
      std::partial_sort(group.begin(), group.begin() + 2, group.end(), std::greater<>());
      groups.push_back(group[0] + group[1]);
    }
    std::vector<bool> chosen(groups.size());
    for (const std::int32_t g : best(groups, static_cast<std::size_t>(model.topk_group))) {
      chosen[static_cast<std::size_t>(g)] = true;
    }
    for (std::size_t e = 0; e < experts; ++e) {
      if (!chosen[std::min(e / size, chosen.size() - 1)]) scores[e] = -1;
    }
  }
  return best(scores, top_k);
}

// Words of any bits. A third of them are all ones, the sentinel of the wire.
std::vector<std::byte> any_words(std::mt19937& random, std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint32_t)) {
    const auto number = static_cast<std::uint32_t>(random());
    const std::uint32_t word = number % 3 == 0 ? ~0u : number;
    std::memcpy(all.data() + at, &word, sizeof(word));
  }
  return all;
}

}  // namespace

std::size_t placed_row_bytes(const MoeExchangeArgs& exchange) {
  const detail::OutputRow row = detail::output_row(exchange);
  return row.bytes + row.scale_bytes + detail::side_sizes(exchange).bytes;
}

MoeTraffic::MoeTraffic(const ModelShape& model, const MoeExchangeArgs& exchange, Traffic traffic, int ranks,
                       std::uint32_t tokens)
    : exchange_(exchange),
      ranks_(static_cast<std::uint32_t>(ranks)),
      token_count_(tokens),
      shape_(detail::make_shape(ranks_, 0, exchange, detail::map_experts(ranks_, exchange))),
      homes_(oracle::homes_of(exchange.experts, ranks_)),
      experts_(ranks_),
      sent_(std::size_t{ranks_} * ranks_) {
  if (traffic == Traffic::grouped && model.n_group < 2) {
    throw Error(Errc::invalid_argument, fmt::format("--routing grouped: {} has no groups of experts", model.name));
  }
  for (std::uint32_t expert = 0; expert < exchange.experts; ++expert) experts_[homes_[expert]].push_back(expert);
  const oracle::Format format = oracle::format_of(oracle::MoeRules(exchange).row_type);
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    std::mt19937 random(rank * 7919u + tokens);
    RankTokens mine;
    mine.rows.reserve(std::size_t{tokens} * exchange.hidden);
    for (std::size_t i = 0; i < std::size_t{tokens} * exchange.hidden; ++i) {
      const float value = static_cast<float>(static_cast<int>(random() >> 16) % 2001 - 1000) / 512.0f;
      mine.rows.push_back(static_cast<std::uint16_t>(oracle::round_to(format, value)));
    }
    for (std::uint32_t token = 0; token < tokens; ++token) {
      std::vector<bool> seen(ranks_);
      for (const std::int32_t id : choose(random, model, traffic, exchange.experts, exchange.top_k)) {
        const float weight = static_cast<float>(random() % 1000 + 1) / 1000.0f;
        mine.ids.push_back(id);
        mine.weights.push_back(exchange.weighted ? weight : 1.0f);
        seen[homes_[static_cast<std::size_t>(id)]] = true;
      }
      for (std::uint32_t to = 0; to < ranks_; ++to) sent_[std::size_t{rank} * ranks_ + to] += seen[to] ? 1 : 0;
      seen[rank] = false;
      wire_rows_ += static_cast<double>(std::count(seen.begin(), seen.end(), true)) / ranks;
    }
    // Behind all other numbers: payloads change neither rows nor routing.
    for (const std::uint32_t bytes : exchange.payload_bytes)
      mine.payloads.push_back(any_words(random, std::size_t{tokens} * bytes));
    oracle::route(exchange, rank, std::vector<std::int64_t>(mine.ids.begin(), mine.ids.end()), mine.weights, routing_);
    tokens_.push_back(std::move(mine));
  }
  placed_ = oracle::place_rows(exchange, homes_, routing_, ranks_);
}

std::vector<std::int32_t> MoeTraffic::offsets(std::uint32_t rank) const {
  std::vector<std::size_t> counts;
  for (const std::uint32_t expert : experts_[rank]) counts.push_back(routing_[expert].size());
  const std::vector<std::size_t> offsets = oracle::offsets_of(exchange_, counts);
  return {offsets.begin(), offsets.end()};
}

std::vector<std::int32_t> MoeTraffic::rank_prefix() const {
  return oracle::rank_prefix(homes_, routing_, ranks_);
}

double MoeTraffic::dispatch_wire_bytes() const {
  const double peers = ranks_ - 1, tokens = token_count_;
  // One token that a call does not have (each in turn) has its record written as well.
  const double records = tokens + 1 - tokens / exchange_.tokens;
  const double counts = exchange_.experts * peers / ranks_ + peers;
  return wire_rows_ * shape_.row_packs * sizeof(detail::Pack) +
         peers * (sizeof(std::uint64_t) + records * exchange_.top_k * sizeof(detail::Pack)) +
         counts * sizeof(std::uint64_t);
}

double MoeTraffic::combine_wire_bytes() const {
  return wire_rows_ * shape_.combine_packs * sizeof(detail::Pack) + (ranks_ - 1) * double{sizeof(std::uint64_t)};
}

std::size_t MoeTraffic::most_placed_rows() const {
  std::size_t most = 0;
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    std::size_t rows = 0;
    if (detail::has_joint_rows(exchange_.layout)) {
      for (std::uint32_t from = 0; from < ranks_; ++from) rows += tokens_sent(from, rank);
    } else {
      for (const std::uint32_t expert : experts_[rank]) rows += placed_[expert].kept;
    }
    most = std::max(most, rows);
  }
  return most;
}

double MoeTraffic::dispatch_moved_bytes() const {
  const double given = exchange_.hidden * 2.0 + static_cast<double>(detail::side_sizes(exchange_).bytes);
  return token_count_ * given +
         static_cast<double>(most_placed_rows()) * static_cast<double>(placed_row_bytes(exchange_));
}

double MoeTraffic::combine_moved_bytes() const {
  return (static_cast<double>(most_placed_rows()) + token_count_) * (exchange_.hidden * 2.0);
}

}  // namespace weft::cli
