#include "bench/logits_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bench/bench_outputs.hpp"
#include "bench/place_columns.hpp"
#include "bench/rank_bench.hpp"
#include "comm/state.hpp"
#include "oracle/columns.hpp"
#include "weft/columns.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t kPadding = 64;  // of a vocabulary

class LogitsMeasurement final : public RankBench {
 public:
  LogitsMeasurement(Ranks& ranks, const BenchArgs& args, const LogitsForm& form)
      : RankBench(ranks, args, 4),
        form_(form),
        shard_(form.shard(ranks.world_size())),
        gathered_(static_cast<std::size_t>(ranks.local_size())),
        counts_(gathered_.size()),
        outputs_(ranks, args.max_bytes) {
    ranks_.each([&](Ranks::Seat& seat) {
      gathered(seat) = rank(seat).device->allocate(args_.max_bytes);
      counts_of(seat) = static_cast<std::int32_t*>(rank(seat).device->allocate(form_.groups * sizeof(std::int32_t)));
    });
  }

  std::vector<Contender> contenders(Operation) const override {
    std::vector<Contender> all = {Contender::automatic};
    all.push_back(to_groups() ? Contender::separate : Contender::symmetric);
    if (outputs_.can_be_pushed_to()) all.push_back(Contender::push);
    for (const auto peer : peers(Operation::all_gather)) all.push_back(peer);
    return all;
  }

  Result run(const Point& point, int samples) override {
    if (point.contender == Contender::symmetric) {
      std::string why = outputs_.why_none();
      if (why.empty() && !goes_straight(point))
        why = "elements are widened, or rows are no multiple of 16 bytes: such calls take the ordinary way";
      if (!why.empty()) return {.point = point, .detail = why};
    }
    const bool is_placed = is_peer(point.contender) && !is_placed_by_gather(point);
    if (is_placed && ranks_.device() == Device::cuda && !has_whole_packs(point))
      return {.point = point, .detail = "the kernel behind NCCL's gather takes rows of whole 16 bytes"};
    return RankBench::run(point, samples);
  }

 private:
  std::size_t shard_bytes(const Point& point) const { return shard_ * size_of(point.type); }
  DataType type_of_output(const Point& point) const { return form_.output_f32 ? DataType::f32 : point.type; }
  bool goes_straight(const Point& point) const {
    const bool as_wide = size_of(type_of_output(point)) == size_of(point.type);
    return as_wide && shard_bytes(point) % 16 == 0 && has_whole_packs(point) && ranks_.first().world().state().direct();
  }
  bool has_whole_packs(const Point& point) const {
    return static_cast<std::size_t>(form_.vocabulary) * size_of(point.type) % 16 == 0;
  }
  // A row of all shards is the output already: its pads are at the end.
  bool is_placed_by_gather(const Point& point) const { return is_peer(point.contender) && all_rows(point) == 1; }
  bool to_groups() const { return form_.groups != 1; }
  std::size_t rows(const Point& point) const { return form_.rows(point, 0); }  // no group has more
  std::size_t all_rows(const Point& point) const { return form_.rows_before(point, form_.groups); }
  std::size_t group_of(const Ranks::Seat& seat) const {
    return static_cast<std::size_t>(seat.rank()) / (ranks() / form_.groups);
  }
  std::size_t own_rows(const Ranks::Seat& seat, const Point& point) const { return form_.rows(point, group_of(seat)); }
  // The first one of the rows that the rank's group gets.
  std::size_t first_row(const Ranks::Seat& seat, const Point& point) const {
    return form_.rows_before(point, group_of(seat));
  }
  // A push stores what one rank gets of another, in all ranks.
  std::size_t input_elements(const Point& point) const override {
    return (point.contender == Contender::push ? rows(point) : all_rows(point)) * shard_;
  }
  // In elements of the input's type: RankBench knows no other.
  std::size_t output_elements(const Point& point) const override {
    if (point.contender == Contender::push) return input_elements(point) * ranks();
    const bool wide = form_.output_f32 && !is_peer(point.contender);
    const std::size_t kept = point.contender == Contender::separate ? all_rows(point) : rows(point);
    return kept * static_cast<std::size_t>(form_.vocabulary) * (wide ? sizeof(float) / size_of(point.type) : 1);
  }
  std::size_t ranks() const { return static_cast<std::size_t>(ranks_.world_size()); }
  void* shards_of(const Ranks::Seat& seat, const Point& point) {
    void* const own = rank(seat).peer->output(point.contender);
    return own != nullptr ? own : gathered(seat);
  }
  std::int32_t*& counts_of(const Ranks::Seat& seat) { return counts_[static_cast<std::size_t>(seat.local_index())]; }
  void*& gathered(const Ranks::Seat& seat) { return gathered_[static_cast<std::size_t>(seat.local_index())]; }

  Buffers buffers(const Ranks::Seat& seat, const Point& point) override {
    Buffers own = RankBench::buffers(seat, point);
    if (is_placed_by_gather(point)) return {own.input, shards_of(seat, point)};
    own.output = rank(seat).output;
    if (point.contender == Contender::symmetric || is_bound(point.contender)) own.output = outputs_.data(seat);
    return own;
  }

  void prepare(Ranks::Seat& seat, const Point& point) override {
    std::vector<std::int32_t> counts;
    for (std::size_t group = 0; group < form_.groups; ++group)
      counts.push_back(static_cast<std::int32_t>(form_.rows(point, group)));
    rank(seat).device->upload(counts_of(seat), counts.data(), counts.size() * sizeof(std::int32_t));
  }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    const auto [input, output] = buffers(seat, point);
    const Stream stream = rank(seat).device->stream();
    if (is_peer(point.contender)) return gather_and_place(seat, point);
    if (is_bound(point.contender)) {
      const std::size_t bytes = rows(point) * shard_bytes(point);
      return outputs_.push(seat, {.input = input, .bytes = bytes, .blocks = point.launch.blocks}, stream);
    }
    const Group& group = seat.communicator();
    const auto fill_call = [&, from = input, to = output](auto& args) {
      args.input = from;
      args.output = to;
      args.shard_columns = shard_;
      args.columns = static_cast<std::size_t>(form_.vocabulary);
      args.type = point.type;
      args.output_f32 = form_.output_f32;
      args.scale = form_.scale;
      args.soft_cap = form_.soft_cap;
      args.stream = stream;
      args.launch = point.launch;
    };
    if (to_groups() && point.contender != Contender::separate) {
      AllToAllColumnsArgs args{.group_ranks = ranks() / form_.groups,
                               .counts = {.rows = counts_of(seat)},
                               .input_rows = all_rows(point),
                               .output_rows = rows(point)};
      fill_call(args);
      return all_to_all_columns(group, args);
    }
    AllGatherColumnsArgs args{.rows = all_rows(point)};
    fill_call(args);
    all_gather_columns(group, args);
  }

  void gather_and_place(Ranks::Seat& seat, const Point& point) {
    const auto [input, output] = buffers(seat, point);
    Rank& mine = rank(seat);
    void* const shards = shards_of(seat, point);
    GatherShape shape{.operation = Operation::all_gather, .type = point.type};
    const std::size_t each = all_rows(point);
    shape.rows.assign(ranks(), each);
    shape.widths = {shard_};
    for (std::size_t i = 0; i < ranks(); ++i) shape.slots.push_back({i * each, (i + 1) * each});
    mine.peer->move(shape, input, shards, mine.device->stream());
    if (is_placed_by_gather(point)) return;
    const std::size_t row_bytes = static_cast<std::size_t>(form_.vocabulary) * size_of(point.type);
    const PlaceColumnsArgs place{
        .shards = static_cast<std::byte*>(shards) + first_row(seat, point) * shard_bytes(point),
        .output = output,
        .rows = own_rows(seat, point),
        .shard_rows = each,
        .shard_bytes = shard_bytes(point),
        .row_bytes = row_bytes};
    if (ranks_.device() == Device::cpu) return place_on_cpu(place);
#if WEFT_WITH_CUDA
    enqueue_place_columns(place, mine.device->stream());
#endif
  }

  static void place_on_cpu(const PlaceColumnsArgs& args) {
    for (std::size_t row = 0; row < args.rows; ++row) {
      for (std::size_t at = 0; at < args.row_bytes; at += args.shard_bytes) {
        const std::size_t from = (at / args.shard_bytes * args.shard_rows + row) * args.shard_bytes;
        std::memcpy(static_cast<std::byte*>(args.output) + row * args.row_bytes + at,
                    static_cast<const std::byte*>(args.shards) + from, std::min(args.shard_bytes, args.row_bytes - at));
      }
    }
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    const Rank& mine = rank(seat);
    if (is_bound(point.contender))
      return check_pushed({.data = mine.host.data(),
                           .elements = input_elements(point),
                           .type = point.type,
                           .pattern = args_.data,
                           .rank = seat.rank(),
                           .ranks = ranks_.world_size()});
    const oracle::ColumnChange change{
        .from = point.type, .to = type_of_output(point), .scale = form_.scale, .soft_cap = form_.soft_cap};
    const auto vocabulary = static_cast<std::size_t>(form_.vocabulary), size = size_of(point.type);
    std::vector<std::byte> sent(input_elements(point) * size);
    for (std::size_t from = 0; from * shard_ < vocabulary; ++from) {
      fill(sent.data(), 0, input_elements(point), point.type, args_.data, static_cast<int>(from), kLastStep);
      const std::size_t first = from * shard_, width = std::min(shard_, vocabulary - first);
      const bool all = point.contender == Contender::separate;
      const std::size_t begin = all ? 0 : first_row(seat, point);
      for (std::size_t row = begin; row < begin + (all ? all_rows(point) : own_rows(seat, point)); ++row) {
        const std::size_t at = (row - begin) * vocabulary + first;
        if (change.keeps_bits() || is_peer(point.contender)) {
          if (std::memcmp(mine.host.data() + at * size, sent.data() + row * shard_ * size, width * size) == 0) continue;
          return fmt::format("row {}: the columns of rank {} have other bytes", row, from);
        }
        for (std::size_t i = 0; i < width; ++i)
          if (const auto bits = oracle::get(sent, point.type, row * shard_ + i);
              !oracle::changed_element(change, bits).contain(oracle::get(mine.host, change.to, at + i)))
            return fmt::format("row {}, column {}: not what rank {} sent, scaled and capped", row, first + i, from);
      }
    }
    return {};
  }

  LogitsForm form_;
  std::size_t shard_;
  std::vector<void*> gathered_;        // a peer's shards, for each rank of this process
  std::vector<std::int32_t*> counts_;  // … and rows of all groups
  BenchOutputs outputs_;
};

}  // namespace

std::size_t LogitsForm::rows(const Point& point, std::size_t group) const {
  return point.load == Load::busy && group > 0 ? 1 : static_cast<std::size_t>(point.rows);
}

std::size_t LogitsForm::rows_before(const Point& point, std::size_t group) const {
  std::size_t sum = 0;
  for (std::size_t before = 0; before < group; ++before) sum += rows(point, before);
  return sum;
}

std::size_t LogitsForm::shard(int ranks) const {
  const auto columns = static_cast<std::size_t>(vocabulary), n = static_cast<std::size_t>(ranks);
  const std::size_t padded = (columns + kPadding - 1) / kPadding * kPadding;
  return ((padded + n - 1) / n + 7) / 8 * 8;
}

std::size_t logits_bytes(const LogitsForm& form, const Point& point, int ranks) {
  const auto rows = static_cast<std::size_t>(point.rows) * form.groups;
  const std::size_t row =
      form.shard(ranks) * static_cast<std::size_t>(ranks) * (form.output_f32 ? sizeof(float) : size_of(point.type));
  return rows * std::max(row, form.top_k * (sizeof(std::int32_t) + size_of(point.type)));
}

std::unique_ptr<Bench> open_logits_bench(Ranks& ranks, const BenchArgs& args, const LogitsForm& form) {
  return std::make_unique<LogitsMeasurement>(ranks, args, form);
}

}  // namespace weft::cli
