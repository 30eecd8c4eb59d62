// Children of fork(): no child is a rank.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/cases.hpp"
#include "support/moe_cases.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/counts.hpp"
#include "weft/fused.hpp"
#include "weft/messages.hpp"
#include "weft/moe.hpp"
#include "weft/recording.hpp"
#include "weft/symmetric.hpp"
#include "weft/take.hpp"

namespace weft::test {
namespace {

struct NamedCall {
  const char* name;
  std::function<void()> call;
};

// The objects of a rank, which its child inherits.
struct Rank {
  explicit Rank(Communicator made)
      : communicator(std::move(made)),
        half(communicator.split(0)),
        exchange(MoeExchange::create(communicator, {.tokens = 2, .hidden = 8, .experts = 2, .top_k = 1})),
        memory(SymmetricMemory::allocate(communicator, 4096)),
        recording(Recording::capture(communicator, [&] { add(); })) {}

  void add() {
    all_reduce(communicator, {.input = input.data(), .output = output.data(), .count = 4, .type = DataType::i32});
  }

  std::array<std::int32_t, 4> input{}, output{};
  Communicator communicator;
  Group half;
  MoeExchange exchange;
  SymmetricMemory memory;
  Recording recording;
};

std::vector<NamedCall> all_calls(Rank& rank) {
  static std::array<std::int32_t, 64> words;
  const Group& world = rank.communicator.world();
  void* const data = words.data();
  return {
      {"all_reduce", [&] { rank.add(); }},
      {"replay", [&] { rank.recording.replay(); }},
      {"capture", [&] { Recording::capture(rank.communicator, [] {}); }},
      {"barrier", [&] { barrier(world, {}); }},
      {"barrier of a group", [&] { barrier(rank.half, {}); }},
      {"all_gather_into_tensor", [&, data] { all_gather_into_tensor(world, {.input = data, .output = data}); }},
      {"all_gather_v", [&] { all_gather_v(world, {}); }},
      {"all_to_all", [&, data] { all_to_all(world, {.input = data, .output = data}); }},
      {"broadcast", [&, data] { broadcast(world, {.input = data, .output = data}); }},
      {"reduce_scatter_tensor", [&, data] { reduce_scatter_tensor(world, {.input = data, .output = data}); }},
      {"reduce", [&, data] { reduce(world, {.input = data, .output = data}); }},
      {"send_receive", [&] { send_receive(world, {}); }},
      {"gather", [&, data] { gather(world, {.input = data, .output = data}); }},
      {"scatter", [&, data] { scatter(world, {.input = data, .output = data}); }},
      {"reduce_scatter_v", [&] { reduce_scatter_v(world, {}); }},
      {"all_gather_counts", [&] { all_gather_counts(world, {}); }},
      {"take_rows", [&] { take_rows(world, {}); }},
      {"all_reduce_rms_norm", [&] { all_reduce_rms_norm(world, {}); }},
      {"dispatch", [&] { rank.exchange.dispatch({}); }},
      {"dispatch_send", [&] { rank.exchange.dispatch_send({}); }},
      {"dispatch_wait", [&] { rank.exchange.dispatch_wait({}, {}); }},
      {"combine", [&] { rank.exchange.combine({}); }},
      {"combine_send", [&] { rank.exchange.combine_send({}); }},
      {"combine_wait", [&] { rank.exchange.combine_wait({}); }},
      {"MoeExchange::create", [&] { MoeExchange::create(world, {}); }},
      {"MoeExchange::free", [&] { rank.exchange.free(); }},
      {"SymmetricMemory::allocate", [&] { SymmetricMemory::allocate(rank.communicator, 16); }},
      {"SymmetricMemory::free", [&] { rank.memory.free(); }},
      {"SymmetricMemory::data", [&] { rank.memory.data(); }},
      {"SymmetricMemory::peer", [&] { rank.memory.peer(0); }},
      {"split", [&] { rank.communicator.split(0); }},
      {"release", [&] { rank.communicator.release(); }},
      {"acquire", [&] { rank.communicator.acquire(); }},
      {"status", [&] { rank.communicator.status(); }},
      {"check", [&] { rank.half.check(); }},
      {"rank", [&] { rank.communicator.rank(); }},
      {"memory", [&] { rank.communicator.memory(); }},
      {"fabric", [&] { rank.communicator.fabric(); }},
      {"multicast", [&] { rank.communicator.multicast(); }},
      {"tuning", [&] { rank.half.tuning(); }},
  };
}

// Throws unless the call is rejected because a child made it.
void expect_rejected(const NamedCall& call) {
  try {
    call.call();
  } catch (const Error& error) {
    ensure(error.code() == Errc::unsupported && std::string(error.what()).find("fork()") != std::string::npos,
           std::string(call.name) + ": " + error.what());
    return;
  }
  throw std::runtime_error(std::string(call.name) + " is taken");
}

// Sums of `value` on both ranks.
void expect_sums(Rank& rank, int value, const std::function<void()>& call) {
  rank.input.fill(value);
  rank.output.fill(-1);
  call();
  for (const std::int32_t sum : rank.output) ensure(sum == 2 * value, "a sum is " + std::to_string(sum));
}

// Two ranks as processes. Rank 0 has a child that runs `body`, and both ranks work on.
void expect_harmless_child(const std::function<void(std::unique_ptr<Rank>)>& body) {
  const UniqueId id = UniqueId::create();
  Processes processes(2, [&](const Child& self) {
    auto rank = std::make_unique<Rank>(Communicator::from_id(id, self.rank(), 2, cpu_config()));
    expect_sums(*rank, 1, [&] { rank->add(); });
    if (self.rank() == 0) {
      Processes child(1, [&](const Child&) { body(std::move(rank)); });
      const Outcome outcome = child.wait().front();
      ensure(outcome.exit_code == 0, "child: signal " + std::to_string(outcome.signal) + ", " + outcome.error);
    }
    expect_sums(*rank, 2, [&] { rank->add(); });
    expect_sums(*rank, 3, [&] { rank->recording.replay(); });
    ensure(!rank->communicator.status(), "a fault");
    barrier(rank->communicator.split(0), {});
    rank->communicator.release();
    rank->communicator.acquire();
    expect_sums(*rank, 4, [&] { rank->add(); });
  });
  expect_all_well(processes.wait());
}

TEST(Fork, AChildThatCallsIsRejectedAndItsParentAndPeersWorkOn) {
  expect_harmless_child([](std::unique_ptr<Rank> rank) {
    rank->input.fill(100);
    for (const NamedCall& call : all_calls(*rank)) expect_rejected(call);
    rank->communicator.abort();
  });
}

TEST(Fork, WindowsAreNotInherited) {
  expect_harmless_child([](std::unique_ptr<Rank>) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      ensure(line.find("memfd:weft") == std::string::npos, "inherited: " + line);
  });
}

// The child's own windows may have the parent's addresses, and must survive the destruction of the copies.
TEST(Fork, AChildMayDestroyItsCopiesAndMakeItsOwn) {
  expect_harmless_child([](std::unique_ptr<Rank> rank) {
    Rank own(std::move(Communicator::local(1, cpu_config()).front()));
    rank.reset();
    own.input.fill(5);
    own.add();
    ensure(own.output == own.input, "a rank alone has no peers");
    own.communicator.release();
    own.communicator.acquire();
    own.add();
    Processes grandchild(1, [&](const Child&) {
      for (const NamedCall& call : all_calls(own)) expect_rejected(call);
    });
    const Outcome outcome = grandchild.wait().front();
    ensure(outcome.exit_code == 0, "grandchild: signal " + std::to_string(outcome.signal) + ", " + outcome.error);
  });
}

}  // namespace
}  // namespace weft::test
