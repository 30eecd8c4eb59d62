// Rank 0's side of joining.
#pragma once

#include <vector>

#include "rendezvous/join.hpp"

namespace weft::detail {

inline constexpr std::string_view joining = "join";
// Limit of a frame, from or to a peer that has proved nothing yet.
inline constexpr std::uint64_t stranger_limit = 4096;

// Lets ranks in until all are there: a connection to every other rank, by rank; [0] stays empty.
std::vector<Connection> admit_all(const JoinArgs& args, const Deadline& deadline);

}  // namespace weft::detail
