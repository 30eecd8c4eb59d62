// Calls through the C interface take no memory on the host either: plain ones, tables of structs, and functions of the
// caller's.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "cli/counted_memory.hpp"
#include "cli/host_cost.hpp"
#include "support/c_ranks.hpp"

namespace weft::test {
namespace {

constexpr std::uint32_t kCRows = 2, kCHidden = 128;
constexpr std::size_t kCRowBytes = 2 * kCHidden;

template <class Call>
cli::SmallCall small_c_call(const char* name, Call call) {
  return {name, [call](std::uint32_t tag) mutable { expect_ok(call(tag)); }};
}

std::vector<cli::SmallCall> c_group_calls(const weft_group* world, Zeros& zeros) {
  auto reduced = initialised(weft_all_reduce_args_init);
  reduced.input = zeros.of(kCRowBytes);
  reduced.output = zeros.of(kCRowBytes);
  reduced.count = kCHidden;
  auto normed = initialised(weft_all_reduce_rms_norm_args_init);
  normed.input = zeros.of(kCRowBytes);
  normed.residual_output = zeros.of(kCRowBytes);
  normed.gamma = zeros.of(kCRowBytes);
  normed.output = zeros.of(kCRowBytes);
  normed.tokens = 1;
  normed.hidden = kCHidden;
  std::array<weft_gathered_tensor, 2> tensors;
  for (auto& tensor : tensors) {
    tensor = initialised(weft_gathered_tensor_init);
    tensor.input = zeros.of(kCRowBytes);
    tensor.output = zeros.of(kCRowBytes);
    tensor.row_bytes = kCRowBytes;
  }
  auto counts = initialised(weft_counts_init);
  auto* const rows = zeros.of<std::int32_t>(1);
  *rows = 1;
  counts.rows = rows;
  auto to = initialised(weft_outgoing_message_init);
  auto from = initialised(weft_incoming_message_init);
  to.data = zeros.of(kCRowBytes);
  from.data = zeros.of(kCRowBytes);
  to.bytes = from.bytes = kCRowBytes;
  return {small_c_call("weft_all_reduce",
                       [=](std::uint32_t tag) mutable {
                         reduced.tag = tag;
                         return weft_all_reduce(world, &reduced);
                       }),
          small_c_call("weft_all_reduce_rms_norm",
                       [=](std::uint32_t tag) mutable {
                         normed.tag = tag;
                         return weft_all_reduce_rms_norm(world, &normed);
                       }),
          small_c_call("weft_all_gather_v",
                       [=](std::uint32_t tag) {
                         auto args = initialised(weft_all_gather_v_args_init);
                         args.tensors = tensors.data();
                         args.tensor_count = tensors.size();
                         args.counts = &counts;
                         args.input_rows = args.output_rows = 1;
                         args.tag = tag;
                         return weft_all_gather_v(world, &args);
                       }),
          small_c_call("weft_send_receive", [=](std::uint32_t tag) mutable {
            to.tag = from.tag = tag;
            auto args = initialised(weft_send_receive_args_init);
            args.sends = &to;
            args.receives = &from;
            args.send_count = args.receive_count = 1;
            return weft_send_receive(world, &args);
          })};
}

// An exchange and a layer over it, whose GEMMs do nothing.
class CObjects {
 public:
  CObjects(const weft_group* world, Zeros& zeros) {
    auto definition = initialised(weft_moe_exchange_args_init);
    const std::uint32_t payload_bytes = 16;
    definition.tokens = kCRows;
    definition.hidden = kCHidden;
    definition.experts = 2;
    definition.top_k = 1;
    expect_ok(weft_exchange_create(world, &definition, &of_layer_));
    definition.payload_bytes = &payload_bytes;
    definition.payload_bytes_count = 1;
    expect_ok(weft_exchange_create(world, &definition, &exchange_));
    auto layer = initialised(weft_moe_layer_args_init);
    layer.intermediate = kCHidden;
    expect_ok(weft_moe_layer_create(of_layer_, &layer, &layer_));
    std::size_t rows = 0, bytes = 0;
    expect_ok(weft_exchange_output_rows(exchange_, &rows));
    expect_ok(weft_moe_layer_workspace_bytes(layer_, &bytes));
    dispatch_.input = zeros.of(kCRows * kCRowBytes);
    dispatch_.payloads[0] = zeros.of(kCRows * payload_bytes);
    dispatch_.topk_ids = zeros.of<std::int32_t>(kCRows);
    dispatch_.topk_weights = zeros.of<float>(kCRows);
    dispatch_.tokens = kCRows;
    dispatch_.output = zeros.of(rows * kCRowBytes);
    dispatch_.output_payloads[0] = zeros.of(rows * payload_bytes);
    dispatch_.counts = zeros.of<std::int32_t>(2);
    combine_.input = zeros.of(rows * kCRowBytes);
    combine_.output = zeros.of(kCRows * kCRowBytes);
    run_.input = dispatch_.input;
    run_.topk_ids = dispatch_.topk_ids;
    run_.topk_weights = dispatch_.topk_weights;
    run_.tokens = kCRows;
    run_.output = combine_.output;
    run_.workspace = zeros.of(bytes);
    run_.up = run_.down = [](void*, const weft_expert_gemm*) -> weft_code { return WEFT_OK; };
    run_.shared = [](void*, const weft_shared_expert*) -> weft_code { return WEFT_OK; };
    run_.observe = [](void*, const weft_layer_part*) {};
  }
  ~CObjects() {
    weft_moe_layer_destroy(layer_);
    weft_exchange_destroy(exchange_);
    weft_exchange_destroy(of_layer_);
  }
  CObjects(const CObjects&) = delete;
  CObjects& operator=(const CObjects&) = delete;

  std::vector<cli::SmallCall> calls() {
    return {small_c_call("weft_dispatch and weft_combine",
                         [this](std::uint32_t tag) {
                           dispatch_.tag = combine_.tag = tag;
                           expect_ok(weft_dispatch(exchange_, &dispatch_, &combine_.handle));
                           return weft_combine(exchange_, &combine_);
                         }),
            small_c_call("weft_moe_layer_run", [this](std::uint32_t tag) {
              run_.tag = tag;
              return weft_moe_layer_run(layer_, &run_);
            })};
  }

 private:
  weft_exchange *of_layer_ = nullptr, *exchange_ = nullptr;
  weft_moe_layer* layer_ = nullptr;
  weft_dispatch_args dispatch_ = initialised(weft_dispatch_args_init);
  weft_combine_args combine_ = initialised(weft_combine_args_init);
  weft_moe_layer_call run_ = initialised(weft_moe_layer_call_init);
};

TEST(HostCost, ACallThroughCTakesNoMemory) {
  const OneRank rank;
  Zeros zeros;
  expect_no_memory(c_group_calls(rank.world(), zeros));
  CObjects objects(rank.world(), zeros);
  expect_no_memory(objects.calls());
}

}  // namespace
}  // namespace weft::test
