// Ranks that do not reach each other's memory, as on two hosts: the calls that NCCL serves, their arguments, and the
// calls that it does not serve. The fabric is the CPU's, but each half of the ranks sees only its own windows. A
// stand-in for NCCL keeps NCCL's contracts. This is a separate executable because it replaces the fabric.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#define make_cpu_fabric make_near_fabric
#include "fabric/cpu_fabric.cpp"
#undef make_cpu_fabric

#include "support/messages.hpp"
#include "support/moves.hpp"
#include "support/ranks.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"
#include "twins/nccl_meetings.hpp"
#include "weft/symmetric.hpp"

namespace weft::detail {

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

 private:
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
    for (const NcclMessage& one : messages.sends) {
      if (one.bytes != 0)
        shared->mail.send({split, rank_, members.at(test::index(one.peer))}, part(one.data, 0, one.bytes));
    }
    for (const NcclMessage& one : messages.receives) {
      if (one.bytes == 0) continue;
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

std::shared_ptr<Fabric> make_cpu_fabric(const FabricArgs& args) {
  return std::make_shared<ApartFabric>(args);
}

}  // namespace weft::detail

namespace weft::test {
namespace {

constexpr int kRanks = 4;  // 0 and 1 on one host, 2 and 3 on another

void expect_well(const RankBody& body) {
  {
    const std::scoped_lock lock(detail::shared_mutex);
    detail::shared = std::make_unique<detail::Shared>();
  }
  expect_all_well(run_world(kRanks, cpu_config(), body));
}

// NCCL would divide the sum that has wrapped.
bool is_refused(DataType type, ReduceOp op) {
  return type == DataType::u8 && op == ReduceOp::avg;
}
// Any that is not refused.
ReduceOp op_of(DataType type, std::uint32_t seed) {
  const ReduceOp op = kOps[seed % std::size(kOps)];
  return is_refused(type, op) ? ReduceOp::sum : op;
}

// In the world, and in groups across the hosts and on one host.
TEST(ApartFabric, EqualFormsGoByNccl) {
  std::vector<Move> moves;
  for (const Kind kind : kEqual) {
    for (const DataType type : kTypes) {
      if (!reduces(kind) && type != DataType::bf16 && type != DataType::f32) continue;
      for (const std::size_t width : {0, 1, 7, 300}) {
        for (const bool in_place : {false, true}) {
          if (in_place && kind == Kind::all_to_all) continue;
          const auto seed = static_cast<std::uint32_t>(moves.size());
          moves.push_back({.kind = kind,
                           .rows = seed % 4,
                           .widths = {width},
                           .type = type,
                           .op = op_of(type, seed),
                           .fill = Fill::special,
                           .in_place = in_place,
                           .root = static_cast<int>(seed / 2 % 2),
                           .seed = seed});
        }
      }
    }
  }
  expect_well([&](Communicator& communicator, int rank) {
    const Group across = communicator.split(rank % 2), here = communicator.split(rank / 2);
    for (Move move : moves) {
      run_on_cpu_rank(across, move);
      run_on_cpu_rank(here, move);
      move.root *= 3;
      run_on_cpu_rank(communicator, move);
    }
  });
}

TEST(ApartFabric, AllReducesGoByNccl) {
  std::vector<Case> cases;
  for (const DataType type : kTypes)
    for (const ReduceOp op : kOps) {
      if (!is_refused(type, op)) cases.push_back({.count = 500, .type = type, .op = op, .fill = Fill::random});
    }
  const std::vector<Prepared> prepared = prepare_all(cases, kRanks);
  expect_well([&](Communicator& communicator, int rank) {
    for (const Prepared& one : prepared) run_on_cpu_rank(communicator, one, rank);
  });
}

TEST(ApartFabric, AveragesOfBytesAreRefused) {
  expect_well([](Communicator& communicator, int) {
    std::uint8_t x[8] = {};
    const auto refused = [&](auto&& call) { expect_code(call, Errc::unsupported, "op: avg of u8"); };
    refused([&] {
      all_reduce(communicator, {.input = x, .output = x, .count = 2, .type = DataType::u8, .op = ReduceOp::avg});
    });
    refused([&] {
      reduce(communicator, {.input = x, .output = x, .count = 2, .type = DataType::u8, .op = ReduceOp::avg});
    });
    refused([&] {
      reduce_scatter_tensor(communicator,
                            {.input = x, .output = x + 4, .width = 1, .type = DataType::u8, .op = ReduceOp::avg});
    });
  });
}

// Messages name ranks on both hosts, and only these make the call.
TEST(ApartFabric, MessagesGoByNccl) {
  expect_well([](Communicator& communicator, int rank) {
    const Group across = communicator.split(rank % 2), here = communicator.split(rank / 2);
    for (std::uint32_t seed = 0; seed < 6; ++seed) {
      for (const Group& group : {across, here, communicator.world()}) {
        run_on_cpu_rank(group, ring(group.size(), 20'000, seed));
        run_on_cpu_rank(group, everyone(group.size(), seed));
        run_on_cpu_rank(group, several_to_one_peer(group.size(), 500, seed));
        run_on_cpu_rank(group, pair_of(0, group.size() - 1, 33, seed));
      }
    }
  });
}

TEST(ApartFabric, BarriersHoldEverybodyBack) {
  std::atomic<int> arrived = 0;
  expect_well([&](Communicator& communicator, int rank) {
    for (int round = 1; round <= 20; ++round) {
      if (round % kRanks == rank) std::this_thread::sleep_for(std::chrono::microseconds(300));
      ++arrived;
      barrier(communicator, {});
      EXPECT_GE(arrived, round * kRanks);
      barrier(communicator, {});
    }
  });
}

TEST(ApartFabric, TheFlightRecorderSaysWhatNcclCarried) {
  expect_well([](Communicator& communicator, int) {
    run_on_cpu_rank(communicator, {.rows = 3, .widths = {8}, .tag = 4});
    run_on_cpu_rank(communicator, {.kind = Kind::broadcast, .widths = {8}, .root = 1});
    run_on_cpu_rank(communicator, {.kind = Kind::reduce_scatter, .widths = {8}, .type = DataType::f32});
    run_on_cpu_rank(communicator, {.kind = Kind::reduce, .widths = {8}, .type = DataType::u8, .op = ReduceOp::max});
    barrier(communicator, {.tag = 9});
    std::vector<std::string> names;
    for (const CallRecord& call : communicator.world().recent_calls()) names.push_back(call.operation);
    EXPECT_EQ(names, (std::vector<std::string>{"all_gather_into_tensor 3 rows of 16 bytes nccl tag 4",
                                               "broadcast 1 rows of 16 bytes root 1 nccl tag 0",
                                               "reduce_scatter_tensor sum 1 rows of f32[8] nccl tag 0",
                                               "reduce max u8[8] root 0 nccl tag 0", "barrier nccl tag 9"}));
  });
}

// A single row has no neighbours, so any stride is fine.
TEST(ApartFabric, RowsApartAreRejectedAndNothingIsSent) {
  expect_well([](Communicator& communicator, int) {
    for (const Kind kind : kStrided) {
      for (const bool output : {false, true}) {
        Move move{.kind = kind, .rows = 2, .widths = {8}, .fill = Fill::integers};
        (output ? move.output_gap : move.input_gap) = 4;
        const std::string wanted =
            fmt::format("{}_stride: 24 bytes from row to row are not the 16 of a row", output ? "output" : "input");
        // A rank that does not send has no rows to send.
        const bool nobodys = kind == Kind::broadcast && !output && communicator.rank() != 0;
        if (nobodys) continue;
        const std::string error = error_of([&] { run_on_cpu_rank(communicator, move); });
        expect_says(error, wanted);
        expect_says(error, "NCCL: two hosts");
      }
    }
    run_on_cpu_rank(communicator, {.kind = Kind::broadcast, .widths = {8}, .input_gap = 4, .output_gap = 2});
  });
}

// Symmetric memory of a world on two hosts only serves groups on one of the hosts.
TEST(ApartFabric, SymmetricOutputsAreOfGroupsOnOneHost) {
  expect_well([](Communicator& communicator, int rank) {
    const Group across = communicator.split(rank % 2), here = communicator.split(rank / 2);
    const std::vector<int> row(4, rank);  // a whole pack
    const auto memory = SymmetricMemory::allocate(communicator, kRanks * sizeof(detail::Pack));
    const auto* const output = static_cast<const int*>(memory.data());
    const auto gather = [&](const Group& group, const std::vector<int>& ranks, const std::string& by) {
      all_gather_into_tensor(group, {.input = row.data(), .output = memory.data(), .row_bytes = sizeof(detail::Pack)});
      for (std::size_t i = 0; i < ranks.size(); ++i) EXPECT_EQ(output[4 * i], ranks[i]) << i;
      expect_says(group.recent_calls().back().operation, by);
      barrier(communicator, {});
    };
    gather(here, {rank / 2 * 2, rank / 2 * 2 + 1}, "to symmetric memory 0 place");
    gather(across, {rank % 2, rank % 2 + 2}, " nccl tag 0");
    gather(communicator.world(), {0, 1, 2, 3}, " nccl tag 0");
  });
}

TEST(ApartFabric, RaggedFormsSayWhatNcclLacks) {
  expect_well([](Communicator& communicator, int) {
    for (const Kind kind : {Kind::all_gather_v, Kind::reduce_scatter_v}) {
      const std::string error = error_of([&] {
        run_on_cpu_rank(communicator, {.kind = kind, .widths = {8}, .counts = {1, 2, 3, 4}});
      });
      expect_says(error,
                  kind == Kind::all_gather_v ? "all_gather_v: needs ranks that reach" : "reduce_scatter_v: needs");
      expect_says(error, "NCCL would need them on the host");
    }
    EXPECT_EQ(communicator.status(), std::nullopt);
  });
}

}  // namespace
}  // namespace weft::test
