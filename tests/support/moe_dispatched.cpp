// The expected outputs of a rank's dispatch, and its combine's input.
#include <algorithm>
#include <cstring>
#include <optional>

#include "support/bytes.hpp"
#include "support/moe_cases.hpp"

namespace weft::test {

Dispatched dispatched(const MoeExchange& exchange, const PreparedMoe& p) {
  const MoeExchangeArgs& args = p.call.args;
  const oracle::MoeRules rules(args);
  const std::size_t row = rules.arriving_bytes(), scales = rules.arriving_scale_bytes(), rows = exchange.output_rows();
  const bool by_rank = args.layout == RowLayout::rank_major, contiguous = args.layout == RowLayout::expert_contiguous;
  const bool joint = rules.joint();
  const auto canaries = [](std::size_t bytes) { return Bytes(bytes, Guarded::kCanary); };
  Dispatched wanted{.rows = canaries(rows * row),
                    .scales = canaries(rows * rules.output_scale_bytes()),
                    .payloads = {},
                    .counts = {},
                    .offsets = {},
                    .sources = canaries(by_rank ? 0 : rows * 4),
                    .ids = canaries(joint ? rows * args.top_k * 4 : 0),
                    .weights = canaries(joint && args.weighted ? rows * args.top_k * 4 : 0),
                    .source_tokens = {},
                    .rank_prefix = {}};
  for (const std::uint32_t bytes : args.payload_bytes) wanted.payloads.push_back(canaries(rows * bytes));
  const auto put_word = [](Bytes& to, std::size_t at, auto value) { std::memcpy(&to[at * 4], &value, 4); };
  for (const Tokens& tokens : p.tokens) wanted.source_tokens.push_back(static_cast<std::int32_t>(tokens.count));
  const auto ranks = static_cast<std::uint32_t>(p.tokens.size());
  if (joint && !by_rank) wanted.rank_prefix = oracle::rank_prefix(p.rank_of, p.routing, ranks);
  std::vector<Bytes> cast(p.tokens.size() * args.tokens);  // each row once
  // By source and token: the row that has its ids.
  std::vector<std::optional<std::size_t>> row_of(p.tokens.size() * args.tokens);
  for (std::size_t source = 0; by_rank && source < row_of.size(); ++source) row_of[source] = source;
  std::vector<std::size_t> counts;
  for (const std::uint32_t expert : exchange.experts()) {
    const std::vector<Arrival>& arrivals = p.routing[expert];
    const ExpertRows& placed = p.placed[expert];
    counts.push_back(arrivals.size());
    wanted.counts.push_back(static_cast<std::int32_t>(arrivals.size()));
    for (std::size_t place = 0; place < placed.kept; ++place) {
      const std::uint32_t source = arrivals[place].rank * args.tokens + arrivals[place].token;
      Bytes& sent = cast[source];
      if (sent.empty()) sent = cast_row(args, p.tokens[arrivals[place].rank], arrivals[place].token);
      const std::size_t to = placed.row[place];
      std::copy_n(sent.begin(), row, wanted.rows.begin() + static_cast<std::ptrdiff_t>(to * row));
      for (std::size_t i = 0; i < scales; ++i) {
        wanted.scales[oracle::scale_place(rules, exchange.capacity(), rows, to, i)] = sent[row + i];
      }
      for (std::size_t i = 0; i < wanted.payloads.size(); ++i) {
        const std::size_t bytes = args.payload_bytes[i];
        const Bytes& given = p.tokens[arrivals[place].rank].payloads[i];
        copy_bytes(std::span(given).subspan(arrivals[place].token * bytes, bytes),
                   std::span(wanted.payloads[i]).subspan(to * bytes));
      }
      if (!by_rank) put_word(wanted.sources, to, source);
      row_of[source] = to;
    }
  }
  const std::vector<std::size_t> offsets = oracle::offsets_of(rules, counts);
  if (contiguous) wanted.offsets.assign(offsets.begin(), offsets.end());
  for (std::size_t local = 0; contiguous && local < counts.size(); ++local) {
    for (std::size_t pad = offsets[local] + counts[local]; pad < std::min(offsets[local + 1], rows); ++pad)
      put_word(wanted.sources, pad, -1);
  }
  if (!joint) return wanted;
  for (std::size_t source = 0; source < p.tokens.size(); ++source) {
    for (std::size_t i = 0; i < std::size_t{p.tokens[source].count} * args.top_k; ++i) {
      const std::int32_t local = oracle::local_id(exchange.experts(), p.tokens[source].ids[i]);
      const std::optional<std::size_t> row = row_of[source * args.tokens + i / args.top_k];
      if (!row) continue;
      const std::size_t at = *row * args.top_k + i % args.top_k;
      put_word(wanted.ids, at, local);
      if (args.weighted) put_word(wanted.weights, at, local >= 0 ? p.tokens[source].weights[i] : 0.0f);
    }
  }
  return wanted;
}

Bytes expert_rows(const MoeExchange& exchange, const PreparedMoe& p) {
  const std::size_t row = std::size_t{p.call.args.hidden} * 2;
  Bytes all(exchange.output_rows() * row, Guarded::kCanary);
  std::vector<bool> taken(exchange.output_rows());
  for (const std::uint32_t expert : exchange.experts()) {
    const std::vector<Bytes>& rows = p.outputs[expert];
    for (std::size_t place = 0; place < rows.size(); ++place) {
      const std::size_t to = p.placed[expert].row[place];
      if (taken[to]) continue;  // by rank: all experts of a rank share the row of a token
      taken[to] = true;
      copy_bytes(rows[place], std::span(all).subspan(to * row));
    }
  }
  return all;
}

}  // namespace weft::test
