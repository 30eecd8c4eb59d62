// Exchanges, recordings, communicators and symmetric memory through C (through_c.hpp).
#include "twins/through_c.hpp"

namespace weft::test {
namespace {

weft_dispatch_handle c_of(const DispatchHandle& handle) {
  return {handle.most_tokens << 16 | handle.slot, handle.tokens, handle.exchange, handle.number};
}
weft_dispatch_args c_of(const DispatchArgs& args) {
  weft_dispatch_args c = init(weft_dispatch_args_init);
  c.input = args.input;
  c.scales = args.scales;
  c.topk_ids = args.topk_ids;
  c.topk_ids_are_i64 = args.topk_ids_are_i64;
  c.topk_weights = args.topk_weights;
  c.tokens = args.tokens;
  c.output = args.output;
  c.output_scales = args.output_scales;
  c.counts = args.counts;
  c.offsets = args.offsets;
  c.output_sources = args.output_sources;
  c.source_tokens = args.source_tokens;
  c.source_wait_ns = args.source_wait_ns;
  c.host_counts = args.host_counts;
  c.output_ids = args.output_ids;
  c.output_weights = args.output_weights;
  c.discard = args.discard;
  c.rounds = args.rounds.count;
  c.rounds_experts = args.rounds.experts;
  c.round = args.round;
  c.most_tokens = args.most_tokens;
  c.map = args.map;
  c.rank_mask = args.rank_mask;
  c.mask_ids = args.mask_ids;
  c.rank_prefix = args.rank_prefix;
  c.again = c_of(args.again);
  std::ranges::copy(args.payloads, c.payloads);
  std::ranges::copy(args.output_payloads, c.output_payloads);
  fill_launch(c, args);
  return c;
}

DispatchHandle cpp_of(const weft_dispatch_handle& handle) {
  return {.slot = handle.slot & 0xffffu,
          .exchange = handle.exchange,
          .number = handle.number,
          .tokens = handle.tokens,
          .most_tokens = handle.slot >> 16};
}

weft_combine_args c_of(const CombineArgs& args) {
  weft_combine_args c = init(weft_combine_args_init);
  c.handle = c_of(args.handle);
  c.input = args.input;
  c.topk_weights = args.topk_weights;
  c.residual = args.residual;
  c.output = args.output;
  c.source_wait_ns = args.source_wait_ns;
  c.rounds = args.rounds.count;
  c.rounds_experts = args.rounds.experts;
  c.round = args.round;
  fill_launch(c, args);
  return c;
}

// A definition, with tables as C has them.
struct Definition {
  explicit Definition(const MoeExchangeArgs& args) {
    c.tokens = args.tokens;
    c.hidden = args.hidden;
    c.experts = args.experts;
    c.top_k = args.top_k;
    c.type = number(args.type);
    c.cast = number(args.cast);
    c.scale_order = number(args.scale_order);
    c.scale_bytes = args.scale_bytes;
    c.combine_type = number(args.combine_type);
    c.layout = number(args.layout);
    c.alignment = args.alignment;
    c.capacity = args.capacity;
    c.overflow = number(args.overflow);
    c.weighted = args.weighted;
    c.weights_at_combine = args.weights_at_combine;
    c.rank_of_expert = args.rank_of_expert.data();
    c.rank_of_expert_count = args.rank_of_expert.size();
    for (const auto& of : args.ranks_of_expert) ranks.push_back({of.data(), of.size()});
    c.ranks_of_expert = ranks.data();
    c.ranks_of_expert_count = ranks.size();
    c.handles = args.handles;
    c.path = number(args.path);
    c.ring_rows = args.ring_rows;
    c.slot_tokens = args.slot_tokens;
    c.maps = args.maps;
    c.experts_of_rank = args.experts_of_rank.data();
    c.experts_of_rank_count = args.experts_of_rank.size();
    c.repeatable = args.repeatable;
    c.blocks = args.blocks;
    c.payload_bytes = args.payload_bytes.data();
    c.payload_bytes_count = args.payload_bytes.size();
  }
  std::vector<weft_expert_ranks> ranks;
  weft_moe_exchange_args c = init(weft_moe_exchange_args_init);
};

}  // namespace
}  // namespace weft::test

using namespace weft;
using namespace weft::test;

extern "C" {

MoeExchangeMemory __real__ZN4weft19moe_exchange_memoryEiRKNS_15MoeExchangeArgsE(int, const MoeExchangeArgs&);
MoeExchangeMemory __wrap__ZN4weft19moe_exchange_memoryEiRKNS_15MoeExchangeArgsE(int ranks,
                                                                                const MoeExchangeArgs& args) {
  if (in_c) return __real__ZN4weft19moe_exchange_memoryEiRKNS_15MoeExchangeArgsE(ranks, args);
  const Definition definition(args);
  weft_moe_exchange_memory c;
  c.size = sizeof c;
  call_c(weft_moe_exchange_memory_of, ranks, &definition.c, &c);
  return {.dispatch = c.dispatch,
          .combine = c.combine,
          .tables = c.tables,
          .window = c.window,
          .output = c.output,
          .ring_rows = c.ring_rows,
          .half_tokens = c.half_tokens};
}

MoeExchange __real__ZN4weft11MoeExchange6createERKNS_5GroupERKNS_15MoeExchangeArgsE(const Group&,
                                                                                    const MoeExchangeArgs&);
MoeExchange __wrap__ZN4weft11MoeExchange6createERKNS_5GroupERKNS_15MoeExchangeArgsE(const Group& group,
                                                                                    const MoeExchangeArgs& args) {
  if (in_c) return __real__ZN4weft11MoeExchange6createERKNS_5GroupERKNS_15MoeExchangeArgsE(group, args);
  const Definition definition(args);
  weft_exchange* made = nullptr;
  call_c(weft_exchange_create, handle(group), &definition.c, &made);
  return taken(made, &weft_exchange::exchange);
}

void __real__ZN4weft11MoeExchange4freeEv(MoeExchange*);
void __wrap__ZN4weft11MoeExchange4freeEv(MoeExchange* exchange) {
  if (in_c) return __real__ZN4weft11MoeExchange4freeEv(exchange);
  call_c(weft_exchange_free, handle_of<weft_exchange>(*exchange));
}

DispatchHandle __real__ZNK4weft11MoeExchange8dispatchERKNS_12DispatchArgsE(const MoeExchange*, const DispatchArgs&);
DispatchHandle __wrap__ZNK4weft11MoeExchange8dispatchERKNS_12DispatchArgsE(const MoeExchange* exchange,
                                                                           const DispatchArgs& args) {
  if (in_c) return __real__ZNK4weft11MoeExchange8dispatchERKNS_12DispatchArgsE(exchange, args);
  const weft_dispatch_args c = c_of(args);
  weft_dispatch_handle made;
  call_c(weft_dispatch, handle_of<const weft_exchange>(*exchange), &c, &made);
  return cpp_of(made);
}

DispatchHandle __real__ZNK4weft11MoeExchange13dispatch_sendERKNS_12DispatchArgsE(const MoeExchange*,
                                                                                 const DispatchArgs&);
DispatchHandle __wrap__ZNK4weft11MoeExchange13dispatch_sendERKNS_12DispatchArgsE(const MoeExchange* exchange,
                                                                                 const DispatchArgs& args) {
  if (in_c) return __real__ZNK4weft11MoeExchange13dispatch_sendERKNS_12DispatchArgsE(exchange, args);
  const weft_dispatch_args c = c_of(args);
  weft_dispatch_handle made;
  call_c(weft_dispatch_send, handle_of<const weft_exchange>(*exchange), &c, &made);
  return cpp_of(made);
}

void __real__ZNK4weft11MoeExchange13dispatch_waitENS_14DispatchHandleERKNS_12DispatchArgsE(const MoeExchange*,
                                                                                           DispatchHandle,
                                                                                           const DispatchArgs&);
void __wrap__ZNK4weft11MoeExchange13dispatch_waitENS_14DispatchHandleERKNS_12DispatchArgsE(const MoeExchange* exchange,
                                                                                           DispatchHandle sent,
                                                                                           const DispatchArgs& args) {
  if (in_c)
    return __real__ZNK4weft11MoeExchange13dispatch_waitENS_14DispatchHandleERKNS_12DispatchArgsE(exchange, sent, args);
  const weft_dispatch_args c = c_of(args);
  const weft_dispatch_handle handle = c_of(sent);
  call_c(weft_dispatch_wait, handle_of<const weft_exchange>(*exchange), &handle, &c);
}

void __real__ZNK4weft11MoeExchange7combineERKNS_11CombineArgsE(const MoeExchange*, const CombineArgs&);
void __wrap__ZNK4weft11MoeExchange7combineERKNS_11CombineArgsE(const MoeExchange* exchange, const CombineArgs& args) {
  if (in_c) return __real__ZNK4weft11MoeExchange7combineERKNS_11CombineArgsE(exchange, args);
  const weft_combine_args c = c_of(args);
  call_c(weft_combine, handle_of<const weft_exchange>(*exchange), &c);
}

void __real__ZNK4weft11MoeExchange12combine_sendERKNS_11CombineArgsE(const MoeExchange*, const CombineArgs&);
void __wrap__ZNK4weft11MoeExchange12combine_sendERKNS_11CombineArgsE(const MoeExchange* exchange,
                                                                     const CombineArgs& args) {
  if (in_c) return __real__ZNK4weft11MoeExchange12combine_sendERKNS_11CombineArgsE(exchange, args);
  const weft_combine_args c = c_of(args);
  call_c(weft_combine_send, handle_of<const weft_exchange>(*exchange), &c);
}

void __real__ZNK4weft11MoeExchange12combine_waitERKNS_11CombineArgsE(const MoeExchange*, const CombineArgs&);
void __wrap__ZNK4weft11MoeExchange12combine_waitERKNS_11CombineArgsE(const MoeExchange* exchange,
                                                                     const CombineArgs& args) {
  if (in_c) return __real__ZNK4weft11MoeExchange12combine_waitERKNS_11CombineArgsE(exchange, args);
  const weft_combine_args c = c_of(args);
  call_c(weft_combine_wait, handle_of<const weft_exchange>(*exchange), &c);
}

std::uint32_t __real__ZNK4weft11MoeExchange8capacityEv(const MoeExchange*);
std::uint32_t __wrap__ZNK4weft11MoeExchange8capacityEv(const MoeExchange* exchange) {
  if (in_c) return __real__ZNK4weft11MoeExchange8capacityEv(exchange);
  std::uint32_t number = 0;
  call_c(weft_exchange_capacity, handle_of<const weft_exchange>(*exchange), &number);
  return number;
}

std::size_t __real__ZNK4weft11MoeExchange11output_rowsEv(const MoeExchange*);
std::size_t __wrap__ZNK4weft11MoeExchange11output_rowsEv(const MoeExchange* exchange) {
  if (in_c) return __real__ZNK4weft11MoeExchange11output_rowsEv(exchange);
  std::size_t number = 0;
  call_c(weft_exchange_output_rows, handle_of<const weft_exchange>(*exchange), &number);
  return number;
}

std::uint32_t __real__ZNK4weft11MoeExchange13local_expertsEv(const MoeExchange*);
std::uint32_t __wrap__ZNK4weft11MoeExchange13local_expertsEv(const MoeExchange* exchange) {
  if (in_c) return __real__ZNK4weft11MoeExchange13local_expertsEv(exchange);
  std::uint32_t number = 0;
  call_c(weft_exchange_local_experts, handle_of<const weft_exchange>(*exchange), &number);
  return number;
}

void __real__ZN4weft11MoeExchange11set_expertsESt4spanIKiLm18446744073709551615EEjP11CUstream_st(
    MoeExchange*, std::span<const std::int32_t>, std::uint32_t, Stream);
void __wrap__ZN4weft11MoeExchange11set_expertsESt4spanIKiLm18446744073709551615EEjP11CUstream_st(
    MoeExchange* exchange, std::span<const std::int32_t> experts, std::uint32_t first_map, Stream stream) {
  if (in_c)
    return __real__ZN4weft11MoeExchange11set_expertsESt4spanIKiLm18446744073709551615EEjP11CUstream_st(
        exchange, experts, first_map, stream);
  call_c(weft_exchange_set_experts, handle_of<weft_exchange>(*exchange), experts.data(), experts.size(), first_map,
         stream);
}

Recording __real__ZN4weft9Recording7captureERKNS_12CommunicatorERKSt8functionIFvvEE(const Communicator&,
                                                                                    const std::function<void()>&);
Recording __wrap__ZN4weft9Recording7captureERKNS_12CommunicatorERKSt8functionIFvvEE(
    const Communicator& communicator, const std::function<void()>& calls) {
  if (in_c) return __real__ZN4weft9Recording7captureERKNS_12CommunicatorERKSt8functionIFvvEE(communicator, calls);
  struct Calls {
    const std::function<void()>& function;
    std::exception_ptr thrown;
  } user{calls, nullptr};
  const auto run = [](void* data) -> weft_code {
    Calls& made = *static_cast<Calls*>(data);
    in_c = false;
    try {
      made.function();
    } catch (...) {
      made.thrown = std::current_exception();
    }
    in_c = true;
    return made.thrown == nullptr ? WEFT_OK : WEFT_OVERFLOW;
  };
  weft_recording* made = nullptr;
  try {
    call_c<const weft_communicator*, weft_code (*)(void*), void*, weft_recording**>(
        weft_recording_capture, handle_of<const weft_communicator>(communicator), run, static_cast<void*>(&user),
        &made);
  } catch (const Error&) {
    if (user.thrown != nullptr) std::rethrow_exception(user.thrown);
    throw;
  }
  return taken(made, &weft_recording::recording);
}

void __real__ZNK4weft9Recording6replayEv(const Recording*);
void __wrap__ZNK4weft9Recording6replayEv(const Recording* recording) {
  if (in_c) return __real__ZNK4weft9Recording6replayEv(recording);
  call_c(weft_recording_replay, handle_of<const weft_recording>(*recording));
}

Group __real__ZN4weft12Communicator5splitEi(Communicator*, int);
Group __wrap__ZN4weft12Communicator5splitEi(Communicator* communicator, int color) {
  if (in_c) return __real__ZN4weft12Communicator5splitEi(communicator, color);
  weft_group* made = nullptr;
  call_c(weft_communicator_split, handle_of<weft_communicator>(*communicator), color, &made);
  return made == nullptr ? Group() : taken(made, &weft_group::group);
}

void __real__ZN4weft12Communicator7releaseEv(Communicator*);
void __wrap__ZN4weft12Communicator7releaseEv(Communicator* communicator) {
  if (in_c) return __real__ZN4weft12Communicator7releaseEv(communicator);
  call_c(weft_communicator_release, handle_of<weft_communicator>(*communicator));
}

void __real__ZN4weft12Communicator7acquireEv(Communicator*);
void __wrap__ZN4weft12Communicator7acquireEv(Communicator* communicator) {
  if (in_c) return __real__ZN4weft12Communicator7acquireEv(communicator);
  call_c(weft_communicator_acquire, handle_of<weft_communicator>(*communicator));
}

void __real__ZNK4weft5Group5checkEv(const Group*);
void __wrap__ZNK4weft5Group5checkEv(const Group* group) {
  if (in_c) return __real__ZNK4weft5Group5checkEv(group);
  call_c(weft_group_check, handle(*group));
}

SymmetricMemory __real__ZN4weft15SymmetricMemory8allocateERKNS_12CommunicatorEm(const Communicator&, std::size_t);
SymmetricMemory __wrap__ZN4weft15SymmetricMemory8allocateERKNS_12CommunicatorEm(const Communicator& communicator,
                                                                                std::size_t bytes) {
  if (in_c) return __real__ZN4weft15SymmetricMemory8allocateERKNS_12CommunicatorEm(communicator, bytes);
  weft_symmetric_memory* made = nullptr;
  call_c(weft_symmetric_memory_allocate, handle_of<const weft_communicator>(communicator), bytes, &made);
  return taken(made, &weft_symmetric_memory::memory);
}

void __real__ZN4weft15SymmetricMemory4freeEv(SymmetricMemory*);
void __wrap__ZN4weft15SymmetricMemory4freeEv(SymmetricMemory* memory) {
  if (in_c) return __real__ZN4weft15SymmetricMemory4freeEv(memory);
  call_c(weft_symmetric_memory_free, handle_of<weft_symmetric_memory>(*memory));
}

void* __real__ZNK4weft15SymmetricMemory4dataEv(const SymmetricMemory*);
void* __wrap__ZNK4weft15SymmetricMemory4dataEv(const SymmetricMemory* memory) {
  if (in_c) return __real__ZNK4weft15SymmetricMemory4dataEv(memory);
  void* data = nullptr;
  call_c(weft_symmetric_memory_data, handle_of<const weft_symmetric_memory>(*memory), &data);
  return data;
}

std::size_t __real__ZNK4weft15SymmetricMemory5bytesEv(const SymmetricMemory*);
std::size_t __wrap__ZNK4weft15SymmetricMemory5bytesEv(const SymmetricMemory* memory) {
  if (in_c) return __real__ZNK4weft15SymmetricMemory5bytesEv(memory);
  std::size_t bytes = 0;
  call_c(weft_symmetric_memory_bytes, handle_of<const weft_symmetric_memory>(*memory), &bytes);
  return bytes;
}

void* __real__ZNK4weft15SymmetricMemory4peerEi(const SymmetricMemory*, int);
void* __wrap__ZNK4weft15SymmetricMemory4peerEi(const SymmetricMemory* memory, int rank) {
  if (in_c) return __real__ZNK4weft15SymmetricMemory4peerEi(memory, rank);
  void* data = nullptr;
  call_c(weft_symmetric_memory_peer, handle_of<const weft_symmetric_memory>(*memory), rank, &data);
  return data;
}

}  // extern "C"
