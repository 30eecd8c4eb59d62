// One rank's exchange and its tensors: makes calls on them and checks their outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/rank_device.hpp"
#include "ops/moe/exchange_state.hpp"
#include "weft/moe.hpp"
#include "workloads/moe_traffic.hpp"

namespace weft::cli {

class MoeRank {
 public:
  MoeRank(Ranks& ranks, const Ranks::Seat& seat, const MoeExchangeArgs& args);

  RankDevice& device() { return *device_; }
  // Uploads the inputs of dispatch and combine.
  void upload(const MoeTraffic& traffic);
  // `apart`: sends and waits are calls of their own, one for each of the `rounds`. `input`: the input that a call reads
  // (Timing). The first one is the traffic's.
  struct CallArgs {
    Launch launch = {};
    bool apart = false;
    std::uint32_t rounds = 1;
    int input = 0;
  };
  DispatchHandle dispatch(std::uint32_t tokens, const CallArgs& args);
  void combine(DispatchHandle handle, const CallArgs& args);
  // For `weft tune`: calls without a launch of their own go as this step says.
  void try_step(const detail::ExchangeStep& step) { state_.try_step(step); }
  // Enqueues the overwriting of every output of both calls.
  void clear();
  // The first thing that is wrong, or an empty string. The reference takes a minute for many tokens. So outputs whose
  // bits were right in an earlier call since upload() are right again.
  std::string check_dispatch(const MoeTraffic& traffic);
  std::string check_combine(const MoeTraffic& traffic);

 private:
  struct Tensor {
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  Tensor allocate(std::size_t bytes);
  void upload_room(std::byte* to);
  static const void* input(const Tensor& first, int number);
  template <class T>
  std::vector<T> download(const Tensor& tensor, std::size_t first, std::size_t count);
  std::vector<std::uint8_t> payload_of(std::size_t number, std::size_t row);
  std::uint64_t digest_dispatch(const MoeTraffic& traffic);
  std::string compare_dispatch(const MoeTraffic& traffic);
  std::string compare_ids(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t first, std::size_t row,
                          std::uint32_t tokens);
  std::string compare_payloads(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t token, std::size_t row);
  std::string check_numbers(const MoeTraffic& traffic);
  std::vector<std::uint8_t> scales_of(const std::vector<std::uint8_t>& all, std::size_t row) const;

  std::unique_ptr<RankDevice> device_;
  MoeExchange exchange_;
  detail::ExchangeState& state_;  // of the exchange
  std::uint32_t rank_;
  detail::OutputRow row_;
  Tensor rows_, ids_, weights_, output_, scales_, counts_, offsets_, source_tokens_, prefix_, local_ids_,
      local_weights_, expert_rows_, combined_;
  std::vector<Tensor> payloads_, output_payloads_;
  std::optional<std::uint64_t> right_dispatch_, right_combine_;  // digests of outputs that were right
};

}  // namespace weft::cli
