// Finds the GPUs that Weft's own kernels may serve: GPUs linked by NVLink. The kernels trust that 16 bytes arrive
// whole. Nothing promises that over PCIe (team/ptx.cuh), though peer access goes over it, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace weft::detail {

enum class Link : std::uint8_t {
  nvlink,   // or the same GPU
  pcie,     // or anything else but NVLink
  unknown,  // this rank does not see the other one's GPU
  apart,    // on another host: only NVLink, or NCCL, leads there
};

// Every rank's entry for its link to every other one: [rank][peer].
using LinkTable = std::vector<std::vector<Link>>;

// The same on every rank, because it follows from the table alone.
class LinkDomains {
 public:
  LinkDomains() = default;
  explicit LinkDomains(const LinkTable& table);

  // Whether two ranks may use each other's memory, if they can. Ranks fall into sets in which every pair may. Weft's
  // kernels serve a group as a whole or not at all, and its ranks must agree.
  bool may_reach(int rank, int peer) const;
  // The first pair of one host without a known NVLink, in words; empty if there is none.
  const std::string& problem() const { return problem_; }

 private:
  std::vector<int> domain_;  // by rank: the lowest rank of the set
  std::vector<bool> whole_;  // by rank: the set has all ranks of its host
  std::vector<std::vector<bool>> apart_;
  std::string problem_;
};

// For tests: ranks `one` and `other` report PCIe between them, whatever links them; no ranks do while `one` is −1.
struct PretendedLink {
  std::atomic<int> one = -1, other = -1;

  bool is(int rank, int peer) const {
    return one >= 0 && ((rank == one && peer == other) || (rank == other && peer == one));
  }
};
inline PretendedLink pretended_pcie;

}  // namespace weft::detail
