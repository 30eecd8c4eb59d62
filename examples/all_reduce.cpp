// Four ranks, each a thread of this process, add up one vector each. No GPU is needed.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <weft/weft.hpp>

int main() {
  constexpr int ranks = 4;
  constexpr std::size_t count = 8192;
  std::vector<weft::Communicator> communicators = weft::Communicator::local(ranks, {.device = weft::Device::cpu});
  std::vector<std::vector<float>> values(ranks);

  std::vector<std::jthread> threads;
  for (weft::Communicator& communicator : communicators) {
    threads.emplace_back([&communicator, &mine = values[communicator.rank()]] {
      mine.assign(count, static_cast<float>(communicator.rank() + 1));
      weft::all_reduce(communicator,
                       {.input = mine.data(), .output = mine.data(), .count = count, .type = weft::DataType::f32});
    });
  }
  threads.clear();  // joins them

  for (const std::vector<float>& result : values) {
    // Every rank has the same bits.
    if (result != std::vector<float>(count, 1 + 2 + 3 + 4)) return EXIT_FAILURE;
  }
  std::printf("%d ranks, %zu values each: every sum is %g\n", ranks, count, values[0][0]);
}
