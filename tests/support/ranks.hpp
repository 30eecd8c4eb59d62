// Runs ranks as threads and collects their errors.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "weft/error.hpp"

namespace weft::test {

// Deadlines of host-side meetings: one longer than a test may take, so a test that needs it to end has failed; and
// none.
inline constexpr std::chrono::seconds long_deadline{60};
inline constexpr std::chrono::nanoseconds for_ever{0};

inline std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

// For bodies of ranks, since gtest's fatal assertions only end a function.
inline void ensure(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// The message of the exception of `body`; empty if it returned.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
    return {};
  } catch (const std::exception& e) {
    return *e.what() != 0 ? e.what() : "(an exception without a message)";
  }
}

// Runs `body(rank)` in one thread per rank. Returns each rank's error, empty if it returned.
inline std::vector<std::string> run_ranks(int size, const std::function<void(int rank)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { errors[index(rank)] = error_of([&] { body(rank); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_says(const std::string& error, const std::string& part) {
  EXPECT_PRED_FORMAT2(testing::IsSubstring, part, error);
}

// Expects one of Weft's errors.
inline void expect_code(const std::function<void()>& body, Errc code, const std::string& part) {
  try {
    body();
    ADD_FAILURE() << "no error; expected one with '" << part << "'";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    expect_says(error.what(), part);
  }
}

inline void expect_all_say(const std::vector<std::string>& errors, const std::string& part) {
  for (const std::string& error : errors) expect_says(error, part);
}

inline void expect_no_errors(const std::vector<std::string>& errors) {
  EXPECT_EQ(errors, std::vector<std::string>(errors.size()));
}

}  // namespace weft::test
