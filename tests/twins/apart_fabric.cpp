#include "twins/apart_fabric.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#define make_cpu_fabric make_near_fabric
#include "fabric/cpu_fabric.cpp"
#undef make_cpu_fabric

#include "cli/counted_memory.hpp"
#include "support/ranks.hpp"
#include "support/reference.hpp"
#include "twins/nccl_meetings.hpp"

namespace weft::detail {

namespace {

thread_local std::size_t taken_by_nccl = 0;

class ApartFabric final : public Fabric {
 public:
  explicit ApartFabric(const FabricArgs& args)
      : near_(make_near_fabric(args)), rank_(args.bootstrap.rank()), size_(args.bootstrap.size()) {
    join(0, 0);
  }

  std::byte* window(int number, int rank) const override {
    return rank * 2 / size_ == rank_ * 2 / size_ ? near_->window(number, rank) : nullptr;
  }
  std::string description() const override { return "NCCL: two hosts"; }

  Device device() const override { return near_->device(); }
  int max_blocks() const override { return near_->max_blocks(); }
  std::size_t control_bytes() const override { return near_->control_bytes(); }
  Control control() const override { return near_->control(); }
  void open_window(Bootstrap& bootstrap, int number, std::size_t bytes) override {
    near_->open_window(bootstrap, number, bytes);
  }
  void close_window(int number) override { near_->close_window(number); }
  std::byte* own_memory(int number) const override { return near_->own_memory(number); }
  void finish_calls() override { near_->finish_calls(); }
  std::byte* lasting(int number) override { return near_->lasting(number); }
  void write(void* to, const void* from, std::size_t bytes) override { near_->write(to, from, bytes); }
  void fill(void* to, std::uint8_t value, std::size_t bytes) override { near_->fill(to, value, bytes); }
  void write_behind(Stream stream, void* to, const void* from, std::size_t bytes) override {
    near_->write_behind(stream, to, from, bytes);
  }
  void read(void* to, const void* from, std::size_t bytes) override { near_->read(to, from, bytes); }
  void push(Pack* to, const std::vector<Pack>& packs) override { near_->push(to, packs); }
  FaultRecord record(FaultKind kind) const override { return near_->record(kind); }
  void clear_record(FaultKind kind) override { near_->clear_record(kind); }
  void abort() noexcept override { near_->abort(); }
  void check_buffer(const char* name, const void* data) const override { near_->check_buffer(name, data); }
  void check_host_memory(const char* name, const void* data) const override { near_->check_host_memory(name, data); }
  void check_stream(Stream stream) const override { near_->check_stream(stream); }
  std::uint32_t poison() const override { return near_->poison(); }
  std::vector<int> dead_peers() const override { return near_->dead_peers(); }
  bool run(const KernelCall& planned) override { return near_->run(planned); }
  bool keep_alive(Stream stream, const std::shared_ptr<Fabric>& what) override {
    return near_->keep_alive(stream, what);
  }

  void split(int group, int color) override { join(group, color); }
  void nccl_check(int group, int rank, int size) override {
    const std::scoped_lock lock(shared_mutex);
    auto& meeting = shared->meetings[{group, colors_[group]}];
    if (meeting == nullptr) meeting = std::make_shared<Meeting>(size);
    served_[group] = {meeting, static_cast<std::size_t>(rank)};
  }
  // Waits until all ranks have come, have read and have written: NCCL gives no more protection to an input that changes
  // early.
  void call_nccl(const NcclCall& call) override {
    const std::size_t before = test::taken_by_this_thread();
    serve(call);
    taken_by_nccl += test::taken_by_this_thread() - before;
  }

 private:
  void serve(const NcclCall& call) {
    if (const auto* const messages = std::get_if<NcclMessages>(&call.work)) return exchange(*messages, call.group);
    const Served& served = served_.at(call.group);
    Meeting& meeting = *served.meeting;
    meeting.works[served.rank] = call.work;
    meeting.gate.pass();
    const test::Bytes result = std::visit([&](const auto& work) { return result_of(work, served); }, call.work);
    meeting.gate.pass();
    std::visit([&](const auto& work) { put(work, result); }, call.work);
    meeting.gate.pass();
  }

  struct Served {
    std::shared_ptr<Meeting> meeting;
    std::size_t rank;
  };

  void join(int group, int color) {
    colors_[group] = color;
    const std::scoped_lock lock(shared_mutex);
    shared->members[{group, color}].insert(rank_);
  }

  template <class Work>
  static const Work& work_of(const Served& served, std::size_t rank) {
    return std::get<Work>(served.meeting->works[rank]);  // throws if another operation was called
  }
  static test::Bytes part(const void* input, std::size_t number, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(input) + number * bytes;
    return bytes == 0 ? test::Bytes() : test::Bytes(begin, begin + bytes);
  }
  static std::size_t bytes_of(const NcclAllReduce& work) { return work.count * size_of(work.type); }
  static std::size_t bytes_of(const NcclReduceScatter& work) { return work.count * size_of(work.type); }
  static std::size_t bytes_of(const NcclReduce& work) { return work.count * size_of(work.type); }
  template <class Copy>
  static std::size_t bytes_of(const Copy& work) {
    return work.bytes;
  }
  // Part `number` of every rank's input.
  template <class Work>
  static std::vector<test::Bytes> parts(const Served& served, std::size_t number) {
    std::vector<test::Bytes> all;
    for (std::size_t rank = 0; rank < served.meeting->works.size(); ++rank) {
      const Work& work = work_of<Work>(served, rank);
      all.push_back(part(work.input, number, bytes_of(work)));
    }
    return all;
  }
  static test::Bytes joined(const std::vector<test::Bytes>& all) {
    test::Bytes whole;
    for (const test::Bytes& one : all) whole.insert(whole.end(), one.begin(), one.end());
    return whole;
  }

  static test::Bytes result_of(const NcclAllReduce& work, const Served& served) {
    return test::reduce(work.type, work.op, parts<NcclAllReduce>(served, 0));
  }
  static test::Bytes result_of(const NcclReduceScatter& work, const Served& served) {
    return test::reduce(work.type, work.op, parts<NcclReduceScatter>(served, served.rank));
  }
  static test::Bytes result_of(const NcclReduce& work, const Served& served) {
    if (static_cast<std::size_t>(work.root) != served.rank) return {};
    return test::reduce(work.type, work.op, parts<NcclReduce>(served, 0));
  }
  static test::Bytes result_of(const NcclAllGather&, const Served& served) {
    return joined(parts<NcclAllGather>(served, 0));
  }
  static test::Bytes result_of(const NcclAllToAll&, const Served& served) {
    return joined(parts<NcclAllToAll>(served, served.rank));
  }
  static test::Bytes result_of(const NcclBroadcast& work, const Served& served) {
    const auto root = static_cast<std::size_t>(work.root);
    return part(work_of<NcclBroadcast>(served, root).input, 0, work.bytes);
  }
  static test::Bytes result_of(const NcclBarrier&, const Served& served) {
    for (std::size_t rank = 0; rank < served.meeting->works.size(); ++rank) work_of<NcclBarrier>(served, rank);
    return {};
  }

  // Only ranks that messages name take part. A message without bytes is not sent.
  void exchange(const NcclMessages& messages, int group) {
    const Split split{group, colors_.at(group)};
    std::vector<int> members;
    {
      const std::scoped_lock lock(shared_mutex);
      members.assign(shared->members[split].begin(), shared->members[split].end());
    }
    for (const NcclMessage& one : messages.all) {
      if (one.sends && one.bytes != 0)
        shared->mail.send({split, rank_, members.at(test::index(one.peer))}, part(one.data, 0, one.bytes));
    }
    for (const NcclMessage& one : messages.all) {
      if (one.sends || one.bytes == 0) continue;
      const test::Bytes message = shared->mail.receive({split, members.at(test::index(one.peer)), rank_});
      if (message.size() != one.bytes) throw Error(Errc::system, "a message of another length");
      std::memcpy(one.data, message.data(), message.size());
    }
  }
  static test::Bytes result_of(const NcclMessages&, const Served&) { return {}; }
  static void put(const NcclMessages&, const test::Bytes&) {}

  template <class Work>
  static void put(const Work& work, const test::Bytes& result) {
    if (!result.empty()) std::memcpy(work.output, result.data(), result.size());
  }
  static void put(const NcclBarrier&, const test::Bytes&) {}

  std::shared_ptr<Fabric> near_;
  int rank_, size_;
  std::map<int, int> colors_;
  std::map<int, Served> served_;
};

}  // namespace

std::shared_ptr<Fabric> make_cpu_fabric(const FabricArgs& args) {
  return std::make_shared<ApartFabric>(args);
}

}  // namespace weft::detail

namespace weft::test {

void meet_anew() {
  const std::scoped_lock lock(detail::shared_mutex);
  detail::shared = std::make_unique<detail::Shared>();
}

std::size_t taken_by_nccl() {
  return detail::taken_by_nccl;
}

}  // namespace weft::test
