// Which GPUs Weft's own kernels may serve: those that NVLink links. They trust that 16 bytes arrive whole, which
// nothing promises over PCIe (team/ptx.cuh), though peer access goes over it, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::detail {

enum class Link : std::uint8_t {
  nvlink,   // or the same GPU
  pcie,     // or whatever else is no NVLink
  unknown,  // this rank does not see the other one's GPU
  apart,    // on another host: nothing but NVLink, or NCCL, leads there
};

// What every rank says of its link to every other one: [rank][peer].
using LinkTable = std::vector<std::vector<Link>>;

// The same on every rank, as it follows from the table alone.
class LinkDomains {
 public:
  LinkDomains() = default;
  explicit LinkDomains(const LinkTable& table);

  // Whether two ranks may use each other's memory, if they can. Ranks fall into sets in which every pair may: a group
  // is served by kernels of Weft's as a whole or not at all, and its ranks must agree.
  bool may_reach(int rank, int peer) const;
  // The first pair of one host that NVLink is not known to link, in words; empty where there is none.
  const std::string& problem() const { return problem_; }

 private:
  std::vector<int> domain_;  // by rank: the lowest rank of the set
  std::vector<bool> whole_;  // by rank: all ranks of its host are in it
  std::vector<std::vector<bool>> apart_;
  std::string problem_;
};

// For tests: ranks `one` and `other` say that PCIe links them, whatever does; none does while `one` is −1.
struct PretendedLink {
  std::atomic<int> one = -1, other = -1;

  bool is(int rank, int peer) const {
    return one >= 0 && ((rank == one && peer == other) || (rank == other && peer == one));
  }
};
inline PretendedLink pretended_pcie;

}  // namespace weft::detail
