// all_reduce: rejects what cannot work, names the call, plans it, and hands its pieces to the executor.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/choices.hpp"
#include "base/fingerprint.hpp"
#include "base/nvtx.hpp"
#include "comm/call.hpp"
#include "numeric/tensor.hpp"
#include "ops/all_reduce/all_reduce_kernels.hpp"
#include "weft/collectives.hpp"

namespace weft {
namespace {

using detail::GroupState;
using detail::require;

// A piece of a message is as whole as the message: pieces are whole packs, but for the last one's end.
detail::InstanceQuery instance_of(const GroupState& group, const AllReduceArgs& args) {
  const std::size_t bytes = args.count * size_of(args.type);
  const std::size_t pack = detail::payload_bytes(args.type);
  return {.type = args.type,
          .op = args.op,
          .size = static_cast<std::uint32_t>(group.size()),
          .whole = detail::may_be_whole(args.input, bytes, pack) && detail::may_be_whole(args.output, bytes, pack)};
}

void check_arguments(const GroupState& group, const AllReduceArgs& args) {
  detail::check_choice("type", args.type, DataType::i32);
  detail::check_choice("op", args.op, ReduceOp::max);
  detail::check_choice("algorithm", args.algorithm, Algorithm::multimem_two_shot);
  const bool multimem = detail::is_multimem(args.algorithm);
  require(!multimem || detail::multimem_adds(args.type, args.op),
          "algorithm: {} makes sums of bf16, f16 or f32, and this is a {} of {}", weft::name(args.algorithm),
          weft::name(args.op), weft::name(args.type));
  const std::size_t element = size_of(args.type);
  require(args.count <= SIZE_MAX / 8 / element, "count: {} elements of {} bytes are not between 0 and {}", args.count,
          element, SIZE_MAX / 8 / element);
  const bool lean = !multimem && has_lean_instance(instance_of(group, args));
  detail::check_launch(group, args.launch, detail::max_threads(lean ? group.size() : 0));
  group.communicator().fabric().check_stream(args.stream);
  if (args.count == 0) return;
  const auto check_buffer = [&](const char* name, const void* data) {
    require(data != nullptr, "{}: null, with count {}", name, args.count);
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    require(address % element == 0, "{}: {} is not aligned to the {} bytes of {}", name, data, element,
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

std::string in_words(const AllReduceArgs& args, Algorithm algorithm) {
  return fmt::format("all_reduce {} {}[{}] {} tag {}", weft::name(args.op), weft::name(args.type), args.count,
                     weft::name(algorithm), args.tag);
}

void run_pieces(const Group& handle, const AllReduceArgs& args, const detail::Plan& plan, std::uint32_t fingerprint) {
  const GroupState& group = handle.state();
  const std::size_t element = size_of(args.type);
  const auto kernel =
      detail::find_kernel(detail::AllReduceQuery{.instance = instance_of(group, args), .algorithm = plan.algorithm});
  std::size_t done = 0;
  do {
    const std::size_t count = std::min(args.count - done, plan.piece);
    detail::run_or_keep(handle,
                        {.call = group.call(fingerprint),
                         .bound = kernel.with({.input = static_cast<const std::byte*>(args.input) + done * element,
                                               .output = static_cast<std::byte*>(args.output) + done * element,
                                               .count = count,
                                               .crews = static_cast<std::uint32_t>(plan.crews),
                                               .apart = plan.apart}),
                         .blocks = plan.blocks,
                         .threads = plan.threads,
                         .stream = args.stream});
    done += count;
  } while (done < args.count);
}

}  // namespace

static void make_all_reduce(const Group& handle, const AllReduceArgs& args) {
  GroupState& group = handle.state();
  detail::CommunicatorState& communicator = group.communicator();
  check_arguments(group, args);
  check_multimem(group, args.algorithm);
  detail::check_alive(handle, "all_reduce");

  if (args.algorithm == Algorithm::nccl || !group.direct()) {
    if (args.algorithm != Algorithm::automatic && args.algorithm != Algorithm::nccl) {
      throw Error(Errc::unsupported,
                  fmt::format("algorithm: {} needs ranks that reach each other's memory, and these do not ({})",
                              weft::name(args.algorithm), communicator.fabric().description()));
    }
    return detail::call_nccl(
        handle,
        {detail::fingerprint("all_reduce", args.op, args.type, args.count, Algorithm::nccl, args.tag),
         in_words(args, Algorithm::nccl)},
        args.stream, detail::NcclAllReduce{args.input, args.output, args.count, args.type, args.op});
  }

  const detail::Plan plan = detail::plan_all_reduce({.device = handle.device(),
                                                     .size = static_cast<std::uint32_t>(group.size()),
                                                     .layout = group.layout(),
                                                     .multimem_packs = group.multimem().packs,
                                                     .type = args.type,
                                                     .op = args.op,
                                                     .count = args.count,
                                                     .whole = instance_of(group, args).whole,
                                                     .wish = args.algorithm,
                                                     .launch = args.launch,
                                                     .max_blocks = communicator.max_blocks(),
                                                     .least_max_blocks = communicator.least_max_blocks(),
                                                     .steps = group.tuning().table->steps});
  const std::uint32_t fingerprint =
      detail::fingerprint("all_reduce", args.op, args.type, args.count, plan.algorithm, plan.piece, args.tag);
  group.remember({fingerprint, in_words(args, plan.algorithm)});
  run_pieces(handle, args, plan, fingerprint);
}

void all_reduce(const Group& caller, const AllReduceArgs& args) {
  const detail::NvtxRange range("weft::all_reduce");
  const Group handle = detail::held(caller);
  detail::make_or_tell(handle.state(), args.stream, [&] { make_all_reduce(handle, args); });
}

}  // namespace weft
