#include "gather_measure.hpp"

#include <algorithm>

#include "gather_reference.hpp"
#include "rank_bench.hpp"

namespace weft::cli {
namespace {

class GatherMeasurement final : public RankBench {
 public:
  GatherMeasurement(Ranks& ranks, const BenchArgs& args, const GatherModel& model)
      : RankBench(ranks, args), model_(model), counts_(static_cast<std::size_t>(ranks.local_size())) {
    ranks_.each([&](Ranks::Seat& seat) {
      counts(seat) = static_cast<std::int32_t*>(
          rank(seat).device->allocate(static_cast<std::size_t>(ranks_.world_size()) * sizeof(std::int32_t)));
    });
  }

  std::vector<Contender> contenders(Operation operation) const override {
    std::vector<Contender> all = {Contender::automatic};
    if (operation == Operation::all_gather_v || operation == Operation::reduce_scatter_v)
      all.push_back(Contender::padded);
    if (operation == Operation::four_tensors) all.push_back(Contender::one_tensor);
    for (const auto peer : peers(operation)) all.push_back(peer);
    return all;
  }

 private:
  std::size_t input_elements(const Point& point) const override { return gather_shape(model_, point).input_elements(); }
  std::size_t output_elements(const Point& point) const override {
    return gather_shape(model_, point).output_elements();
  }

  void begin(const Point& point) override {
    shape_ = gather_shape(model_, point);
    reference_.prepare(shape_, args_.data, kLastStep);
  }

  void prepare(Ranks::Seat& seat, const Point&) override {
    const std::vector<std::int32_t> rows(shape_.rows.begin(), shape_.rows.end());
    rank(seat).device->upload(counts(seat), rows.data(), rows.size() * sizeof(std::int32_t));
  }

  void enqueue(Ranks::Seat& seat, const Point& point) override {
    const auto [input, output] = buffers(seat, point);
    const Stream stream = rank(seat).device->stream();
    if (!is_weft(point.contender)) return rank(seat).peer->move(shape_, input, output, stream);
    const Communicator& group = seat.communicator();
    switch (shape_.operation) {
      case Operation::all_gather:
        return all_gather_into_tensor(group, {.input = input,
                                              .output = output,
                                              .rows = shape_.most_rows(),
                                              .row_bytes = shape_.row_bytes(0),
                                              .stream = stream,
                                              .launch = point.launch});
      case Operation::reduce_scatter:
        return reduce_scatter_tensor(group, {.input = input,
                                             .output = output,
                                             .rows = shape_.most_rows(),
                                             .width = shape_.widths[0],
                                             .type = shape_.type,
                                             .stream = stream,
                                             .launch = point.launch});
      case Operation::reduce_scatter_v:
        return reduce_scatter_v(group, {.input = input,
                                        .output = output,
                                        .width = shape_.widths[0],
                                        .type = shape_.type,
                                        .counts = {.rows = counts(seat)},
                                        .input_rows = shape_.all_rows(),
                                        .output_rows = shape_.most_rows(),
                                        .stream = stream,
                                        .launch = point.launch});
      default:
        break;
    }
    const std::size_t size = size_of(shape_.type);
    GatheredTensor tensors[kMaxGatheredTensors];
    for (std::size_t t = 0; t < shape_.widths.size(); ++t)
      tensors[t] = {.input = static_cast<std::byte*>(input) + shape_.input_at(t) * size,
                    .output = static_cast<std::byte*>(output) + shape_.output_at(t) * size,
                    .row_bytes = shape_.row_bytes(t)};
    all_gather_v(group, {.tensors = {tensors, shape_.widths.size()},
                         .counts = {.rows = counts(seat)},
                         .input_rows = shape_.most_rows(),
                         .output_rows = shape_.all_rows(),
                         .stream = stream,
                         .launch = point.launch});
  }

  std::string verify(Ranks::Seat& seat, const Point& point) override {
    return reference_.check(static_cast<std::size_t>(seat.rank()), rank(seat).host, is_exact(point));
  }

  std::int32_t*& counts(const Ranks::Seat& seat) { return counts_[static_cast<std::size_t>(seat.local_index())]; }

  GatherModel model_;
  GatherShape shape_;  // of the point that runs
  GatherReference reference_;
  std::vector<std::int32_t*> counts_;
};

}  // namespace

std::unique_ptr<Bench> open_gather_bench(Ranks& ranks, const BenchArgs& args, const GatherModel& model) {
  return std::make_unique<GatherMeasurement>(ranks, args, model);
}

std::size_t gather_bytes(const GatherModel& model, const Point& point) {
  std::size_t most = 0;
  for (const auto contender : {Contender::automatic, Contender::padded, Contender::one_tensor}) {
    Point one = point;
    one.contender = contender;
    const GatherShape shape = gather_shape(model, one);
    most = std::max({most, shape.input_elements(), shape.output_elements()});
  }
  return most * size_of(point.type);
}

Point gather_point(const GatherModel& model, Operation operation, Load load, std::int64_t tokens, DataType type) {
  Point point{.operation = operation, .load = load, .rows = tokens, .hidden = model.hidden, .type = type};
  const GatherShape shape = gather_shape(model, point);
  point.count = shape.total_rows() * shape.row_elements();
  return point;
}

}  // namespace weft::cli
