// Makes ranks 0 and 1 of every communicator say that PCIe links them.
#pragma once

#include <cstdlib>

#include "fabric/links.hpp"
#include "support/spawned.hpp"

namespace weft::test {

// Acts during its lifetime, on communicators made in that time.
class PretendedPcie {
 public:
  explicit PretendedPcie(bool wanted = true) {
    if (!wanted) return;
    detail::pretended_pcie.other = 1;
    detail::pretended_pcie.one = 0;
  }
  ~PretendedPcie() { detail::pretended_pcie.one = -1; }
  PretendedPcie(const PretendedPcie&) = delete;
  PretendedPcie& operator=(const PretendedPcie&) = delete;
};

// For processes that a test starts: the variable, and whether it is set.
inline const Variables by_pcie{{"WEFT_TEST_PCIE", "1"}};
inline bool told_of_pcie() {
  return std::getenv("WEFT_TEST_PCIE") != nullptr;
}

}  // namespace weft::test
