// Payloads beside rows that cannot be are rejected with the argument's name, and nothing is sent.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/moe_batches.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/moe_layer.hpp"

namespace weft::test {
namespace {

void expect_payload_rejected(const std::string& part, const std::function<void()>& body) {
  expect_code(body, Errc::invalid_argument, part);
}

struct RejectedPayloads {
  const char* part;
  std::function<void(MoeExchangeArgs&)> spoil;
};

// Changes to an exchange of 256 columns: scales and payloads take 5120 bytes of a token at most.
const std::vector<RejectedPayloads> kRejectedPayloads = {
    {"payload_bytes's length: 5 is not 4 at most",
     [](auto& a) {
       a.payload_bytes = {4, 4, 4, 4, 4};
     }},
    {"payload_bytes: 0 is not a multiple of 4 between 4 and 5116",
     [](auto& a) {
       a.payload_bytes = {4, 0};
     }},
    {"payload_bytes: 6 is not a multiple of 4 between 4 and 5120", [](auto& a) { a.payload_bytes = {6}; }},
    {"payload_bytes: 5124 is not a multiple of 4 between 4 and 5120", [](auto& a) { a.payload_bytes = {5124}; }},
    {"payload_bytes: 104 is not a multiple of 4 between 4 and 100",
     [](auto& a) {
       a.payload_bytes = {5020, 104};
     }},
    {"payload_bytes: 4100 is not a multiple of 4 between 4 and 4096",
     [](auto& a) {
       a.type = RowType::fp8;
       a.scale_bytes = 1024;
       a.payload_bytes = {4100};
     }},
    {"payload_bytes: 4294967292 is not", [](auto& a) { a.payload_bytes = {4294967292u}; }},
    {"payload_bytes: 20 is not absent, and rows that are cast have no payloads",
     [](auto& a) {
       a.cast = RowCast::fp8;
       a.payload_bytes = {20};
     }},
};

TEST(MoePayloads, ExchangesThatCannotBe) {
  for (const RejectedPayloads& rejected : kRejectedPayloads) {
    MoeExchangeArgs args = small_exchange();
    rejected.spoil(args);
    const std::string part = std::string("MoeExchangeArgs::") + rejected.part;
    expect_payload_rejected(part, [&] { moe_exchange_memory(2, args); });
    expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int) {
      expect_payload_rejected(part, [&] { MoeExchange::create(communicator, args); });
    }));
  }
  MoeExchangeArgs most = small_exchange();
  most.payload_bytes = {5020, 92, 4, 4};
  EXPECT_GT(moe_exchange_memory(2, most).window, moe_exchange_memory(2, small_exchange()).window);
}

template <class Pointer>
void move_by(Pointer& pointer, std::size_t bytes) {
  pointer = reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
}

struct RejectedCall {
  std::string part;
  std::function<void(DispatchArgs&)> spoil;
};

// The exchange has two payloads: a send looks at the inputs, a wait at the outputs, and a joined call at both.
const std::vector<RejectedCall> kRejectedSends = {
    {"payloads[1]: null", [](auto& a) { a.payloads[1] = nullptr; }},
    {"is not aligned to 4 bytes", [](auto& a) { move_by(a.payloads[0], 2); }},
    {"payloads[2]: not null, and the exchange has 2 payloads", [](auto& a) { a.payloads[2] = a.payloads[0]; }},
    {"payloads[3]: not null, and the exchange has 2 payloads",
     [](auto& a) {
       a.tokens = 0;  // a mistake counts even if there is nothing to do
       a.payloads[3] = a.payloads[0];
     }},
};
const std::vector<RejectedCall> kRejectedWaits = {
    {"output_payloads[0]: null", [](auto& a) { a.output_payloads[0] = nullptr; }},
    {"is not aligned to 4 bytes", [](auto& a) { move_by(a.output_payloads[1], 1); }},
    {"output_payloads[2]: not null, and the exchange has 2 payloads",
     [](auto& a) { a.output_payloads[2] = a.output_payloads[0]; }},
};

TEST(MoePayloads, CallsThatCannotBeLeaveNoTrace) {
  MoeExchangeArgs args = small_exchange();
  args.payload_bytes = {20, 4};
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, rank);
    const auto spoiled = [&](const RejectedCall& rejected) {
      DispatchArgs call = moe.dispatch();
      rejected.spoil(call);
      return call;
    };
    for (const RejectedCall& rejected : kRejectedSends) {
      expect_payload_rejected(rejected.part, [&] { exchange.dispatch(spoiled(rejected)); });
      expect_payload_rejected(rejected.part, [&] { exchange.dispatch_send(spoiled(rejected)); });
    }
    for (const RejectedCall& rejected : kRejectedWaits)
      expect_payload_rejected(rejected.part, [&] { exchange.dispatch(spoiled(rejected)); });
    const DispatchHandle handle = exchange.dispatch_send(moe.dispatch());
    for (const RejectedCall& rejected : kRejectedWaits)
      expect_payload_rejected(rejected.part, [&] { exchange.dispatch_wait(handle, spoiled(rejected)); });
    exchange.dispatch_wait(handle, moe.dispatch());
    moe.check_dispatch();
    exchange.combine(moe.combine(handle));
    exchange_and_check(exchange, p, rank);
  }));
}

TEST(MoePayloads, TensorsMustBeApart) {
  MoeExchangeArgs args = small_exchange();
  args.payload_bytes = {20, 4};
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 3}}, 2, 5);
  // Received payloads take more bytes than sent ones and ids do: both lie in a room that holds nothing else.
  alignas(16) static thread_local std::byte room[4096];
  const std::vector<RejectedCall> rejected = {
      {"output: overlaps payloads[1]", [&](auto& a) { a.payloads[1] = a.output; }},
      {"output: overlaps output_payloads[0]", [](auto& a) { a.output_payloads[0] = a.output; }},
      {"output_payloads[0]: overlaps output_payloads[1]",
       [](auto& a) { a.output_payloads[1] = static_cast<std::byte*>(a.output_payloads[0]) + 4; }},
      {"output_payloads[1]: overlaps payloads[0]", [](auto& a) { a.payloads[0] = a.output_payloads[1] = room; }},
      {"output_payloads[1]: overlaps topk_ids", [](auto& a) { a.topk_ids = a.output_payloads[1] = room; }},
  };
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
    for (const RejectedCall& call : rejected) {
      DispatchArgs spoiled = moe.dispatch();
      call.spoil(spoiled);
      expect_payload_rejected(call.part, [&] { exchange.dispatch(spoiled); });
    }
    DispatchArgs wait = moe.dispatch();
    const DispatchHandle handle = exchange.dispatch_send(wait);
    wait.output_payloads[1] = wait.output_payloads[0];
    expect_payload_rejected("output_payloads[0]: overlaps output_payloads[1]",
                            [&] { exchange.dispatch_wait(handle, wait); });
    exchange.dispatch_wait(handle, moe.dispatch());
  }));
}

// The ids that a mask gives are written before the payloads are read.
TEST(MoePayloads, IdsOfAMaskAreApart) {
  MoeExchangeArgs args{.tokens = 4, .hidden = 8, .experts = 2, .top_k = 2, .weighted = false};
  args.payload_bytes = {20};
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    alignas(16) static thread_local std::byte input[64], ids[80], output[128], outputs[160];
    static thread_local std::uint8_t mask[8];
    static thread_local std::int32_t counts[1];
    DispatchArgs call{.input = input, .rank_mask = mask, .mask_ids = reinterpret_cast<std::int32_t*>(ids + 16)};
    call.tokens = 4;
    call.payloads[0] = ids;
    call.output = output;
    call.output_payloads[0] = outputs;
    call.counts = counts;
    expect_payload_rejected("mask_ids: overlaps payloads[0]", [&] { exchange.dispatch_send(call); });
  }));
}

// A rank without tokens has no payloads to give.
TEST(MoePayloads, RanksWithoutTokensNeedNone) {
  MoeExchangeArgs args = small_exchange();
  args.payload_bytes = {20, 4};
  const PreparedMoe p = prepare({.args = args, .tokens = {6, 0}}, 2, 5);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    CpuMoe moe(exchange, p, static_cast<std::uint32_t>(number));
    DispatchArgs call = moe.dispatch();
    if (call.tokens == 0) call.payloads = {};
    exchange.dispatch(call);
    moe.check_dispatch();
  }));
}

TEST(MoePayloads, ALayerCarriesNone) {
  MoeExchangeArgs args = small_exchange();
  args.payload_bytes = {20, 4};
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int) {
    const MoeExchange exchange = MoeExchange::create(communicator, args);
    expect_payload_rejected("exchange: it has 2 payloads; a layer carries none",
                            [&] { MoeLayer::create(exchange, {.intermediate = 128}); });
  }));
}

}  // namespace
}  // namespace weft::test
