#if WEFT_WITH_CUDA

// GPU ranks: windows through NCCL, operations as kernels.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>

#include "base/argument.hpp"
#include "base/log.hpp"
#include "fabric/captured.hpp"
#include "fabric/cuda_links.hpp"
#include "fabric/cuda_window.hpp"
#include "fabric/fabric.hpp"
#include "fabric/fault_record.hpp"
#include "fabric/gpu_arguments.hpp"
#include "fabric/gpu_rest.hpp"
#include "fabric/launch_room.hpp"
#include "fabric/liveness.hpp"
#include "fabric/nccl_api.hpp"
#include "fabric/nccl_groups.hpp"
#include "fabric/origin.hpp"
#include "fabric/stream_marks.hpp"
#include "kernel/cuda_error.hpp"
#include "kernel/executor.hpp"

namespace weft::detail {
namespace {

// Control's part on the device. Its address is fixed for the fabric's life.
struct DeviceControl {
  Channel channels[kMaxChannels];
  LocalState locals[kMaxChannels];
  HostNumbers numbers[kMaxGroups];
  std::byte* windows[kMaxRanks];
  std::uint32_t claim[kFaultKinds];
  std::int32_t zero;  // for NCCL's barriers
};
// Control's part that the host sees without a copy.
struct HostControl {
  FaultRecord record[kFaultKinds];
  std::uint32_t abort;
  std::uint32_t told;  // for poison_windows()
};

class CudaFabric final : public Fabric {
 public:
  explicit CudaFabric(const FabricArgs& args)
      : rank_(args.bootstrap.rank()),
        size_(args.bootstrap.size()),
        deadline_(args.config.rendezvous_deadline),
        call_deadline_(args.config.deadline),
        wants_multicast_(args.config.multicast),
        liveness_(Liveness::create(args.bootstrap)) {
    free_what_graphs_kept();
    args.bootstrap.agree_on("prepare the GPU", [&] { prepare_device(args.config.cuda_device); });
    choose_sharing(args.bootstrap);
    links_ = LinkDomains(gather_links(args.bootstrap, device_));
    if (shared_ && !links_.problem().empty()) {
      throw Error(Errc::unsupported, links_.problem() + ", and NCCL does not serve ranks that share GPUs");
    }
    args.bootstrap.agree_on("look for multicast", [&] {
      const std::string problem = wants_multicast_ ? multicast_problem() : "";
      if (!problem.empty()) throw Error(Errc::unsupported, "Config::multicast: " + problem);
    });
    if (!shared_) make_nccl(args);
  }

  ~CudaFabric() override {
    if (!origin_.is_here()) {
      keep_windows();
      static_cast<void>(nccl_.release());  // a child of fork() has none of its threads, and would wait for them
      return;
    }
    const SetupScope scope(device_);
    if (nccl_ != nullptr && !nccl_->close()) {
      // Any call that frees memory of a GPU waits for its kernels.
      logger().warn("rank {}: a call of NCCL's does not end; its communicator's memory is kept", rank_);
      keep_windows();
      return;
    }
    // NCCL frees windows beside kernels that use them. A kernel that reads freed memory ends CUDA in this process.
    if (!comes_to_rest(device_, at_most_a_day(call_deadline_) + at_most_a_day(deadline_) / 2)) {
      if (nccl_ != nullptr) nccl_->keep();
      keep_windows();
      return;
    }
    {
      const auto alone = alone_with_nccl();
      windows_.clear();
    }
    nccl_.reset();
    if (device_control_ != nullptr) static_cast<void>(cudaFree(device_control_));
    if (host_control_ != nullptr) static_cast<void>(cudaFreeHost(host_control_));
    if (staging_ != nullptr) static_cast<void>(cudaFree(staging_));
    for (std::byte* const memory : lasting_) static_cast<void>(cudaFree(memory));
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }
  CudaFabric(const CudaFabric&) = delete;
  CudaFabric& operator=(const CudaFabric&) = delete;

  Device device() const override { return Device::cuda; }
  int cuda_device() const override { return device_; }
  std::string description() const override {
    int reachable = 0;
    if (!windows_.empty() && windows_.front() != nullptr) {
      for (const std::byte* peer : windows_.front()->peers()) reachable += peer != nullptr ? 1 : 0;
    }
    if (shared_) return fmt::format("{} ranks of one process on shared GPUs ({}), for tests", size_, processor_.name);
    if (reachable == size_) return fmt::format("peer memory, {} × {}", size_, processor_.name);
    if (reachable == 0) return fmt::format("NCCL: it finds no symmetric memory here, {} × {}", size_, processor_.name);
    if (!links_.problem().empty()) return fmt::format("NCCL: {} ({} × {})", links_.problem(), size_, processor_.name);
    return fmt::format("NCCL: only {} of {} ranks share an NVLink domain with rank {} ({})", reachable, size_, rank_,
                       processor_.name);
  }
  Processor processor() const override { return processor_; }
  int max_blocks() const override { return room_.blocks(); }
  int max_paired_blocks() const override { return room_.paired_blocks(); }
  std::size_t control_bytes() const override {
    return sizeof(DeviceControl) + sizeof(HostControl) + kStagingBytes + lasting_.size() * kLastingBytes;
  }
  Control control() const override {
    return {device_control_->channels, device_control_->locals, device_control_->numbers,
            device_control_->claim,    &host_control_->abort,   host_control_->record};
  }

  void open_window(Bootstrap& bootstrap, int number, std::size_t bytes) override {
    const SetupScope scope(device_);
    const auto alone = alone_with_nccl();
    const auto index = static_cast<std::size_t>(number);
    if (index >= windows_.size()) windows_.resize(index + 1);
    std::unique_ptr<CudaWindow>& window = windows_[index];
    if (shared_) {
      window = make_process_window(bootstrap, bytes, device_);
    } else {
      window = make_nccl_window(bootstrap, {.comm = nccl_->at(0),
                                            .rank = rank_,
                                            .size = size_,
                                            .bytes = bytes,
                                            .stream = stream_,
                                            .deadline = deadline_,
                                            .links = links_,
                                            .multicast = wants_multicast_ && number == 0});
    }
    if (number != 0) return;
    const std::vector<std::byte*>& peers = window->peers();  // for poison
    write(device_control_->windows, peers.data(), peers.size() * sizeof(std::byte*));
  }
  void close_window(int number) override {
    const SetupScope scope(device_);
    const auto alone = alone_with_nccl();
    const auto index = static_cast<std::size_t>(number);
    if (index < windows_.size()) windows_[index].reset();
  }
  std::byte* window(int number, int world_rank) const override {
    const auto index = static_cast<std::size_t>(number);
    const bool open = index < windows_.size() && windows_[index] != nullptr;
    return open ? windows_[index]->peers()[static_cast<std::size_t>(world_rank)] : nullptr;
  }
  std::byte* own_memory(int number) const override {
    const auto index = static_cast<std::size_t>(number);
    std::byte* const mine = window(number, rank_);  // NCCL's second address of it, which Weft uses if it exists
    return mine == nullptr && index < windows_.size() && windows_[index] != nullptr ? windows_[index]->memory() : mine;
  }
  void finish_calls() override {
    // NCCL, which waits for nothing, or CUDA, which knows no deadline, then frees the memory.
    wait_for_rest(device_, deadline_ / 2);
  }

  std::byte* lasting(int number) override {
    const auto index = static_cast<std::size_t>(number);
    if (index >= lasting_.size()) lasting_.resize(index + 1);
    if (lasting_[index] == nullptr) {
      const SetupScope scope(device_);
      check_cuda(cudaMalloc(&lasting_[index], kLastingBytes), "cudaMalloc of control memory");
    }
    return lasting_[index];
  }
  std::byte* multicast() const override {
    return windows_.empty() || windows_.front() == nullptr ? nullptr : windows_.front()->multicast();
  }
  std::string multicast_problem() const override {
    if (shared_) return "ranks share GPUs";
    if (size_ == 1) return "a rank alone has no peers";
    if (std::string problem = why_no_multicast(nccl()); !problem.empty()) return problem;
    if (supports_multicast(device_)) return {};
    return fmt::format("GPU {} ({}) does not support it", device_, processor_.name);
  }

  void write(void* to, const void* from, std::size_t bytes) override {
    const SetupScope scope(device_);
    write_behind(stream_, to, from, bytes);
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void write_behind(Stream stream, void* to, const void* from, std::size_t bytes) override {
    const SetupScope scope(device_);  // from pageable memory: CUDA has read it when it returns
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync to the GPU");
  }
  void fill(void* to, std::uint8_t value, std::size_t bytes) override {
    const SetupScope scope(device_);
    check_cuda(cudaMemsetAsync(to, value, bytes, stream_), "cudaMemsetAsync");
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void read(void* to, const void* from, std::size_t bytes) override {
    const SetupScope scope(device_);
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync from the GPU");
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void push(Pack* to, const std::vector<Pack>& packs) override {
    if (packs.size() * sizeof(Pack) > kStagingBytes) throw Error(Errc::system, "push: larger than the staging buffer");
    write(staging_, packs.data(), packs.size() * sizeof(Pack));
    const SetupScope scope(device_);
    push_packs(to, staging_, packs.size(), stream_);
    check_cuda(cudaStreamSynchronize(stream_), "writing to a peer's window");
  }

  FaultRecord record(FaultKind kind) const override { return read_record(host_control_->record[kind]); }
  void clear_record(FaultKind kind) override {
    host_control_->record[kind] = {};
    fill(device_control_->claim + kind, 0, sizeof(device_control_->claim[kind]));
  }
  std::optional<HostFault> host_fault() const override {
    return nccl_ != nullptr ? nccl_->fault() : std::optional<HostFault>();
  }
  std::vector<int> dead_peers() const override { return liveness_.dead_peers(); }
  void abort() noexcept override {
    std::atomic_ref(host_control_->abort).store(1, std::memory_order_release);  // for waiting kernels of this rank
    if (nccl_ != nullptr) nccl_->abort();
    try {
      const SetupScope scope(device_);
      const auto own = static_cast<std::uint32_t>(rank_), code = static_cast<std::uint32_t>(Errc::aborted);
      poison_windows(device_control_->windows, size_, poison_word(own, own, code), &host_control_->told, stream_);
    } catch (const Error&) {
      // Peers then learn it from this rank's kernels, or by their deadlines.
    }
  }

  void check_buffer(const char* name, const void* data) const override { arguments_.check_buffer(device_, name, data); }
  void check_host_memory(const char* name, const void* data) const override {
    arguments_.check_host_memory(name, data);
  }
  void check_stream(Stream stream) const override { arguments_.check_stream(device_, stream); }
  bool run(const KernelCall& planned) override {
    const DeviceScope scope(device_);
    launch_on_gpu(planned);
    return true;
  }
  void mark(int group, Stream stream) override {
    const DeviceScope scope(device_);
    marks_.set(group, stream);
  }
  void follow(int group, Stream stream) override {
    const DeviceScope scope(device_);
    marks_.follow(group, stream);
  }
  bool keep_alive(Stream stream, const std::shared_ptr<Fabric>& what) override { return keep_for_graphs(stream, what); }

  void split(int group, int color) override {
    if (shared_) return;
    const SetupScope scope(device_);
    nccl_->split(group, color);
  }
  void call_nccl(const NcclCall& call) override {
    if (shared_) {
      throw Error(Errc::unsupported,
                  "algorithm: nccl needs a GPU of its own for every rank, and here ranks share GPUs");
    }
    arguments_.ask_about_stream(device_, call.stream);  // an error in NCCL would end the communicator
    const DeviceScope scope(device_);
    nccl_->call(call);
  }
  // Some machines grant peer access and lose the data; NCCL's transports are no better than the links below them.
  void nccl_check(int group, int rank, int size) override {
    constexpr std::size_t count = 4096;
    static_assert(count * sizeof(std::int32_t) <= kStagingBytes);
    std::vector<std::int32_t> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = (rank + 1) * static_cast<int>(i % 1000 + 1);
    write(staging_, data.data(), count * sizeof(std::int32_t));
    const SetupScope scope(device_);
    nccl_->try_out(group, static_cast<std::int32_t*>(staging_), count, stream_);
    read(data.data(), staging_, count * sizeof(std::int32_t));
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t wanted = size * (size + 1) / 2 * static_cast<int>(i % 1000 + 1);
      if (data[i] == wanted) continue;
      throw Error(Errc::rendezvous, fmt::format("NCCL's first sum is wrong on rank {}: element {} is {} instead of {}",
                                                rank_, i, data[i], wanted));
    }
  }

 private:
  std::unique_lock<std::mutex> alone_with_nccl() {
    return nccl_ != nullptr ? nccl_->alone() : std::unique_lock<std::mutex>();
  }
  void keep_windows() {
    for (auto& window : windows_) static_cast<void>(window.release());
  }
  static constexpr std::size_t kStagingBytes = std::size_t{64} << 10;
  using Uuid = std::array<char, 16>;

  void prepare_device(int requested) {
    if (const std::string reason = why_no_cuda(requested); !reason.empty()) throw Error(Errc::unsupported, reason);
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    check_argument(requested >= -1 && requested < count, "Config::cuda_device", requested,
                   fmt::format("between −1 and {}", count - 1));
    device_ = requested;
    if (requested < 0) check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
    const SetupScope scope(device_);
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties");
    processor_ = {properties.name, properties.major * 10 + properties.minor, properties.multiProcessorCount};
    std::memcpy(uuid_.data(), properties.uuid.bytes, sizeof(uuid_));
    int lowest = 0, highest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest), "cudaStreamCreate");
    check_cuda(cudaMalloc(&device_control_, sizeof(DeviceControl)), "cudaMalloc of control memory");
    check_cuda(cudaMalloc(&staging_, kStagingBytes), "cudaMalloc of control memory");
    check_cuda(cudaHostAlloc(&host_control_, sizeof(HostControl), cudaHostAllocPortable | cudaHostAllocMapped),
               "cudaHostAlloc of control memory");
    *host_control_ = {};
    fill(device_control_, 0, sizeof(DeviceControl));
    load_poison();
    room_.open(device_, properties.multiProcessorCount);
  }

  // NCCL takes one rank per GPU. Ranks of one process may still share GPUs, without NCCL.
  void choose_sharing(Bootstrap& bootstrap) {
    const auto gpus = bootstrap.all_gather_value("compare GPUs", uuid_);
    int here = 0;
    for (const Uuid& gpu : gpus) {
      here += gpu == uuid_ ? 1 : 0;
      for (const Uuid* other = gpus.data(); other != &gpu; ++other) shared_ |= gpu == *other;
    }
    if (!shared_) return;
    room_.share(here);
    const auto process = bootstrap.all_gather_value("compare processes", getpid());
    for (const pid_t other : process) {
      if (other == process.front()) continue;
      throw Error(Errc::unsupported, "several processes drive the same GPU; give each a GPU of its own");
    }
  }

  void make_nccl(const FabricArgs& args) {
    const SetupScope scope(device_);
    nccl_ = std::make_unique<NcclGroups>(NcclGroups::Args{.device = device_,
                                                          .rank = rank_,
                                                          .deadline = args.config.deadline,
                                                          .setup_deadline = deadline_,
                                                          .zero = &device_control_->zero,
                                                          .lent = args.nccl});
    if (args.nccl != nullptr) return;
    ncclUniqueId id{};
    args.bootstrap.agree_on("ncclGetUniqueId", [&] {
      if (rank_ == 0) check_nccl(nccl().get_unique_id(&id), "ncclGetUniqueId");
    });
    id = args.bootstrap.broadcast_value("distribute NCCL's id", 0, id);
    args.bootstrap.agree_on("ncclCommInitRank", [&] { nccl_->init(size_, id); });
  }

  Origin origin_;
  int rank_, size_;
  std::chrono::nanoseconds deadline_, call_deadline_;
  GpuArguments arguments_;
  bool wants_multicast_;
  Liveness liveness_;
  int device_ = 0;
  LaunchRoom room_;
  bool shared_ = false;
  LinkDomains links_;
  Processor processor_;
  Uuid uuid_ = {};
  cudaStream_t stream_ = nullptr;  // for creation and abort(), never for operations
  DeviceControl* device_control_ = nullptr;
  HostControl* host_control_ = nullptr;
  void* staging_ = nullptr;
  std::unique_ptr<NcclGroups> nccl_;                  // null if ranks share GPUs
  std::vector<std::unique_ptr<CudaWindow>> windows_;  // by number
  std::vector<std::byte*> lasting_;
  StreamMarks marks_;
};

}  // namespace

std::shared_ptr<Fabric> make_cuda_fabric(const FabricArgs& args) {
  return std::make_shared<CudaFabric>(args);
}

}  // namespace weft::detail

#endif
