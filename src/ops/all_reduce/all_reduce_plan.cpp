#include "ops/all_reduce/all_reduce_plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "comm/pairs.hpp"

namespace weft::detail {
namespace {

constexpr int kLeastPipelinedBlocks = 17, kFewPipelinedBlocks = 64;  // with so few, warp groups move or reduce

// A CPU's stores of plain memory are far wider than its one-piece stores. On GPUs one kernel beats many pieces if slots
// hold the chunks that saturate the links. All ranks also need blocks for warp groups to fill them, or more than 128
// that do everything. Between the two it is not measured, and 64 were slow (docs/notes).
bool has_room_for_pipeline(const PlanQuery& query) {
  const int least = query.least_max_blocks;
  const bool enough = (least >= kLeastPipelinedBlocks && least <= kFewPipelinedBlocks) || least > 128;
  return query.device == Device::cpu || (query.layout.pipeline_slots >= 256 && enough);
}

std::size_t elements_per_pack(const PlanQuery& query) {
  return payload_bytes(query.type) / size_of(query.type);
}
// Packs of the largest message that goes in one piece.
std::size_t piece_packs(const PlanQuery& query, Algorithm algorithm) {
  return algorithm == Algorithm::one_shot ? query.layout.one_shot_packs : query.layout.two_shot_packs * query.size;
}
std::size_t pieces(const PlanQuery& query, Algorithm algorithm) {
  const std::size_t piece = piece_packs(query, algorithm) * elements_per_pack(query);
  return (query.count + piece - 1) / piece;
}

bool is_specialized(const PlanQuery& query) {
  return has_specialized_instance(
      {.type = query.type, .ops = ops_for(query.type, query.op), .size = query.size, .aligned16 = query.aligned16});
}

// The step of the group's table for the message. It follows from values that are the same on every rank. Tables know
// messages in one piece. On GPUs, where each piece is a kernel, two-shot may need fewer of them if buffers are small.
TuningStep tuned_step(const PlanQuery& query, std::size_t bytes) {
  if (query.size == 1) return {};
  TuningStep step = step_for(steps_or_shipped(query.steps, query.device, query.size), bytes,
                             bytes * (16 / payload_bytes(query.type)));
  if (step.algorithm == Algorithm::pipelined && !has_room_for_pipeline(query))
    step = {.algorithm = Algorithm::two_shot};
  if (query.device == Device::cuda && step.algorithm == Algorithm::one_shot &&
      pieces(query, Algorithm::two_shot) < pieces(query, Algorithm::one_shot))
    step = {.algorithm = Algorithm::two_shot};
  return step;
}

// The caller's launch, else the table's launch within the limits of this rank's kernel.
Launch tuned_launch(const PlanQuery& query, const TuningStep& step) {
  const int most_threads = max_threads(is_specialized(query) ? query.size : 0);
  return {.blocks = query.launch.blocks != 0 ? query.launch.blocks : std::min(step.blocks, query.max_blocks),
          .threads = query.launch.threads != 0 ? query.launch.threads : std::min(step.threads, most_threads),
          .cluster = query.launch.cluster};
}
int grid_of(const PlanQuery& query, int by_size) {
  return whole_pairs(query.launch.blocks != 0 ? query.launch.blocks : by_size, query.launch);
}

// Few threads a block while there are blocks to spare, because latency comes first; then wider blocks, and all of the
// GPU last. Two-shot does better with half of the GPU's blocks until blocks are 512 wide. Measured on H200.
void choose_grid(const PlanQuery& query, std::size_t packs_per_phase, Plan& plan) {
  const std::size_t most_blocks = std::max(query.max_blocks - 1, 1);
  const std::size_t spared =
      plan.algorithm == Algorithm::two_shot ? std::max<std::size_t>(most_blocks / 2, 1) : most_blocks;
  const std::size_t packs = std::max<std::size_t>(packs_per_phase, 1);
  const std::size_t most_threads = max_threads(is_specialized(query) ? query.size : 0);
  std::size_t threads = 64;
  while (threads < 512 && threads * spared < packs) threads *= 2;
  while (threads < most_threads && threads * most_blocks < packs) threads *= 2;
  const std::size_t blocks = std::clamp<std::size_t>((packs + threads - 1) / threads, 1, most_blocks);
  plan.threads = query.launch.threads != 0 ? query.launch.threads : static_cast<int>(threads);
  plan.blocks = grid_of(query, static_cast<int>(blocks) + 1);
}

// A block that makes all hops serves all chunks that share a slot (ops/all_reduce/pipelined_all_reduce.hpp): a power of
// two of data blocks. With few processors, the links are busier if some warp groups move and others reduce. Measured on
// H200 (docs/notes). So do pairs, as beside the control block only one data block is a power of two and has a partner.
void choose_pipelined_grid(const PlanQuery& query, Plan& plan) {
  constexpr int kLeastSlots = 32;
  const bool gpu = query.device == Device::cuda;
  const int given = std::max(query.launch.blocks != 0 ? query.launch.blocks : query.max_blocks, 2);
  const bool pairs = in_pairs(query.launch);
  const int requested = pairs ? std::min(whole_pairs(given, query.launch), kFewPipelinedBlocks) : given;
  const auto slots = static_cast<int>(query.layout.pipeline_slots);
  plan.threads = query.launch.threads;
  if (gpu && requested <= kFewPipelinedBlocks && slots >= kLeastSlots) {
    if (plan.threads == 0) plan.threads = max_threads(is_specialized(query) ? query.size : 0);
    const int warp_groups = warp_groups_of(plan.threads);
    if (warp_groups * requested > 2) {
      plan.blocks = requested;
      plan.warp_groups = warp_groups;
      plan.apart = true;
      return;
    }
  }
  const int most = pairs ? 1 : std::min(slots / 2, requested - 1);
  const int data_blocks = static_cast<int>(std::bit_floor(static_cast<unsigned>(most)));
  plan.blocks = data_blocks + 1;
  if (plan.threads == 0) plan.threads = 512;
}

// A block for each chunk of a shard, while there are blocks. Nothing else is measured.
void choose_multimem_grid(const PlanQuery& query, std::size_t shard, Plan& plan) {
  const std::size_t chunks = (shard + query.layout.pipeline_packs - 1) / query.layout.pipeline_packs;
  const auto most = static_cast<std::size_t>(std::max(query.max_blocks - 1, 1));
  const auto blocks = static_cast<int>(std::clamp<std::size_t>(chunks, 1, most));
  plan.blocks = grid_of(query, blocks + 1);
  plan.threads = query.launch.threads != 0 ? query.launch.threads : 512;
}

}  // namespace

Plan plan_all_reduce(const PlanQuery& asked) {
  const TuningStep step = tuned_step(asked, asked.count * size_of(asked.type));
  PlanQuery query = asked;
  Plan plan{};
  plan.algorithm = query.requested == Algorithm::automatic ? step.algorithm.algorithm() : query.requested;
  if (query.requested == Algorithm::automatic) query.launch = tuned_launch(query, step);
  const std::size_t per_pack = elements_per_pack(query);
  if (plan.algorithm == Algorithm::pipelined) {
    plan.piece = std::max<std::size_t>(query.count, 1);
    choose_pipelined_grid(query, plan);
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
  plan.piece = piece_packs(query, plan.algorithm) * per_pack;
  const std::size_t packs = (std::min(query.count, plan.piece) + per_pack - 1) / per_pack;
  choose_grid(query, one_shot ? packs : (packs + query.size - 1) / query.size, plan);
  return plan;
}

}  // namespace weft::detail
