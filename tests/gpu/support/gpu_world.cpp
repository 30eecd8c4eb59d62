#include "gpu/support/gpu_world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "gpu/support/first_launches.hpp"
#include "gpu/support/kernels.hpp"
#include "kernel/cuda_error.hpp"

namespace weft::test {
namespace {

using detail::check_cuda;

// Streams of ranks that share a GPU must not wait for each other in one hardware queue. CUDA reads the variable when it
// starts. A value from outside wins.
const int queues = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

// The streams of the ranks of all worlds; one world runs at a time. A GPU's streams are made together and stay, so that
// each has a queue of its own. Two ranks in one queue would block: a download behind one rank's waiting kernel would
// hold back the other's kernels, for which that kernel waits.
const std::array<cudaStream_t, 2>& streams_of(int rank) {
  constexpr int most_ranks = 8;
  static std::mutex mutex;
  static std::map<int, std::vector<std::array<cudaStream_t, 2>>> by_device;
  const std::scoped_lock lock(mutex);
  auto& of_device = by_device[rank % gpu_count()];
  const auto place = static_cast<std::size_t>(rank / gpu_count());
  const auto most = static_cast<std::size_t>((most_ranks + gpu_count() - 1) / gpu_count());
  while (of_device.size() < std::max(most, place + 1)) {
    for (cudaStream_t& stream : of_device.emplace_back())
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  return of_device[place];
}

}  // namespace

int gpu_count() {
  static const int count = [] {
    int n = 0;
    check_cuda(cudaGetDeviceCount(&n), "cudaGetDeviceCount");
    return n;
  }();
  return count;
}

Config gpu_config(std::chrono::nanoseconds deadline) {
  Config config;
  config.device = Device::cuda;
  config.deadline = deadline * slowness();
  config.rendezvous_deadline = std::chrono::seconds(60) * slowness();
  return config;
}

int slowness() {
  static const int factor = [] {
    const char* value = std::getenv("WEFT_TEST_SLOWNESS");
    const int wanted = value == nullptr ? 1 : std::atoi(value);
    if (wanted < 1) throw std::invalid_argument(fmt::format("WEFT_TEST_SLOWNESS={}, wanted 1 or more", value));
    return wanted;
  }();
  return factor;
}

Config small_gpu_slots() {
  Config config = gpu_config();
  config.two_shot_bytes = 256;
  return config;
}

Config small_gpu_pieces() {
  Config config = gpu_config();
  config.one_shot_bytes = 1024;
  config.two_shot_bytes = 2048;
  config.max_groups = 1;
  return config;
}

// Of whatever GPU there is.
Config with_tables(Config config, const std::string& file, std::vector<detail::TuningTable> tables, int ranks) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  for (detail::TuningTable& table : tables) {
    table.processor = {properties.name};
    table.ranks = ranks;
  }
  config.tuning_file = fmt::format("{}{}.{}.json", testing::TempDir(), file, ranks);
  std::ofstream(config.tuning_file) << detail::to_json(tables);
  return config;
}

Config with_steps(Config config, const std::string& file, const std::vector<detail::TuningStep>& steps, int ranks) {
  return with_tables(std::move(config), file, {{.origin = "measured", .steps = steps}}, ranks);
}

GpuRank::GpuRank(int rank) : device_(rank % gpu_count()) {
  use();
  streams_ = streams_of(rank);
  check_cuda(cudaMalloc(&device_memory_, kBytes), "cudaMalloc");
  check_cuda(cudaMallocHost(&host_memory_, kBytes), "cudaMallocHost");
  load_test_kernels();
}

GpuRank::~GpuRank() {
  static_cast<void>(cudaSetDevice(device_));
  static_cast<void>(cudaFree(device_memory_));
  static_cast<void>(cudaFreeHost(host_memory_));
}

void GpuRank::use() const {
  check_cuda(cudaSetDevice(device_), "cudaSetDevice");
}

void GpuRank::synchronize() const {
  for (cudaStream_t stream : streams_) check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

bool GpuRank::meet() const {
  synchronize();
  return meeting_ == nullptr || meeting_->wait();
}

namespace {

std::byte* take(std::byte* memory, std::size_t& used, std::size_t bytes) {
  const std::size_t begin = used;
  used += (bytes + 255) / 256 * 256;
  if (used > GpuRank::kBytes) throw std::runtime_error("the test's memory is too small");
  return memory + begin;
}

}  // namespace

std::byte* GpuRank::device_memory(std::size_t bytes) {
  return take(device_memory_, device_used_, bytes);
}
std::byte* GpuRank::host_memory(std::size_t bytes) {
  return take(host_memory_, host_used_, bytes);
}

GpuTensors::GpuTensors(GpuRank& gpu, const Prepared& prepared, int rank)
    : prepared_(prepared),
      rank_(rank),
      host_(prepared.call, prepared.inputs.at(static_cast<std::size_t>(rank))),
      copies_{{&host_.input, nullptr, nullptr}, {&host_.output, nullptr, nullptr}} {
  for (Copy& copy : copies_) {
    copy.pinned = gpu.host_memory(copy.host->storage().size());
    copy.device = gpu.device_memory(copy.host->storage().size());
  }
  upload(gpu.stream());
  std::byte* const pinned = gpu.host_memory(prepared.expected.size());
  std::memcpy(pinned, prepared.expected.data(), prepared.expected.size());
  expected_ = gpu.device_memory(prepared.expected.size());
  check_cuda(cudaMemcpyAsync(expected_, pinned, prepared.expected.size(), cudaMemcpyHostToDevice, gpu.stream()),
             "upload");
}

AllReduceArgs GpuTensors::arguments(cudaStream_t stream) const {
  AllReduceArgs args = test::arguments(prepared_.call, copies_[0].device + host_.input.offset(),
                                       copies_[1].device + host_.output.offset());
  args.stream = stream;
  return args;
}

void GpuTensors::upload(cudaStream_t stream) {
  for (const Copy& copy : copies_) {
    const auto storage = copy.host->storage();
    std::memcpy(copy.pinned, storage.data(), storage.size());
    check_cuda(cudaMemcpyAsync(copy.device, copy.pinned, storage.size(), cudaMemcpyHostToDevice, stream), "upload");
  }
}

void GpuTensors::download(cudaStream_t stream) {
  for (const Copy& copy : copies_) {
    const std::size_t bytes = copy.host->storage().size();
    check_cuda(cudaMemcpyAsync(copy.pinned, copy.device, bytes, cudaMemcpyDeviceToHost, stream), "download");
  }
}

void GpuTensors::compare(unsigned long long* wrong, cudaStream_t stream) {
  count_differences(copies_[1].device + host_.output.offset(), expected_, prepared_.expected.size(), wrong, stream);
}

void GpuTensors::check() {
  for (const Copy& copy : copies_) std::memcpy(copy.host->storage().data(), copy.pinned, copy.host->storage().size());
  host_.check(prepared_, rank_);
}

GpuWorld make_gpu_world(int size, const Config& config) {
  static const bool launched = slowness() > 1 ? (make_first_launches(), true) : false;
  static_cast<void>(launched);
  GpuWorld world;
  for (int rank = 0; rank < size; ++rank) world.gpus.push_back(std::make_unique<GpuRank>(rank));
  world.communicators = Communicator::local(size, config);
  return world;
}

GpuWorld& lasting_gpu_world(int size, Config (*config)()) {
  // Never destroyed: CUDA may be gone before the last static object.
  static auto* worlds = new std::map<Config (*)(), std::map<int, GpuWorld>>;
  GpuWorld& world = (*worlds)[config][size];
  const auto faulted = [](const Communicator& communicator) { return communicator.status().has_value(); };
  if (world.failed || std::ranges::any_of(world.communicators, faulted)) world = {};
  if (world.communicators.empty()) world = make_gpu_world(size, config != nullptr ? config() : gpu_config());
  return world;
}

namespace {

// A rank's part in the meetings of its world, from the beginning of its body to the end.
class Attendance {
 public:
  Attendance(GpuRank& gpu, Meeting& meeting) : gpu_(gpu), meeting_(meeting) { gpu_.attend(&meeting_); }
  ~Attendance() {
    gpu_.attend(nullptr);
    meeting_.leave();
  }
  Attendance(const Attendance&) = delete;
  Attendance& operator=(const Attendance&) = delete;

 private:
  GpuRank& gpu_;
  Meeting& meeting_;
};

}  // namespace

std::vector<Ending> run_gpu_world(GpuWorld& world, const GpuBody& body) {
  Meeting meeting(world.size());
  std::vector<Ending> endings = run_world(world.communicators, [&](Communicator& communicator, int rank) {
    GpuRank& gpu = *world.gpus[static_cast<std::size_t>(rank)];
    const Attendance attendance(gpu, meeting);
    gpu.use();
    gpu.reset();
    body(communicator, gpu, rank);
  });
  for (const Ending& ending : endings) world.failed |= !ending.what.empty();
  return endings;
}

void run_on_gpu_rank(const Group& group, GpuRank& gpu, const Prepared& prepared, int rank) {
  gpu.reset();
  GpuTensors tensors(gpu, prepared, rank);
  all_reduce(group, tensors.arguments(gpu.stream()));
  tensors.download(gpu.stream());
  check_cuda(cudaStreamSynchronize(gpu.stream()), "cudaStreamSynchronize");
  group.check();
  tensors.check();
}

std::vector<Prepared> prepare_for(const GpuWorld& world, std::vector<Case> cases, int ranks) {
  for (Case& c : cases) {
    if (c.launch.blocks == 0) c.launch = world.launch();
  }
  return prepare_all(cases, ranks == 0 ? world.size() : ranks);
}

void expect_right(GpuWorld& world, const std::vector<Case>& cases) {
  const std::vector<Prepared> prepared = prepare_for(world, cases);
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int rank) {
    for (const Prepared& p : prepared) run_on_gpu_rank(communicator, gpu, p, rank);
  }));
}

}  // namespace weft::test
