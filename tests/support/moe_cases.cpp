#include "support/moe_cases.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>

#include "support/bytes.hpp"
#include "support/guarded.hpp"
#include "support/moe_rounds.hpp"

namespace weft::test {
namespace {

std::vector<std::uint32_t> small_numbers(DataType type) {
  std::vector<std::uint32_t> all;
  for (int i = -2000; i <= 2000; ++i) all.push_back(round_to(format_of(type), static_cast<float>(i) * 0.0037f));
  return all;
}

std::span<const std::uint32_t> numbers_for(DataType type, bool special) {
  static const auto bf16 = small_numbers(DataType::bf16), f16 = small_numbers(DataType::f16);
  if (special) return kSpecialBits;
  return type == DataType::f16 ? f16 : bf16;
}

Bytes random_bytes(std::mt19937& random, std::size_t bytes, bool any_bits, DataType type, bool special = false) {
  const std::span<const std::uint32_t> numbers = numbers_for(type, special);
  Bytes data(bytes);
  for (std::size_t i = 0; i < bytes / 2; ++i) {
    const auto some_bits = [&] { return random() % 4 == 0 ? 0xffffu : random() & 0xffffu; };
    put(data, DataType::bf16, i, any_bits ? some_bits() : numbers[random() % numbers.size()]);
  }
  return data;
}

Tokens make_tokens(const MoeCase& c, std::uint32_t rank, std::uint32_t seed) {
  std::mt19937 random(seed * 977 + rank);
  Tokens tokens;
  tokens.count = c.tokens[std::min<std::size_t>(rank, c.tokens.size() - 1)];
  tokens.rows =
      random_bytes(random, tokens.count * oracle::MoeRules(c.args).row_bytes, c.any_bits || c.args.type == RowType::fp8,
                   c.args.type == RowType::f16 ? DataType::f16 : DataType::bf16);
  tokens.scales = random_bytes(random, std::size_t{tokens.count} * c.args.scale_bytes, true, DataType::bf16);
  for (const std::uint32_t bytes : c.args.payload_bytes)
    tokens.payloads.push_back(random_bytes(random, std::size_t{tokens.count} * bytes, true, DataType::bf16));
  // Ids that name no expert, also ids of 64 bits whose lower bits would name one.
  std::vector<std::int64_t> nobody{-1, std::int64_t{c.args.experts} + 5};
  if (c.wide_ids) nobody.insert(nobody.end(), {(std::int64_t{1} << 32) + 1, -(std::int64_t{1} << 32)});
  for (std::uint32_t i = 0; i < tokens.count * c.args.top_k; ++i) {
    std::int64_t id = random() % c.args.experts;
    if (c.choice == Choice::none) id = -1;
    if (c.choice == Choice::one_expert) id = c.args.experts - 1;
    if (c.choice == Choice::duplicates) id = (i / c.args.top_k * 3 + i % 2) % c.args.experts;
    if (c.choice == Choice::holes && random() % 2 == 0) id = nobody[random() % nobody.size()];
    tokens.given.push_back(static_cast<std::int32_t>(id));
    tokens.ids.push_back(c.translate ? c.translate(id, rank, i / c.args.top_k) : id);
    constexpr std::uint32_t weights[] = {0x3f800000, 0xbf000000, 0x80000000, 0,          0x7f800000, 0xff800000,
                                         0x00000001, 0x80400000, 0x7f7fffff, 0x7fc00001, 0x7f800001, 0xffffffff};
    const std::uint32_t any = random();
    tokens.weights.push_back(c.special_results ? std::bit_cast<float>(weights[any % std::size(weights)])
                                               : static_cast<float>(any % 1000) * 0.001f - 0.2f);
  }
  return tokens;
}

}  // namespace

void expect_bytes(std::span<const std::byte> got, std::span<const std::byte> wanted, const std::string& where) {
  const std::size_t at = first_difference(got.first(wanted.size()), wanted);
  if (at == wanted.size()) return;
  throw std::runtime_error(fmt::format("{}: byte {} of {} is {:02x}, not {:02x}", where, at, wanted.size(),
                                       static_cast<int>(got[at]), static_cast<int>(wanted[at])));
}

void expect_bytes_or_canaries(std::span<const std::byte> got, std::span<const std::byte> wanted,
                              const std::string& where) {
  Bytes reached(wanted.begin(), wanted.end());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] == Guarded::kCanary) reached[i] = got[i];
  }
  expect_bytes(got, reached, where);
}

PreparedMoe prepare(const MoeCase& c, std::uint32_t ranks, std::uint32_t seed) {
  PreparedMoe p{
      .call = c,
      .tokens = {},
      .routing = {},
      .rank_of = c.args.rank_of_expert.empty() ? oracle::homes_of(c.args.experts, ranks) : c.args.rank_of_expert,
      .placed = {},
      .outputs = {},
      .residuals = {},
      .results = {}};
  for (std::uint32_t rank = 0; rank < ranks; ++rank) p.tokens.push_back(make_tokens(c, rank, seed));
  p.routing = route(p.tokens, c.args);
  p.placed = oracle::place_rows(c.args, p.rank_of, p.routing, ranks);
  std::mt19937 random(seed);
  for (const ExpertRows& placed : p.placed) {
    p.outputs.emplace_back();
    for (std::size_t place = 0; place < placed.kept; ++place) {
      p.outputs.back().push_back(
          random_bytes(random, c.args.hidden * 2, false, c.args.combine_type, c.special_results));
    }
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::uint32_t count = p.tokens[rank].count;
    p.residuals.push_back(c.residual ? random_bytes(random, std::size_t{count} * c.args.hidden * 2, false,
                                                    c.args.combine_type, c.special_results)
                                     : Bytes{});
    const auto made = [&](std::uint32_t expert, std::size_t place) { return p.outputs[expert][place]; };
    p.results.push_back(
        oracle::combined(c.args, p.rank_of, p.routing, p.placed, made, rank, count, p.residuals.back()));
  }
  return p;
}

std::vector<PreparedMoe> prepare_all(const std::vector<MoeCase>& cases, std::uint32_t ranks) {
  std::vector<PreparedMoe> prepared;
  for (std::uint32_t i = 0; i < cases.size(); ++i) prepared.push_back(prepare(cases[i], ranks, i + 1));
  return prepared;
}

namespace {

std::int32_t* numbers_in(Guarded& memory) {
  return memory.content().empty() ? nullptr : reinterpret_cast<std::int32_t*>(memory.content().data());
}

std::size_t bytes_of(const std::vector<std::int32_t>& numbers) {
  return numbers.size() * sizeof(numbers[0]);
}

// Rows, scales, payloads, ids and weights that would show in an output: tokens of any expert, with weights of NaN.
void put_others_behind(Tokens& tokens, const MoeExchangeArgs& args) {
  const std::size_t entries = std::size_t{args.tokens} * args.top_k;
  for (std::size_t i = tokens.ids.size(); i < entries; ++i) {
    tokens.ids.push_back(static_cast<std::int64_t>(i % args.experts));
    tokens.weights.push_back(std::numeric_limits<float>::quiet_NaN());
  }
  tokens.rows.resize(args.tokens * oracle::MoeRules(args).row_bytes, std::byte{0x3c});
  tokens.scales.resize(std::size_t{args.tokens} * args.scale_bytes, std::byte{0x3c});
  for (std::size_t i = 0; i < tokens.payloads.size(); ++i)
    tokens.payloads[i].resize(std::size_t{args.tokens} * args.payload_bytes[i], std::byte{0x3c});
}

}  // namespace

CpuMoe::CpuMoe(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank)
    : exchange_(exchange),
      p_(&p),
      rank_(rank),
      wanted_(dispatched(exchange, p)),
      results_of_experts_(expert_rows(exchange, p)),
      input_(p.call.args.tokens * oracle::MoeRules(p.call.args).row_bytes, 0),
      output_(wanted_.rows.size(), 0),
      output_scales_(wanted_.scales.size(), 0),
      sources_(wanted_.sources.size(), 0),
      ids_(wanted_.ids.size(), 0),
      weights_(wanted_.weights.size(), 0),
      expert_rows_(results_of_experts_.size(), 0),
      residual_(p.residuals[rank].size(), 0),
      result_(p.results[rank].size(), 0),
      counts_(bytes_of(wanted_.counts), 0),
      offsets_(bytes_of(wanted_.offsets), 0),
      source_tokens_(bytes_of(wanted_.source_tokens), 0),
      rank_prefix_(bytes_of(wanted_.rank_prefix), 0) {
  if (p.call.args.ranks_of_expert.empty()) {
    std::vector<std::uint32_t> own;
    for (std::uint32_t expert = 0; expert < p.rank_of.size(); ++expert) {
      if (p.rank_of[expert] == rank) own.push_back(expert);
    }
    EXPECT_TRUE(std::ranges::equal(exchange.experts(), own)) << "experts of rank " << rank;
  }
  narrow_ids_.resize(std::size_t{p.call.args.tokens} * p.call.args.top_k);
  for (const Bytes& payload : wanted_.payloads) output_payloads_.emplace_back(payload.size(), 4);
  fill();
}

void CpuMoe::fill(const PreparedMoe& p) {
  p_ = &p;
  wanted_ = dispatched(exchange_, p);
  results_of_experts_ = expert_rows(exchange_, p);
  fill();
}

void CpuMoe::fill() {
  forgotten_ = false;
  now_ = p_->tokens[rank_];
  put_others_behind(now_, p_->call.args);
  std::ranges::transform(now_.ids, narrow_ids_.begin(), [](std::int64_t id) { return static_cast<std::int32_t>(id); });
  copy_bytes(now_.rows, input_.content());
  copy_bytes(results_of_experts_, expert_rows_.content());
  copy_bytes(p_->residuals[rank_], residual_.content());
  for (Guarded* memory : {&output_, &output_scales_, &sources_, &ids_, &weights_, &result_, &counts_, &offsets_,
                          &source_tokens_, &rank_prefix_}) {
    fill_bytes(memory->content(), Guarded::kCanary);
  }
  for (Guarded& payload : output_payloads_) fill_bytes(payload.content(), Guarded::kCanary);
}

void CpuMoe::fill_again(const PreparedMoe& p) {
  forgotten_ = false;
  p_ = &p;
  wanted_ = dispatched(exchange_, p);
  now_ = p.tokens[rank_];
  put_others_behind(now_, p.call.args);
  std::ranges::fill(now_.ids, 0);
  std::ranges::fill(narrow_ids_, 0);
  if (!exchange_.args().weights_at_combine) std::ranges::fill(now_.weights, 3.0f);
  copy_bytes(now_.rows, input_.content());
  for (Guarded* memory : {&output_, &output_scales_, &result_}) fill_bytes(memory->content(), Guarded::kCanary);
  for (Guarded& payload : output_payloads_) fill_bytes(payload.content(), Guarded::kCanary);
}

DispatchArgs CpuMoe::dispatch(bool discard) {
  std::array<const void*, kMostPayloads> payloads{};
  std::array<void*, kMostPayloads> output_payloads{};
  for (std::size_t i = 0; i < output_payloads_.size(); ++i) {
    payloads[i] = now_.payloads[i].data();
    output_payloads[i] = output_payloads_[i].content().data();
  }
  return {.input = input_.content().data(),
          .scales = now_.scales.data(),
          .payloads = payloads,
          .topk_ids = p_->call.wide_ids ? static_cast<const void*>(now_.ids.data())
                                        : static_cast<const void*>(narrow_ids_.data()),
          .topk_ids_are_i64 = p_->call.wide_ids,
          .topk_weights = exchange_.args().weights_at_combine ? nullptr : now_.weights.data(),
          .tokens = now_.count,
          .most_tokens = p_->call.most_tokens,
          .output = output_.content().data(),
          .output_scales = output_scales_.content().data(),
          .output_payloads = output_payloads,
          .counts = numbers_in(counts_),
          .offsets = numbers_in(offsets_),
          .output_sources = numbers_in(sources_),
          .rank_prefix = numbers_in(rank_prefix_),
          .source_tokens = numbers_in(source_tokens_),
          .output_ids = numbers_in(ids_),
          .output_weights = reinterpret_cast<float*>(numbers_in(weights_)),
          .discard = discard};
}

CombineArgs CpuMoe::combine(DispatchHandle handle) {
  return {.handle = handle,
          .input = expert_rows_.content().data(),
          .topk_weights = exchange_.args().weights_at_combine ? now_.weights.data() : nullptr,
          .residual = p_->call.residual ? residual_.content().data() : nullptr,
          .output = result_.content().data()};
}

void CpuMoe::forget_tokens() {
  forgotten_ = true;
  fill_bytes(input_.content(), std::byte{0x11});
  fill_bytes(now_.scales, std::byte{0x11});
  for (Bytes& payload : now_.payloads) fill_bytes(payload, std::byte{0x11});
  std::ranges::fill(now_.ids, 0);
  std::ranges::fill(narrow_ids_, 0);
  std::ranges::fill(now_.weights, 3.0f);
}

void CpuMoe::forget_results() {
  fill_bytes(expert_rows_.content(), std::byte{0x11});
}

void CpuMoe::make_results(std::uint32_t end) {
  put_rows_below(exchange_, *p_, end, results_of_experts_, expert_rows_.content());
}

void CpuMoe::check_rows(std::uint32_t end) {
  expect_rows_below(exchange_, *p_, end, output_.content(), wanted_.rows);
  for (std::size_t i = 0; i < output_payloads_.size(); ++i)
    expect_rows_below(exchange_, *p_, end, output_payloads_[i].content(), wanted_.payloads[i]);
}

void CpuMoe::check_guards() {
  for (Guarded* memory : {&output_, &output_scales_, &sources_, &ids_, &weights_, &counts_, &offsets_, &source_tokens_,
                          &rank_prefix_, &input_, &expert_rows_, &residual_}) {
    if (const std::string damage = memory->damage(); !damage.empty()) throw std::runtime_error(damage);
  }
  for (Guarded& payload : output_payloads_) {
    if (const std::string damage = payload.damage(); !damage.empty()) throw std::runtime_error(damage);
  }
  if (!forgotten_) expect_bytes(input_.content(), now_.rows, "rows that were given");
}

void CpuMoe::check_neighbours() {
  check_guards();
  expect_bytes_or_canaries(sources_.content(), wanted_.sources, "sources");
  expect_bytes_or_canaries(output_.content(), wanted_.rows, "rows");
  expect_bytes_or_canaries(output_scales_.content(), wanted_.scales, "scales");
  for (std::size_t i = 0; i < output_payloads_.size(); ++i)
    expect_bytes_or_canaries(output_payloads_[i].content(), wanted_.payloads[i], fmt::format("payload {}", i));
  expect_bytes_or_canaries(counts_.content(), std::as_bytes(std::span(wanted_.counts)), "counts");
  expect_bytes_or_canaries(offsets_.content(), std::as_bytes(std::span(wanted_.offsets)), "offsets");
}

void CpuMoe::check_dispatch() {
  check_guards();
  const auto expect_numbers = [](const char* name, Guarded& memory, const std::vector<std::int32_t>& expected) {
    const std::span<const std::int32_t> got(numbers_in(memory), expected.size());
    if (std::ranges::equal(got, expected)) return;
    throw std::runtime_error(fmt::format("{} are {}, not {}", name, fmt::join(got, " "), fmt::join(expected, " ")));
  };
  expect_numbers("counts", counts_, wanted_.counts);
  expect_numbers("offsets", offsets_, wanted_.offsets);
  expect_numbers("tokens of sources", source_tokens_, wanted_.source_tokens);
  expect_numbers("rows of sources for ranks", rank_prefix_, wanted_.rank_prefix);
  expect_bytes(sources_.content(), wanted_.sources, "sources");
  expect_bytes(ids_.content(), wanted_.ids, "ids");
  expect_bytes(weights_.content(), wanted_.weights, "weights");
  expect_bytes(output_.content(), wanted_.rows, "rows");
  expect_bytes(output_scales_.content(), wanted_.scales, "scales");
  for (std::size_t i = 0; i < output_payloads_.size(); ++i)
    expect_bytes(output_payloads_[i].content(), wanted_.payloads[i], fmt::format("payload {}", i));
}

void CpuMoe::check_combine() {
  expect_bytes(result_.content(), p_->results[rank_], "combined rows");
  if (const std::string damage = result_.damage(); !damage.empty()) throw std::runtime_error(damage);
}

DispatchHandle dispatch_and_check(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank, bool discard) {
  CpuMoe moe(exchange, p, rank);
  const DispatchHandle handle = exchange.dispatch(moe.dispatch(discard));
  moe.check_dispatch();
  return handle;
}

void combine_and_check(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank, DispatchHandle handle) {
  CpuMoe moe(exchange, p, rank);
  exchange.combine(moe.combine(handle));
  moe.check_combine();
}

void exchange_and_check(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank) {
  CpuMoe moe(exchange, p, rank);
  exchange_and_check(exchange, moe);
}

void exchange_and_check(const MoeExchange& exchange, CpuMoe& moe) {
  const DispatchHandle handle = exchange.dispatch(moe.dispatch());
  moe.check_dispatch();
  if (!exchange.args().weights_at_combine) moe.forget_tokens();  // combine reads none of dispatch's inputs
  exchange.combine(moe.combine(handle));
  moe.check_combine();
}

void exchange_by_halves_and_check(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank) {
  CpuMoe moe(exchange, p, rank);
  const DispatchHandle handle = exchange.dispatch_send(moe.dispatch());
  exchange.dispatch_wait(handle, moe.dispatch());
  moe.check_dispatch();
  exchange.combine_send(moe.combine(handle));
  exchange.combine_wait(moe.combine(handle));
  moe.check_combine();
}

}  // namespace weft::test
