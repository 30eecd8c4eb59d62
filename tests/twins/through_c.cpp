// Collectives through C (through_c.hpp).
#include "twins/through_c.hpp"

namespace weft::test {
namespace {

template <class C, class Cpp>
std::vector<C> c_of(weft_code (*init_message)(C*, std::size_t), std::span<const Cpp> messages) {
  std::vector<C> all;
  for (const Cpp& message : messages) {
    C c = init(init_message);
    c.peer = message.peer;
    c.data = message.data;
    c.bytes = message.bytes;
    c.tag = message.tag;
    all.push_back(c);
  }
  return all;
}

template <class C, class Cpp>
void fill_rooted(C& c, const Cpp& args) {
  c.input = args.input;
  c.output = args.output;
  c.bytes = args.bytes;
  c.root = args.root;
  fill_launch(c, args);
}

void fill_columns(auto& c, const auto& args) {
  fill_rows(c, args);
  c.shard_columns = args.shard_columns;
  c.columns = args.columns;
  c.even_shards = args.even_shards;
  c.type = number(args.type);
  c.output_f32 = args.output_f32;
  c.scale = args.scale;
  c.soft_cap = args.soft_cap;
  fill_launch(c, args);
}

}  // namespace
}  // namespace weft::test

using namespace weft;
using namespace weft::test;

extern "C" {

void __real__ZN4weft10all_reduceERKNS_5GroupERKNS_13AllReduceArgsE(const Group&, const AllReduceArgs&);
void __wrap__ZN4weft10all_reduceERKNS_5GroupERKNS_13AllReduceArgsE(const Group& group, const AllReduceArgs& args) {
  if (in_c) return __real__ZN4weft10all_reduceERKNS_5GroupERKNS_13AllReduceArgsE(group, args);
  weft_all_reduce_args c = init(weft_all_reduce_args_init);
  c.input = args.input;
  c.output = args.output;
  c.count = args.count;
  c.type = number(args.type);
  c.op = number(args.op);
  c.algorithm = number(args.algorithm);
  fill_launch(c, args);
  call_c(weft_all_reduce, handle(group), &c);
}

void __real__ZN4weft6reduceERKNS_5GroupERKNS_10ReduceArgsE(const Group&, const ReduceArgs&);
void __wrap__ZN4weft6reduceERKNS_5GroupERKNS_10ReduceArgsE(const Group& group, const ReduceArgs& args) {
  if (in_c) return __real__ZN4weft6reduceERKNS_5GroupERKNS_10ReduceArgsE(group, args);
  weft_reduce_args c = init(weft_reduce_args_init);
  c.input = args.input;
  c.output = args.output;
  c.count = args.count;
  c.type = number(args.type);
  c.op = number(args.op);
  c.root = args.root;
  fill_launch(c, args);
  call_c(weft_reduce, handle(group), &c);
}

void __real__ZN4weft22all_gather_into_tensorERKNS_5GroupERKNS_13AllGatherArgsE(const Group&, const AllGatherArgs&);
void __wrap__ZN4weft22all_gather_into_tensorERKNS_5GroupERKNS_13AllGatherArgsE(const Group& group,
                                                                               const AllGatherArgs& args) {
  if (in_c) return __real__ZN4weft22all_gather_into_tensorERKNS_5GroupERKNS_13AllGatherArgsE(group, args);
  weft_all_gather_args c = init(weft_all_gather_args_init);
  fill_rows(c, args);
  c.rows = args.rows;
  c.row_bytes = args.row_bytes;
  fill_launch(c, args);
  call_c(weft_all_gather_into_tensor, handle(group), &c);
}

void __real__ZN4weft10all_to_allERKNS_5GroupERKNS_12AllToAllArgsE(const Group&, const AllToAllArgs&);
void __wrap__ZN4weft10all_to_allERKNS_5GroupERKNS_12AllToAllArgsE(const Group& group, const AllToAllArgs& args) {
  if (in_c) return __real__ZN4weft10all_to_allERKNS_5GroupERKNS_12AllToAllArgsE(group, args);
  weft_all_to_all_args c = init(weft_all_to_all_args_init);
  fill_rows(c, args);
  c.rows = args.rows;
  c.row_bytes = args.row_bytes;
  fill_launch(c, args);
  call_c(weft_all_to_all, handle(group), &c);
}

void __real__ZN4weft9broadcastERKNS_5GroupERKNS_13BroadcastArgsE(const Group&, const BroadcastArgs&);
void __wrap__ZN4weft9broadcastERKNS_5GroupERKNS_13BroadcastArgsE(const Group& group, const BroadcastArgs& args) {
  if (in_c) return __real__ZN4weft9broadcastERKNS_5GroupERKNS_13BroadcastArgsE(group, args);
  weft_broadcast_args c = init(weft_broadcast_args_init);
  fill_rows(c, args);
  c.rows = args.rows;
  c.row_bytes = args.row_bytes;
  c.root = args.root;
  fill_launch(c, args);
  call_c(weft_broadcast, handle(group), &c);
}

void __real__ZN4weft21reduce_scatter_tensorERKNS_5GroupERKNS_17ReduceScatterArgsE(const Group&,
                                                                                  const ReduceScatterArgs&);
void __wrap__ZN4weft21reduce_scatter_tensorERKNS_5GroupERKNS_17ReduceScatterArgsE(const Group& group,
                                                                                  const ReduceScatterArgs& args) {
  if (in_c) return __real__ZN4weft21reduce_scatter_tensorERKNS_5GroupERKNS_17ReduceScatterArgsE(group, args);
  weft_reduce_scatter_args c = init(weft_reduce_scatter_args_init);
  fill_rows(c, args);
  c.rows = args.rows;
  c.width = args.width;
  c.type = number(args.type);
  c.op = number(args.op);
  fill_launch(c, args);
  call_c(weft_reduce_scatter_tensor, handle(group), &c);
}

void __real__ZN4weft7barrierERKNS_5GroupERKNS_11BarrierArgsE(const Group&, const BarrierArgs&);
void __wrap__ZN4weft7barrierERKNS_5GroupERKNS_11BarrierArgsE(const Group& group, const BarrierArgs& args) {
  if (in_c) return __real__ZN4weft7barrierERKNS_5GroupERKNS_11BarrierArgsE(group, args);
  weft_barrier_args c = init(weft_barrier_args_init);
  c.tag = args.tag;
  c.stream = args.stream;
  call_c(weft_barrier, handle(group), &c);
}

void __real__ZN4weft12all_gather_vERKNS_5GroupERKNS_14AllGatherVArgsE(const Group&, const AllGatherVArgs&);
void __wrap__ZN4weft12all_gather_vERKNS_5GroupERKNS_14AllGatherVArgsE(const Group& group, const AllGatherVArgs& args) {
  if (in_c) return __real__ZN4weft12all_gather_vERKNS_5GroupERKNS_14AllGatherVArgsE(group, args);
  std::vector<weft_gathered_tensor> tensors;
  for (const GatheredTensor& tensor : args.tensors) {
    weft_gathered_tensor c = init(weft_gathered_tensor_init);
    fill_rows(c, tensor);
    c.row_bytes = tensor.row_bytes;
    tensors.push_back(c);
  }
  const weft_counts counts = c_counts(args.counts);
  weft_all_gather_v_args c = init(weft_all_gather_v_args_init);
  c.tensors = tensors.data();
  c.tensor_count = tensors.size();
  c.counts = &counts;
  c.input_rows = args.input_rows;
  c.output_rows = args.output_rows;
  c.group_ranks = args.group_ranks;
  fill_launch(c, args);
  call_c(weft_all_gather_v, handle(group), &c);
}

void __real__ZN4weft16reduce_scatter_vERKNS_5GroupERKNS_18ReduceScatterVArgsE(const Group&, const ReduceScatterVArgs&);
void __wrap__ZN4weft16reduce_scatter_vERKNS_5GroupERKNS_18ReduceScatterVArgsE(const Group& group,
                                                                              const ReduceScatterVArgs& args) {
  if (in_c) return __real__ZN4weft16reduce_scatter_vERKNS_5GroupERKNS_18ReduceScatterVArgsE(group, args);
  const weft_counts counts = c_counts(args.counts);
  weft_reduce_scatter_v_args c = init(weft_reduce_scatter_v_args_init);
  fill_rows(c, args);
  c.width = args.width;
  c.type = number(args.type);
  c.op = number(args.op);
  c.counts = &counts;
  c.input_rows = args.input_rows;
  c.output_rows = args.output_rows;
  fill_launch(c, args);
  call_c(weft_reduce_scatter_v, handle(group), &c);
}

void __real__ZN4weft12send_receiveERKNS_5GroupERKNS_15SendReceiveArgsE(const Group&, const SendReceiveArgs&);
void __wrap__ZN4weft12send_receiveERKNS_5GroupERKNS_15SendReceiveArgsE(const Group& group,
                                                                       const SendReceiveArgs& args) {
  if (in_c) return __real__ZN4weft12send_receiveERKNS_5GroupERKNS_15SendReceiveArgsE(group, args);
  const auto sends = c_of(weft_outgoing_message_init, args.sends);
  const auto receives = c_of(weft_incoming_message_init, args.receives);
  const bool plain = args.launch.blocks == 0 && args.launch.threads == 0 && args.launch.cluster == 0;
  if (plain && sends.size() == 1 && receives.empty())
    return call_c(weft_send, handle(group), sends.data(), args.stream);
  if (plain && sends.empty() && receives.size() == 1)
    return call_c(weft_receive, handle(group), receives.data(), args.stream);
  weft_send_receive_args c = init(weft_send_receive_args_init);
  c.sends = sends.data();
  c.send_count = sends.size();
  c.receives = receives.data();
  c.receive_count = receives.size();
  fill_launch(c, args);
  call_c(weft_send_receive, handle(group), &c);
}

void __real__ZN4weft6gatherERKNS_5GroupERKNS_10GatherArgsE(const Group&, const GatherArgs&);
void __wrap__ZN4weft6gatherERKNS_5GroupERKNS_10GatherArgsE(const Group& group, const GatherArgs& args) {
  if (in_c) return __real__ZN4weft6gatherERKNS_5GroupERKNS_10GatherArgsE(group, args);
  weft_gather_args c = init(weft_gather_args_init);
  fill_rooted(c, args);
  call_c(weft_gather, handle(group), &c);
}

void __real__ZN4weft7scatterERKNS_5GroupERKNS_11ScatterArgsE(const Group&, const ScatterArgs&);
void __wrap__ZN4weft7scatterERKNS_5GroupERKNS_11ScatterArgsE(const Group& group, const ScatterArgs& args) {
  if (in_c) return __real__ZN4weft7scatterERKNS_5GroupERKNS_11ScatterArgsE(group, args);
  weft_scatter_args c = init(weft_scatter_args_init);
  fill_rooted(c, args);
  call_c(weft_scatter, handle(group), &c);
}

void __real__ZN4weft17all_gather_countsERKNS_5GroupERKNS_19AllGatherCountsArgsE(const Group&,
                                                                                const AllGatherCountsArgs&);
void __wrap__ZN4weft17all_gather_countsERKNS_5GroupERKNS_19AllGatherCountsArgsE(const Group& group,
                                                                                const AllGatherCountsArgs& args) {
  if (in_c) return __real__ZN4weft17all_gather_countsERKNS_5GroupERKNS_19AllGatherCountsArgsE(group, args);
  weft_all_gather_counts_args c = init(weft_all_gather_counts_args_init);
  c.input = args.input;
  c.output = args.output;
  c.host_output = args.host_output;
  c.columns = args.columns;
  c.group_ranks = args.group_ranks;
  c.sharding = number(args.sharding);
  c.split_slots = args.split_slots;
  c.padding = number(args.padding);
  c.slot_rows = args.slot_rows;
  c.stream = args.stream;
  c.tag = args.tag;
  call_c(weft_all_gather_counts, handle(group), &c);
}

void __real__ZN4weft18all_gather_columnsERKNS_5GroupERKNS_20AllGatherColumnsArgsE(const Group&,
                                                                                  const AllGatherColumnsArgs&);
void __wrap__ZN4weft18all_gather_columnsERKNS_5GroupERKNS_20AllGatherColumnsArgsE(const Group& group,
                                                                                  const AllGatherColumnsArgs& args) {
  if (in_c) return __real__ZN4weft18all_gather_columnsERKNS_5GroupERKNS_20AllGatherColumnsArgsE(group, args);
  weft_all_gather_columns_args c = init(weft_all_gather_columns_args_init);
  fill_columns(c, args);
  c.rows = args.rows;
  call_c(weft_all_gather_columns, handle(group), &c);
}

void __real__ZN4weft18all_to_all_columnsERKNS_5GroupERKNS_19AllToAllColumnsArgsE(const Group&,
                                                                                 const AllToAllColumnsArgs&);
void __wrap__ZN4weft18all_to_all_columnsERKNS_5GroupERKNS_19AllToAllColumnsArgsE(const Group& group,
                                                                                 const AllToAllColumnsArgs& args) {
  if (in_c) return __real__ZN4weft18all_to_all_columnsERKNS_5GroupERKNS_19AllToAllColumnsArgsE(group, args);
  const weft_counts counts = c_counts(args.counts);
  weft_all_to_all_columns_args c = init(weft_all_to_all_columns_args_init);
  fill_columns(c, args);
  c.group_ranks = args.group_ranks;
  c.counts = &counts;
  c.input_rows = args.input_rows;
  c.output_rows = args.output_rows;
  call_c(weft_all_to_all_columns, handle(group), &c);
}

void __real__ZN4weft13top_k_columnsERKNS_5GroupERKNS_15TopKColumnsArgsE(const Group&, const TopKColumnsArgs&);
void __wrap__ZN4weft13top_k_columnsERKNS_5GroupERKNS_15TopKColumnsArgsE(const Group& group,
                                                                        const TopKColumnsArgs& args) {
  if (in_c) return __real__ZN4weft13top_k_columnsERKNS_5GroupERKNS_15TopKColumnsArgsE(group, args);
  weft_top_k_columns_args c = init(weft_top_k_columns_args_init);
  c.input = args.input;
  c.values = args.values;
  c.indices = args.indices;
  c.rows = args.rows;
  c.k = args.k;
  c.shard_columns = args.shard_columns;
  c.columns = args.columns;
  c.even_shards = args.even_shards;
  c.input_stride = args.input_stride;
  c.type = number(args.type);
  fill_launch(c, args);
  call_c(weft_top_k_columns, handle(group), &c);
}

void __real__ZN4weft9take_rowsERKNS_5GroupERKNS_12TakeRowsArgsE(const Group&, const TakeRowsArgs&);
void __wrap__ZN4weft9take_rowsERKNS_5GroupERKNS_12TakeRowsArgsE(const Group& group, const TakeRowsArgs& args) {
  if (in_c) return __real__ZN4weft9take_rowsERKNS_5GroupERKNS_12TakeRowsArgsE(group, args);
  const weft_counts counts = c_counts(args.counts);
  weft_take_rows_args c = init(weft_take_rows_args_init);
  fill_rows(c, args);
  c.row_bytes = args.row_bytes;
  c.counts = &counts;
  c.slots = args.slots;
  c.slot = args.slot;
  c.shards = args.shards;
  c.shard = args.shard;
  c.split_slots = args.split_slots;
  c.input_rows = args.input_rows;
  c.output_rows = args.output_rows;
  c.stream = args.stream;
  call_c(weft_take_rows, handle(group), &c);
}

}  // extern "C"
