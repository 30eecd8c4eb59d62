// Whole layers of experts. The caller's GEMMs are functions of C.
#include "c/mirror.hpp"

namespace weft::c {

template <>
struct Mirror<weft_expert_gemm> {
  using Cpp = ExpertGemm;
  static constexpr const char* name = "weft_expert_gemm";
  static constexpr std::size_t least = sizeof(weft_expert_gemm);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.which, cpp.which);
    copy(c.round, cpp.round);
    copy(c.first_expert, cpp.first_expert);
    copy(c.experts, cpp.experts);
    copy(c.input, cpp.input);
    copy(c.input_scales, cpp.input_scales);
    copy(c.output, cpp.output);
    copy(c.input_columns, cpp.input_columns);
    copy(c.output_columns, cpp.output_columns);
    copy(c.layout, cpp.layout);
    copy(c.capacity, cpp.capacity);
    copy(c.counts, cpp.counts);
    copy(c.offsets, cpp.offsets);
    copy(c.stream, cpp.stream);
    copy(c.num_sms, cpp.num_sms);
  }
};

template <>
struct Mirror<weft_shared_expert> {
  using Cpp = SharedExpert;
  static constexpr const char* name = "weft_shared_expert";
  static constexpr std::size_t least = sizeof(weft_shared_expert);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.input, cpp.input);
    copy(c.scales, cpp.scales);
    copy(c.residual, cpp.residual);
    copy(c.output, cpp.output);
    copy(c.tokens, cpp.tokens);
    copy(c.hidden, cpp.hidden);
    copy(c.stream, cpp.stream);
    copy(c.num_sms, cpp.num_sms);
  }
};

template <>
struct Mirror<weft_layer_part> {
  using Cpp = LayerPart;
  static constexpr const char* name = "weft_layer_part";
  static constexpr std::size_t least = sizeof(weft_layer_part);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.which, cpp.which);
    copy(c.round, cpp.round);
    copy(c.begins, cpp.begins);
    copy(c.stream, cpp.stream);
  }
};

template <>
struct Mirror<weft_moe_layer_args> {
  using Cpp = MoeLayerArgs;
  static constexpr const char* name = "weft_moe_layer_args";
  static constexpr std::size_t least = sizeof(weft_moe_layer_args);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.intermediate, cpp.intermediate);
    copy(c.down_cast, cpp.down_cast);
  }
};

template <>
struct Mirror<weft_moe_layer_call> {
  using Cpp = MoeLayerCall;
  static constexpr const char* name = "weft_moe_layer_call";
  static constexpr std::size_t least = offsetof(weft_moe_layer_call, rounds_experts);
  static void fields(auto& c, auto& cpp, auto copy) {  // besides the caller's functions
    copy(c.input, cpp.input);
    copy(c.scales, cpp.scales);
    copy(c.topk_ids, cpp.topk_ids);
    copy(c.topk_weights, cpp.topk_weights);
    copy(c.residual, cpp.residual);
    copy(c.output, cpp.output);
    copy(c.workspace, cpp.workspace);
    copy(c.stream, cpp.stream);
    copy(c.rounds_experts, cpp.rounds.experts);
    copy(c.rounds, cpp.rounds.count);
    copy(c.tokens, cpp.tokens);
    copy(c.topk_ids_are_i64, cpp.topk_ids_are_i64);
    copy(c.tag, cpp.tag);
    copy(c.schedule, cpp.schedule);
    copy(c.send_num_sms, cpp.send_num_sms);
    copy(c.recv_num_sms, cpp.recv_num_sms);
    copy(c.combine_send_num_sms, cpp.combine_send_num_sms);
    copy(c.combine_recv_num_sms, cpp.combine_recv_num_sms);
    copy(c.up_num_sms, cpp.up_num_sms);
    copy(c.down_num_sms, cpp.down_num_sms);
    copy(c.most_tokens, cpp.most_tokens);
    copy(c.map, cpp.map);
    copy(c.alone_by_size, cpp.alone_by_size);
    copy(c.shared_num_sms, cpp.shared_num_sms);
    copy(c.cluster, cpp.cluster);
  }
};

namespace {

// Calls the caller's function with what C calls `Told`.
template <class Told, class Function, class Given>
void call_back(const char* name, Function function, void* context, const Given& given) {
  Told told = {};
  Mirror<Told>::fields(told, given, ToC());
  told.size = sizeof(told);
  const weft_code code = function(context, &told);
  if (code == WEFT_OK) return;
  throw Error(enumerator<Errc>(code), fmt::format("{} has returned code {}", name, static_cast<int>(code)));
}

// It keeps two pointers: std::function has room for them, so a call takes no memory.
GroupedGemm gemm_of(weft_grouped_gemm given, void* context) {
  if (given == nullptr) return {};
  return [=](const ExpertGemm& gemm) {
    const bool up = gemm.which == ExpertGemm::Which::up;
    call_back<weft_expert_gemm>(up ? "up: the GEMM" : "down: the GEMM", given, context, gemm);
  };
}
SharedRows shared_of(weft_shared_rows given, void* context) {
  if (given == nullptr) return {};
  return [=](const SharedExpert& expert) {
    call_back<weft_shared_expert>("shared: the function", given, context, expert);
  };
}

LayerObserver observer_of(weft_layer_observer given, void* context) {
  if (given == nullptr) return {};
  return [=](const LayerPart& part) {
    weft_layer_part told = {};
    Mirror<weft_layer_part>::fields(told, part, ToC());
    told.size = sizeof(told);
    given(context, &told);
  };
}

using Part = void (MoeLayer::*)(const MoeLayerCall&) const;

weft_code run(Part part, const weft_moe_layer* layer, const weft_moe_layer_call* given) noexcept {
  return guarded([&] {
    const weft_moe_layer_call full = whole(given);
    MoeLayerCall call = cpp_of(full);
    call.up = gemm_of(full.up, full.context);
    call.down = gemm_of(full.down, full.context);
    call.shared = shared_of(full.shared, full.context);
    call.observe = observer_of(full.observe, full.context);
    (at("layer", layer).layer.*part)(call);
  });
}

}  // namespace
}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_moe_layer_args_init(weft_moe_layer_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_moe_layer_call_init(weft_moe_layer_call* call, size_t size) {
  return init(call, size);
}

weft_code weft_moe_layer_create(const weft_exchange* exchange, const weft_moe_layer_args* args,
                                weft_moe_layer** layer) {
  return give_handle("layer", layer,
                     [&] { return weft::MoeLayer::create(at("exchange", exchange).exchange, cpp_of(whole(args))); });
}
void weft_moe_layer_destroy(weft_moe_layer* layer) {
  delete layer;
}
weft_code weft_moe_layer_workspace_bytes(const weft_moe_layer* layer, size_t* bytes) {
  return guarded([&] { at("bytes", bytes) = at("layer", layer).layer.workspace_bytes(); });
}
weft_code weft_moe_layer_run(const weft_moe_layer* layer, const weft_moe_layer_call* call) {
  return run(&weft::MoeLayer::run, layer, call);
}
weft_code weft_moe_layer_run_experts(const weft_moe_layer* layer, const weft_moe_layer_call* call) {
  return run(&weft::MoeLayer::run_experts, layer, call);
}

}  // extern "C"
