#include "executors/cuda_launch.cuh"

namespace weft::detail {

void launch_operation(const PlannedCall& planned, const RejectionOperation&) {
  launch_one_rank<Rejection>(planned, {});
}

void load_rejections(Loader& loader) {
  loader.load_one_rank<Rejection>();
}

}  // namespace weft::detail
