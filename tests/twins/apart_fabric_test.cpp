// Ranks that do not reach each other's memory, as on two hosts: the calls that NCCL serves, their arguments, and the
// calls that it does not serve. This is a separate executable because it replaces the fabric.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/pack.hpp"
#include "cli/counted_memory.hpp"
#include "support/messages.hpp"
#include "support/moves.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "twins/apart_fabric.hpp"
#include "weft/messages.hpp"
#include "weft/symmetric.hpp"

namespace weft::test {
namespace {

constexpr int kRanks = 4;  // 0 and 1 on one host, 2 and 3 on another

void expect_well(const RankBody& body) {
  meet_anew();
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

// Weft's part of such calls takes no memory.
TEST(ApartFabric, CallsTakeNoMemory) {
  expect_well([](Communicator& communicator, int rank) {
    std::vector<float> in(kRanks, 1.0f), out(kRanks);
    const int next = (rank + 1) % kRanks, last = (rank + kRanks - 1) % kRanks;
    const std::vector<std::pair<const char*, std::function<void()>>> calls = {
        {"all_reduce",
         [&] {
           all_reduce(communicator, {.input = in.data(), .output = out.data(), .count = 4, .type = DataType::f32});
         }},
        {"reduce",
         [&] { reduce(communicator, {.input = in.data(), .output = out.data(), .count = 4, .type = DataType::f32}); }},
        {"reduce_scatter_tensor",
         [&] {
           reduce_scatter_tensor(communicator,
                                 {.input = in.data(), .output = out.data(), .width = 1, .type = DataType::f32});
         }},
        {"all_gather_into_tensor",
         [&] { all_gather_into_tensor(communicator, {.input = in.data(), .output = out.data(), .row_bytes = 4}); }},
        {"all_to_all", [&] { all_to_all(communicator, {.input = in.data(), .output = out.data(), .row_bytes = 4}); }},
        {"broadcast", [&] { broadcast(communicator, {.input = in.data(), .output = out.data(), .row_bytes = 4}); }},
        {"barrier", [&] { barrier(communicator, {}); }},
        {"gather", [&] { gather(communicator, {.input = in.data(), .output = out.data(), .bytes = 4}); }},
        {"send_receive", [&] {
           const Send to{.peer = next, .data = in.data(), .bytes = 4};
           const Receive from{.peer = last, .data = out.data(), .bytes = 4};
           send_receive(communicator, {.sends = {&to, 1}, .receives = {&from, 1}});
         }}};
    for (int times = 0; times < 10; ++times) {
      for (const auto& [name, call] : calls) {
        const std::size_t before = taken_by_this_thread() - taken_by_nccl();
        call();
        const std::size_t taken = taken_by_this_thread() - taken_by_nccl() - before;
        EXPECT_TRUE(times == 0 || taken == 0) << name << " takes memory " << taken << " times";
      }
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
