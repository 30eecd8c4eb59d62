// One process for each rank: what README.md shows between the two marks.
// begin: README.md
#include <cstdio>
#include <vector>
#include <weft/weft.hpp>

int main() try {
  // The ranks are processes that torchrun, mpirun or srun has started; without a launcher this is a world of one.
  weft::Communicator world = weft::Communicator::from_environment({.device = weft::Device::cpu});
  std::vector<float> x(8192, static_cast<float>(world.rank() + 1));

  // In place or not, any count. `world.split(color)` gives groups, which are used like the world.
  weft::all_reduce(world, {.input = x.data(), .output = x.data(), .count = x.size(), .type = weft::DataType::f32});

  std::printf("rank %d of %d: every sum is %g\n", world.rank(), world.size(), x[0]);
} catch (const weft::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());  // which call, and which rank was late, died or called something else
  return 1;
}
// end: README.md
