// Exchanges: how they are made, and what they say of themselves.
#include "c/moe.hpp"

namespace weft::c {

MoeExchangeArgs definition_of(const weft_moe_exchange_args* given) {
  const weft_moe_exchange_args full = whole(given);
  MoeExchangeArgs args = cpp_of(full);
  const auto homes = span_at("rank_of_expert", full.rank_of_expert, full.rank_of_expert_count);
  args.rank_of_expert.assign(homes.begin(), homes.end());
  for (const weft_expert_ranks& of : span_at("ranks_of_expert", full.ranks_of_expert, full.ranks_of_expert_count)) {
    const auto ranks = span_at("ranks_of_expert[].ranks", of.ranks, of.count);
    args.ranks_of_expert.emplace_back(ranks.begin(), ranks.end());
  }
  const auto experts = span_at("experts_of_rank", full.experts_of_rank, full.experts_of_rank_count);
  args.experts_of_rank.assign(experts.begin(), experts.end());
  const auto payloads = span_at("payload_bytes", full.payload_bytes, full.payload_bytes_count);
  args.payload_bytes.assign(payloads.begin(), payloads.end());
  return args;
}

namespace {

const MoeExchange& exchange_at(const weft_exchange* exchange) {
  return at("exchange", exchange).exchange;
}

}  // namespace
}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_moe_exchange_args_init(weft_moe_exchange_args* args, size_t size) {
  return init(args, size);
}

weft_code weft_moe_exchange_memory_of(int ranks, const weft_moe_exchange_args* args, weft_moe_exchange_memory* memory) {
  return guarded([&] {
    const weft::MoeExchangeMemory bytes = weft::moe_exchange_memory(ranks, definition_of(args));
    give<weft_moe_exchange_memory>("memory", memory,
                                   {.size = sizeof *memory,
                                    .dispatch = bytes.dispatch,
                                    .combine = bytes.combine,
                                    .tables = bytes.tables,
                                    .window = bytes.window,
                                    .output = bytes.output,
                                    .ring_rows = bytes.ring_rows,
                                    .half_tokens = bytes.half_tokens});
  });
}

weft_code weft_exchange_create(const weft_group* group, const weft_moe_exchange_args* args, weft_exchange** exchange) {
  return guarded([&] {
    weft_exchange*& place = at("exchange", exchange);
    std::unique_ptr<weft_exchange> made(
        new weft_exchange{weft::MoeExchange::create(at("group", group).group, definition_of(args)), {}});
    for (const std::vector<std::uint32_t>& ranks : made->exchange.args().ranks_of_expert)
      made->ranks_of_expert.push_back({ranks.data(), ranks.size()});
    place = made.release();
  });
}

weft_code weft_exchange_free(weft_exchange* exchange) {
  return guarded([&] { at("exchange", exchange).exchange.free(); });
}

void weft_exchange_destroy(weft_exchange* exchange) {
  delete exchange;
}

weft_code weft_exchange_args(const weft_exchange* exchange, weft_moe_exchange_args* args) {
  return guarded([&] {
    weft_moe_exchange_args full = {};
    const weft::MoeExchangeArgs& of = exchange_at(exchange).args();
    Mirror<weft_moe_exchange_args>::fields(full, of, ToC());
    full.rank_of_expert = of.rank_of_expert.data();
    full.rank_of_expert_count = of.rank_of_expert.size();
    full.ranks_of_expert = exchange->ranks_of_expert.data();
    full.ranks_of_expert_count = exchange->ranks_of_expert.size();
    full.experts_of_rank = of.experts_of_rank.data();
    full.experts_of_rank_count = of.experts_of_rank.size();
    full.payload_bytes = of.payload_bytes.data();
    full.payload_bytes_count = of.payload_bytes.size();
    give("args", args, full);
  });
}

weft_code weft_exchange_local_experts(const weft_exchange* exchange, uint32_t* count) {
  return guarded([&] { at("count", count) = exchange_at(exchange).local_experts(); });
}

weft_code weft_exchange_set_experts(weft_exchange* exchange, const int32_t* experts_of_rank, size_t count,
                                    uint32_t first_map, weft_stream stream) {
  return guarded([&] {
    at("exchange", exchange)
        .exchange.set_experts(span_at("experts_of_rank", experts_of_rank, count), first_map, stream);
  });
}

weft_code weft_exchange_experts(const weft_exchange* exchange, const uint32_t** experts) {
  return guarded([&] { at("experts", experts) = exchange_at(exchange).experts().data(); });
}

weft_code weft_exchange_capacity(const weft_exchange* exchange, uint32_t* rows) {
  return guarded([&] { at("rows", rows) = exchange_at(exchange).capacity(); });
}

weft_code weft_exchange_output_rows(const weft_exchange* exchange, size_t* rows) {
  return guarded([&] { at("rows", rows) = exchange_at(exchange).output_rows(); });
}

}  // extern "C"
