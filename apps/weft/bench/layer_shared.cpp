#include "bench/layer_shared.hpp"

#include <algorithm>

#include "bench/sum_rows.hpp"
#include "weft/unique_id.hpp"

namespace weft::cli {
namespace {

Communicator alone(const Communicator& communicator) {
  return Communicator::from_id(UniqueId::create(), 0, 1,
                               {.device = communicator.device(),
                                .cuda_device = communicator.world().cuda_device(),
                                .max_groups = 0,
                                .small_buffers = true});
}

MoeExchangeArgs exchange_of(const SharedLayer::Args& args) {
  return {.tokens = args.virtual_tokens,
          .hidden = args.shape.hidden,
          .experts = 1,
          .top_k = 1,
          .cast = cast_of(args.shape.type),
          .capacity = args.tokens,
          .weighted = false};
}

}  // namespace

SharedLayer::SharedLayer(RankDevice& device, const Communicator& communicator, const Args& args)
    : device_(device),
      args_(args),
      on_gpu_(communicator.device() == Device::cuda),
      alone_(alone(communicator)),
      exchange_(MoeExchange::create(alone_, exchange_of(args))),
      layer_(MoeLayer::create(exchange_, {.intermediate = args.shape.shared, .down_cast = cast_of(args.shape.type)})) {
  const std::size_t row_bytes = std::size_t{args.shape.hidden} * 2;
  for (std::uint32_t i = 0; i < args.layers; ++i) {
    of_.push_back(
        {.weights = make_weights(device, {args.shape.hidden, args.shape.shared, 1, args.shape.type}, args.seed + i),
         .ids = device.allocate(std::size_t{args.virtual_tokens} * 4),
         .workspace = device.allocate(layer_.workspace_bytes()),
         .places = device.allocate((std::size_t{args.virtual_tokens} + 1) * 4),
         .whole = device.allocate(args.virtual_tokens * row_bytes)});
  }
  rows_ = device.allocate(args.tokens * row_bytes);
}

std::unique_ptr<ExpertGemms> SharedLayer::open_gemms(std::uint32_t tokens) const {
  if (!on_gpu_) return open_plain_gemms();
  return open_cutlass_gemms({.device = alone_.world().cuda_device(),
                             .experts = 1,
                             .hidden = args_.shape.hidden,
                             .intermediate = args_.shape.shared,
                             .rows_per_expert = static_cast<double>(tokens),
                             .tile = args_.tile,
                             .type = args_.shape.type});
}

MoeLayerCall SharedLayer::call_of(const One& one, ExpertGemms& gemms, Stream stream) {
  return {.workspace = one.workspace,
          .up = [&one, &gemms](const ExpertGemm& gemm) { gemms.enqueue(gemm, one.weights.up); },
          .down = [&one, &gemms](const ExpertGemm& gemm) { gemms.enqueue(gemm, one.weights.down); },
          .stream = stream,
          .schedule = LayerSchedule::plain};
}

void SharedLayer::upload(Ranks::Seat& seat, const void* input, const std::vector<const LayerTokens*>& tokens) {
  const auto tokens_of_rank = static_cast<std::uint32_t>(tokens.front()->firsts.size()) - 1;
  gemms_ = open_gemms(tokens_of_rank);
  const std::unique_ptr<ExpertGemms> whole = open_gemms(tokens_of_rank);  // its down GEMMs have another output
  for (std::size_t i = 0; i < of_.size(); ++i) {
    const One& one = of_[i];
    std::vector<std::int32_t> ids(tokens[i]->count(), -1), places(ids.size() + 1);
    for (std::size_t token = 0; token < tokens_of_rank; ++token)
      ids[static_cast<std::size_t>(tokens[i]->firsts[token])] = 0;
    for (std::size_t place = 0; place < ids.size(); ++place) places[place + 1] = places[place] + (ids[place] == 0);
    device_.upload(one.ids, ids.data(), ids.size() * 4);
    device_.upload(one.places, places.data(), places.size() * 4);
    MoeLayerCall call = call_of(one, *whole, device_.stream());
    call.input = input;
    call.topk_ids = one.ids;
    call.tokens = static_cast<std::uint32_t>(ids.size());
    call.output = one.whole;
    device_.run(seat, [&] { layer_.run(call); });
  }
  alone_.check();
}

void SharedLayer::run(const SharedExpert& call, std::uint32_t layer) {
  const One& one = of_[layer % of_.size()];
  MoeLayerCall experts = call_of(one, *gemms_, call.stream);
  experts.up_num_sms = experts.down_num_sms = call.num_sms;
  experts.up = [&](const ExpertGemm& gemm) {
    last_up_ = gemm;
    gemms_->enqueue(gemm, one.weights.up);
  };
  experts.down = [&](const ExpertGemm& gemm) {
    last_down_ = gemm;
    last_down_.output = args_.shape.emulated != 0 ? rows_ : call.output;
    gemms_->enqueue(last_down_, one.weights.down);
  };
  layer_.run_experts(experts);
  last_ = call;
  if (args_.shape.emulated == 0) return;
  sum_rows({.rows = rows_,
            .output = call.output,
            .firsts = static_cast<const std::int32_t*>(one.places),
            .tokens = call.tokens,
            .columns = call.hidden},
           on_gpu_ ? Device::cuda : Device::cpu, call.stream);
}

std::string SharedLayer::check(std::uint32_t layer) {
  const One& one = of_[layer % of_.size()];
  std::string wrong = check_gemm(device_, last_up_, one.weights.up, 1);
  if (wrong.empty()) wrong = check_gemm(device_, last_down_, one.weights.down, 1);
  if (!wrong.empty()) return "shared expert: " + wrong;
  std::vector<std::byte> rows(std::size_t{last_.tokens} * last_.hidden * 2), whole(rows.size());
  device_.download(rows.data(), last_.output, rows.size());
  device_.download(whole.data(), one.whole, whole.size());
  return rows == whole ? std::string() : "shared expert: rows differ from those that a combine gives";
}

}  // namespace weft::cli
