// CPU ranks by the C interface.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/ranks.hpp"
#include "weft/c.h"

namespace weft::test {

inline void expect_ok(weft_code code) {
  EXPECT_EQ(code, WEFT_OK) << weft_last_message();
}
// For bodies of ranks.
inline void ensure_ok(weft_code code) {
  ensure(code == WEFT_OK, weft_last_message());
}

// A struct with its defaults, in memory that held something else.
template <class T>
T initialised(weft_code (*init)(T*, std::size_t)) {
  T made;
  std::memset(&made, 0x5a, sizeof made);
  expect_ok(init(&made, sizeof made));
  return made;
}

inline weft_config c_config() {
  weft_config config = initialised(weft_config_init);
  config.device = WEFT_DEVICE_CPU;
  return config;
}

// Ranks of this process, and a handle of each one's world.
class CRanks {
 public:
  explicit CRanks(int size, const weft_config& config = c_config()) {
    communicators_.resize(index(size));
    worlds_.resize(index(size));
    expect_ok(weft_communicator_local(size, &config, communicators_.data()));
    for (std::size_t i = 0; i < worlds_.size(); ++i) expect_ok(weft_communicator_world(communicators_[i], &worlds_[i]));
  }
  ~CRanks() {
    for (weft_group* const world : worlds_) weft_group_destroy(world);
    for (weft_communicator* const communicator : communicators_) weft_communicator_destroy(communicator);
  }
  CRanks(const CRanks&) = delete;
  CRanks& operator=(const CRanks&) = delete;

  weft_communicator* communicator(int rank = 0) const { return communicators_[index(rank)]; }
  weft_group* world(int rank = 0) const { return worlds_[index(rank)]; }

 private:
  std::vector<weft_communicator*> communicators_;
  std::vector<weft_group*> worlds_;
};

struct OneRank : CRanks {
  OneRank() : CRanks(1) {}
};

}  // namespace weft::test
