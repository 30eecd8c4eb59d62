// torch's operators of an exchange. A handle is a tensor of four i64 in the CPU's memory: operators return no objects,
// and a compiled graph orders a combine behind its dispatch by it.
#include <algorithm>
#include <utility>

#include "exchange_args.hpp"
#include "torch_call.hpp"
#include "torch_module.hpp"

namespace weft::python::torch {

namespace {

constexpr std::size_t kHandleWords = 4;

std::int64_t* handle_words(const Tensor& tensor) {
  if (tensor.on_gpu()) reject("handle: on cuda; it must be in the CPU's memory");
  check_dense("handle", tensor, {kHandleWords, "i64"});
  return reinterpret_cast<std::int64_t*>(tensor.data);
}

void write_handle(const Tensor& tensor, const DispatchHandle& handle) {
  // Both numbers of tokens are small.
  const std::int64_t words[kHandleWords] = {handle.slot, static_cast<std::int64_t>(handle.exchange),
                                            static_cast<std::int64_t>(handle.number),
                                            std::int64_t{handle.most_tokens} << 32 | handle.tokens};
  std::ranges::copy(words, handle_words(tensor));
}

DispatchHandle read_handle(const Tensor& tensor) {
  const std::int64_t* const words = handle_words(tensor);
  return {.slot = static_cast<std::uint32_t>(words[0]),
          .exchange = static_cast<std::uint64_t>(words[1]),
          .number = static_cast<std::uint64_t>(words[2]),
          .tokens = static_cast<std::uint32_t>(words[3]),
          .most_tokens = static_cast<std::uint32_t>(words[3] >> 32)};
}

// A number below 0 is one that no call has.
std::uint32_t positive(std::int64_t number) {
  return std::in_range<std::uint32_t>(number) ? static_cast<std::uint32_t>(number) : ~0u;
}
std::uint32_t given_number(Stack& stack) {
  return positive(stack.integer());
}
GivenRounds given_rounds(const std::vector<std::int64_t>& numbers) {
  std::vector<std::uint32_t> rounds;
  for (const std::int64_t number : numbers) rounds.push_back(positive(number));
  return GivenRounds(std::move(rounds));
}

// The tensors of a dispatch, in the schema's order.
struct DispatchTensors {
  std::optional<Tensor> handle, input, topk_ids, topk_weights, scales, rank_mask, mask_ids, again, output;
  std::optional<Tensor> others[std::size(kDispatchOutputs)];
  std::vector<Tensor> payloads, output_payloads;
};

PayloadTensors checked_payloads(const Group& group, const std::vector<Tensor>& given) {
  PayloadTensors all;
  for (const Tensor& tensor : given) {
    check_device(group, tensor);
    all.push_back(&tensor);
  }
  return all;
}

// Sends take the first tensors, waits take the handle and the outputs, and joined calls take all of them.
enum class Half { joined, send, wait };

template <Half half>
void dispatch(Stack& stack) {
  DispatchTensors tensors;
  tensors.handle = stack.tensor();
  if constexpr (half != Half::wait) {
    tensors.input = stack.tensor();
    tensors.topk_ids = stack.optional();
    tensors.topk_weights = stack.optional();
    tensors.scales = stack.optional();
    tensors.rank_mask = stack.optional();
    tensors.mask_ids = stack.optional();
    tensors.again = stack.optional();
    tensors.payloads = stack.tensors();
  }
  if constexpr (half != Half::send) {
    tensors.output = stack.tensor();
    for (std::optional<Tensor>& other : tensors.others) other = stack.optional();
    tensors.output_payloads = stack.tensors();
  }
  std::vector<std::int64_t> division;
  if constexpr (half != Half::wait) division = stack.integers();
  const NumberedExchange of = stack.exchange();
  GivenRounds rounds({1});
  make(
      of.group,
      [&] {
        const ExchangeShapes shapes(of.exchange, of.group);
        DispatchArgs args;
        set_options(args, stack);
        if constexpr (half != Half::wait) {
          args.discard = stack.flag();
          rounds = given_rounds(division);
          args.rounds = rounds.rounds();
          args.most_tokens = given_number(stack);
          args.map = given_number(stack);
          if (tensors.again) args.again = read_handle(*tensors.again);
        } else {
          args.round = given_number(stack);
          args.tokens = read_handle(*tensors.handle).tokens;
        }
        if constexpr (half != Half::wait) {
          for (const auto* tensor : {&tensors.input, &tensors.topk_ids, &tensors.topk_weights, &tensors.scales,
                                     &tensors.rank_mask, &tensors.mask_ids})
            if (*tensor) check_device(of.group, **tensor);
          set_inputs(args, shapes,
                     {address(tensors.input), address(tensors.topk_ids), address(tensors.topk_weights),
                      address(tensors.scales), address(tensors.rank_mask), address(tensors.mask_ids),
                      checked_payloads(of.group, tensors.payloads)});
          static_cast<void>(handle_words(*tensors.handle));
        }
        if constexpr (half != Half::send) {
          check_device(of.group, *tensors.output);
          set_output(args, shapes, *tensors.output);
          set_output_payloads(args, shapes, checked_payloads(of.group, tensors.output_payloads));
          for (std::size_t i = 0; i < std::size(kDispatchOutputs); ++i) {
            if (!tensors.others[i]) continue;
            if (kDispatchOutputs[i] != kHostCounts) check_device(of.group, *tensors.others[i]);
            set_output(args, shapes, kDispatchOutputs[i], *tensors.others[i]);
          }
        }
        return args;
      },
      [&](const Group&, const DispatchArgs& args) {
        if constexpr (half == Half::joined) write_handle(*tensors.handle, of.exchange.dispatch(args));
        if constexpr (half == Half::send) write_handle(*tensors.handle, of.exchange.dispatch_send(args));
        if constexpr (half == Half::wait) of.exchange.dispatch_wait(read_handle(*tensors.handle), args);
      },
      [&](const char* reason, Stream stream) { of.exchange.refuse_dispatch(reason, stream); });
}

// (Tensor(a!) output, Tensor? input, Tensor handle, Tensor? residual, Tensor(b!)? source_wait_ns, Tensor? topk_weights,
// int[] rounds, int exchange, …). A send has only the input, the handle, the weights and the rounds, and seems to
// change the handle: a compiler drops what changes nothing. A wait has no weights and no rounds.
template <Half half>
void combine(Stack& stack) {
  std::optional<Tensor> output, input, handle, weights, residual, waits;
  if constexpr (half != Half::send) output = stack.tensor();
  input = stack.optional();
  handle = stack.tensor();
  if constexpr (half != Half::send) {
    residual = stack.optional();
    waits = stack.optional();
  }
  std::vector<std::int64_t> division;
  if constexpr (half != Half::wait) {
    weights = stack.optional();
    division = stack.integers();
  }
  const NumberedExchange of = stack.exchange();
  GivenRounds rounds({1});
  make(
      of.group,
      [&] {
        for (const auto* tensor : {&output, &input, &weights, &residual, &waits})
          if (*tensor) check_device(of.group, **tensor);
        CombineArgs args =
            combine_args(ExchangeShapes(of.exchange, of.group), read_handle(*handle),
                         {address(output), address(input), address(weights), address(residual), address(waits)});
        set_options(args, stack);
        if constexpr (half != Half::wait) rounds = given_rounds(division);
        if constexpr (half == Half::send) args.round = given_number(stack);
        args.rounds = rounds.rounds();
        return args;
      },
      [&](const Group&, const CombineArgs& args) {
        if constexpr (half == Half::joined) of.exchange.combine(args);
        if constexpr (half == Half::send) of.exchange.combine_send(args);
        if constexpr (half == Half::wait) of.exchange.combine_wait(args);
      },
      [&](const char* reason, Stream stream) { of.exchange.refuse_combine(reason, stream); });
}

}  // namespace

const std::vector<Operator>& exchange_operators() {
  static constexpr const char* kInputs =
      "Tensor input, Tensor? topk_ids, Tensor? topk_weights, Tensor? scales, Tensor? rank_mask, "
      "Tensor(l!)? mask_ids, Tensor? again, Tensor[] payloads";
  static constexpr const char* kOutputs =
      "Tensor(b!) output, Tensor(c!)? output_scales, Tensor(d!)? counts, Tensor(e!)? offsets, "
      "Tensor(f!)? output_sources, Tensor(g!)? source_tokens, Tensor(h!)? source_wait_ns, Tensor(i!)? host_counts, "
      "Tensor(j!)? output_ids, Tensor(k!)? output_weights, Tensor(m!)? rank_prefix, "
      "Tensor(n!)[] output_payloads";
  static constexpr const char* kEnd = "int exchange, int options) -> ()";
  static constexpr const char* kSendEnd =
      "int[] rounds, int exchange, int options, bool discard, int most_tokens, int map) -> ()";
  static constexpr const char* kWaitEnd = "int exchange, int options, int round) -> ()";
  static const std::vector<Operator> all = {
      {"dispatch", fmt::format("(Tensor(a!) handle, {}, {}, {}", kInputs, kOutputs, kSendEnd),
       kernel<dispatch<Half::joined>>},
      {"dispatch_send", fmt::format("(Tensor(a!) handle, {}, {}", kInputs, kSendEnd), kernel<dispatch<Half::send>>},
      {"dispatch_wait", fmt::format("(Tensor handle, {}, {}", kOutputs, kWaitEnd), kernel<dispatch<Half::wait>>},
      {"combine",
       "(Tensor(a!) output, Tensor? input, Tensor handle, Tensor? residual, Tensor(b!)? source_wait_ns, "
       "Tensor? topk_weights, int[] rounds, int exchange, int options) -> ()",
       kernel<combine<Half::joined>>},
      {"combine_send",
       "(Tensor? input, Tensor(a!) handle, Tensor? topk_weights, int[] rounds, int exchange, int options, int round) "
       "-> ()",
       kernel<combine<Half::send>>},
      {"combine_wait",
       fmt::format("(Tensor(a!) output, Tensor? input, Tensor handle, Tensor? residual, Tensor(b!)? source_wait_ns, "
                   "{}",
                   kEnd),
       kernel<combine<Half::wait>>},
  };
  return all;
}

}  // namespace weft::python::torch
