#include "bench/checker.hpp"

namespace weft::cli {

void Checker::prepare(Ranks::Seat& seat, int local_size, const ReferenceArgs& args) {
  const bool known = args == args_ && !reference_.empty();
  seat.barrier();  // all ranks have compared before one of them changes args_
  if (known) return;
  if (seat.local_index() == 0) {
    args_ = args;
    reference_.resize(args.count * size_of(args.type));
  }
  seat.barrier();
  const auto index = static_cast<std::size_t>(seat.local_index());
  const auto parts = static_cast<std::size_t>(local_size);
  reduce_reference(args, args.count * index / parts, args.count * (index + 1) / parts, reference_.data());
  seat.barrier();
}

}  // namespace weft::cli
