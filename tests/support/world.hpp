// Communicators whose ranks are threads, one body for all of them, and how each rank ended.
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
  std::string what;            // of the exception; empty when the body returned
  std::optional<Error> error;  // when it was one of Weft's
};

using RankBody = std::function<void(Communicator& communicator, int rank)>;

// CPU ranks whose waits end after `deadline` at the latest, so that no bug hangs a test.
Config cpu_config(std::chrono::nanoseconds deadline = std::chrono::seconds(60));

// For tests in which a wait is to end by it.
inline constexpr std::chrono::milliseconds short_deadline{kSanitized ? 1500 : 250};

// With buffers that hold little, so that messages go in pieces.
Config small_pieces();

// Slots of 256 bytes: what is longer flows in chunks.
Config small_slots();

// As small as they can be: 256 bytes of one-shot, and of each shard of two-shot.
Config smallest_buffers();

// Each communicator lives until every body has ended.
std::vector<Ending> run_world(std::vector<Communicator>& communicators, const RankBody& body);
std::vector<Ending> run_world(int size, const Config& config, const RankBody& body);

void expect_all_well(const std::vector<Ending>& endings);

// A rank that ended with a fault: its code is one of `codes`, and the record names a call and an epoch.
void expect_fault(const Ending& ending, const std::vector<Errc>& codes, const std::string& where);

// … and where it is `code`, the record says why.
void expect_reason(const Ending& ending, Errc code, const std::string& reason);

// Ranks that found counts which do not fit, one of them at least, or were told.
void expect_misfit(const std::vector<Ending>& endings, const std::string& reason, const std::string& where);

}  // namespace weft::test
