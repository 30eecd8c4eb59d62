#include "bench/every_operation.hpp"

#include <array>

#include "weft/collectives.hpp"
#include "weft/columns.hpp"
#include "weft/counts.hpp"
#include "weft/crossings.hpp"
#include "weft/fused.hpp"
#include "weft/messages.hpp"
#include "weft/take.hpp"
#include "weft/top_k.hpp"

namespace weft::cli {
namespace {

constexpr std::size_t kRows = 2, kHidden = 64, kElement = 2, kRowBytes = kHidden * kElement;
constexpr std::uint32_t kTopK = 2;

MoeExchangeArgs exchange_of(std::size_t ranks) {
  return {.tokens = kRows,
          .hidden = kHidden,
          .experts = static_cast<std::uint32_t>(2 * ranks),
          .top_k = kTopK,
          .weighted = false};
}

}  // namespace

EveryOperation::EveryOperation(const Communicator& communicator, RankDevice& device)
    : communicator_(communicator),
      device_(device),
      ranks_(static_cast<std::size_t>(communicator.size())),
      exchange_(MoeExchange::create(communicator, exchange_of(ranks_))) {
  add_sums();
  add_copies();
  add_messages();
  add_ragged();
  add_exchange();
}

void* EveryOperation::filled(std::size_t bytes) {
  void* const memory = device_.allocate(bytes);
  device_.fill(memory, 0, bytes);
  return memory;
}

std::int32_t* EveryOperation::numbers(const std::vector<std::int32_t>& values) {
  const std::size_t bytes = values.size() * sizeof(std::int32_t);
  void* const memory = device_.allocate(bytes);
  device_.upload(memory, values.data(), bytes);
  return static_cast<std::int32_t*>(memory);
}

void EveryOperation::add_sums() {
  void *const input = filled(kRows * kRowBytes), *const output = filled(kRows * kRowBytes);
  void *const residual = filled(kRows * kRowBytes), *const gamma = filled(kRowBytes);
  calls_.push_back(
      {"all_reduce", [=, this](std::uint32_t tag) {
         all_reduce(
             communicator_,
             {.input = input, .output = output, .count = kRows * kHidden, .stream = device_.stream(), .tag = tag});
       }});
  calls_.push_back(
      {"reduce", [=, this](std::uint32_t tag) {
         reduce(communicator_,
                {.input = input, .output = output, .count = kRows * kHidden, .stream = device_.stream(), .tag = tag});
       }});
  calls_.push_back({"all_reduce_rms_norm", [=, this](std::uint32_t tag) {
                      all_reduce_rms_norm(communicator_, {.input = input,
                                                          .residual = residual,
                                                          .residual_output = residual,
                                                          .gamma = gamma,
                                                          .output = output,
                                                          .tokens = kRows,
                                                          .hidden = kHidden,
                                                          .stream = device_.stream(),
                                                          .tag = tag});
                    }});
}

void EveryOperation::add_copies() {
  void *const mine = filled(kRows * kRowBytes), *const all = filled(ranks_ * kRows * kRowBytes);
  void* const other = filled(ranks_ * kRows * kRowBytes);
  calls_.push_back(
      {"barrier", [this](std::uint32_t tag) { barrier(communicator_, {.stream = device_.stream(), .tag = tag}); }});
  calls_.push_back({"all_gather_into_tensor", [=, this](std::uint32_t tag) {
                      all_gather_into_tensor(communicator_, {.input = mine,
                                                             .output = all,
                                                             .rows = kRows,
                                                             .row_bytes = kRowBytes,
                                                             .stream = device_.stream(),
                                                             .tag = tag});
                    }});
  calls_.push_back({"all_gather_columns", [=, this](std::uint32_t tag) {
                      all_gather_columns(communicator_, {.input = mine,
                                                         .output = all,
                                                         .rows = kRows,
                                                         .shard_columns = kHidden,
                                                         .stream = device_.stream(),
                                                         .tag = tag});
                    }});
  auto* const indices = static_cast<std::int32_t*>(filled(kRows * sizeof(std::int32_t)));
  calls_.push_back({"top_k_columns", [=, this](std::uint32_t tag) {
                      top_k_columns(communicator_, {.input = mine,
                                                    .indices = indices,
                                                    .rows = kRows,
                                                    .shard_columns = kHidden,
                                                    .stream = device_.stream(),
                                                    .tag = tag});
                    }});
  calls_.push_back({"all_to_all", [=, this](std::uint32_t tag) {
                      all_to_all(communicator_, {.input = all,
                                                 .output = other,
                                                 .rows = kRows,
                                                 .row_bytes = kRowBytes,
                                                 .stream = device_.stream(),
                                                 .tag = tag});
                    }});
  calls_.push_back({"broadcast", [=, this](std::uint32_t tag) {
                      broadcast(communicator_, {.input = mine,
                                                .output = all,
                                                .rows = kRows,
                                                .row_bytes = kRowBytes,
                                                .stream = device_.stream(),
                                                .tag = tag});
                    }});
  calls_.push_back(
      {"reduce_scatter_tensor", [=, this](std::uint32_t tag) {
         reduce_scatter_tensor(
             communicator_,
             {.input = all, .output = mine, .rows = kRows, .width = kHidden, .stream = device_.stream(), .tag = tag});
       }});
}

// To the next rank and from the one before; and all to the first one, and back.
void EveryOperation::add_messages() {
  void *const sent = filled(kRowBytes), *const received = filled(kRowBytes), *const all = filled(ranks_ * kRowBytes);
  const int rank = communicator_.rank(), size = communicator_.size();
  calls_.push_back(
      {"send_receive", [=, this](std::uint32_t tag) {
         const Send to{.peer = (rank + 1) % size, .data = sent, .bytes = kRowBytes, .tag = tag};
         const Receive from{.peer = (rank + size - 1) % size, .data = received, .bytes = kRowBytes, .tag = tag};
         send_receive(communicator_, {.sends = {&to, 1}, .receives = {&from, 1}, .stream = device_.stream()});
       }});
  calls_.push_back({"gather", [=, this](std::uint32_t tag) {
                      gather(
                          communicator_,
                          {.input = sent, .output = all, .bytes = kRowBytes, .stream = device_.stream(), .tag = tag});
                    }});
  calls_.push_back(
      {"scatter", [=, this](std::uint32_t tag) {
         scatter(communicator_,
                 {.input = all, .output = received, .bytes = kRowBytes, .stream = device_.stream(), .tag = tag});
       }});
}

void EveryOperation::add_ragged() {
  const Counts counts{.rows = numbers(std::vector<std::int32_t>(ranks_, kRows))};
  void *const mine = filled(kRows * kRowBytes), *const all = filled(ranks_ * kRows * kRowBytes);
  std::int32_t* const told = numbers({static_cast<std::int32_t>(kRows)});
  const std::size_t words = GatheredCounts{.ranks = ranks_}.words();
  std::int32_t* const gathered = numbers(std::vector<std::int32_t>(words));
  void* const other = filled(ranks_ * kRows * kRowBytes);
  const std::size_t rank = static_cast<std::size_t>(communicator_.rank()), whole = ranks_ * kRows;
  calls_.push_back({"all_gather_v", [=, this](std::uint32_t tag) {
                      const GatheredTensor tensor{.input = mine, .output = all, .row_bytes = kRowBytes};
                      all_gather_v(communicator_, {.tensors = {&tensor, 1},
                                                   .counts = counts,
                                                   .input_rows = kRows,
                                                   .output_rows = whole,
                                                   .stream = device_.stream(),
                                                   .tag = tag});
                    }});
  calls_.push_back({"reduce_scatter_v", [=, this](std::uint32_t tag) {
                      reduce_scatter_v(communicator_, {.input = all,
                                                       .output = mine,
                                                       .width = kHidden,
                                                       .counts = counts,
                                                       .input_rows = whole,
                                                       .output_rows = kRows,
                                                       .stream = device_.stream(),
                                                       .tag = tag});
                    }});
  const auto add_crossing = [&](const char* name, void (*cross)(const Group&, const CrossingArgs&)) {
    calls_.push_back({name, [=, this](std::uint32_t tag) {
                        cross(communicator_, {.input = all,
                                              .output = other,
                                              .width = kHidden,
                                              .group_ranks = ranks_,
                                              .counts = counts,
                                              .input_rows = whole,
                                              .output_rows = whole,
                                              .stream = device_.stream(),
                                              .tag = tag});
                      }});
  };
  add_crossing("gather_sums", gather_sums);
  add_crossing("scatter_sums", scatter_sums);
  void *const residual = filled(kRows * kRowBytes), *const gamma = filled(kRowBytes);
  const auto add_normed = [&](const char* name, void (*cross)(const Group&, const CrossingRmsNormArgs&)) {
    calls_.push_back({name, [=, this](std::uint32_t tag) {
                        cross(communicator_, {.input = all,
                                              .residual = residual,
                                              .residual_output = residual,
                                              .gamma = gamma,
                                              .output = other,
                                              .hidden = kHidden,
                                              .group_ranks = ranks_,
                                              .counts = counts,
                                              .input_rows = whole,
                                              .shard_rows = kRows,
                                              .output_rows = whole,
                                              .stream = device_.stream(),
                                              .tag = tag});
                      }});
  };
  add_normed("gather_sums_rms_norm", gather_sums_rms_norm);
  add_normed("scatter_sums_rms_norm", scatter_sums_rms_norm);
  calls_.push_back({"all_to_all_columns", [=, this](std::uint32_t tag) {
                      all_to_all_columns(communicator_, {.input = all,
                                                         .output = other,
                                                         .shard_columns = kHidden / ranks_,
                                                         .counts = counts,
                                                         .input_rows = whole,
                                                         .output_rows = kRows,
                                                         .stream = device_.stream(),
                                                         .tag = tag});
                    }});
  calls_.push_back(
      {"all_gather_counts", [=, this](std::uint32_t tag) {
         all_gather_counts(
             communicator_,
             {.input = told, .output = gathered, .sharding = Sharding::none, .stream = device_.stream(), .tag = tag});
       }});
  calls_.push_back({"take_rows", [=, this](std::uint32_t) {
                      take_rows(communicator_, {.input = all,
                                                .output = mine,
                                                .row_bytes = kRowBytes,
                                                .counts = counts,
                                                .slots = ranks_,
                                                .slot = rank,
                                                .input_rows = whole,
                                                .output_rows = kRows,
                                                .stream = device_.stream()});
                    }});
}

void EveryOperation::add_exchange() {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < kRows * kTopK; ++i) ids.push_back(static_cast<std::int32_t>(i % (2 * ranks_)));
  const DispatchArgs args{.input = filled(kRows * kRowBytes),
                          .topk_ids = numbers(ids),
                          .tokens = kRows,
                          .output = filled(exchange_.output_rows() * kRowBytes),
                          .counts = numbers(std::vector<std::int32_t>(exchange_.local_experts())),
                          .stream = device_.stream(),
                          .discard = true};  // so that it can be repeated without its combine
  void* const output = filled(kRows * kRowBytes);
  const auto with_tag = [](DispatchArgs tagged, std::uint32_t tag) {
    tagged.tag = tag;
    return tagged;
  };
  const auto combine_args = [=, this](std::uint32_t tag) {
    return CombineArgs{
        .handle = handle_, .input = args.output, .output = output, .stream = device_.stream(), .tag = tag};
  };
  calls_.push_back({"dispatch", [=, this](std::uint32_t tag) { handle_ = exchange_.dispatch(with_tag(args, tag)); }});
  calls_.push_back({"combine", [=, this](std::uint32_t tag) { exchange_.combine(combine_args(tag)); }});
  calls_.push_back({"dispatch in halves", [=, this](std::uint32_t tag) {
                      const DispatchArgs tagged = with_tag(args, tag);
                      handle_ = exchange_.dispatch_send(tagged);
                      exchange_.dispatch_wait(handle_, tagged);
                    }});
  calls_.push_back({"combine in halves", [=, this](std::uint32_t tag) {
                      exchange_.combine_send(combine_args(tag));
                      exchange_.combine_wait(combine_args(tag));
                    }});
}

}  // namespace weft::cli
