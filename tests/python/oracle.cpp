// The oracle for tests in Python: what operations must give, as bytes.
#include "oracle/fp8.hpp"
#include "oracle/moe.hpp"
#include "oracle/moves.hpp"
#include "oracle/norm.hpp"
#include "oracle/reduction.hpp"
#include "oracle/top_k.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace nb = nanobind;
namespace oracle = weft::oracle;

namespace {

enum class Type { bf16, f16, f32, i32, i64, u8 };
enum class Op { sum, max, min, avg };
enum class Sharding { none, balanced, ceil };
enum class Padding { none, aligned, max, fixed, per_rank };

template <class E>
E value_of(const std::string& word, std::initializer_list<const char*> words) {
  const auto found = std::ranges::find(words, word);
  if (found == words.end()) throw std::invalid_argument("the oracle does not know " + word);
  return static_cast<E>(found - words.begin());
}
oracle::Type type_of(const std::string& word) {
  return value_of<Type>(word, {"bf16", "f16", "f32", "i32", "i64", "u8"});
}
oracle::Op op_of(const std::string& word) {
  return value_of<Op>(word, {"sum", "max", "min", "avg"});
}
oracle::Sharding sharding_of(const std::string& word) {
  return value_of<Sharding>(word, {"none", "balanced", "ceil"});
}
oracle::Padding padding_of(const std::string& word) {
  return value_of<Padding>(word, {"none", "aligned", "max", "fixed", "per_rank"});
}

oracle::Bytes bytes_of(const nb::bytes& of) {
  oracle::Bytes bytes(of.size());
  std::memcpy(bytes.data(), of.data(), of.size());
  return bytes;
}
std::vector<oracle::Bytes> all_bytes_of(const std::vector<nb::bytes>& of) {
  std::vector<oracle::Bytes> all;
  for (const nb::bytes& one : of) all.push_back(bytes_of(one));
  return all;
}
nb::bytes python_of(const oracle::Bytes& bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

std::vector<std::span<const std::byte>> views_of(const std::vector<oracle::Bytes>& of) {
  return {of.begin(), of.end()};
}

nb::bytes reduce(const std::string& type, const std::string& op, const std::vector<nb::bytes>& inputs) {
  const std::vector<oracle::Bytes> all = all_bytes_of(inputs);
  return python_of(oracle::reduce(type_of(type), op_of(op), all));
}

std::vector<oracle::Place> places_of(const std::vector<std::size_t>& rows, const std::string& padding,
                                     std::size_t slot_rows, const std::vector<std::int32_t>& slots) {
  return oracle::places_of(rows, padding_of(padding), slot_rows, slots);
}

nb::bytes gathered(const std::vector<std::size_t>& rows, const std::string& padding, std::size_t slot_rows,
                   const std::vector<std::int32_t>& slots, const std::vector<nb::bytes>& messages,
                   std::size_t row_bytes) {
  const std::vector<oracle::Bytes> all = all_bytes_of(messages);
  return python_of(oracle::gathered(places_of(rows, padding, slot_rows, slots), views_of(all), row_bytes));
}

nb::bytes exchanged(const std::vector<nb::bytes>& messages, std::size_t rank) {
  const std::vector<oracle::Bytes> all = all_bytes_of(messages);
  return python_of(oracle::exchanged(views_of(all), rank));
}

nb::bytes scattered(const std::string& type, const std::string& op, const std::vector<std::size_t>& rows,
                    const std::string& padding, std::size_t slot_rows, const std::vector<std::int32_t>& slots,
                    const std::vector<nb::bytes>& messages, std::size_t rank, std::size_t row_bytes) {
  const std::vector<oracle::Bytes> all = all_bytes_of(messages);
  return python_of(oracle::scattered(type_of(type), op_of(op), places_of(rows, padding, slot_rows, slots),
                                     views_of(all), rank, row_bytes));
}

nb::bytes gathered_sums(const std::string& type, const std::vector<std::size_t>& rows, const std::string& padding,
                        std::size_t slot_rows, std::size_t group_ranks, const std::vector<nb::bytes>& messages,
                        std::size_t row_bytes) {
  const std::vector<oracle::Bytes> all = all_bytes_of(messages);
  return python_of(oracle::gathered_sums(type_of(type), places_of(rows, padding, slot_rows, {}), group_ranks,
                                         views_of(all), row_bytes));
}

nb::bytes scattered_sums(const std::string& type, const std::vector<std::size_t>& rows, const std::string& padding,
                         std::size_t slot_rows, std::size_t group_ranks, const std::vector<nb::bytes>& messages,
                         std::size_t rank, std::size_t row_bytes) {
  const std::vector<oracle::Bytes> all = all_bytes_of(messages);
  return python_of(oracle::scattered_sums(type_of(type), places_of(rows, padding, slot_rows, {}), group_ranks,
                                          views_of(all), rank, row_bytes));
}

nb::tuple taken(const std::vector<std::size_t>& rows, const std::string& padding, std::size_t slot_rows,
                std::size_t slot, std::size_t shards, std::size_t shard, const std::string& sharding, bool of_slots) {
  const oracle::Rows part =
      oracle::taken_of(places_of(rows, padding, slot_rows, {}), slot, shards, shard, sharding_of(sharding), of_slots);
  return nb::make_tuple(part.begin, part.size);
}

std::vector<std::int32_t> table_of_counts(const std::vector<std::int32_t>& said, std::size_t columns,
                                          std::size_t group_ranks, const std::string& sharding, bool split_slots,
                                          const std::string& padding, std::size_t slot_rows) {
  return oracle::table_of_counts(
      {columns, group_ranks, sharding_of(sharding), split_slots, padding_of(padding), slot_rows}, said);
}

// (values, indices) of the k largest numbers of each row of `columns` numbers.
nb::tuple largest(const std::string& type_word, const nb::bytes& rows, std::size_t columns, std::size_t k) {
  const oracle::Type type = type_of(type_word);
  const oracle::Bytes all = bytes_of(rows);
  const std::size_t row_bytes = columns * oracle::bytes_of(type), count = all.size() / row_bytes;
  oracle::Bytes values(count * k * oracle::bytes_of(type));
  std::vector<std::uint32_t> indices;
  for (std::size_t row = 0; row < count; ++row) {
    for (const auto& [bits, column] : oracle::largest_of(std::span(all).subspan(row * row_bytes, row_bytes), type, k)) {
      oracle::put(values, type, indices.size(), bits);
      indices.push_back(column);
    }
  }
  return nb::make_tuple(python_of(values), indices);
}

// (rows, scales) of rows of bf16 or f16 as e4m3. Every `columns` columns have a scale of f32.
nb::tuple cast(const std::string& type_word, const nb::bytes& rows, std::size_t hidden, std::size_t columns) {
  const oracle::Type type = type_of(type_word);
  const oracle::Bytes all = bytes_of(rows);
  oracle::Fp8Row made;
  for (std::size_t begin = 0; begin < all.size() / oracle::bytes_of(type); begin += hidden) {
    std::vector<std::uint32_t> bits(hidden);
    for (std::size_t i = 0; i < hidden; ++i) bits[i] = static_cast<std::uint32_t>(oracle::get(all, type, begin + i));
    const auto [numbers, scales] = oracle::cast_row(oracle::values_of(type, bits), columns, oracle::Scales::f32);
    made.numbers.insert(made.numbers.end(), numbers.begin(), numbers.end());
    made.scales.insert(made.scales.end(), scales.begin(), scales.end());
  }
  return nb::make_tuple(python_of(made.numbers), python_of(made.scales));
}

// (residual_output, output) of rows of bf16 or f16. `gamma`: of the rows' type, or of f32.
nb::tuple normed(const std::string& type_word, const std::vector<nb::bytes>& inputs, const nb::bytes& residual,
                 const nb::bytes& gamma, std::size_t hidden, float epsilon, bool plus_one) {
  const oracle::Type type = type_of(type_word);
  const std::vector<oracle::Bytes> all = all_bytes_of(inputs);
  const oracle::Bytes sum = oracle::reduce(type, Op::sum, all), rest = bytes_of(residual), given = bytes_of(gamma);
  oracle::Bytes sums(sum.size()), output(sum.size());
  const auto row_of = [&](const oracle::Bytes& tensor, std::size_t row) {
    std::vector<std::uint32_t> bits(hidden);
    for (std::size_t i = 0; i < hidden; ++i)
      bits[i] = static_cast<std::uint32_t>(oracle::get(tensor, type, row * hidden + i));
    return bits;
  };
  std::vector<float> weights(hidden);
  if (given.size() == hidden * sizeof(float)) {
    std::memcpy(weights.data(), given.data(), given.size());
  } else {
    weights = oracle::values_of(type, row_of(given, 0));
  }
  for (std::size_t row = 0; row < sum.size() / oracle::bytes_of(type) / hidden; ++row) {
    std::vector<std::uint32_t> added = row_of(sum, row);
    if (!rest.empty()) added = oracle::add_rows(type, added, row_of(rest, row));
    const auto result = oracle::normed_row(type, added, weights, plus_one, epsilon);
    for (std::size_t i = 0; i < hidden; ++i) {
      oracle::put(sums, type, row * hidden + i, added[i]);
      oracle::put(output, type, row * hidden + i, result[i]);
    }
  }
  return nb::make_tuple(python_of(sums), python_of(output));
}

// An exchange of bf16 rows as they are.
struct Exchange {
  enum class Row { bf16, f16, fp8 };
  enum class Cast { none, fp8, fp8_ue8m0, fp8_pow2 };
  enum class Order { rows, columns };
  enum class Layout { expert_masked, expert_contiguous, rank_major, rank_compact };

  std::uint32_t tokens, hidden, experts, top_k;
  std::uint32_t scale_bytes = 0, alignment = 1, capacity = 0;
  Row type = Row::bf16;
  Type combine_type = Type::bf16;
  Cast cast = Cast::none;
  Order scale_order = Order::rows;
  bool weighted = true;
  Layout layout = Layout::expert_masked;
};

// Each rank's dispatch and combine if experts return rows as they came: by rank a tuple of counts,
// offsets, pairs (row of the output, its bytes), [tokens, hidden], and the prefix matrix of compact rows.
nb::list moe(std::uint32_t tokens, std::uint32_t hidden, std::uint32_t experts, std::uint32_t top_k,
             const std::string& layout, std::uint32_t alignment, const std::string& cast,
             const std::vector<nb::bytes>& inputs, const std::vector<std::vector<std::int64_t>>& ids,
             const std::vector<std::vector<float>>& weights, const nb::bytes& residual) {
  Exchange of{.tokens = tokens, .hidden = hidden, .experts = experts, .top_k = top_k};
  of.layout = value_of<Exchange::Layout>(layout, {"expert_masked", "expert_contiguous", "rank_major", "rank_compact"});
  of.cast = value_of<Exchange::Cast>(cast, {"none", "fp8", "fp8_ue8m0", "fp8_pow2"});
  of.alignment = alignment;
  const oracle::MoeRules rules(of);
  const auto ranks = static_cast<std::uint32_t>(inputs.size());
  const std::vector<std::uint32_t> homes = oracle::homes_of(experts, ranks);
  const std::vector<oracle::Bytes> rows = all_bytes_of(inputs);
  oracle::Routing routing(experts);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) oracle::route(rules, rank, ids[rank], weights[rank], routing);
  const std::vector<oracle::ExpertRows> placed = oracle::place_rows(rules, homes, routing, ranks);
  const auto sent = [&](const oracle::Arrival& arrival) {
    const oracle::Bytes& of_rank = rows[arrival.rank];
    const auto begin = of_rank.begin() + static_cast<std::ptrdiff_t>(arrival.token * rules.row_bytes);
    return oracle::Bytes(begin, begin + static_cast<std::ptrdiff_t>(rules.row_bytes));
  };
  const oracle::MadeOf made_of = [&](std::uint32_t expert, std::size_t place) { return sent(routing[expert][place]); };
  const oracle::Bytes rest = bytes_of(residual);
  nb::list all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::size_t> counts;
    nb::list arrived;
    for (std::uint32_t expert = 0; expert < experts; ++expert) {
      if (homes[expert] != rank) continue;
      counts.push_back(routing[expert].size());
      for (std::size_t place = 0; place < placed[expert].kept; ++place)
        arrived.append(nb::make_tuple(placed[expert].row[place],
                                      python_of(oracle::arriving_row(rules, sent(routing[expert][place]), {}))));
    }
    const oracle::Bytes back =
        oracle::combined(rules, homes, routing, placed, made_of, rank, rows[rank].size() / rules.row_bytes, rest);
    all.append(nb::make_tuple(counts, oracle::offsets_of(rules, counts), arrived, python_of(back),
                              oracle::rank_prefix(homes, routing, ranks)));
  }
  return all;
}

}  // namespace

NB_MODULE(weft_oracle, module) {
  module.def("reduce", reduce);
  module.def("gathered", gathered);
  module.def("exchanged", exchanged);
  module.def("scattered", scattered);
  module.def("gathered_sums", gathered_sums);
  module.def("scattered_sums", scattered_sums);
  module.def("taken", taken);
  module.def("table_of_counts", table_of_counts);
  module.def("largest", largest);
  module.def("cast", cast);
  module.def("normed", normed);
  module.def("moe", moe);
}
