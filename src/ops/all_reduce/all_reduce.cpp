// all_reduce: one kernel for each piece of its message.
#include "weft/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "numeric/tensor.hpp"
#include "ops/all_reduce/all_reduce_kernels.hpp"

namespace weft {
namespace {

using detail::GroupState;
using detail::require;

// A piece is as whole as its message: pieces are whole packs, except perhaps the end of the last one.
detail::InstanceQuery instance_of(const GroupState& group, const AllReduceArgs& args) {
  const std::size_t bytes = args.count * size_of(args.type);
  const std::size_t pack = detail::payload_bytes(args.type);
  return {.type = args.type,
          .ops = detail::ops_for(args.type, args.op),
          .size = static_cast<std::uint32_t>(group.size()),
          .aligned16 = detail::is_aligned16(args.input, bytes, pack) && detail::is_aligned16(args.output, bytes, pack)};
}

void check_choices(const AllReduceArgs& args) {
  detail::check_choice("type", args.type, DataType::u8);
  detail::check_choice("op", args.op, ReduceOp::avg);
  detail::check_choice("algorithm", args.algorithm, Algorithm::multimem_two_shot);
}

void check_arguments(const GroupState& group, const AllReduceArgs& args, const detail::InstanceQuery& instance) {
  const bool multimem = detail::is_multimem(args.algorithm);
  require(!multimem || detail::multimem_adds(args.type, args.op),
          "algorithm: {} makes sums of bf16, f16 or f32, and this is a {} of {}", weft::name(args.algorithm),
          weft::name(args.op), weft::name(args.type));
  const std::size_t element = size_of(args.type);
  require(args.count <= SIZE_MAX / 8 / element, "count: {} elements of {} bytes are not between 0 and {}", args.count,
          element, SIZE_MAX / 8 / element);
  const bool specialized = !multimem && has_specialized_instance(instance);
  detail::check_launch(group, args.launch, detail::max_threads(specialized ? group.size() : 0));
  group.communicator().fabric().check_stream(args.stream);
  if (args.count == 0) return;
  const auto check_buffer = [&](const char* name, const void* data) {
    require(data != nullptr, "{}: null, with count {}", name, args.count);
    require(detail::is_aligned(data, element), "{}: {} is not aligned to the {} bytes of {}", name, data, element,
            weft::name(args.type));
    detail::check_buffer(group, name, data);
  };
  check_buffer("input", args.input);
  check_buffer("output", args.output);
  const auto in = reinterpret_cast<std::uintptr_t>(args.input), out = reinterpret_cast<std::uintptr_t>(args.output);
  const std::size_t distance = in > out ? in - out : out - in;
  require(distance == 0 || distance >= args.count * element,
          "output: overlaps input ({} bytes apart, {} bytes long) without being equal to it", distance,
          args.count * element);
}

void check_multimem(const GroupState& group, Algorithm algorithm) {
  if (!detail::is_multimem(algorithm) || group.multimem().packs != 0) return;
  const detail::CommunicatorState& communicator = group.communicator();
  throw Error(Errc::unsupported,
              communicator.config().multicast
                  ? fmt::format("algorithm: {} serves all {} ranks of a communicator, and this is a group of {} that "
                                "split() has made",
                                name(algorithm), communicator.size(), group.size())
                  : fmt::format("algorithm: {} needs multicast: {}", name(algorithm), communicator.multicast()));
}

struct AllReduceWords {
  static constexpr std::string_view kKind = "all_reduce";
  ReduceOp op;
  DataType type;
  std::size_t count;
  Algorithm algorithm;
  std::uint32_t tag;
  std::string text() const {
    return fmt::format("all_reduce {} {}[{}] {} tag {}", name(op), name(type), count, name(algorithm), tag);
  }
};

class AllReduce : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::all_reduce";
  AllReduce(const Group& caller, const AllReduceArgs& args)
      : GroupCall(caller, args.stream, args.launch), args_(args) {}

  void check() {
    check_choices(args_);
    instance_ = instance_of(channel(), args_);
    check_arguments(channel(), args_, instance_);
    check_multimem(channel(), args_.algorithm);
  }

  bool wants_nccl() const { return args_.algorithm == Algorithm::nccl; }
  detail::NcclPlan by_nccl() const {
    if (args_.algorithm != Algorithm::automatic && !wants_nccl()) {
      throw Error(Errc::unsupported,
                  fmt::format("algorithm: {} needs ranks that reach each other's memory, and these do not ({})",
                              weft::name(args_.algorithm), channel().communicator().fabric().description()));
    }
    detail::check_nccl_reduces(args_.type, args_.op);
    return {.name = {detail::fingerprint("all_reduce", args_.op, args_.type, args_.count, Algorithm::nccl, args_.tag),
                     words(Algorithm::nccl)},
            .work = detail::NcclAllReduce{args_.input, args_.output, args_.count, args_.type, args_.op}};
  }

  detail::CallName plan(bool) {
    const GroupState& group = channel();
    const detail::CommunicatorState& communicator = group.communicator();
    plan_ = detail::plan_all_reduce({.device = communicator.fabric().device(),
                                     .size = instance_.size,
                                     .layout = group.layout(),
                                     .multimem_packs = group.multimem().packs,
                                     .type = args_.type,
                                     .op = args_.op,
                                     .count = args_.count,
                                     .aligned16 = instance_.aligned16,
                                     .requested = args_.algorithm,
                                     .launch = args_.launch,
                                     .max_blocks = communicator.max_blocks(args_.launch),
                                     .least_max_blocks = communicator.least_max_blocks(),
                                     .steps = group.tuning().table->steps});
    const AllReduceArgs& a = args_;
    return {detail::fingerprint("all_reduce", a.op, a.type, a.count, plan_.algorithm, plan_.piece, a.tag),
            words(plan_.algorithm)};
  }

  template <class Run>
  void each_step(Run run) const {
    const std::size_t element = size_of(args_.type);
    const auto kernel =
        detail::find_kernel(detail::AllReduceQuery{.instance = instance_, .algorithm = plan_.algorithm});
    std::size_t done = 0;
    do {
      const std::size_t count = std::min(args_.count - done, plan_.piece);
      run({.call = {},
           .bound = kernel.with({.input = static_cast<const std::byte*>(args_.input) + done * element,
                                 .output = static_cast<std::byte*>(args_.output) + done * element,
                                 .count = count,
                                 .warp_groups = static_cast<std::uint32_t>(plan_.warp_groups),
                                 .apart = plan_.apart,
                                 .op = args_.op}),
           .blocks = plan_.blocks,
           .threads = plan_.threads});
      done += count;
    } while (done < args_.count);
  }

 private:
  AllReduceWords words(Algorithm algorithm) const {
    return {.op = args_.op, .type = args_.type, .count = args_.count, .algorithm = algorithm, .tag = args_.tag};
  }

  const AllReduceArgs& args_;
  detail::InstanceQuery instance_{};
  detail::Plan plan_{};
};

}  // namespace

void all_reduce(const Group& caller, const AllReduceArgs& args) {
  AllReduce call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
