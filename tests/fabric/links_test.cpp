// The ranks that may use each other's memory, by the links of their GPUs.
#include "fabric/links.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft::detail {
namespace {

// One row of letters per rank: n(vlink), p(cie), u(nknown), a(part).
LinkDomains domains(const std::vector<std::string>& rows) {
  LinkTable table;
  for (const std::string& row : rows) {
    std::vector<Link>& links = table.emplace_back();
    for (const char letter : row) links.push_back(static_cast<Link>(std::string("npua").find(letter)));
  }
  return LinkDomains(table);
}

// One row of letters per rank: x if the rank may reach a peer.
std::vector<std::string> reach(const LinkDomains& found, int size) {
  std::vector<std::string> rows;
  for (int rank = 0; rank < size; ++rank) {
    std::string& row = rows.emplace_back();
    for (int peer = 0; peer < size; ++peer) row += found.may_reach(rank, peer) ? 'x' : '.';
  }
  return rows;
}
using LinkTable = std::vector<std::string>;

TEST(Links, NvlinkEverywhereIsOneDomain) {
  const LinkDomains found = domains({"nnn", "nnn", "nnn"});
  EXPECT_EQ(reach(found, 3), (LinkTable{"xxx", "xxx", "xxx"}));
  EXPECT_EQ(found.problem(), "");
  EXPECT_EQ(reach(domains({"n"}), 1), LinkTable{"x"});
}

TEST(Links, PcieKeepsAPairApart) {
  const LinkDomains found = domains({"np", "pn"});
  EXPECT_EQ(reach(found, 2), (LinkTable{"x.", ".x"}));
  EXPECT_EQ(found.problem(), "ranks 0 and 1 are linked by PCIe, not NVLink");
}

TEST(Links, BridgesOfTwoMakeTwoDomains) {
  const LinkDomains found = domains({"nnpp", "nnpp", "ppnn", "ppnn"});
  EXPECT_EQ(reach(found, 4), (LinkTable{"xx..", "xx..", "..xx", "..xx"}));
  EXPECT_EQ(found.problem(), "ranks 0 and 2 are linked by PCIe, not NVLink");
}

// A rank that reached both would assume that kernels serve the group of three, and the other two would not.
TEST(Links, ARankBetweenTwoReachesNeither) {
  const LinkDomains found = domains({"nnp", "nnn", "pnn"});
  EXPECT_EQ(reach(found, 3), (LinkTable{"x..", ".x.", "..x"}));
  EXPECT_EQ(reach(domains({"nnnpn", "nnnpn", "nnnnn", "ppnnn", "nnnnn"}), 5),
            (LinkTable{"x....", ".x...", "..x..", "...x.", "....x"}));
}

TEST(Links, OneEndThatSeesTheOtherIsEnough) {
  EXPECT_EQ(reach(domains({"nu", "nn"}), 2), (LinkTable{"xx", "xx"}));
  EXPECT_EQ(domains({"nu", "pn"}).problem(), "ranks 0 and 1 are linked by PCIe, not NVLink");
  EXPECT_EQ(reach(domains({"np", "nn"}), 2), (LinkTable{"x.", ".x"}));
}

TEST(Links, WhatNobodyKnowsIsNoNvlink) {
  const LinkDomains found = domains({"nu", "un"});
  EXPECT_EQ(reach(found, 2), (LinkTable{"x.", ".x"}));
  EXPECT_EQ(found.problem(),
            "nothing says whether NVLink links ranks 0 and 1, as neither process sees the other's GPU");
}

// NCCL offers memory of another host only over NVLink.
TEST(Links, OtherHostsAreReachedWhereNcclOffersThem) {
  const LinkDomains found = domains({"nnaa", "nnaa", "aann", "aann"});
  EXPECT_EQ(reach(found, 4), (LinkTable{"xxxx", "xxxx", "xxxx", "xxxx"}));
  EXPECT_EQ(found.problem(), "");
  EXPECT_EQ(reach(domains({"npaa", "pnaa", "aann", "aann"}), 4), (LinkTable{"x...", ".x..", "..xx", "..xx"}));
}

TEST(Links, APairCanBePretended) {
  PretendedLink pretended;
  EXPECT_FALSE(pretended.is(0, 1));
  EXPECT_FALSE(pretended.is(-1, -1));
  pretended.one = 2;
  pretended.other = 0;
  EXPECT_TRUE(pretended.is(0, 2));
  EXPECT_TRUE(pretended.is(2, 0));
  EXPECT_FALSE(pretended.is(2, 1));
}

}  // namespace
}  // namespace weft::detail
