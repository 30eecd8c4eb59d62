// The caller's functions of a layer, in C.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/bytes.hpp"
#include "support/c_ranks.hpp"

namespace weft::test {
namespace {

struct Answers {
  weft_code up = WEFT_OK, down = WEFT_OK, shared = WEFT_OK;
  std::string asked = {};
};
Answers& answers(void* context) {
  return *static_cast<Answers*>(context);
}
weft_code up(void* context, const weft_expert_gemm* gemm) {
  answers(context).asked += gemm->size == sizeof *gemm ? "up " : "another size ";
  return answers(context).up;
}
weft_code down(void* context, const weft_expert_gemm* gemm) {
  answers(context).asked += gemm->size == sizeof *gemm ? "down " : "another size ";
  return answers(context).down;
}
weft_code shared(void* context, const weft_shared_expert* expert) {
  answers(context).asked += expert->size == sizeof *expert && expert->tokens == 2 ? "shared " : "another size ";
  return answers(context).shared;
}

// A layer of one rank, whose functions answer so.
weft_code run_layer(Answers& of) {
  constexpr std::uint32_t kTokens = 2, kHidden = 64;
  const OneRank rank;
  weft_moe_exchange_args args = initialised(weft_moe_exchange_args_init);
  args.tokens = kTokens;
  args.hidden = kHidden;
  args.experts = 2;
  args.top_k = 1;
  weft_exchange* exchange = nullptr;
  expect_ok(weft_exchange_create(rank.world(), &args, &exchange));
  weft_moe_layer_args layer_args = initialised(weft_moe_layer_args_init);
  layer_args.intermediate = 64;
  weft_moe_layer* layer = nullptr;
  expect_ok(weft_moe_layer_create(exchange, &layer_args, &layer));
  std::size_t bytes = 0;
  expect_ok(weft_moe_layer_workspace_bytes(layer, &bytes));
  const AlignedBytes workspace(bytes), input(kTokens * kHidden * 2), output(kTokens * kHidden * 2);
  for (const AlignedBytes* of_call : {&workspace, &input}) fill_bytes(of_call->span(), std::byte{0});
  const std::array<std::int32_t, kTokens> ids{0, 1};
  const std::array<float, kTokens> weights{1, 1};
  weft_moe_layer_call call = initialised(weft_moe_layer_call_init);
  call.input = input.span().data();
  call.topk_ids = ids.data();
  call.topk_weights = weights.data();
  call.tokens = kTokens;
  call.output = output.span().data();
  call.workspace = workspace.span().data();
  call.up = up;
  call.down = down;
  call.shared = shared;
  call.context = &of;
  const weft_code code = weft_moe_layer_run(layer, &call);
  weft_moe_layer_destroy(layer);
  weft_exchange_destroy(exchange);
  return code;
}

// A function that returns another code than WEFT_OK ends the call with it, and nothing is asked any more.
TEST(CLayers, EndWithTheCodeOfAFunction) {
  Answers well;
  expect_ok(run_layer(well));
  EXPECT_EQ(well.asked, "shared up down ");
  const auto ended = [](Answers of, weft_code code, const char* says, const char* asked) {
    EXPECT_EQ(run_layer(of), code);
    EXPECT_EQ(std::string(weft_last_message()), says + std::to_string(code));
    EXPECT_EQ(of.asked, asked);
  };
  ended({.shared = WEFT_UNSUPPORTED}, WEFT_UNSUPPORTED, "shared: the function has returned code ", "shared ");
  ended({.up = WEFT_SYSTEM}, WEFT_SYSTEM, "up: the GEMM has returned code ", "shared up ");
  ended({.down = WEFT_SYSTEM}, WEFT_SYSTEM, "down: the GEMM has returned code ", "shared up down ");
}

}  // namespace
}  // namespace weft::test
