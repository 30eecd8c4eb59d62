#include "bench/moe_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "workloads/moe_reference.hpp"

namespace weft::cli {
namespace {

// A number for all bytes in their order; other bytes have another one except by an accident of 1 in 2^64.
class Digest {
 public:
  template <class T>
  void add(const std::vector<T>& data) {
    const auto bytes = std::as_bytes(std::span(data));
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof(word), bytes.size() - at));
      value_ = (value_ ^ word) * 0x9e3779b97f4a7c15ull;
      value_ ^= value_ >> 32;
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ull;
};

}  // namespace

MoeRank::MoeRank(Ranks& ranks, const Ranks::Seat& seat, const MoeExchangeArgs& args)
    : device_(open_rank_device(ranks, seat)),
      exchange_(MoeExchange::create(seat.communicator(), args)),
      state_(detail::newest_exchange(seat.communicator().world().state().communicator())),
      rank_(static_cast<std::uint32_t>(seat.rank())),
      row_(detail::output_row(args)) {
  const std::size_t places = exchange_.output_rows(), entries = std::size_t{args.tokens} * args.top_k;
  const bool joint = detail::has_joint_rows(args.layout), compact = args.layout == RowLayout::rank_compact;
  const auto ranks_squared =
      static_cast<std::size_t>(ranks.world_size()) * static_cast<std::size_t>(ranks.world_size());
  rows_ = allocate(std::size_t{args.tokens} * args.hidden * 2 + kInputRoom);
  ids_ = allocate(entries * 4);
  weights_ = allocate(entries * 4);
  output_ = allocate(places * row_.bytes);
  scales_ = allocate(places * row_.scale_bytes);
  counts_ = allocate(exchange_.local_experts() * 4);
  offsets_ = allocate(args.layout == RowLayout::expert_contiguous ? (exchange_.local_experts() + 1) * 4 : 0);
  source_tokens_ = allocate(static_cast<std::size_t>(ranks.world_size()) * 4);
  prefix_ = allocate(compact ? ranks_squared * 4 : 0);
  local_ids_ = allocate(joint ? places * args.top_k * 4 : 0);
  local_weights_ = allocate(joint && args.weighted ? places * args.top_k * 4 : 0);
  expert_rows_ = allocate(places * args.hidden * 2 + kInputRoom);
  combined_ = allocate(std::size_t{args.tokens} * args.hidden * 2);
  for (const std::uint32_t bytes : args.payload_bytes) {
    payloads_.push_back(allocate(std::size_t{args.tokens} * bytes + kInputRoom));
    output_payloads_.push_back(allocate(places * bytes));
  }
}

// A tensor that the call does not have is null.
MoeRank::Tensor MoeRank::allocate(std::size_t bytes) {
  return {.data = bytes != 0 ? device_->allocate(bytes) : nullptr, .bytes = bytes};
}

template <class T>
std::vector<T> MoeRank::download(const Tensor& tensor, std::size_t first, std::size_t count) {
  std::vector<T> data(count);
  if (count == 0) return data;
  device_->download(data.data(), static_cast<const std::byte*>(tensor.data) + first * sizeof(T), count * sizeof(T));
  return data;
}

void MoeRank::upload(const MoeTraffic& traffic) {
  const MoeExchangeArgs& args = exchange_.args();
  const RankTokens& mine = traffic.tokens(rank_);
  right_dispatch_.reset();
  right_combine_.reset();
  device_->upload(rows_.data, mine.rows.data(), mine.rows.size() * 2);
  upload_room(static_cast<std::byte*>(rows_.data) + mine.rows.size() * 2);
  for (std::size_t i = 0; i < payloads_.size(); ++i) {
    device_->upload(payloads_[i].data, mine.payloads[i].data(), mine.payloads[i].size());
    upload_room(static_cast<std::byte*>(payloads_[i].data) + mine.payloads[i].size());
  }
  device_->upload(ids_.data, mine.ids.data(), mine.ids.size() * 4);
  device_->upload(weights_.data, mine.weights.data(), mine.weights.size() * 4);
  const auto expert_rows = static_cast<std::byte*>(expert_rows_.data);
  for (const std::uint32_t expert : exchange_.experts()) {
    const oracle::ExpertRows& placed = traffic.placed()[expert];
    for (std::size_t place = 0; place < placed.kept; ++place) {
      const auto [rank, token, weight] = traffic.routing()[expert][place];
      const auto row = detail::has_joint_rows(args.layout) ? joint_row(traffic, exchange_.experts(), rank, token)
                                                           : expert_row(traffic, expert, rank, token);
      device_->upload(expert_rows + placed.row[place] * row.size(), row.data(), row.size());
    }
  }
}

// Fills the room behind an input with numbers that no row has at that place.
void MoeRank::upload_room(std::byte* to) {
  const oracle::Format format = oracle::format_of(oracle::MoeRules(exchange_.args()).row_type);
  std::vector<std::uint16_t> numbers;
  for (std::size_t i = 0; i < kInputRoom / 2; ++i)
    numbers.push_back(
        static_cast<std::uint16_t>(oracle::round_to(format, static_cast<float>((rank_ + i) % 61) / 16.0f)));
  device_->upload(to, numbers.data(), kInputRoom);
}

const void* MoeRank::input(const Tensor& first, int number) {
  return static_cast<const std::byte*>(first.data) + static_cast<std::size_t>(number) * kInputStep;
}

DispatchHandle MoeRank::dispatch(std::uint32_t tokens, const CallArgs& args) {
  DispatchArgs call{.input = input(rows_, args.input),
                    .topk_ids = ids_.data,
                    .topk_weights = static_cast<const float*>(weights_.data),
                    .tokens = tokens,
                    .most_tokens = tokens,
                    .output = output_.data,
                    .output_scales = scales_.data,
                    .counts = static_cast<std::int32_t*>(counts_.data),
                    .offsets = static_cast<std::int32_t*>(offsets_.data),
                    .rank_prefix = static_cast<std::int32_t*>(prefix_.data),
                    .source_tokens = static_cast<std::int32_t*>(source_tokens_.data),
                    .output_ids = static_cast<std::int32_t*>(local_ids_.data),
                    .output_weights = static_cast<float*>(local_weights_.data),
                    .stream = device_->stream(),
                    .discard = true,
                    .launch = args.launch,
                    .rounds = {.count = args.rounds}};
  for (std::size_t i = 0; i < payloads_.size(); ++i) {
    call.payloads[i] = input(payloads_[i], args.input);
    call.output_payloads[i] = output_payloads_[i].data;
  }
  if (!args.apart) return exchange_.dispatch(call);
  const DispatchHandle handle = exchange_.dispatch_send(call);
  for (call.round = 0; call.round < args.rounds; ++call.round) exchange_.dispatch_wait(handle, call);
  return handle;
}

void MoeRank::combine(DispatchHandle handle, const CallArgs& args) {
  const auto* const weights = static_cast<const float*>(weights_.data);
  CombineArgs call{.handle = handle,
                   .input = input(expert_rows_, args.input),
                   .topk_weights = exchange_.args().weights_at_combine ? weights : nullptr,
                   .output = combined_.data,
                   .stream = device_->stream(),
                   .launch = args.launch,
                   .rounds = {.count = args.rounds}};
  if (!args.apart) return exchange_.combine(call);
  for (call.round = 0; call.round < args.rounds; ++call.round) exchange_.combine_send(call);
  exchange_.combine_wait(call);
}

void MoeRank::clear() {
  const auto clear = [&](const Tensor& tensor) {
    if (tensor.bytes != 0) device_->fill(tensor.data, 0xff, tensor.bytes);
  };
  for (const Tensor& tensor :
       {output_, scales_, counts_, offsets_, source_tokens_, prefix_, local_ids_, local_weights_, combined_})
    clear(tensor);
  for (const Tensor& payload : output_payloads_) clear(payload);
}

std::string MoeRank::check_numbers(const MoeTraffic& traffic) {
  std::vector<std::int32_t> wanted;
  for (const std::uint32_t expert : exchange_.experts()) {
    wanted.push_back(static_cast<std::int32_t>(traffic.routing()[expert].size()));
  }
  if (download<std::int32_t>(counts_, 0, wanted.size()) != wanted) return "counts";
  const std::vector<std::int32_t> offsets = traffic.offsets(rank_);
  if (offsets_.bytes != 0 && download<std::int32_t>(offsets_, 0, offsets.size()) != offsets) return "offsets";
  const std::vector<std::int32_t> prefix = traffic.rank_prefix();
  if (prefix_.bytes != 0 && download<std::int32_t>(prefix_, 0, prefix.size()) != prefix) return "rank prefix";
  const std::vector<std::int32_t> sources(source_tokens_.bytes / 4, static_cast<std::int32_t>(traffic.token_count()));
  return download<std::int32_t>(source_tokens_, 0, sources.size()) == sources ? "" : "tokens of sources";
}

// Takes the scales of one row out of all scales.
std::vector<std::uint8_t> MoeRank::scales_of(const std::vector<std::uint8_t>& all, std::size_t row) const {
  std::vector<std::uint8_t> scales;
  for (std::size_t byte = 0; byte < row_.scale_bytes; ++byte) {
    scales.push_back(
        all[oracle::scale_place(exchange_.args(), exchange_.capacity(), exchange_.output_rows(), row, byte)]);
  }
  return scales;
}

// Only rows that have a token, as the masked layout has much room between them.
std::uint64_t MoeRank::digest_dispatch(const MoeTraffic& traffic) {
  Digest digest;
  for (const Tensor& tensor : {scales_, counts_, offsets_, source_tokens_, prefix_, local_ids_, local_weights_})
    digest.add(download<std::uint8_t>(tensor, 0, tensor.bytes));
  for (const std::uint32_t expert : exchange_.experts()) {
    const oracle::ExpertRows& placed = traffic.placed()[expert];
    for (std::size_t place = 0; place < placed.kept; ++place) {
      digest.add(download<std::uint8_t>(output_, placed.row[place] * row_.bytes, row_.bytes));
      for (std::size_t i = 0; i < output_payloads_.size(); ++i) digest.add(payload_of(i, placed.row[place]));
    }
  }
  return digest.value();
}

std::string MoeRank::check_dispatch(const MoeTraffic& traffic) {
  const std::uint64_t digest = digest_dispatch(traffic);
  if (right_dispatch_ == digest) return {};
  std::string wrong = compare_dispatch(traffic);
  if (wrong.empty()) right_dispatch_ = digest;
  return wrong;
}

std::string MoeRank::compare_dispatch(const MoeTraffic& traffic) {
  if (std::string wrong = check_numbers(traffic); !wrong.empty()) return wrong;
  const auto all_scales = download<std::uint8_t>(scales_, 0, scales_.bytes);
  for (const std::uint32_t expert : exchange_.experts()) {
    const oracle::ExpertRows& placed = traffic.placed()[expert];
    for (std::size_t place = 0; place < placed.kept; ++place) {
      const auto [rank, token, weight] = traffic.routing()[expert][place];
      const auto row = download<std::uint8_t>(output_, placed.row[place] * row_.bytes, row_.bytes);
      const auto scales = scales_of(all_scales, placed.row[place]);
      std::string wrong = check_row(traffic, rank, token, row.data(), scales.data());
      if (wrong.empty()) wrong = compare_payloads(traffic, rank, token, placed.row[place]);
      if (wrong.empty() && prefix_.bytes != 0) wrong = compare_ids(traffic, rank, token, placed.row[place], 1);
      if (!wrong.empty()) return fmt::format("expert {}, token {} of rank {}: {}", expert, token, rank, wrong);
    }
  }
  if (local_ids_.bytes == 0 || prefix_.bytes != 0) return {};
  const MoeExchangeArgs& args = exchange_.args();
  for (std::uint32_t rank = 0; rank * args.tokens < exchange_.output_rows(); ++rank) {
    const std::size_t first = std::size_t{rank} * args.tokens;
    if (std::string wrong = compare_ids(traffic, rank, 0, first, traffic.token_count()); !wrong.empty()) return wrong;
  }
  return {};
}

std::vector<std::uint8_t> MoeRank::payload_of(std::size_t number, std::size_t row) {
  const std::size_t bytes = exchange_.args().payload_bytes[number];
  return download<std::uint8_t>(output_payloads_[number], row * bytes, bytes);
}

std::string MoeRank::compare_payloads(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t token,
                                      std::size_t row) {
  std::string wrong;
  for (std::size_t i = 0; wrong.empty() && i < output_payloads_.size(); ++i)
    wrong = check_payload(traffic, rank, token, i, payload_of(i, row).data());
  return wrong;
}

// The ids and weights of `tokens` tokens of a rank from `first` on, whose rows follow each other from `row` on.
std::string MoeRank::compare_ids(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t first, std::size_t row,
                                 std::uint32_t tokens) {
  const std::size_t top_k = exchange_.args().top_k;
  const auto ids = download<std::int32_t>(local_ids_, row * top_k, tokens * top_k);
  const auto weights = download<float>(local_weights_, row * top_k, exchange_.args().weighted ? tokens * top_k : 0);
  for (std::uint32_t i = 0; i < tokens; ++i) {
    const std::string wrong = check_entries(traffic, exchange_.experts(), rank, first + i, ids.data() + i * top_k,
                                            weights.empty() ? nullptr : weights.data() + i * top_k);
    if (!wrong.empty()) return fmt::format("token {} of rank {}: {}", first + i, rank, wrong);
  }
  return {};
}

std::string MoeRank::check_combine(const MoeTraffic& traffic) {
  const std::size_t count = std::size_t{traffic.token_count()} * exchange_.args().hidden;
  const auto rows = download<std::uint16_t>(combined_, 0, count);
  Digest digest;
  digest.add(rows);
  if (right_combine_ == digest.value()) return {};
  std::string wrong = check_combined(traffic, rank_, rows.data());
  if (wrong.empty()) right_combine_ = digest.value();
  return wrong;
}

}  // namespace weft::cli
