#include "core/plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/detour.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;
constexpr int kLeastBulkBlocks = 17, kFewBulkBlocks = 64;  // with so few, crews move or reduce

// Threads of a crew that moves chunks (docs/notes).
constexpr int kCrewThreads = 128;
int crews_of(int threads) {
  return threads % kCrewThreads == 0 ? threads / kCrewThreads : 1;
}

// A CPU's stores of plain memory are far wider than those that are one piece. On GPUs one kernel beats many pieces
// where there are slots for as many chunks as saturate the links, and all ranks have blocks for crews to fill them, or
// 128 that do everything; between the two it is not measured, and 64 were slow (docs/notes).
bool has_room_for_bulk(const PlanQuery& query) {
  const int least = query.least_max_blocks;
  const bool enough = (least >= kLeastBulkBlocks && least <= kFewBulkBlocks) || least > 128;
  return query.device == Device::cpu || (query.layout.bulk_slots >= 256 && enough);
}

template <class Query>
std::span<const TuningStep> steps_of(const Query& query) {
  return query.steps.empty() ? shipped_steps(query.device, static_cast<int>(query.size)) : query.steps;
}

// What the group's table has for the message: follows from what is the same on every rank.
TuningStep tuned_step(const PlanQuery& query, std::size_t bytes) {
  if (query.size == 1) return {};
  TuningStep step = step_for(steps_of(query), bytes, bytes * (16 / payload_bytes(query.type)));
  if (step.algorithm == Algorithm::bulk && !has_room_for_bulk(query)) step = {.algorithm = Algorithm::two_shot};
  return step;
}

// The caller's launch, else the table's as far as this rank's kernel takes it.
Launch tuned_launch(const PlanQuery& query, const TuningStep& step) {
  const bool lean = has_lean_instance({.type = query.type, .op = query.op, .size = query.size, .whole = query.whole});
  const int most_threads = max_threads(lean ? query.size : 0);
  return {.blocks = query.launch.blocks != 0 ? query.launch.blocks : std::min(step.blocks, query.max_blocks),
          .threads = query.launch.threads != 0 ? query.launch.threads : std::min(step.threads, most_threads)};
}

// Few threads a block while there are blocks to spare: latency first; then wider blocks, and all of the GPU last.
// Two-shot does better with half of the GPU's blocks until they are 512 wide. Measured on H200.
void choose_grid(const PlanQuery& query, std::size_t packs_per_phase, Plan& plan) {
  const std::size_t most_blocks = std::max(query.max_blocks - 1, 1);
  const std::size_t spared =
      plan.algorithm == Algorithm::two_shot ? std::max<std::size_t>(most_blocks / 2, 1) : most_blocks;
  const std::size_t packs = std::max<std::size_t>(packs_per_phase, 1);
  const bool lean = has_lean_instance({.type = query.type, .op = query.op, .size = query.size, .whole = query.whole});
  const std::size_t most_threads = max_threads(lean ? query.size : 0);
  std::size_t threads = 64;
  while (threads < 512 && threads * spared < packs) threads *= 2;
  while (threads < most_threads && threads * most_blocks < packs) threads *= 2;
  const std::size_t blocks = std::clamp<std::size_t>((packs + threads - 1) / threads, 1, most_blocks);
  plan.threads = query.launch.threads != 0 ? query.launch.threads : static_cast<int>(threads);
  plan.blocks = query.launch.blocks != 0 ? query.launch.blocks : static_cast<int>(blocks) + 1;
}

// A block that makes all hops serves all chunks that share a slot (algorithms/bulk_all_reduce.hpp): a power of two of
// data blocks. With few processors, crews of which some move and others reduce keep the links busier. Measured on H200
// (docs/notes).
void choose_bulk_grid(const PlanQuery& query, Plan& plan) {
  constexpr int kLeastSlots = 32;
  const bool gpu = query.device == Device::cuda;
  const bool lean = has_lean_instance({.type = query.type, .op = query.op, .size = query.size, .whole = query.whole});
  const int wish = std::max(query.launch.blocks != 0 ? query.launch.blocks : query.max_blocks, 2);
  const auto slots = static_cast<int>(query.layout.bulk_slots);
  plan.threads = query.launch.threads;
  if (gpu && wish <= kFewBulkBlocks && slots >= kLeastSlots) {
    if (plan.threads == 0) plan.threads = max_threads(lean ? query.size : 0);
    const int crews = crews_of(plan.threads);
    if (crews * wish > 2) {
      plan.blocks = wish;
      plan.crews = crews;
      plan.apart = true;
      return;
    }
  }
  const int data_blocks = static_cast<int>(std::bit_floor(static_cast<unsigned>(std::min(slots / 2, wish - 1))));
  plan.blocks = data_blocks + 1;
  if (plan.threads == 0) plan.threads = 512;
}

// A block for each chunk of a shard, while there are blocks: nobody has measured anything else.
void choose_multimem_grid(const PlanQuery& query, std::size_t shard, Plan& plan) {
  const std::size_t chunks = (shard + query.layout.bulk_packs - 1) / query.layout.bulk_packs;
  const auto most = static_cast<std::size_t>(std::max(query.max_blocks - 1, 1));
  const auto blocks = static_cast<int>(std::clamp<std::size_t>(chunks, 1, most));
  plan.blocks = query.launch.blocks != 0 ? query.launch.blocks : blocks + 1;
  plan.threads = query.launch.threads != 0 ? query.launch.threads : 512;
}

// A block has a row at a time, and a thread as few of its packs as may be.
int norm_threads(const Launch& launch, std::uint64_t row_packs, int max_threads) {
  const std::uint64_t most = static_cast<std::uint64_t>(max_threads), each = (row_packs + most - 1) / most;
  const std::uint64_t threads = ((row_packs + each - 1) / each + 31) / 32 * 32;
  return launch.threads != 0 ? launch.threads : static_cast<int>(threads);
}

}  // namespace

std::size_t default_one_shot_bytes(Device device, std::uint32_t size) {
  if (device == Device::cpu) return 64 * KiB;
  if (size <= 2) return 8 * MiB;
  return size <= 4 ? 1 * MiB : 512 * KiB;
}

std::size_t default_two_shot_bytes(Device device, std::uint32_t) {
  return device == Device::cpu ? 1 * MiB : 16 * MiB;
}

Plan plan_all_reduce(const PlanQuery& asked) {
  const TuningStep step = tuned_step(asked, asked.count * size_of(asked.type));
  PlanQuery query = asked;
  Plan plan{};
  plan.algorithm = query.wish == Algorithm::automatic ? step.algorithm : query.wish;
  if (query.wish == Algorithm::automatic) query.launch = tuned_launch(query, step);
  const std::size_t per_pack = payload_bytes(query.type) / size_of(query.type);  // elements
  if (plan.algorithm == Algorithm::bulk) {
    plan.piece = std::max<std::size_t>(query.count, 1);
    choose_bulk_grid(query, plan);
    return plan;
  }
  if (is_multimem(plan.algorithm)) {
    plan.piece = query.multimem_packs * per_pack;
    const std::size_t packs = (std::min(query.count, plan.piece) + per_pack - 1) / per_pack;
    const std::size_t shards = plan.algorithm == Algorithm::multimem_one_shot ? 1 : query.size;
    choose_multimem_grid(query, (packs + shards - 1) / shards, plan);
    return plan;
  }
  const bool one_shot = plan.algorithm == Algorithm::one_shot;
  const std::size_t piece_packs = one_shot ? query.layout.one_shot_packs : query.layout.two_shot_packs * query.size;
  plan.piece = piece_packs * per_pack;
  const std::size_t packs = (std::min(query.count, plan.piece) + per_pack - 1) / per_pack;
  choose_grid(query, one_shot ? packs : (packs + query.size - 1) / query.size, plan);
  return plan;
}

MovePlan plan_move(const MoveQuery& query) {
  // Chunks cost round trips, and lines bytes. On H200s lines win as long as a slot takes them (docs/notes).
  const bool cpu = query.device == Device::cpu;
  // To symmetric memory they win up to 1.75 MiB that leave a rank: a third more bytes, for 4 µs.
  const std::uint64_t most_symmetric = 7 * MiB / 3 / std::max(query.size - 1, 1u);
  const std::uint64_t most_wire = (cpu ? 16 * KiB : query.symmetric ? most_symmetric : 16 * MiB) / sizeof(Pack);
  MovePlan plan{};
  plan.slot_packs = std::min(query.layout.two_shot_packs, most_wire);
  // Two hops cost time, too, which the links must make up for.
  plan.detour_packs = (cpu ? 32 * KiB : 7 * MiB / 4) / sizeof(Pack);
  const std::uint64_t sent_units = (query.sent_bytes + query.unit_bytes - 1) / query.unit_bytes;
  const bool relays_take_lines = query.size > 1 && sent_units / (query.size - 1) * query.wire_packs <= plan.slot_packs;
  plan.detour =
      query.sent_bytes != 0 && takes_detour({.ranks = query.size,
                                             .slots = query.layout.bulk_slots,
                                             .longest = query.own_bytes / sizeof(Pack),
                                             .worth = (relays_take_lines ? 1 : kChunksWorth) * plan.detour_packs},
                                            [&] { return query.sent_bytes / sizeof(Pack); });
  // Threads for what moves at this rank, in whichever direction: one without rows of its own receives its peers'.
  const std::uint64_t bytes = std::max(query.own_bytes, (query.whole_bytes + query.size - 1) / query.size);
  const std::uint64_t units = (bytes + query.unit_bytes - 1) / query.unit_bytes;
  const bool flows = plan.detour || units * query.wire_packs > plan.slot_packs;
  const std::uint64_t most_blocks = static_cast<std::uint64_t>(std::max(query.max_blocks - 1, 1));
  const auto blocks_of = [&](std::uint64_t threads) {
    return std::max<std::uint64_t>((units + threads - 1) / threads * query.streams, 1);
  };
  std::uint64_t threads = flows ? kMoveThreads : 64;
  while (threads < kMoveThreads && most_blocks < blocks_of(threads)) threads *= 2;
  const std::uint64_t blocks = flows ? most_blocks : std::min(blocks_of(threads), most_blocks);
  plan.threads = query.launch.threads != 0 ? query.launch.threads : static_cast<int>(threads);
  plan.blocks = query.launch.blocks != 0 ? query.launch.blocks : static_cast<int>(blocks) + 1;
  if (flows && !query.symmetric && !cpu) plan.crews = crews_of(plan.threads);
  return plan;
}

NormPlan plan_norm(const NormQuery& query) {
  NormPlan plan{};
  const std::uint64_t row_packs = std::max<std::uint64_t>(query.row_packs, 1);
  const std::uint64_t one_shot_rows = query.layout.one_shot_packs / row_packs;
  const std::uint64_t two_shot_packs = query.layout.two_shot_packs * query.size;
  const std::uint64_t two_shot_rows = two_shot_packs / row_packs;
  plan.algorithm = query.wish;
  if (plan.algorithm == Algorithm::automatic) {
    const std::uint64_t bytes = query.rows * row_packs * sizeof(Pack);
    // One hop beats two where it does for all-reduces alone. Measured with two ranks (docs/notes).
    const bool small = query.size == 1 || step_for(steps_of(query), bytes, bytes).algorithm == Algorithm::one_shot;
    const bool one_shot = one_shot_rows != 0 && (small || two_shot_rows == 0);
    plan.algorithm = one_shot ? Algorithm::one_shot : Algorithm::two_shot;
  }
  plan.piece_rows = plan.algorithm == Algorithm::one_shot ? one_shot_rows : two_shot_rows;
  plan.piece_packs = row_packs;
  if (plan.piece_rows == 0 && query.rows != 0) {
    const std::uint64_t most = plan.algorithm == Algorithm::one_shot ? query.layout.one_shot_packs : two_shot_packs;
    const std::uint64_t pieces = (row_packs + most - 1) / most;
    plan.piece_rows = 1;
    plan.piece_packs = (row_packs + pieces - 1) / pieces;
  }
  const std::uint64_t rows = std::min(query.rows, plan.piece_rows), packs = rows * plan.piece_packs;
  // Between two ranks bytes count from here on. Measured on H200.
  plan.keeps_own = query.size == 2 && packs * sizeof(Pack) > 256 * KiB;
  // A processor stores 49 GB/s, so that few rows are sent by more blocks than norm them; more than these did not help.
  constexpr std::uint64_t kSendersPacks = 128, kMostSenders = 32;
  const std::uint64_t sent = plan.algorithm == Algorithm::one_shot ? packs : packs / query.size;
  const std::uint64_t senders = std::min((sent + kSendersPacks - 1) / kSendersPacks, kMostSenders);
  const auto blocks_for = [&](std::uint64_t blocks) {
    const auto most = static_cast<std::uint64_t>(std::max(query.max_blocks - 1, 1));
    return static_cast<int>(std::clamp<std::uint64_t>(blocks, 1, most));
  };
  const std::uint32_t lean_size = has_lean_norm(query.type, query.size) ? query.size : 0;
  plan.threads = norm_threads(query.launch, plan.piece_packs, max_norm_threads(plan.algorithm, lean_size));
  plan.blocks = query.launch.blocks != 0 ? query.launch.blocks : blocks_for(std::max(rows, senders)) + 1;
  plan.norm_threads = norm_threads(query.launch, row_packs, kMostNormThreads);
  plan.norm_blocks = query.launch.blocks != 0 ? query.launch.blocks : blocks_for(query.rows);
  return plan;
}

}  // namespace weft::detail
