// Messages between two ranks as a kind of move (support/moves.hpp): each letter's memory, and the calls.
#pragma once

#include <functional>
#include <string>

#include "support/moves.hpp"

namespace weft::test {

std::string describe_letters(const Move& move);
// A piece of memory for each letter that the rank sends or receives, in their order; two for one to itself.
RankMove prepare_letters(const Move& move, int rank);
void issue_letters(const Group& group, const RankMove& prepared,
                   const std::function<std::byte*(const Memory&)>& address, Stream stream);

}  // namespace weft::test
