#include "bench/moe_rivals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "bench/bench_outputs.hpp"
#include "bench/push.hpp"
#include "bench/rank_bench.hpp"
#include "weft/parallel.hpp"
#include "workloads/gather_reference.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t kPack = 16, kBf16Bytes = size_of(DataType::bf16);
constexpr std::size_t kTensorRoom = 4096;  // tensors of a gather begin at multiples
constexpr std::size_t kDispatch = 0, kCombine = 1;

constexpr std::size_t whole_packs(std::size_t bytes) {
  return (bytes + kPack - 1) / kPack * kPack;
}

class MoeRivalsMeasurement final : public MoeRivals, private RankBench {
 public:
  MoeRivalsMeasurement(Ranks& ranks, const MoeExchangeArgs& args)
      : RankBench(ranks, {.max_bytes = rival_room(ranks.world_size(), args)}) {
    const int world = ranks_.world_size();
    const bool gpus = ranks_.device() == Device::cuda && world > 1 && world <= kMostPushed;
    if (gpus) outputs_.emplace(ranks_, args_.max_bytes);
  }

  std::vector<MoeRival> peers(const MoeTraffic& traffic, int samples) override {
    std::vector<MoeRival> all;
    traffic_ = &traffic;
    const auto add = [&](std::size_t part, Operation operation, const std::vector<Contender>& contenders) {
      for (const Contender contender : contenders)
        all.push_back(measure(part, {.operation = operation, .contender = contender}, samples));
    };
    add(kDispatch, Operation::all_gather, RankBench::peers(Operation::all_gather));
    add(kCombine, Operation::reduce_scatter, RankBench::peers(Operation::reduce_scatter));
    for (const std::size_t part : {kDispatch, kCombine}) add(part, Operation::all_to_all, exchangers());
    return all;
  }

  std::vector<MoeRival> bounds(const MoeTraffic& traffic, int samples, int blocks) override {
    std::vector<MoeRival> all;
    if (!has_bounds()) return all;
    traffic_ = &traffic;
    for (const std::size_t part : {kDispatch, kCombine}) {
      for (const Contender contender : {Contender::push, Contender::copy})
        all.push_back(measure(part, {.contender = contender, .launch = {.blocks = blocks}}, samples));
    }
    return all;
  }

  std::vector<std::string> notes() const override {
    std::vector<std::string> all = RankBench::notes();
    if (!has_bounds())
      all.push_back(fmt::format("No bound: only for 2 to {} GPUs that reach each other's memory", kMostPushed));
    return all;
  }

 private:
  bool has_bounds() const { return outputs_ && outputs_->can_be_pushed_to(); }

  MoeRival measure(std::size_t part, Point point, int samples) {
    part_ = part;
    point.method = methods().front();
    point.rows = traffic_->token_count();
    point.count = output_elements(point);
    MoeRival rival{.operation = part, .result = RankBench::run(point, samples)};
    rival.wire_bytes = wire_bytes(point);
    if (point.contender == Contender::copy)
      rival.moved_bytes = 2.0 * static_cast<double>(input_elements(point) * kBf16Bytes);
    return rival;
  }

  // Per rank, on the average.
  double wire_bytes(const Point& point) const {
    if (point.contender == Contender::copy) return 0;
    const auto peers = static_cast<double>(world() - 1);
    if (point.contender == Contender::push) return peers * static_cast<double>(pushed_elements() * kBf16Bytes);
    if (point.operation == Operation::all_to_all)
      return traffic_->wire_rows() * static_cast<double>(exchanged_row_bytes());
    return peers * static_cast<double>(shape_.most_rows() * shape_.row_elements() * kBf16Bytes);
  }

  std::size_t input_elements(const Point& point) const override {
    if (point.contender == Contender::push) return pushed_elements();
    if (point.contender == Contender::copy) return copied_elements();
    if (point.operation == Operation::all_to_all) return most_exchanged(/*sent=*/true) / kBf16Bytes;
    return shape_of(point.operation).input_elements();
  }
  std::size_t output_elements(const Point& point) const override {
    if (point.contender == Contender::push) return pushed_elements() * world();
    if (point.contender == Contender::copy) return copied_elements();
    if (point.operation == Operation::all_to_all) return most_exchanged(/*sent=*/false) / kBf16Bytes;
    return shape_of(point.operation).output_elements();
  }

  // Every rank pushes an equal part to each peer, and together as many bytes as Weft moves over the links.
  std::size_t pushed_elements() const {
    const double bytes = part_ == kDispatch ? traffic_->dispatch_wire_bytes() : traffic_->combine_wire_bytes();
    return whole_packs(static_cast<std::size_t>(std::ceil(bytes / static_cast<double>(world() - 1)))) / kBf16Bytes;
  }
  // A copy reads half of the bytes and writes the other half. A rate needs no more than the buffers hold.
  std::size_t copied_elements() const {
    const double bytes = part_ == kDispatch ? traffic_->dispatch_moved_bytes() : traffic_->combine_moved_bytes();
    return std::min(whole_packs(static_cast<std::size_t>(bytes / 2)), args_.max_bytes / kPack * kPack) / kBf16Bytes;
  }

  // all_gather: rows, ids, weights and payloads of all tokens. reduce_scatter: a row for every token of every rank.
  GatherShape shape_of(Operation operation) const {
    const MoeExchangeArgs& args = traffic_->exchange();
    const std::size_t choices = std::size_t{args.top_k} * 4 / kBf16Bytes;  // 4 bytes each
    GatherShape shape{.operation = operation, .rows = std::vector<std::size_t>(world(), traffic_->token_count())};
    shape.widths = operation == Operation::all_gather
                       ? std::vector<std::size_t>{peer_row_bytes(args) / kBf16Bytes, choices, choices}
                       : std::vector<std::size_t>{args.hidden};
    if (operation == Operation::all_gather)
      for (const std::uint32_t bytes : args.payload_bytes) shape.widths.push_back(bytes / kBf16Bytes);
    const std::vector<std::int32_t> rows(shape.rows.begin(), shape.rows.end());
    shape.slots = slots_of(rows, Padding::none);
    return shape;
  }

  // dispatch: payloads lie behind the row.
  std::size_t exchanged_row_bytes() const {
    const MoeExchangeArgs& args = traffic_->exchange();
    return part_ == kDispatch ? whole_packs(peer_row_bytes(args) + detail::side_sizes(args).bytes)
                              : args.hidden * kBf16Bytes;
  }
  // Bytes that go from rank to rank. combine: the same rows come back.
  std::size_t exchanged(std::size_t from, std::size_t to) const {
    if (part_ == kCombine) std::swap(from, to);
    return traffic_->tokens_sent(static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)) *
           exchanged_row_bytes();
  }
  Exchange exchange_of(std::size_t rank) const {
    Exchange mine;
    for (std::size_t peer = 0; peer < world(); ++peer) {
      mine.sent.push_back(exchanged(rank, peer));
      mine.received.push_back(exchanged(peer, rank));
    }
    return mine;
  }
  std::size_t most_exchanged(bool sent) const {
    std::size_t most = 0;
    for (std::size_t rank = 0; rank < world(); ++rank) {
      std::size_t bytes = 0;
      for (std::size_t peer = 0; peer < world(); ++peer) bytes += sent ? exchanged(rank, peer) : exchanged(peer, rank);
      most = std::max(most, bytes);
    }
    return most;
  }

  void begin(const Point& point) override {
    if (is_bound(point.contender) || point.operation == Operation::all_to_all) return;
    shape_ = shape_of(point.operation);
    reference_.prepare(shape_, args_.data, kLastStep);
  }

  Buffers buffers(const Ranks::Seat& seat, const Point& point) override {
    Buffers own = RankBench::buffers(seat, point);
    if (point.contender == Contender::push) own.output = outputs_->data(seat);
    return own;
  }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    const auto [input, output] = buffers(seat, point);
    const Stream stream = rank(seat).device->stream();
    if (point.contender == Contender::push) return push(seat, input, point.launch.blocks);
    if (point.contender == Contender::copy) return copy(seat, {input, output}, point.launch.blocks);
    if (point.operation != Operation::all_to_all) return rank(seat).peer->move(shape_, input, output, stream);
    Exchange mine = exchange_of(static_cast<std::size_t>(seat.rank()));
    mine.input = input;
    mine.output = output;
    rank(seat).peer->exchange(mine, stream);
  }
  void push(const Ranks::Seat& seat, const void* input, int blocks) {
    outputs_->push(seat,
                   {.input = input, .bytes = pushed_elements() * kBf16Bytes, .to_itself = false, .blocks = blocks},
                   rank(seat).device->stream());
  }
  void copy([[maybe_unused]] const Ranks::Seat& seat, [[maybe_unused]] const Buffers& memory,
            [[maybe_unused]] int blocks) {
#if WEFT_WITH_CUDA
    enqueue_copy(
        {.input = memory.input, .output = memory.output, .bytes = copied_elements() * kBf16Bytes, .blocks = blocks},
        rank(seat).device->stream());
#endif
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    const std::vector<std::byte>& host = rank(seat).host;
    const auto me = static_cast<std::size_t>(seat.rank());
    if (point.contender == Contender::push)
      return check_pushed({.data = host.data(),
                           .elements = pushed_elements(),
                           .pattern = args_.data,
                           .rank = seat.rank(),
                           .ranks = ranks_.world_size()});
    if (point.contender == Contender::copy) return check_part(host.data(), me, 0, copied_elements());
    if (point.operation != Operation::all_to_all) return reference_.check(me, host, /*exact=*/true);
    std::size_t got = 0;
    for (std::size_t from = 0; from < world(); ++from) {
      std::size_t first = 0;  // of this rank's part in the sender's input
      for (std::size_t to = 0; to < me; ++to) first += exchanged(from, to);
      const std::size_t bytes = exchanged(from, me);
      if (std::string wrong = check_part(host.data() + got, from, first / kBf16Bytes, bytes / kBf16Bytes);
          !wrong.empty())
        return wrong;
      got += bytes;
    }
    return {};
  }
  // Compares `got` with elements of a rank's input.
  std::string check_part(const std::byte* got, std::size_t from, std::size_t first, std::size_t elements) const {
    std::vector<std::byte> input((first + elements) * kBf16Bytes);
    fill(input.data(), first, first + elements, DataType::bf16, args_.data, static_cast<int>(from), kLastStep);
    const bool same = std::memcmp(got, input.data() + first * kBf16Bytes, elements * kBf16Bytes) == 0;
    return same ? std::string() : fmt::format("other bytes than rank {} has sent", from);
  }

  std::vector<Contender> contenders(Operation operation) const override {
    return RankBench::peers(operation);
  }
  std::size_t world() const {
    return static_cast<std::size_t>(ranks_.world_size());
  }

  // State of the running point.
  const MoeTraffic* traffic_ = nullptr;
  std::size_t part_ = kDispatch;
  GatherShape shape_;
  GatherReference reference_;
  std::optional<BenchOutputs> outputs_;  // for pushes
};

}  // namespace

std::string name(const MoeRival& rival) {
  const Point& point = rival.result.point;
  if (is_bound(point.contender)) return std::string(name(point.contender));
  const bool gloo = point.contender == Contender::gloo_ring;
  const char* const how = point.operation == Operation::all_to_all ? "A2A" : gloo ? "AG" : "AG/RS";
  return fmt::format("{} {}", gloo ? "Gloo" : name(point.contender), how);
}

std::size_t peer_row_bytes(const MoeExchangeArgs& args) {
  const detail::OutputRow row = detail::output_row(args);
  return whole_packs(row.bytes + row.scale_bytes);
}

// Peers move rows of two bytes a column with payloads, ids and weights. A push moves what Weft does: rows with masks,
// records (one more than tokens), counts and a header.
std::size_t rival_room(int ranks, const MoeExchangeArgs& args) {
  const auto size = static_cast<std::uint32_t>(ranks);
  const detail::ExchangeShape shape = detail::make_shape(size, 0, args, detail::map_experts(size, args));
  const std::size_t of_peers = args.hidden * kBf16Bytes + whole_packs(detail::side_sizes(args).bytes) +
                               args.top_k * (sizeof(std::int64_t) + sizeof(float));
  const std::size_t of_push = (std::size_t{shape.row_packs} + args.top_k) * kPack;
  const std::size_t counts = whole_packs((std::size_t{args.experts} + 2) * sizeof(std::uint64_t));
  return size * ((args.tokens + std::size_t{1}) * std::max(of_peers, of_push) + counts) + kTensorRoom;
}

double copy_rate(const MoeRival& copy) {
  return copy.result.us > 0 ? copy.moved_bytes / copy.result.us : 0;
}

double bound_us(const std::vector<MoeRival>& rivals, std::size_t operation, double moved_bytes) {
  double push = 0, copy = 0;
  for (const MoeRival& rival : rivals) {
    if (rival.operation != operation || rival.result.verdict != Verdict::ok) continue;
    if (rival.result.point.contender == Contender::push) push = rival.result.us;
    if (rival.result.point.contender == Contender::copy && copy_rate(rival) > 0) copy = moved_bytes / copy_rate(rival);
  }
  return push > 0 && copy > 0 ? std::max(push, copy) : 0;
}

std::unique_ptr<MoeRivals> open_moe_rivals(Ranks& ranks, const MoeExchangeArgs& args) {
  return std::make_unique<MoeRivalsMeasurement>(ranks, args);
}

}  // namespace weft::cli
