#include "twins/breakable_fabric.hpp"

#include <map>
#include <optional>
#include <vector>

#include "ops/all_reduce/all_reduce_kernels.hpp"
#include "ops/moe/moe_kernels.hpp"
#include "ops/moves/move_kernels.hpp"
#include "ops/moves/take_kernels.hpp"
#include "ops/norm/norm_kernels.hpp"

#define make_cpu_fabric make_sound_fabric
#include "fabric/cpu_fabric.cpp"
#undef make_cpu_fabric

namespace weft::detail {

Break broken;
thread_local Launches launches;

using EqualCopy = CopyWork<EqualPartition, 1>;

template <class Work>
const void** input_in(BoundKernel& bound) {
  Work* const work = work_of<Work>(bound);
  if (work == nullptr) return nullptr;
  if constexpr (requires { work->tensor; }) {
    return &work->tensor[0].input;
  } else {
    return &work->input;
  }
}
template <class... Work>
const void** input_in_any(BoundKernel& bound) {
  const void** input = nullptr;
  static_cast<void>(((input = input_in<Work>(bound), input != nullptr) || ...));
  return input;
}
// The input of a protocol's call; null if there is none.
const void** input_of(BoundKernel& bound) {
  return input_in_any<AllReduceWork, NormWork, DispatchWork, CombineWork, TakeWork, EqualCopy,
                      CopyWork<EqualPartition, 1, true>, CopyWork<CountedPartition, 1>,
                      CopyWork<CountedPartition, 1, true>, CopyWork<CountedPartition, kMaxTensors>,
                      CopyWork<CountedPartition, kMaxTensors, true>, ReduceScatterWork<EqualPartition>,
                      ReduceScatterWork<CountedPartition>>(bound);
}

class BreakableFabric final : public Fabric {
 public:
  explicit BreakableFabric(const FabricArgs& args) : sound_(make_sound_fabric(args)), rank_(args.bootstrap.rank()) {
    size_ = args.bootstrap.size();
  }

  void push(Pack* to, const std::vector<Pack>& packs) override {
    std::vector<Pack> arriving = packs;
    if (rank_ == broken.from && lies_with(to, broken.to)) arriving[broken.pack].word[2] ^= 1u << 31;
    sound_->push(to, arriving);
  }

  Device device() const override { return sound_->device(); }
  std::string description() const override { return sound_->description(); }
  int max_blocks() const override { return broken.few_blocks < 0 ? sound_->max_blocks() : few_blocks() ? 100 : 133; }
  int max_paired_blocks() const override {
    return broken.few_blocks < 0 ? sound_->max_paired_blocks() : few_blocks() ? 64 : 132;
  }
  std::size_t control_bytes() const override { return sound_->control_bytes(); }
  Control control() const override { return sound_->control(); }
  void open_window(Bootstrap& bootstrap, int number, std::size_t bytes) override {
    if (number == 0) window_bytes_ = bytes;
    sound_->open_window(bootstrap, number, bytes);
  }
  void close_window(int number) override { sound_->close_window(number); }
  std::byte* own_memory(int number) const override { return sound_->own_memory(number); }
  void finish_calls() override {
    if (rank_ == broken.restless) throw Error(Errc::timeout, "the GPU has not come to rest");
    sound_->finish_calls();
  }
  std::byte* lasting(int number) override { return sound_->lasting(number); }
  std::byte* window(int number, int rank) const override { return sound_->window(number, rank); }
  void write(void* to, const void* from, std::size_t bytes) override { sound_->write(to, from, bytes); }
  void write_behind(Stream stream, void* to, const void* from, std::size_t bytes) override {
    sound_->write_behind(stream, to, from, bytes);
  }
  void fill(void* to, std::uint8_t value, std::size_t bytes) override {
    if (rank_ == broken.fills_of) throw Error(Errc::system, "the machine fills no memory");
    sound_->fill(to, value, bytes);
  }
  void read(void* to, const void* from, std::size_t bytes) override { sound_->read(to, from, bytes); }
  FaultRecord record(FaultKind kind) const override { return sound_->record(kind); }
  void clear_record(FaultKind kind) override { sound_->clear_record(kind); }
  void abort() noexcept override { sound_->abort(); }
  void check_buffer(const char* name, const void* data) const override { sound_->check_buffer(name, data); }
  void check_host_memory(const char* name, const void* data) const override { sound_->check_host_memory(name, data); }
  void check_stream(Stream stream) const override { sound_->check_stream(stream); }
  std::uint32_t poison() const override { return sound_->poison(); }
  std::vector<int> dead_peers() const override { return sound_->dead_peers(); }
  bool run(const KernelCall& planned) override {
    ++launches.kernels;
    launches.in_pairs += planned.in_pairs;
    launches.odd += planned.in_pairs && planned.blocks % 2 != 0;
    const Kernel* const barrier = find_kernel(BarrierQuery{}).kernel;
    if (broken.barriers && planned.bound.kernel == barrier) return true;
    KernelCall made = as_before(planned);
    const bool good = sound_->run(made);
    if (const auto* sum = work_of<AllReduceWork>(made.bound); sum != nullptr && rank_ == broken.sums)
      static_cast<std::uint8_t*>(sum->output)[1] ^= 4;
    if (const auto* norm = work_of<NormWork>(made.bound); norm != nullptr && rank_ == broken.residuals)
      static_cast<std::uint8_t*>(norm->residual_output)[1] ^= 4;
    const auto* copy = work_of<EqualCopy>(made.bound);
    if (copy == nullptr) return good;
    const bool to_each = copy->partition.sender == kEverybody && copy->partition.input_step != 0;
    if (to_each && rank_ == broken.all_to_alls) static_cast<std::uint8_t*>(copy->tensor[0].output)[1] ^= 4;
    if (copy->partition.sender == kEverybody || rank_ != broken.copies_to) return good;
    const auto sender = static_cast<int>(planned.call.channel->member[copy->partition.sender]);
    if (sender == broken.copies_from) static_cast<std::uint8_t*>(copy->tensor[0].output)[5] ^= 4;
    return good;
  }
  bool keep_alive(Stream stream, const std::shared_ptr<Fabric>& what) override {
    return sound_->keep_alive(stream, what);
  }
  void split(int group, int color) override {
    if (rank_ == broken.splits_of) throw Error(Errc::system, "the machine splits nothing");
    sound_->split(group, color);
  }
  void call_nccl(const NcclCall& call) override { sound_->call_nccl(call); }
  void nccl_check(int group, int rank, int size) override { sound_->nccl_check(group, rank, size); }

 private:
  // The call with the input of an earlier call like it, if the break asks for that.
  KernelCall as_before(const KernelCall& planned) {
    KernelCall call = planned;
    const void** const input = input_of(call.bound);
    if (input == nullptr) return call;
    auto& sent = sent_[{call.bound.kernel, planned.call.channel}];
    sent.push_back(*input);
    if (rank_ == broken.stale && sent.size() > broken.calls_before)
      *input = sent[sent.size() - 1 - broken.calls_before];
    return call;
  }
  bool few_blocks() const { return rank_ == broken.few_blocks; }
  bool lies_with(const Pack* place, int owner) const {
    if (owner < 0 || owner >= size_) return false;
    const auto* address = reinterpret_cast<const std::byte*>(place);
    const std::byte* begin = window(0, owner);
    return address >= begin && address < begin + window_bytes_;
  }

  std::shared_ptr<Fabric> sound_;
  int rank_, size_ = 0;
  std::size_t window_bytes_ = 0;
  std::map<std::pair<const Kernel*, const void*>, std::vector<const void*>> sent_;  // by kernel and channel
};

std::shared_ptr<Fabric> make_cpu_fabric(const FabricArgs& args) {
  return std::make_shared<BreakableFabric>(args);
}

}  // namespace weft::detail
