// Checks of how ranks have ended, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/world.hpp"

namespace weft::test {

// The errors of ranks that do not make the same call.
extern const std::vector<Errc> kEndsOfAMismatch;

// A further check of a rank that ended with a fault.
using FaultCheck = std::function<void(int rank, const Error& error, const std::string& where)>;

// Rank `late` came to the call of epoch `epoch` when the others had given up: ranks that timed out name it, and it
// learns that.
void expect_late_rank_named(const std::vector<Ending>& endings, int late, std::uint32_t epoch, const FaultCheck& more);
// For all-reduces, in which no rank passes data on: a rank that was told of the timeout knows the late rank, too.
void expect_blame(int rank, int late, const Error& error, const std::string& where);

// Rank `missing`, the last one, made one call less, and all others are told in the words of `operation`.
void expect_missing_rank_named(const std::vector<Ending>& endings, int missing, const std::string& operation);

// Rank `odd` made another call than the others, who name it.
void expect_mismatch_found(const std::vector<Ending>& endings, int odd, const std::string& what,
                           const FaultCheck& more);

}  // namespace weft::test
