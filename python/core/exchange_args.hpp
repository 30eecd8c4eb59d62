// Arguments of an exchange's calls, made from tensors and checked, for both doors (operations.hpp).
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "tensor.hpp"
#include "weft/weft.hpp"

namespace weft::python {

// Types and lengths that the tensors of an exchange's calls must have.
class ExchangeShapes {
 public:
  ExchangeShapes(const MoeExchange& exchange, const Group& group)
      : args(exchange.args()),
        rows(exchange.output_rows()),
        local_experts(exchange.local_experts()),
        ranks(static_cast<std::size_t>(group.size())) {}

  // Rows of the exchange's type, or fp8 if they were cast.
  Expected exchanged(std::size_t rows_of_all, bool cast) const;
  Expected combined(std::size_t rows_of_all) const;
  std::size_t scale_bytes() const;  // of dispatch's output

  const MoeExchangeArgs& args;
  std::size_t rows, local_experts, ranks;
};

// Bytes of the scales of rows that are cast.
std::size_t cast_scale_bytes(std::size_t rows, std::size_t columns, RowCast cast, ScaleOrder order);

// One for each of the exchange's, or none.
using PayloadTensors = std::vector<const Tensor*>;

// Null: the call has none.
struct DispatchInputs {
  const Tensor *input, *topk_ids, *topk_weights, *scales, *rank_mask = nullptr, *mask_ids = nullptr;
  PayloadTensors payloads = {};
};
// If the dispatch is made again, `args.again` says so already: then the numbers of tokens are those of its handle.
void set_inputs(DispatchArgs& args, const ExchangeShapes& shapes, const DispatchInputs& given);

// The outputs of dispatch beside its rows.
inline constexpr std::string_view kDispatchOutputs[] = {
    "output_scales",  "counts",      "offsets",    "output_sources", "source_tokens",
    "source_wait_ns", "host_counts", "output_ids", "output_weights", "rank_prefix"};
inline constexpr std::string_view kHostCounts = "host_counts";  // in memory of the host
void set_output(DispatchArgs& args, const ExchangeShapes& shapes, const Tensor& output);
void set_output(DispatchArgs& args, const ExchangeShapes& shapes, std::string_view name, const Tensor& given);
void set_output_payloads(DispatchArgs& args, const ExchangeShapes& shapes, const PayloadTensors& given);

// Rounds as callers give them: their number, or each one's experts. One number stands for itself.
class GivenRounds {
 public:
  explicit GivenRounds(std::vector<std::uint32_t> given) : given_(std::move(given)) {}
  ExpertRounds rounds() const {
    if (given_.empty()) return {.count = 0};
    if (given_.size() == 1) return {.count = given_[0]};
    return {.count = static_cast<std::uint32_t>(given_.size()), .experts = given_.data()};
  }

 private:
  std::vector<std::uint32_t> given_;
};

// The same of an object of Python.
GivenRounds given_rounds(nb::handle given);

struct CombineTensors {
  const Tensor *output, *input, *topk_weights, *residual, *source_wait_ns;
};
CombineArgs combine_args(const ExchangeShapes& shapes, const DispatchHandle& handle, const CombineTensors& given);

}  // namespace weft::python
