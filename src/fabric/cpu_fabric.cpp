// CPU ranks: windows in shared memory, operations in the calling thread.
#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "fabric/fabric.hpp"
#include "fabric/fault_record.hpp"
#include "fabric/liveness.hpp"
#include "fabric/memory_room.hpp"
#include "fabric/shared_memory.hpp"
#include "team/cpu_thread.hpp"

namespace weft::detail {
namespace {

// The memory behind Control's pointers, all zero at first. It has room for the most groups, and most communicators have
// one: pages of zeros appear when they are touched.
struct ControlMemory {
  Channel channels[kMaxChannels];
  LocalState locals[kMaxChannels];
  HostNumbers numbers[kMaxGroups];
  std::uint32_t claim[kFaultKinds];
  std::uint32_t abort;
  FaultRecord record[kFaultKinds];
};
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
std::unique_ptr<ControlMemory, Free> make_control_memory() {
  static_assert(std::is_trivial_v<ControlMemory>);  // so zeros are its first values
  static_assert(alignof(ControlMemory) <= alignof(std::max_align_t));
  void* const zeros = std::calloc(1, sizeof(ControlMemory));
  if (zeros == nullptr) throw std::bad_alloc();
  return std::unique_ptr<ControlMemory, Free>(static_cast<ControlMemory*>(zeros));
}

class CpuFabric final : public Fabric {
 public:
  explicit CpuFabric(const FabricArgs& args)
      : rank_(args.bootstrap.rank()),
        size_(args.bootstrap.size()),
        control_(make_control_memory()),
        liveness_(Liveness::create(args.bootstrap)) {}

  Device device() const override { return Device::cpu; }
  std::string description() const override {
    std::string text = fmt::format("shared memory, {} CPU {}", size_, size_ == 1 ? "rank" : "ranks");
    for (int peer = 0; peer < size_; ++peer) {
      const std::string& reason = liveness_.unwatched_reason(peer);
      if (!reason.empty()) text += fmt::format("; rank {} is not watched: {}", peer, reason);
    }
    return text;
  }
  int max_blocks() const override { return 2; }
  std::size_t control_bytes() const override { return sizeof(ControlMemory) + lasting_.size() * kLastingBytes; }
  Control control() const override {
    ControlMemory& memory = *control_;
    return {memory.channels, memory.locals, memory.numbers, memory.claim, &memory.abort, memory.record};
  }

  void open_window(Bootstrap& bootstrap, int number, std::size_t bytes) override {
    const auto index = static_cast<std::size_t>(number);
    check_memory_room(bootstrap, bytes);
    SharedMemoryWindow window = SharedMemoryWindow::create(bootstrap, bytes);
    if (index >= windows_.size()) windows_.resize(index + 1);
    windows_[index] = std::move(window);
  }
  void close_window(int number) override {
    const auto index = static_cast<std::size_t>(number);
    if (index < windows_.size()) windows_[index] = {};
  }
  std::byte* window(int number, int world_rank) const override {
    const auto index = static_cast<std::size_t>(number);
    return index < windows_.size() && windows_[index].size() != 0 ? windows_[index].at(world_rank) : nullptr;
  }
  std::byte* own_memory(int number) const override { return window(number, rank_); }
  void finish_calls() override {}  // the caller makes a call itself, and it has ended on return

  std::byte* lasting(int number) override {
    const auto index = static_cast<std::size_t>(number);
    if (index >= lasting_.size()) lasting_.resize(index + 1);
    if (lasting_[index] == nullptr) lasting_[index] = std::make_unique<std::byte[]>(kLastingBytes);
    return lasting_[index].get();
  }

  void write(void* to, const void* from, std::size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);  // `from` may be null for an empty list
  }
  void fill(void* to, std::uint8_t value, std::size_t bytes) override { std::memset(to, value, bytes); }
  void write_behind(Stream, void* to, const void* from, std::size_t bytes) override { write(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void push(Pack* to, const std::vector<Pack>& packs) override {
    for (std::size_t i = 0; i < packs.size(); ++i) CpuThread::store(to + i, packs[i]);
  }

  FaultRecord record(FaultKind kind) const override { return read_record(control_->record[kind]); }
  void clear_record(FaultKind kind) override {
    control_->record[kind] = {};
    control_->claim[kind] = 0;
  }
  std::uint32_t poison() const override {
    if (window(0, rank_) == nullptr) return 0;
    return CpuThread::load(reinterpret_cast<const std::uint32_t*>(window(0, rank_) + kPoisonOffset));
  }
  std::vector<int> dead_peers() const override { return liveness_.dead_peers(); }
  void abort() noexcept override {
    CpuThread::store(&control_->abort, 1u);
    if (window(0, rank_) == nullptr) return;
    const auto own = static_cast<std::uint32_t>(rank_);
    const std::uint32_t word = poison_word(own, own, static_cast<std::uint32_t>(Errc::aborted));
    for (int peer = 0; peer < size_; ++peer) {
      CpuThread::store(reinterpret_cast<std::uint32_t*>(window(0, peer) + kPoisonOffset), word);
    }
  }

  void check_buffer(const char*, const void*) const override {}
  void check_host_memory(const char*, const void*) const override {}
  void check_stream(Stream stream) const override {
    if (stream != nullptr) {
      throw Error(Errc::invalid_argument,
                  "stream: must be null on CPU ranks, where operations run in the calling thread");
    }
  }
  bool run(const KernelCall& planned) override { return run_on_cpu(planned, &liveness_); }
  bool keep_alive(Stream, const std::shared_ptr<Fabric>&) override { return false; }

  void split(int, int) override {}
  void call_nccl(const NcclCall&) override {
    throw Error(Errc::unsupported, "algorithm: nccl needs GPUs; these ranks are on the CPU");
  }
  void nccl_check(int, int, int) override {}  // all memory is reached

 private:
  int rank_, size_;
  std::unique_ptr<ControlMemory, Free> control_;
  Liveness liveness_;
  std::vector<SharedMemoryWindow> windows_;  // by number
  std::vector<std::unique_ptr<std::byte[]>> lasting_;
};

}  // namespace

std::shared_ptr<Fabric> make_cpu_fabric(const FabricArgs& args) {
  return std::make_shared<CpuFabric>(args);
}

}  // namespace weft::detail
