#include "comm/collective_free.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::detail {

void agree_on_freeing(Bootstrap& bootstrap, const ToFree& mine) {
  struct Named {
    std::uint64_t number;
    std::uint64_t freed;
  };
  const auto named =
      bootstrap.all_gather_value(fmt::format("{}: compare what to free", mine.call), Named{mine.number, mine.freed});
  for (std::size_t rank = 0; rank < named.size(); ++rank) {
    if (named[rank].freed == 0) continue;
    throw Error(Errc::released,
                fmt::format("{}: it has been freed (rank {} frees number {} of those that were ever {})", mine.call,
                            rank, named[rank].number, mine.made));
  }
  for (std::size_t rank = 0; rank < named.size(); ++rank) {
    if (named[rank].number == named[0].number) continue;
    throw Error(Errc::invalid_argument,
                fmt::format("{}: ranks disagree: of those that were ever {}, rank 0 frees number {}, rank {} number {}",
                            mine.call, mine.made, named[0].number, rank, named[rank].number));
  }
}

}  // namespace weft::detail
