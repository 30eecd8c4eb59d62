#include "verify/verify_points.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "bench/rank_device.hpp"
#include "ops/all_reduce/all_reduce_plan.hpp"

namespace weft::cli {
namespace {

using detail::kKiB, detail::kMiB;
constexpr std::int64_t kTokens[] = {1, 33, 2048};

}  // namespace

std::vector<Point> sum_points(const Verified& verified) {
  std::vector<std::size_t> sizes = {8,        1000 * 8 + 24, 64 * kKiB, 512 * kKiB,
                                    2 * kMiB, 16 * kMiB,     64 * kMiB, 256 * kMiB};
  std::erase_if(sizes, [&](std::size_t bytes) { return bytes > verified.most; });
  for (std::size_t more = sizes.back() * 4; sizes.back() >= 16 * kMiB && more < verified.most; more *= 4)
    sizes.push_back(more);
  if (const std::size_t last = verified.most / 16 * 16; last > sizes.back()) sizes.push_back(last);
  std::vector<Contender> algorithms = {Contender::automatic};
  if (verified.direct)
    algorithms.insert(algorithms.end(), {Contender::one_shot, Contender::two_shot, Contender::pipelined});
  if (verified.multicast)
    algorithms.insert(algorithms.end(), {Contender::multimem_one_shot, Contender::multimem_two_shot});
  std::vector<Point> all;
  for (const auto type : {DataType::bf16, DataType::f16, DataType::f32, DataType::i32, DataType::i64, DataType::u8}) {
    for (const auto op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::avg}) {
      const bool common = op == ReduceOp::sum && type != DataType::i64 && type != DataType::u8;
      for (const auto bytes : sizes) {
        if (!common && bytes > (op == ReduceOp::max ? kMiB : 64 * kKiB) && !verified.thorough) continue;
        for (const auto algorithm : algorithms) {
          if (is_multimem(algorithm) && !detail::multimem_adds(type, op)) continue;
          all.push_back({.count = bytes / size_of(type) - (bytes % 16 == 8 && bytes > 8 ? 1 : 0),
                         .type = type,
                         .op = op,
                         .contender = algorithm,
                         .method = methods_of(verified.device).front()});
        }
      }
    }
  }
  std::ranges::stable_sort(all, {}, [](const Point& point) { return point.bytes(); });
  return all;
}

std::vector<Point> gather_points(const Verified& verified, const GatherModel& rows) {
  std::vector<Point> all;
  for (const auto operation :
       {Operation::all_gather, Operation::reduce_scatter, Operation::all_to_all, Operation::broadcast,
        Operation::all_gather_v, Operation::reduce_scatter_v, Operation::four_tensors}) {
    for (const std::int64_t tokens : kTokens) {
      const Load load = is_ragged(operation) ? Load::busy : Load::balanced;
      Point point = gather_point(rows, operation, load, tokens, DataType::bf16);
      if (gather_bytes(rows, point) > verified.most) continue;
      point.method = methods_of(verified.device).front();
      for (const auto where : {Contender::automatic, Contender::symmetric}) {
        if (where == Contender::symmetric && !is_copy(operation)) continue;
        point.contender = where;
        all.push_back(point);
      }
    }
  }
  return all;
}

std::vector<Point> crossing_points(const Verified& verified, const CrossingForm& form) {
  std::vector<Point> all;
  for (const auto operation : {Operation::gather_sums, Operation::scatter_sums}) {
    for (const std::int64_t tokens : kTokens) {
      const Point point{.operation = operation,
                        .count = static_cast<std::size_t>(tokens * form.hidden),
                        .rows = tokens,
                        .hidden = form.hidden,
                        .method = methods_of(verified.device).front()};
      if (crossing_bytes(form, point) <= verified.most) all.push_back(point);
    }
  }
  return all;
}

}  // namespace weft::cli
