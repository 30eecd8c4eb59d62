// Dispatch and combine, written as slowly and obviously as possible, and calls that are compared with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "support/reference.hpp"
#include "weft/moe.hpp"

namespace weft::test {

// One rank's tokens.
struct Tokens {
  std::uint32_t count = 0;
  Bytes rows, scales;               // [count, bytes of a row]
  std::vector<std::int64_t> ids;    // [count, top_k]
  std::vector<float> weights;       // [count, top_k]
  std::vector<std::int32_t> given;  // ids before their translation (MoeCase::translate)
};

// A token that one expert gets: its rank, its number and its weight.
struct Arrival {
  std::uint32_t rank, token;
  float weight;
};
// Per expert, in (source rank, token) order.
using Routing = std::vector<std::vector<Arrival>>;

inline Routing route(const std::vector<Tokens>& ranks, const ExchangeArgs& args) {
  Routing routing(args.experts);
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::uint32_t i = 0; i < ranks[rank].count * args.top_k; ++i) {
      const std::int64_t id = ranks[rank].ids[i];
      if (id < 0 || id >= args.experts) continue;
      routing[static_cast<std::size_t>(id)].push_back({rank, i / args.top_k, ranks[rank].weights[i]});
    }
  }
  return routing;
}

inline std::size_t row_bytes(const ExchangeArgs& args) {
  return args.hidden * (args.type == RowType::fp8 ? 1u : 2u);
}
inline std::size_t sent_bytes(const ExchangeArgs& args) {
  return args.cast == RowCast::none ? row_bytes(args) : args.hidden;
}
inline std::size_t sent_scale_bytes(const ExchangeArgs& args) {
  if (args.cast == RowCast::none) return args.scale_bytes;
  return args.hidden / kScaleColumns * (args.cast == RowCast::fp8 ? 4 : 1);
}
// Includes the bytes behind a row's scales that no call writes.
inline std::size_t output_scale_bytes(const ExchangeArgs& args) {
  const std::size_t bytes = sent_scale_bytes(args);
  return args.scale_order == ScaleOrder::columns ? (bytes + 3) / 4 * 4 : bytes;
}
// The place of byte `byte` of an output row's scales. There are `rows` rows in all; in columns, those of experts or of
// all.
inline std::size_t scale_place(const ExchangeArgs& args, std::size_t capacity, std::size_t rows, std::size_t row,
                               std::size_t byte) {
  const std::size_t bytes = output_scale_bytes(args);
  if (args.scale_order == ScaleOrder::rows) return row * bytes + byte;
  const std::size_t together = args.layout == RowLayout::expert_masked ? capacity : rows;
  const std::size_t first = row / together * together;
  return first * bytes + (byte / 4 * together + row - first) * 4 + byte % 4;
}

// A row as it arrives: its bytes, followed by its scales.
inline Bytes cast_row(const ExchangeArgs& args, const Tokens& tokens, std::uint32_t token) {
  const auto part = [&](const Bytes& of, std::size_t bytes) {
    const auto begin = of.begin() + static_cast<std::ptrdiff_t>(token * bytes);
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes));
  };
  const Bytes row = part(tokens.rows, row_bytes(args));
  if (args.cast == RowCast::none) {
    Bytes both = row;
    const Bytes scales = part(tokens.scales, args.scale_bytes);
    both.insert(both.end(), scales.begin(), scales.end());
    return both;
  }
  const Format input = args.type == RowType::bf16 ? Format{8, 7} : Format{5, 10};
  Bytes sent(sent_bytes(args) + sent_scale_bytes(args));
  for (std::uint32_t group = 0; group < args.hidden / kScaleColumns; ++group) {
    const auto value = [&](std::uint32_t i) {
      return static_cast<float>(value_of(input, get(row, DataType::bf16, group * kScaleColumns + i)));
    };
    float amax = 1e-4f;
    for (std::uint32_t i = 0; i < kScaleColumns; ++i) amax = std::fmax(amax, std::fabs(value(i)));
    float scale = amax / 448.0f, inverse = 448.0f / amax;
    if (args.cast == RowCast::fp8_ue8m0) {
      scale = std::exp2(std::ceil(std::log2(scale)));
      inverse = 1.0f / scale;
      if (std::isinf(amax)) scale = 0x1p127f, inverse = 0;
      sent[args.hidden + group] = static_cast<std::byte>(std::ilogb(scale) + 127);
    } else {
      std::memcpy(&sent[args.hidden + group * 4], &scale, 4);
    }
    for (std::uint32_t i = 0; i < kScaleColumns; ++i) {
      const float scaled = value(i) * inverse;
      const double limited =
          std::isnan(scaled) ? static_cast<double>(scaled) : std::fmin(std::fmax(scaled, -448.0), 448.0);
      // e4m3 spends infinity's exponent on numbers: rounding in a format with one more exponent gives the same bits.
      const Format e4m3{4, 3};
      std::uint32_t bits = 0x7f;
      if (!std::isnan(limited)) {
        int exponent = 0;
        std::frexp(limited, &exponent);
        const double unit = std::ldexp(1.0, std::max(exponent - 1, -6) - 3);
        const double units = std::nearbyint(std::fabs(limited) / unit);
        bits = (limited == 0 ? 0u : static_cast<std::uint32_t>(8.0 * (std::max(exponent - 1, -6) + 6) + units)) |
               (std::signbit(limited) ? e4m3.sign_bit() : 0u);
      }
      sent[group * kScaleColumns + i] = static_cast<std::byte>(bits);
    }
  }
  return sent;
}

// The rows of an expert in its rank's output, and how many of them have room.
struct ExpertRows {
  std::vector<std::size_t> row;  // by place
  std::size_t kept = 0;
};
inline std::uint32_t capacity_of(const ExchangeArgs& args, const std::vector<std::uint32_t>& experts_of,
                                 std::uint32_t ranks) {
  if (args.layout == RowLayout::rank_major) return args.tokens;
  if (args.capacity != 0) return args.capacity;
  const std::uint32_t most = *std::max_element(experts_of.begin(), experts_of.end());
  std::uint32_t rows = ranks * args.tokens;
  if (args.layout == RowLayout::expert_contiguous) {
    rows = rows * std::min(args.top_k, most) + most * (args.alignment - 1);
  }
  while (args.scale_order == ScaleOrder::columns && rows % 4 != 0) ++rows;
  return rows;
}
// One element per expert.
inline std::vector<ExpertRows> place_rows(const ExchangeArgs& args, const std::vector<std::uint32_t>& rank_of,
                                          const Routing& routing, std::uint32_t ranks) {
  std::vector<std::uint32_t> experts_of(ranks), next(ranks), local(ranks);
  for (const std::uint32_t rank : rank_of) ++experts_of[rank];
  const std::uint32_t capacity = capacity_of(args, experts_of, ranks);
  std::vector<ExpertRows> all;
  for (std::uint32_t expert = 0; expert < routing.size(); ++expert) {
    const std::uint32_t home = rank_of[expert];
    const std::size_t block = std::size_t{local[home]++} * capacity;
    ExpertRows rows;
    for (std::size_t place = 0; place < routing[expert].size(); ++place) {
      const Arrival& arrival = routing[expert][place];
      if (args.layout == RowLayout::expert_masked) rows.row.push_back(block + place);
      if (args.layout == RowLayout::expert_contiguous) rows.row.push_back(next[home] + place);
      if (args.layout == RowLayout::rank_major) rows.row.push_back(arrival.rank * args.tokens + arrival.token);
      const bool room = args.layout == RowLayout::rank_major ||
                        (args.layout == RowLayout::expert_masked ? place : rows.row.back()) < capacity;
      if (room) ++rows.kept;
    }
    while ((next[home] + routing[expert].size()) % args.alignment != 0) ++next[home];
    next[home] += static_cast<std::uint32_t>(routing[expert].size());
    all.push_back(std::move(rows));
  }
  return all;
}

// The output of `rank` if outputs[expert][place] are the experts' rows. Sums go by ascending rank, then expert.
inline Bytes combine(const ExchangeArgs& args, const std::vector<std::uint32_t>& rank_of, const Routing& routing,
                     const std::vector<std::vector<Bytes>>& outputs, std::uint32_t ranks, std::uint32_t rank,
                     std::uint32_t count, const Bytes& residual) {
  const Format f = format_of(args.combine_type);
  const auto at = [&](const Bytes& row, std::size_t i) {
    return static_cast<float>(value_of(f, get(row, args.combine_type, i)));
  };
  struct Part {
    std::uint32_t from, expert;
    std::size_t place;
    float weight;
  };
  std::vector<std::vector<Part>> parts(count);  // of each token, in the order of the sum
  for (std::uint32_t from = 0; from < ranks; ++from) {
    for (std::uint32_t expert = 0; expert < args.experts; ++expert) {
      for (std::size_t place = 0; rank_of[expert] == from && place < routing[expert].size(); ++place) {
        const Arrival& arrival = routing[expert][place];
        if (arrival.rank == rank) parts[arrival.token].push_back({from, expert, place, arrival.weight});
      }
    }
  }
  Bytes result(std::size_t{count} * args.hidden * 2);
  for (std::uint32_t token = 0; token < count; ++token) {
    for (std::uint32_t column = 0; column < args.hidden; ++column) {
      float sum = 0;
      bool first_rank = true;
      for (auto part = parts[token].begin(); part != parts[token].end();) {
        const std::uint32_t from = part->from;
        float returned = 0;
        bool first = true;
        for (; part != parts[token].end() && part->from == from; ++part) {
          if (part->place >= outputs[part->expert].size()) continue;  // dropped
          const float value = at(outputs[part->expert][part->place], column);
          if (args.layout == RowLayout::rank_major) {  // a rank's experts share the token's row
            if (first) returned = value;
          } else {
            const float weight = args.weighted ? part->weight : 1.0f;
            returned = first ? weight * value : std::fma(weight, value, returned);
          }
          first = false;
        }
        returned = static_cast<float>(value_of(f, round_to(f, returned)));
        sum = first_rank ? returned : sum + returned;
        first_rank = false;
      }
      const std::size_t index = std::size_t{token} * args.hidden + column;
      if (!residual.empty()) sum = first_rank ? at(residual, index) : sum + at(residual, index);
      put(result, args.combine_type, index, round_to(f, sum));
    }
  }
  return result;
}

}  // namespace weft::test
