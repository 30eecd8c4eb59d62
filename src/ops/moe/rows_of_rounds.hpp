// The rows that some rounds of a dispatch alone would send.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace weft::detail {

// Leaves out a token's rows to ranks for which `stays(first, last)` is false: their ids become −1. `first` and `last`
// are the local experts that the token has there. `local`: experts of each rank.
template <class Id, class Stays>
void keep_rows(std::span<Id> ids_of_token, Id local, Stays stays) {
  const std::vector<Id> all(ids_of_token.begin(), ids_of_token.end());
  for (std::size_t k = 0; k < all.size(); ++k) {
    Id first = local, last = 0;
    for (const Id id : all) {
      if (id < 0 || all[k] < 0 || id / local != all[k] / local) continue;
      first = std::min(first, static_cast<Id>(id % local));
      last = std::max(last, static_cast<Id>(id % local));
    }
    if (!stays(first, last)) ids_of_token[k] = -1;
  }
}

}  // namespace weft::detail
