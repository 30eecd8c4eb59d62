// Layers of experts through the C interface: the caller's GEMMs are called by functions of C.
#include <deque>
#include <mutex>

#include "comm/capture.hpp"
#include "twins/through_c.hpp"

namespace weft::test {
namespace {

weft_code call_gemm(const GroupedGemm& gemm, const weft_expert_gemm& given) {
  gemm({.which = static_cast<ExpertGemm::Which>(given.which),
        .round = given.round,
        .first_expert = given.first_expert,
        .experts = given.experts,
        .input = given.input,
        .input_scales = given.input_scales,
        .output = given.output,
        .input_columns = given.input_columns,
        .output_columns = given.output_columns,
        .layout = static_cast<RowLayout>(given.layout),
        .capacity = given.capacity,
        .counts = given.counts,
        .offsets = given.offsets,
        .num_sms = given.num_sms,
        .stream = given.stream});
  return WEFT_OK;
}
weft_code up(void* context, const weft_expert_gemm* gemm) {
  return call_gemm(static_cast<const MoeLayerCall*>(context)->up, *gemm);
}
weft_code down(void* context, const weft_expert_gemm* gemm) {
  return call_gemm(static_cast<const MoeLayerCall*>(context)->down, *gemm);
}

weft_code shared(void* context, const weft_shared_expert* given) {
  static_cast<const MoeLayerCall*>(context)->shared({.input = given->input,
                                                     .scales = given->scales,
                                                     .residual = given->residual,
                                                     .output = given->output,
                                                     .tokens = given->tokens,
                                                     .hidden = given->hidden,
                                                     .num_sms = given->num_sms,
                                                     .stream = given->stream});
  return WEFT_OK;
}

void observe(void* context, const weft_layer_part* part) {
  static_cast<const MoeLayerCall*>(context)->observe({.which = static_cast<LayerPart::Which>(part->which),
                                                      .round = part->round,
                                                      .begins = part->begins != 0,
                                                      .stream = part->stream});
}

// A recording has the call for its context from now on.
const MoeLayerCall& lasting(const MoeLayerCall& call) {
  if (detail::Capture::current() == nullptr) return call;
  static std::mutex mutex;
  static std::deque<MoeLayerCall> all;
  const std::scoped_lock lock(mutex);
  return all.emplace_back(call);
}

weft_moe_layer_call c_of(const MoeLayerCall& call) {
  weft_moe_layer_call c = init(weft_moe_layer_call_init);
  c.input = call.input;
  c.scales = call.scales;
  c.topk_ids = call.topk_ids;
  c.topk_weights = call.topk_weights;
  c.residual = call.residual;
  c.output = call.output;
  c.workspace = call.workspace;
  c.up = call.up == nullptr ? nullptr : up;
  c.down = call.down == nullptr ? nullptr : down;
  c.context = const_cast<MoeLayerCall*>(&lasting(call));
  c.stream = call.stream;
  c.rounds_experts = call.rounds.experts;
  c.rounds = call.rounds.count;
  c.tokens = call.tokens;
  c.most_tokens = call.most_tokens;
  c.map = call.map;
  c.topk_ids_are_i64 = call.topk_ids_are_i64;
  c.tag = call.tag;
  c.schedule = number(call.schedule);
  c.send_num_sms = call.send_num_sms;
  c.recv_num_sms = call.recv_num_sms;
  c.combine_send_num_sms = call.combine_send_num_sms;
  c.combine_recv_num_sms = call.combine_recv_num_sms;
  c.up_num_sms = call.up_num_sms;
  c.down_num_sms = call.down_num_sms;
  c.alone_by_size = call.alone_by_size ? 1 : 0;
  c.shared = call.shared == nullptr ? nullptr : shared;
  c.shared_num_sms = call.shared_num_sms;
  c.cluster = call.cluster;
  c.observe = call.observe == nullptr ? nullptr : observe;
  return c;
}

}  // namespace

extern "C" {

MoeLayer __real__ZN4weft8MoeLayer6createERKNS_11MoeExchangeERKNS_12MoeLayerArgsE(const MoeExchange&,
                                                                                 const MoeLayerArgs&);
MoeLayer __wrap__ZN4weft8MoeLayer6createERKNS_11MoeExchangeERKNS_12MoeLayerArgsE(const MoeExchange& exchange,
                                                                                 const MoeLayerArgs& args) {
  if (in_c) return __real__ZN4weft8MoeLayer6createERKNS_11MoeExchangeERKNS_12MoeLayerArgsE(exchange, args);
  weft_moe_layer_args c = init(weft_moe_layer_args_init);
  c.intermediate = args.intermediate;
  c.down_cast = number(args.down_cast);
  weft_moe_layer* made = nullptr;
  call_c(weft_moe_layer_create, handle_of<const weft_exchange>(exchange), &c, &made);
  return taken(made, &weft_moe_layer::layer);
}

std::size_t __real__ZNK4weft8MoeLayer15workspace_bytesEv(const MoeLayer*);
std::size_t __wrap__ZNK4weft8MoeLayer15workspace_bytesEv(const MoeLayer* layer) {
  if (in_c) return __real__ZNK4weft8MoeLayer15workspace_bytesEv(layer);
  std::size_t bytes = 0;
  call_c(weft_moe_layer_workspace_bytes, handle_of<const weft_moe_layer>(*layer), &bytes);
  return bytes;
}

void __real__ZNK4weft8MoeLayer3runERKNS_12MoeLayerCallE(const MoeLayer*, const MoeLayerCall&);
void __wrap__ZNK4weft8MoeLayer3runERKNS_12MoeLayerCallE(const MoeLayer* layer, const MoeLayerCall& call) {
  if (in_c) return __real__ZNK4weft8MoeLayer3runERKNS_12MoeLayerCallE(layer, call);
  const weft_moe_layer_call c = c_of(call);
  call_c(weft_moe_layer_run, handle_of<const weft_moe_layer>(*layer), &c);
}

void __real__ZNK4weft8MoeLayer11run_expertsERKNS_12MoeLayerCallE(const MoeLayer*, const MoeLayerCall&);
void __wrap__ZNK4weft8MoeLayer11run_expertsERKNS_12MoeLayerCallE(const MoeLayer* layer, const MoeLayerCall& call) {
  if (in_c) return __real__ZNK4weft8MoeLayer11run_expertsERKNS_12MoeLayerCallE(layer, call);
  const weft_moe_layer_call c = c_of(call);
  call_c(weft_moe_layer_run_experts, handle_of<const weft_moe_layer>(*layer), &c);
}

}  // extern "C"
}  // namespace weft::test
