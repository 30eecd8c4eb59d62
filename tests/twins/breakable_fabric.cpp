#include "twins/breakable_fabric.hpp"

#include <concepts>
#include <map>
#include <optional>
#include <vector>

#define make_cpu_fabric make_sound_fabric
#include "fabric/cpu_fabric.cpp"
#undef make_cpu_fabric

namespace weft::detail {

Break broken;

// What a call of the protocol sends; null where that is nothing.
const void** input_of(Operation& operation) {
  using Input = const void**;
  const auto of_move = [](auto& move) -> Input {
    if constexpr (requires { move.work.tensor; }) {
      return &move.work.tensor[0].input;
    } else if constexpr (requires {
                           { &move.work.input } -> std::same_as<Input>;
                         }) {
      return &move.work.input;
    } else {
      return nullptr;
    }
  };
  return std::visit(
      [&](auto& one) -> Input {
        if constexpr (requires {
                        { &one.work.input } -> std::same_as<Input>;
                      }) {
          return &one.work.input;
        } else if constexpr (requires { one.index(); }) {
          return std::visit(of_move, one);
        } else {
          return nullptr;
        }
      },
      operation);
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
  void fill(void* to, std::uint8_t value, std::size_t bytes) override {
    if (rank_ == broken.fills_of) throw Error(Errc::system, "the machine fills no memory");
    sound_->fill(to, value, bytes);
  }
  void read(void* to, const void* from, std::size_t bytes) override { sound_->read(to, from, bytes); }
  FaultRecord record(FaultKind kind) const override { return sound_->record(kind); }
  void clear_record(FaultKind kind) override { sound_->clear_record(kind); }
  void abort() noexcept override { sound_->abort(); }
  void check_buffer(const char* name, const void* data) const override { sound_->check_buffer(name, data); }
  void check_stream(Stream stream) const override { sound_->check_stream(stream); }
  std::uint32_t poison() const override { return sound_->poison(); }
  std::vector<int> dead_peers() const override { return sound_->dead_peers(); }
  bool run(const PlannedCall& planned) override {
    if (broken.barriers && is_barrier(planned.operation)) return true;
    const bool good = sound_->run(as_before(planned));
    if (const auto* sum = std::get_if<AllReduceOperation>(&planned.operation); sum != nullptr && rank_ == broken.sums)
      static_cast<std::uint8_t*>(sum->work.output)[1] ^= 4;
    if (const auto* norm = std::get_if<NormOperation>(&planned.operation); norm != nullptr && rank_ == broken.residuals)
      static_cast<std::uint8_t*>(norm->work.residual_output)[1] ^= 4;
    const auto* move = std::get_if<MoveOperation>(&planned.operation);
    const auto* copy = move != nullptr ? std::get_if<EqualCopy>(move) : nullptr;
    if (copy == nullptr) return good;
    const bool to_each = copy->work.shares.sender == kEverybody && copy->work.shares.input_step != 0;
    if (to_each && rank_ == broken.all_to_alls) static_cast<std::uint8_t*>(copy->work.tensor[0].output)[1] ^= 4;
    if (copy->work.shares.sender == kEverybody || rank_ != broken.copies_to) return good;
    const auto sender = static_cast<int>(planned.call.channel->member[copy->work.shares.sender]);
    if (sender == broken.copies_from) static_cast<std::uint8_t*>(copy->work.tensor[0].output)[5] ^= 4;
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
  // The call with what an earlier one like it has sent, if the break is that.
  PlannedCall as_before(const PlannedCall& planned) {
    PlannedCall call = planned;
    const void** const input = input_of(call.operation);
    if (input == nullptr) return call;
    auto& sent = sent_[{call.operation.index(), planned.call.channel}];
    sent.push_back(*input);
    if (rank_ == broken.stale && sent.size() > broken.calls_before)
      *input = sent[sent.size() - 1 - broken.calls_before];
    return call;
  }
  bool few_blocks() const { return rank_ == broken.few_blocks; }
  static bool is_barrier(const Operation& operation) {
    const auto* move = std::get_if<MoveOperation>(&operation);
    return move != nullptr && std::holds_alternative<BarrierOperation>(*move);
  }
  bool lies_with(const Pack* place, int owner) const {
    if (owner < 0 || owner >= size_) return false;
    const auto* address = reinterpret_cast<const std::byte*>(place);
    const std::byte* begin = window(0, owner);
    return address >= begin && address < begin + window_bytes_;
  }

  std::shared_ptr<Fabric> sound_;
  int rank_, size_ = 0;
  std::size_t window_bytes_ = 0;
  std::map<std::pair<std::size_t, const void*>, std::vector<const void*>> sent_;  // by kind of operation and channel
};

std::shared_ptr<Fabric> make_cpu_fabric(const FabricArgs& args) {
  return std::make_shared<BreakableFabric>(args);
}

}  // namespace weft::detail
