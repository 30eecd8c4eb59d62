#include "support/moe_batches.hpp"

#include <tuple>

namespace weft::test {

ExchangeArgs small_exchange() {
  return {.tokens = 6, .hidden = 256, .experts = 8, .top_k = 3};
}

std::vector<Batch> every_kind_of_routing(std::uint32_t ranks) {
  ExchangeArgs args = small_exchange();
  args.capacity = ranks * args.tokens * args.top_k;  // a token may name an expert several times
  Batch batch;
  for (const Choice choice : {Choice::uniform, Choice::none, Choice::one_expert, Choice::duplicates, Choice::holes}) {
    batch.push_back({.args = args, .tokens = {6}, .choice = choice, .residual = choice == Choice::holes});
    batch.push_back({.args = args, .tokens = {0, 6, 1, 3}, .choice = choice, .wide_ids = true});
  }
  batch.push_back({.args = args, .tokens = {0}});
  return {batch};
}

std::vector<Batch> rows_of_every_type(std::uint32_t ranks) {
  std::vector<Batch> batches;
  for (const auto& [type, hidden, scale_bytes] : {std::tuple{RowType::bf16, 8u, 0u},
                                                  {RowType::f16, 2056u, 0u},
                                                  {RowType::fp8, 16u, 4u},
                                                  {RowType::fp8, 4096u, 128u}}) {
    ExchangeArgs args = small_exchange();
    args.type = type;
    args.hidden = hidden;
    args.scale_bytes = scale_bytes;
    args.combine_type = type == RowType::f16 ? DataType::f16 : DataType::bf16;
    args.capacity = ranks * args.tokens * args.top_k;
    batches.push_back({{.args = args, .tokens = {6, 2}, .any_bits = true}});
  }
  return batches;
}

std::vector<Batch> casts_on_the_way(std::uint32_t ranks) {
  std::vector<Batch> batches;
  for (const RowType type : {RowType::bf16, RowType::f16}) {
    for (const RowCast cast : {RowCast::fp8, RowCast::fp8_ue8m0}) {
      ExchangeArgs args = small_exchange();
      args.type = type;
      args.cast = cast;
      args.hidden = 640;
      args.capacity = ranks * args.tokens * args.top_k;
      batches.push_back({{.args = args, .tokens = {5, 6}}, {.args = args, .tokens = {5, 6}, .any_bits = true}});
    }
  }
  return batches;
}

std::vector<Batch> experts_where_the_caller_wants(std::uint32_t ranks) {
  ExchangeArgs args = small_exchange();
  args.experts = 7;  // as even as can be
  std::vector<Batch> batches{{{.args = args, .tokens = {6, 4}}}};
  for (std::uint32_t expert = 0; expert < args.experts; ++expert) {
    args.rank_of_expert.push_back(expert % 3 == 0 ? ranks - 1 : expert % ranks / 2);  // some ranks have none
  }
  batches.push_back({{.args = args, .tokens = {6, 4}}});
  return batches;
}

std::vector<Batch> rows_without_room() {
  ExchangeArgs args = small_exchange();
  args.capacity = 2;
  args.overflow = Overflow::drop;
  const auto batch = [](const ExchangeArgs& of) -> Batch {
    return {{.args = of, .tokens = {6}},
            {.args = of, .tokens = {6, 0, 3}, .choice = Choice::one_expert},
            {.args = of, .tokens = {1}}};
  };
  ExchangeArgs contiguous = args;
  contiguous.layout = RowLayout::expert_contiguous;
  contiguous.alignment = 3;  // what comes last has no room, wherever in an expert that is
  contiguous.capacity = 7;
  return {batch(args), batch(contiguous)};
}

std::vector<Batch> sums_without_weights(std::uint32_t ranks) {
  ExchangeArgs args = small_exchange();
  args.weighted = false;
  args.generations = 3;
  args.capacity = ranks * args.tokens * args.top_k;
  return {{{.args = args, .tokens = {6, 4}},
           {.args = args, .tokens = {0, 6, 1}, .choice = Choice::duplicates, .residual = true},
           {.args = args, .tokens = {5}, .choice = Choice::holes}}};
}

std::vector<Batch> in_every_layout(const std::vector<Batch>& batches, std::uint32_t ranks) {
  std::vector<Batch> all = batches;
  for (const RowLayout layout : {RowLayout::expert_contiguous, RowLayout::rank_major}) {
    for (Batch batch : batches) {
      for (MoeCase& c : batch) {
        const bool contiguous = layout == RowLayout::expert_contiguous;
        c.args.layout = layout;
        c.args.alignment = contiguous ? 4 : 1;
        c.args.capacity = contiguous ? ranks * c.args.tokens * c.args.top_k + c.args.experts * 3 : 0;
      }
      all.push_back(std::move(batch));
    }
  }
  return all;
}

}  // namespace weft::test
