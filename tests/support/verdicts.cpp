#include "support/verdicts.hpp"

#include <fmt/format.h>

#include "support/ranks.hpp"

namespace weft::test {

const std::vector<Errc> kEndsOfAMismatch{Errc::mismatch, Errc::peer_failed, Errc::timeout};

void expect_late_rank_named(const std::vector<Ending>& endings, int late, std::uint32_t epoch, const FaultCheck& more) {
  int timeouts = 0;
  for (int rank = 0; rank < static_cast<int>(endings.size()); ++rank) {
    const Ending& ending = endings[index(rank)];
    const std::string where = fmt::format("rank {}", rank);
    expect_fault(ending, rank == late ? std::vector{Errc::peer_failed} : std::vector{Errc::timeout, Errc::peer_failed},
                 where);
    if (!ending.error) continue;
    const Fault& fault = ending.error->fault();
    EXPECT_EQ(fault.rank, rank) << where;
    EXPECT_EQ(fault.epoch_wanted, epoch) << where;
    if (fault.code == Errc::timeout) {
      ++timeouts;
      EXPECT_EQ(fault.peer, late) << where;
    }
    if (more) more(rank, *ending.error, where);
  }
  EXPECT_GE(timeouts, 1);
}

void expect_blame(int rank, int late, const Error& error, const std::string& where) {
  const Fault& fault = error.fault();
  if (fault.code == Errc::timeout) {
    EXPECT_EQ(fault.epoch_seen, fault.epoch_wanted - 1) << where;
    return;
  }
  // Told by another one, and yet given the name of who is to blame.
  EXPECT_EQ(fault.peer, late) << where;
  EXPECT_TRUE(fault.reporter >= 0 && fault.reporter != rank && fault.reporter != late) << where;
  EXPECT_EQ(fault.reported, Errc::timeout) << where;
}

void expect_missing_rank_named(const std::vector<Ending>& endings, int missing, const std::string& operation) {
  EXPECT_EQ(endings[index(missing)].what, "");
  int timeouts = 0;
  for (int rank = 0; rank < missing; ++rank) {
    const Ending& ending = endings[index(rank)];
    expect_fault(ending, {Errc::timeout, Errc::peer_failed}, operation);
    expect_says(ending.what, operation);
    if (!ending.error || ending.error->code() != Errc::timeout) continue;
    ++timeouts;
    EXPECT_EQ(ending.error->fault().peer, missing) << ending.what;
  }
  EXPECT_GE(timeouts, 1) << operation;
}

void expect_mismatch_found(const std::vector<Ending>& endings, int odd, const std::string& what,
                           const FaultCheck& more) {
  int mismatches = 0;
  for (int rank = 0; rank < static_cast<int>(endings.size()); ++rank) {
    const std::string where = fmt::format("{} on rank {}: rank {}", what, odd, rank);
    const Ending& ending = endings[index(rank)];
    expect_fault(ending, kEndsOfAMismatch, where);
    if (!ending.error) continue;
    const Fault& fault = ending.error->fault();
    mismatches += fault.code == Errc::mismatch;
    EXPECT_NE(fault.code == Errc::peer_failed ? fault.reporter : fault.peer, rank) << where << ": " << ending.what;
    if (fault.code != Errc::peer_failed && rank != odd) {
      EXPECT_EQ(fault.peer, odd) << where << ": " << ending.what;
    }
    if (more) more(rank, *ending.error, where);
  }
  EXPECT_GE(mismatches, 1) << what << " on rank " << odd;
}

}  // namespace weft::test
