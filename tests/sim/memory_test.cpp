// The stores that the simulator rejects, for each kind of memory area.
#include "sim/memory.hpp"

#include <gtest/gtest.h>

#include "ops/moe/exchange.hpp"
#include "wire/line.hpp"

namespace weft::sim {
namespace {

constexpr unsigned kOwner = 0, kPeer = 1;  // threads, and ranks

// One area of `bytes` that rank 0 owns, at rest.
class OnePlace {
 public:
  explicit OnePlace(AreaKind kind, unsigned offset = 0, unsigned bytes = 16) : memory_(64, {kOwner, kPeer}) {
    std::memset(memory_.data(), 0xff, 64);
    memory_.add_area({0, 64, kOwner, kind, [](std::size_t) { return std::string("place"); }});
    memory_.reset();
    at_ = memory_.locate(memory_.data() + offset, bytes);
  }
  bool allows_store(unsigned thread, const Pack& value, unsigned age = 0) {
    return memory_.store(thread, at_, value, age) == nullptr;
  }
  void read(unsigned thread) { memory_.load(thread, at_, 0); }

 private:
  Memory memory_;
  Memory::Location at_;
};

constexpr Pack kData{{1, 2, 3, 4}}, kMore{{5, 6, 7, 8}};

TEST(Areas, SlotsAreReadAndPutBackToRestBeforeTheyAreWritten) {
  OnePlace slot(AreaKind::slot);
  EXPECT_TRUE(slot.allows_store(kPeer, kData));
  slot.read(kOwner);
  EXPECT_TRUE(slot.allows_store(kOwner, detail::kRestPack));
  EXPECT_TRUE(slot.allows_store(kPeer, kData));
  EXPECT_FALSE(slot.allows_store(kOwner, detail::kRestPack)) << "not read";

  OnePlace left(AreaKind::slot);
  left.allows_store(kPeer, kData);
  left.read(kOwner);
  EXPECT_FALSE(left.allows_store(kPeer, kMore)) << "not at rest";

  OnePlace late(AreaKind::slot);
  late.allows_store(kOwner, kData);
  EXPECT_FALSE(late.allows_store(kPeer, kMore, 1)) << "a store that comes to lie in front of another";
}

TEST(Areas, WordsOfPeersAreReadBeforeTheyAreWrittenAgain) {
  OnePlace header(AreaKind::header);
  EXPECT_TRUE(header.allows_store(kPeer, kData));
  header.read(kPeer);
  EXPECT_FALSE(header.allows_store(kPeer, kMore)) << "not read by the owner";

  OnePlace read(AreaKind::header);
  read.allows_store(kPeer, kData);
  read.read(kOwner);
  EXPECT_TRUE(read.allows_store(kPeer, kMore));

  OnePlace own(AreaKind::header);
  own.allows_store(kOwner, kData);
  EXPECT_TRUE(own.allows_store(kPeer, kMore));
}

TEST(Areas, RecordsAreReadUnlessTheyOnlyRenewTheFlag) {
  const auto line = [](std::uint32_t place, std::uint32_t weight) {
    return detail::Line::encode<16>({{place, weight, 0, 0}}, 7);
  };
  const Pack renewed = line(detail::kNone, 0), used = line(3, 5);
  OnePlace whole(AreaKind::record);
  EXPECT_TRUE(whole.allows_store(kPeer, renewed));
  EXPECT_TRUE(whole.allows_store(kPeer, renewed)) << "nobody reads what only renews the flag";
  EXPECT_TRUE(whole.allows_store(kPeer, used));
  EXPECT_FALSE(whole.allows_store(kPeer, renewed));

  for (const unsigned half : {0u, 8u}) {
    const auto part = [&](const Pack& pack) { return Pack{{pack.word[half / 4], pack.word[half / 4 + 1], 0, 0}}; };
    OnePlace torn(AreaKind::record, half, 8);
    EXPECT_TRUE(torn.allows_store(kPeer, part(renewed)));
    EXPECT_TRUE(torn.allows_store(kPeer, part(used)));
    EXPECT_FALSE(torn.allows_store(kPeer, part(renewed))) << half;
  }
}

TEST(Areas, OtherWordsHaveNoRule) {
  OnePlace word(AreaKind::word);
  EXPECT_TRUE(word.allows_store(kPeer, kData));
  EXPECT_TRUE(word.allows_store(kPeer, kMore));
}

TEST(Areas, OfWordsThatAreIgnoredTheLastStoreIsKept) {
  Memory memory(64, {kOwner});
  auto* const words = reinterpret_cast<std::uint32_t*>(memory.data());
  words[2] = 5;
  memory.add_area({8, 16, kOwner, AreaKind::ignored, [](std::size_t) { return std::string("word"); }});
  for (const std::uint32_t value : {6u, 7u}) {
    memory.reset();
    EXPECT_TRUE(memory.ignored(words + 2));
    EXPECT_EQ(memory.last(words + 2), 5u);
    memory.keep(words + 2, &value, sizeof(value));
    EXPECT_EQ(memory.last(words + 2), value);
  }
}

// Three words, two threads, and the copies of both.
class Proxies : public testing::Test {
 protected:
  Proxies() {
    memory_.add_area({0, 64, kOwner, AreaKind::word, [](std::size_t) { return std::string("word"); }});
    memory_.reset();
  }
  Memory::Location at(unsigned i) { return memory_.locate(memory_.data() + std::size_t{i} * 16, 4); }
  // Whether it may read nothing but the newest value.
  bool knows(unsigned viewer, unsigned i) { return !memory_.stale(viewer, at(i)); }
  Memory memory_{64, {kOwner, kPeer}, true};
};

TEST_F(Proxies, LearnByAFenceAndTellWhenTheyAreAwaited) {
  const unsigned proxy = memory_.proxy(kPeer);
  memory_.store(kPeer, at(0), kData, 0);
  EXPECT_FALSE(knows(proxy, 0));
  memory_.fence_proxy(kPeer);
  EXPECT_TRUE(knows(proxy, 0));
  memory_.store(proxy, at(0), kMore, 0);
  EXPECT_FALSE(knows(kPeer, 0));
  memory_.see_copy(kPeer, proxy, at(0));
  EXPECT_TRUE(knows(kPeer, 0));
  memory_.store(kOwner, at(0), kData, 2);
  EXPECT_TRUE(knows(proxy, 0)) << "a store that comes to lie in front";
}

TEST_F(Proxies, OfARankThatIsGoneHaveSentWhatTheySent) {
  memory_.store(memory_.proxy(kPeer), at(0), kData, 0);
  memory_.join_rank(kOwner, kPeer);
  EXPECT_TRUE(knows(kOwner, 0));
}

TEST_F(Proxies, AreOrderedByLaunches) {
  const unsigned proxy = memory_.proxy(kOwner);
  memory_.store(kPeer, at(0), kData, 0);
  memory_.store(kPeer, at(1), kData, 0, true);
  memory_.load(proxy, at(1), 0);
  memory_.boundary(bit(kOwner), bit(kOwner));
  EXPECT_TRUE(knows(kOwner, 0)) << "read before the boundary, and released";
  EXPECT_TRUE(knows(kOwner, 1)) << "read before the boundary";
  EXPECT_TRUE(knows(proxy, 0));
  memory_.store(kOwner, at(2), kData, 0);
  memory_.boundary(bit(kOwner), bit(kOwner));
  memory_.store(proxy, at(1), kMore, 0);
  memory_.load(kPeer, at(1), 0, true);
  EXPECT_TRUE(knows(kPeer, 2)) << "stored before the boundary";
}

}  // namespace
}  // namespace weft::sim
