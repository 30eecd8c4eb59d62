#include "fabric/links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace weft::detail {
namespace {

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}

// The link by both ends' entries; one end may not see the other's GPU.
Link between(const LinkTable& table, int one, int other) {
  const Link there = table[at(one)][at(other)], back = table[at(other)][at(one)];
  for (const Link link : {Link::pcie, Link::nvlink, Link::apart}) {
    if (there == link || back == link) return link;
  }
  return Link::unknown;
}

std::string in_words(Link link, int one, int other) {
  if (link == Link::pcie) return fmt::format("ranks {} and {} are linked by PCIe, not NVLink", one, other);
  return fmt::format("nothing says whether NVLink links ranks {} and {}, as neither process sees the other's GPU", one,
                     other);
}

}  // namespace

LinkDomains::LinkDomains(const LinkTable& table) {
  const int size = static_cast<int>(table.size());
  domain_.resize(table.size());
  std::iota(domain_.begin(), domain_.end(), 0);
  whole_.assign(table.size(), true);
  apart_.assign(table.size(), std::vector<bool>(table.size()));
  const auto each_pair = [&](const auto& visit) {
    for (int one = 0; one < size; ++one) {
      for (int other = one + 1; other < size; ++other) visit(one, other, between(table, one, other));
    }
  };
  each_pair([&](int one, int other, Link link) {
    if (link == Link::apart) {
      apart_[at(one)][at(other)] = apart_[at(other)][at(one)] = true;
      return;
    }
    if (link == Link::nvlink) {
      const auto [low, high] = std::minmax(domain_[at(one)], domain_[at(other)]);
      std::replace(domain_.begin(), domain_.end(), int{high}, int{low});
      return;
    }
    whole_[at(one)] = whole_[at(other)] = false;
    if (problem_.empty()) problem_ = in_words(link, one, other);
  });
  // If only a third rank links two ranks of a set, no rank of the set may reach any other.
  std::vector<bool> broken(table.size());
  each_pair([&](int one, int other, Link link) {
    const bool together = domain_[at(one)] == domain_[at(other)];
    if (together && (link == Link::pcie || link == Link::unknown)) broken[at(domain_[at(one)])] = true;
  });
  for (int rank = size - 1; rank >= 0; --rank) {
    if (broken[at(domain_[at(rank)])]) {
      domain_[at(rank)] = rank;
      whole_[at(rank)] = false;
    }
  }
}

bool LinkDomains::may_reach(int rank, int peer) const {
  return domain_[at(rank)] == domain_[at(peer)] || (apart_[at(rank)][at(peer)] && whole_[at(rank)] && whole_[at(peer)]);
}

}  // namespace weft::detail
