#include "common/machine.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace weft::cli {

Machine describe_machine() {
  Machine machine;
  machine.cores = std::thread::hardware_concurrency();
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line) && machine.cpu.empty();)
    if (line.starts_with("model name")) machine.cpu = line.substr(line.find(':') + 2);
  std::error_code none;
  const std::filesystem::directory_iterator present("/proc/driver/nvidia/gpus", none);
  machine.gpus_present = static_cast<int>(std::distance(begin(present), end(present)));
  describe_cuda(machine);
  return machine;
}

#if !WEFT_WITH_CUDA
void describe_cuda(Machine& machine) {
  machine.cuda_problem = "this program was built without CUDA";
}
#endif

}  // namespace weft::cli
