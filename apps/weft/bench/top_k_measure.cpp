// Searches for the largest logits (weft/top_k.hpp), beside a peer's gather of all logits, which its search would need.
#include <fmt/format.h>

#include <cstring>

#include "bench/logits_measure.hpp"
#include "bench/rank_bench.hpp"
#include "oracle/top_k.hpp"
#include "weft/top_k.hpp"

namespace weft::cli {
namespace {

class TopKMeasurement final : public RankBench {
 public:
  TopKMeasurement(Ranks& ranks, const BenchArgs& args, const LogitsForm& form)
      : RankBench(ranks, args, 3), form_(form), shard_(form.shard(ranks.world_size())) {}

  std::vector<Contender> contenders(Operation) const override {
    std::vector<Contender> all = {Contender::automatic};
    for (const auto peer : peers(Operation::all_gather)) all.push_back(peer);
    return all;
  }

 private:
  std::size_t rows(const Point& point) const { return static_cast<std::size_t>(point.rows); }
  std::size_t ranks() const { return static_cast<std::size_t>(ranks_.world_size()); }
  std::size_t input_elements(const Point& point) const override { return rows(point) * shard_; }
  // Indices, then values, in elements of the input's type.
  std::size_t output_elements(const Point& point) const override {
    if (is_peer(point.contender)) return input_elements(point) * ranks();
    return rows(point) * form_.top_k * (sizeof(std::int32_t) / size_of(point.type) + 1);
  }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    const auto [input, output] = buffers(seat, point);
    const Stream stream = rank(seat).device->stream();
    if (is_peer(point.contender)) {
      GatherShape shape{.operation = Operation::all_gather, .type = point.type};
      shape.rows.assign(ranks(), rows(point));
      shape.widths = {shard_};
      for (std::size_t i = 0; i < ranks(); ++i) shape.slots.push_back({i * rows(point), (i + 1) * rows(point)});
      return rank(seat).peer->move(shape, input, output, stream);
    }
    auto* const indices = static_cast<std::int32_t*>(output);
    top_k_columns(seat.communicator(), {.input = input,
                                        .values = indices + rows(point) * form_.top_k,
                                        .indices = indices,
                                        .rows = rows(point),
                                        .k = form_.top_k,
                                        .shard_columns = shard_,
                                        .columns = static_cast<std::size_t>(form_.vocabulary),
                                        .type = point.type,
                                        .stream = stream,
                                        .launch = point.launch});
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    const std::vector<std::byte>& got = rank(seat).host;
    const std::size_t size = size_of(point.type), sent = input_elements(point) * size;
    std::vector<std::byte> whole(sent * ranks());
    for (std::size_t from = 0; from < ranks(); ++from)
      fill(&whole[from * sent], 0, input_elements(point), point.type, args_.data, static_cast<int>(from), kLastStep);
    if (is_peer(point.contender))
      return std::memcmp(got.data(), whole.data(), whole.size()) == 0 ? "" : "the shards have other bytes";
    std::vector<std::byte> row(shard_ * ranks() * size);
    for (std::size_t r = 0; r < rows(point); ++r) {
      for (std::size_t from = 0; from < ranks(); ++from)
        std::memcpy(&row[from * shard_ * size], &whole[from * sent + r * shard_ * size], shard_ * size);
      const auto columns = std::span(row).first(static_cast<std::size_t>(form_.vocabulary) * size);
      const auto found = oracle::largest_of(columns, point.type, form_.top_k);
      for (std::size_t i = 0; i < form_.top_k; ++i) {
        const std::size_t at = r * form_.top_k + i;
        const auto column = oracle::get(got, DataType::i32, at);
        const auto values = std::span(got).subspan(rows(point) * form_.top_k * sizeof(std::int32_t));
        if (column != found[i].column || oracle::get(values, point.type, at) != found[i].bits)
          return fmt::format("row {}, candidate {}: column {}, not {}", r, i, column, found[i].column);
      }
    }
    return {};
  }

  LogitsForm form_;
  std::size_t shard_;
};

}  // namespace

std::unique_ptr<Bench> open_top_k_bench(Ranks& ranks, const BenchArgs& args, const LogitsForm& form) {
  return std::make_unique<TopKMeasurement>(ranks, args, form);
}

}  // namespace weft::cli
