// Communicators whose ranks are threads, one body for all, and the ending of each rank.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/sanitized.hpp"
#include "weft/communicator.hpp"

namespace weft::test {

struct Ending {
  std::string what;            // the exception's message; empty if the body returned
  std::optional<Error> error;  // the exception if it was one of Weft's
};

using RankBody = std::function<void(Communicator& communicator, int rank)>;

// CPU ranks whose waits end after `deadline` at the latest, so that no bug hangs a test.
Config cpu_config(std::chrono::nanoseconds deadline = std::chrono::seconds(60));

// For tests in which a deadline ends a wait.
inline constexpr std::chrono::milliseconds short_deadline{kSanitized ? 1500 : 250};

// Small buffers, so that messages go in pieces.
Config small_pieces();

// Slots of 256 bytes: longer messages flow in chunks.
Config small_slots();

// The smallest buffers: 256 bytes for one-shot, and for each shard of two-shot.
Config smallest_buffers();

// Each communicator lives until every body has ended.
std::vector<Ending> run_world(std::vector<Communicator>& communicators, const RankBody& body);
std::vector<Ending> run_world(int size, const Config& config, const RankBody& body);

void expect_all_well(const std::vector<Ending>& endings);

// A rank that ended with a fault: its code is one of `codes`, and the record names a call and an epoch.
void expect_fault(const Ending& ending, const std::vector<Errc>& codes, const std::string& where);

// … and if the code is `code`, the record gives `reason`.
void expect_reason(const Ending& ending, Errc code, const std::string& reason);

// Ranks that found counts which do not fit, one of them at least, or were told.
void expect_misfit(const std::vector<Ending>& endings, const std::string& reason, const std::string& where);

}  // namespace weft::test
