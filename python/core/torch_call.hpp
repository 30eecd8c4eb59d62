// A call of one of torch's operators: its values, one by one, and its tensors.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "operations.hpp"
#include "torch_abi.hpp"

namespace weft::python::torch {

struct NumberedExchange {
  MoeExchange exchange;
  Group group;
};

// The options that most calls have beside their tensors, in one integer: torch takes half a microsecond to look at each
// of them.
struct PackedOptions {
  explicit PackedOptions(std::int64_t packed) : bits(static_cast<std::uint64_t>(packed)) {}
  std::uint32_t tag() const { return static_cast<std::uint32_t>(bits); }
  Launch launch() const { return {field(32, 12), field(44, 11), field(61, 2)}; }
  ReduceOp op() const { return static_cast<ReduceOp>(field(55, 3)); }
  Algorithm algorithm() const { return static_cast<Algorithm>(field(58, 3)); }

  std::uint64_t bits;

 private:
  int field(int begin, int size) const { return static_cast<int>(bits >> begin & ((1u << size) - 1)); }
};

// A number beyond C++'s is the rank of nobody.
inline int rank_of(std::int64_t number) {
  return std::in_range<int>(number) ? static_cast<int>(number) : -1;
}

// The values on torch's stack, in the schema's order. The callee owns tensors and lists, and has to take all of them.
// Tensors go at the end of the call, when it has been enqueued: torch's allocator reuses memory in the order of the
// stream, and the call is on the current one.
class Stack {
 public:
  Stack(Value* values, std::uint64_t count) : values_(values), count_(count) {}

  std::int64_t integer() { return static_cast<std::int64_t>(next()); }
  int rank() { return rank_of(integer()); }
  PackedOptions options() { return PackedOptions(integer()); }
  bool flag() { return (next() & 0xff) != 0; }
  float real();
  Tensor tensor();
  std::optional<Tensor> optional();
  std::vector<Tensor> tensors();
  std::vector<std::int64_t> integers();
  // The group, or the exchange, of the number behind all tensors and lists: operators take no objects. A tensor that
  // requires a gradient is refused here, and whatever throws from here on leaves nothing of torch's untaken.
  Group group();
  NumberedExchange exchange();

  // Behind the last value.
  void give(const Tensor& tensor);

 private:
  Value next();
  std::vector<Value> list();
  // Without a type: check_device() rejects it, where others are told.
  Tensor taken(TensorHandle handle);
  void refuse_gradients() const;

  Value* values_;
  std::uint64_t count_, at_ = 0;
  bool requires_grad_ = false;  // one of the tensors so far
};

// The options behind an operator's own values.
template <class Args>
PackedOptions set_options(Args& args, Stack& stack) {
  const PackedOptions options = stack.options();
  if constexpr (requires { args.tag; }) args.tag = options.tag();
  if constexpr (requires { args.launch; }) args.launch = options.launch();
  if constexpr (requires { args.op; }) args.op = options.op();
  return options;
}

// A new dense tensor on the device of `like`.
Tensor empty_like(const Tensor& like);

// The current stream of the group's device; null on CPU ranks.
Stream current_stream(int cuda_device);

// Runs an operator: what Weft throws is kept, with its record, for the caller in Python.
void run(Value* values, std::uint64_t count, void (*body)(Stack& stack));

// The body of an operator as torch calls it.
template <auto Body>
void kernel(Value* values, std::uint64_t inputs, std::uint64_t) {
  run(values, inputs, Body);
}

struct Operator {
  const char* name;
  std::string schema;
  Kernel kernel;
};
const std::vector<Operator>& exchange_operators();
const std::vector<Operator>& message_operators();
const std::vector<Operator>& norm_operators();

// Every tensor of a call but counts and handles goes through it.
void check_device(const Group& group, const Tensor& tensor);
// A tensor that the root alone has, as of_root gives it.
const Tensor* checked_of_root(const char* argument, const Group& group, int root, const std::optional<Tensor>& given);

// Tensor rows, Tensor? slots, int sharding, int padding, int slot_rows, of the ragged operators.
struct RaggedCounts {
  Tensor rows;
  std::optional<Tensor> slots;

  Counts taken(Stack& stack, const Group& group, std::size_t numbers, std::size_t of_slots) const {
    if (rows.on_gpu()) check_device(group, rows);
    Counts counts{.sharding = static_cast<Sharding>(stack.integer()),
                  .padding = static_cast<Padding>(stack.integer()),
                  .slot_rows = static_cast<std::size_t>(stack.integer())};
    set_counts(counts, group, {&rows, address(slots), counts.sharding == Sharding::none ? numbers : 1, of_slots});
    return counts;
  }
};

// Makes the call of an operator, and tells the other ranks if it was refused.
template <class Build, class Make, class Refuse>
void make(const Group& group, Build&& build, Make&& make_it, Refuse&& refuse) {
  const Stream stream = current_stream(group.cuda_device());
  auto args = [&] {
    try {
      return build();
    } catch (const Rejection& error) {
      refuse(error.what(), stream);
      throw;
    }
  }();
  args.stream = stream;
  make_it(group, args);
}
template <class Build, class Make>
void make(const Group& group, Build&& build, Make&& make_it) {
  make(group, build, make_it, [&](const char* reason, Stream stream) { group.refuse(reason, stream); });
}

}  // namespace weft::python::torch
