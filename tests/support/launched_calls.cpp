#include "support/launched_calls.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace weft::test {
namespace {

constexpr std::size_t kWidth = 128, kRows = 2, kMostRanks = 8;
constexpr std::uint32_t kTokens = 4, kTopK = 2, kExperts = 8;

// Room for any tensor of these calls, with zeros. One for each rank's thread.
struct Rooms {
  alignas(64) std::array<std::byte, std::size_t{64} << 10> input{}, output{}, other{}, residual{};
  std::array<std::int32_t, kMostRanks> counts{};
  std::array<std::int32_t, kExperts> expert_counts{};
  std::array<std::int32_t, kTokens * kTopK> ids{};  // of each expert once
};
Rooms& rooms() {
  thread_local Rooms rooms;
  rooms.counts.fill(kRows);
  std::iota(rooms.ids.begin(), rooms.ids.end(), 0);
  return rooms;
}
std::size_t size_of_group(const Group& group) {
  return static_cast<std::size_t>(group.size());
}

template <class Args>
Args with_tensors(const Launch& launch) {
  Args args{};
  args.input = rooms().input.data();
  args.output = rooms().output.data();
  args.launch = launch;
  return args;
}

LaunchedCall copy(const char* name, auto function, auto tensors) {
  return {name, [=](const Group& group, const MoeExchange&, const Launch& launch) {
            auto args = tensors(launch);
            args.row_bytes = kWidth;
            function(group, args);
          }};
}
template <class Args>
LaunchedCall crossing(const char* name, void (*function)(const Group&, const Args&), bool gathers) {
  return {name, [=](const Group& group, const MoeExchange&, const Launch& launch) {
            auto args = with_tensors<Args>(launch);
            args.counts.rows = rooms().counts.data();
            args.input_rows = gathers ? kRows : kRows * size_of_group(group);
            args.output_rows = gathers ? kRows * size_of_group(group) : kRows;
            if constexpr (requires { args.gamma; }) {
              args.hidden = kWidth;
              args.shard_rows = kRows;
              args.gamma = rooms().other.data();
              args.residual_output = rooms().residual.data();
            } else {
              args.width = kWidth;
            }
            function(group, args);
          }};
}

// `apart`: in halves.
LaunchedCall exchange(const char* name, bool apart) {
  return {name, [apart](const Group&, const MoeExchange& exchange, const Launch& launch) {
            auto dispatch = with_tensors<DispatchArgs>(launch);
            dispatch.topk_ids = rooms().ids.data();
            dispatch.topk_weights = reinterpret_cast<const float*>(rooms().other.data());
            dispatch.tokens = kTokens;
            dispatch.counts = rooms().expert_counts.data();
            auto combine = with_tensors<CombineArgs>(launch);
            if (!apart) {
              combine.handle = exchange.dispatch(dispatch);
              return exchange.combine(combine);
            }
            combine.handle = exchange.dispatch_send(dispatch);
            exchange.dispatch_wait(combine.handle, dispatch);
            exchange.combine_send(combine);
            exchange.combine_wait(combine);
          }};
}

}  // namespace

MoeExchangeArgs exchange_of_launched_calls() {
  return {.tokens = kTokens, .hidden = kWidth, .experts = kExperts, .top_k = kTopK};
}

std::vector<LaunchedCall> calls_with_a_launch() {
  using Exchange = MoeExchange;
  return {
      {"all_reduce",
       [](const Group& group, const Exchange&, const Launch& launch) {
         auto args = with_tensors<AllReduceArgs>(launch);
         args.count = kWidth;
         all_reduce(group, args);
       }},
      {"reduce",
       [](const Group& group, const Exchange&, const Launch& launch) {
         auto args = with_tensors<ReduceArgs>(launch);
         args.count = kWidth;
         reduce(group, args);
       }},
      {"reduce_scatter_tensor",
       [](const Group& group, const Exchange&, const Launch& launch) {
         auto args = with_tensors<ReduceScatterArgs>(launch);
         args.width = kWidth;
         reduce_scatter_tensor(group, args);
       }},
      copy("all_gather_into_tensor", all_gather_into_tensor, with_tensors<AllGatherArgs>),
      copy("all_to_all", all_to_all, with_tensors<AllToAllArgs>),
      copy("broadcast", broadcast, with_tensors<BroadcastArgs>),
      {"all_gather_v",
       [](const Group& group, const Exchange&, const Launch& launch) {
         const GatheredTensor tensor{
             .input = rooms().input.data(), .output = rooms().output.data(), .row_bytes = kWidth};
         all_gather_v(group, {.tensors = {&tensor, 1},
                              .counts = {.rows = rooms().counts.data()},
                              .input_rows = kRows,
                              .output_rows = kRows * size_of_group(group),
                              .launch = launch});
       }},
      {"reduce_scatter_v",
       [](const Group& group, const Exchange&, const Launch& launch) {
         auto args = with_tensors<ReduceScatterVArgs>(launch);
         args.width = kWidth;
         args.counts = {.rows = rooms().counts.data(), .on_host = true};
         args.input_rows = kRows * size_of_group(group);
         args.output_rows = kRows;
         reduce_scatter_v(group, args);
       }},
      crossing("gather_sums", gather_sums, true),
      crossing("scatter_sums", scatter_sums, false),
      crossing("gather_sums_rms_norm", gather_sums_rms_norm, true),
      crossing("scatter_sums_rms_norm", scatter_sums_rms_norm, false),
      {"all_gather_columns",
       [](const Group& group, const Exchange&, const Launch& launch) {
         auto args = with_tensors<AllGatherColumnsArgs>(launch);
         args.rows = kRows;
         args.shard_columns = kWidth;
         args.columns = kWidth * size_of_group(group);
         all_gather_columns(group, args);
       }},
      {"all_to_all_columns",
       [](const Group& group, const Exchange&, const Launch& launch) {
         auto args = with_tensors<AllToAllColumnsArgs>(launch);
         args.shard_columns = kWidth;
         args.columns = kWidth * size_of_group(group);
         args.counts.rows = rooms().counts.data();
         args.input_rows = kRows * size_of_group(group);
         args.output_rows = kRows;
         all_to_all_columns(group, args);
       }},
      {"top_k_columns",
       [](const Group& group, const Exchange&, const Launch& launch) {
         top_k_columns(group, {.input = rooms().input.data(),
                               .values = rooms().output.data(),
                               .indices = reinterpret_cast<std::int32_t*>(rooms().residual.data()),
                               .rows = kRows,
                               .shard_columns = kWidth,
                               .columns = kWidth * size_of_group(group),
                               .launch = launch});
       }},
      {"all_reduce_rms_norm",
       [](const Group& group, const Exchange&, const Launch& launch) {
         auto args = with_tensors<AllReduceRmsNormArgs>(launch);
         args.gamma = rooms().other.data();
         args.residual_output = rooms().residual.data();
         args.tokens = kRows;
         args.hidden = kWidth;
         all_reduce_rms_norm(group, args);
       }},
      {"send_receive",
       [](const Group& group, const Exchange&, const Launch& launch) {
         const Send send{(group.rank() + 1) % group.size(), rooms().input.data(), kWidth};
         const Receive receive{(group.rank() + group.size() - 1) % group.size(), rooms().output.data(), kWidth};
         send_receive(group, {.sends = {&send, 1}, .receives = {&receive, 1}, .launch = launch});
       }},
      {"gather",
       [](const Group& group, const Exchange&, const Launch& launch) {
         auto args = with_tensors<GatherArgs>(launch);
         args.bytes = kWidth;
         gather(group, args);
       }},
      {"scatter",
       [](const Group& group, const Exchange&, const Launch& launch) {
         auto args = with_tensors<ScatterArgs>(launch);
         args.bytes = kWidth;
         scatter(group, args);
       }},
      exchange("dispatch, combine", false),
      exchange("their halves", true),
  };
}

}  // namespace weft::test
