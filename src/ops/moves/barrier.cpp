#include "weft/collectives.hpp"

#include <fmt/format.h>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "ops/moves/move_kernels.hpp"

namespace weft {
namespace {

struct BarrierWords {
  static constexpr std::string_view kKind = "barrier";
  bool direct;
  std::uint32_t tag;
  std::string text() const { return fmt::format("barrier{} tag {}", detail::carrier(direct), tag); }
};

class Barrier : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::barrier";
  Barrier(const Group& caller, const BarrierArgs& args) : GroupCall(caller, args.stream), args_(args) {}

  void check() const { channel().communicator().fabric().check_stream(stream()); }
  bool wants_nccl() const { return false; }
  detail::NcclPlan by_nccl() const { return {.name = name(), .work = detail::NcclBarrier{}}; }
  detail::CallName plan(bool) const { return name(); }
  template <class Run>
  void each_step(Run run) const {
    run({.call = {}, .bound = detail::find_kernel(detail::BarrierQuery{}).with({}), .blocks = 1, .threads = 128});
  }

 private:
  detail::CallName name() const {
    return {detail::fingerprint("barrier", args_.tag), BarrierWords{.direct = channel().direct(), .tag = args_.tag}};
  }
  const BarrierArgs& args_;
};

}  // namespace

void barrier(const Group& caller, const BarrierArgs& args) {
  Barrier call(caller, args);
  detail::make_call(call);
}

}  // namespace weft
