// Wire formats. A sent pack never looks like memory at rest. Memory at rest or half a pack never looks like data. The
// payload arrives as the format promises.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "support/reference.hpp"
#include "wire/line.hpp"
#include "wire/sentinel.hpp"
#include "wire/signal.hpp"

namespace weft::detail {
namespace {

constexpr std::array<std::uint32_t, 9> kWords{0,           0xffffffffu, 0x7fffffffu, 0x80000000u, 0xffff0000u,
                                              0x0000ffffu, 0x7fff7fffu, 0xfffffffeu, 0x12345678u};

template <class Body>
void for_all_packs(Body&& body) {
  for (const std::uint32_t a : kWords) {
    for (const std::uint32_t b : kWords) {
      for (const std::uint32_t c : kWords) {
        for (const std::uint32_t d : kWords) body(Pack{{a, b, c, d}});
      }
    }
  }
}

// Puts each atomic unit of `pack` alone into memory at rest: a reader may see this of an unfinished store.
template <class Wire, int atomic_bytes>
void expect_no_part_arrives(const Pack& pack, std::uint32_t epoch) {
  constexpr int units = 16 / atomic_bytes;
  for (int missing = 0; missing < units; ++missing) {
    Pack seen = pack;
    std::memset(reinterpret_cast<std::byte*>(&seen) + missing * atomic_bytes, 0xff, atomic_bytes);
    ASSERT_FALSE(Wire::template arrived<atomic_bytes>(seen, epoch));
  }
}

// Compares words, except that a NaN may become another NaN.
void expect_same_numbers(DataType type, const Pack& a, const Pack& b) {
  const auto bytes_a = std::as_bytes(std::span(&a, 1)), bytes_b = std::as_bytes(std::span(&b, 1));
  const test::Format format = test::format_of(type);
  for (std::size_t i = 0; i < 16 / size_of(type); ++i) {
    const std::uint32_t x = test::get(bytes_a, type, i), y = test::get(bytes_b, type, i);
    if (std::isnan(test::value_of(format, x))) {
      ASSERT_TRUE(std::isnan(test::value_of(format, y)));
    } else {
      ASSERT_EQ(x, y);
    }
  }
}

template <DataType type, int atomic_bytes>
void check_sentinel() {
  using Wire = Sentinel<type>;
  EXPECT_FALSE((Wire::template arrived<atomic_bytes>(kRestPack, 1)));
  for_all_packs([&](const Pack& payload) {
    const Pack wire = Wire::template encode<atomic_bytes>(payload, 1);
    ASSERT_TRUE((Wire::template arrived<atomic_bytes>(wire, 1)));
    expect_no_part_arrives<Wire, atomic_bytes>(wire, 1);
    expect_same_numbers(type, payload, Wire::decode(wire));
  });
}

TEST(Sentinel, CarriesEveryNumber) {
  check_sentinel<DataType::bf16, 8>();
  check_sentinel<DataType::f16, 8>();
  check_sentinel<DataType::f32, 8>();
  check_sentinel<DataType::bf16, 16>();
  check_sentinel<DataType::f32, 16>();
}

// Words are not reset: a word that no call has touched for billions of calls must not look new.
TEST(Signal, OldWordsAreOldHoweverEpochsWrap) {
  for (const std::uint32_t epoch : {0u, 1u, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu}) {
    const std::uint64_t wanted = signal_word(epoch, 7);
    EXPECT_TRUE(signal_reached(wanted, wanted));
    EXPECT_TRUE(signal_reached(signal_word(epoch, 8), wanted));
    EXPECT_TRUE(signal_reached(signal_word(epoch + 1, 0), wanted));  // a peer may be in the next call
    EXPECT_FALSE(signal_reached(signal_word(epoch, 6), wanted));
    for (const std::uint32_t ago : {1u, 2u, 0x7fffffffu, 0x80000000u, 0x80000001u, 0xfffffff0u}) {
      EXPECT_FALSE(signal_reached(signal_word(epoch - ago, 9), wanted)) << ago;
    }
  }
}

TEST(Line, CarriesEveryBitAndKnowsItsEpoch) {
  for (const std::uint32_t epoch : {0u, 1u, 2u, 0x7ffffffeu, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu}) {
    EXPECT_FALSE(Line::arrived<8>(kRestPack, epoch));
    for (const std::uint32_t a : kWords) {
      for (const std::uint32_t b : kWords) {
        const Pack wire = Line::encode<8>({{a, b, 0, 0}}, epoch);
        ASSERT_TRUE(Line::arrived<8>(wire, epoch));
        ASSERT_FALSE(Line::arrived<8>(wire, epoch + 1));
        ASSERT_FALSE(Line::arrived<8>(wire, epoch - 2));  // the call before on this bank
        expect_no_part_arrives<Line, 8>(wire, epoch);
        ASSERT_EQ(Line::decode(wire).word[0], a);
        ASSERT_EQ(Line::decode(wire).word[1], b);
      }
    }
  }
}

}  // namespace
}  // namespace weft::detail
