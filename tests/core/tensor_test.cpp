// Packs of a tensor: ends, alignments, and offsets past 2^32.
#include "numeric/tensor.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "support/far.hpp"
#include "support/guarded.hpp"

namespace weft::detail {
namespace {

template <class T>
class TensorOf : public testing::Test {};

template <class S, std::uint32_t n>
struct Kind {
  using Storage = S;
  static constexpr std::uint32_t elements = n;
};
using Kinds = testing::Types<Kind<std::uint16_t, 8>, Kind<std::uint32_t, 4>, Kind<std::uint32_t, 2>>;
TYPED_TEST_SUITE(TensorOf, Kinds);

TYPED_TEST(TensorOf, CopiesAnyCountFromAnyToAnyAlignmentAndNothingElse) {
  using Storage = typename TypeParam::Storage;
  constexpr std::uint32_t n = TypeParam::elements;
  for (std::size_t count = 0; count <= 3 * n + 1; ++count) {
    for (std::size_t from = 0; from < n; ++from) {
      for (std::size_t to = 0; to < n; ++to) {
        test::Guarded source(count * sizeof(Storage), from * sizeof(Storage));
        test::Guarded target(count * sizeof(Storage), to * sizeof(Storage));
        for (std::size_t i = 0; i < count * sizeof(Storage); ++i) {
          source.content()[i] = static_cast<std::byte>(i * 37 + 11);
        }
        const Tensor<Storage, n> input(source.content().data(), count), output(target.content().data(), count);
        ASSERT_EQ(input.packs(), (count + n - 1) / n);
        for (std::uint64_t pack = 0; pack < input.packs(); ++pack) output.store(pack, input.load(pack));
        ASSERT_TRUE(std::equal(source.content().begin(), source.content().end(), target.content().begin()));
        ASSERT_EQ(target.damage(), "") << count << " elements from +" << from << " to +" << to;
      }
    }
  }
}

TYPED_TEST(TensorOf, OfWholePacksIsTheSameTensor) {
  using Storage = typename TypeParam::Storage;
  constexpr std::uint32_t n = TypeParam::elements;
  constexpr std::size_t bytes = 5 * n * sizeof(Storage);
  test::Guarded source(bytes, 0), target(bytes, n * sizeof(Storage));
  for (std::size_t i = 0; i < bytes; ++i) source.content()[i] = static_cast<std::byte>(i * 37 + 11);
  ASSERT_TRUE(is_aligned16(source.content().data(), bytes, n * sizeof(Storage)));
  const Tensor<Storage, n, true> input(source.content().data(), 5 * n), output(target.content().data(), 5 * n);
  ASSERT_EQ(input.packs(), 5u);
  for (std::uint64_t pack = 0; pack < input.packs(); ++pack) output.store(pack, input.load(pack));
  EXPECT_TRUE(std::equal(source.content().begin(), source.content().end(), target.content().begin()));
  EXPECT_EQ(target.damage(), "");
  EXPECT_FALSE(is_aligned16(source.content().data() + sizeof(Storage), bytes, n * sizeof(Storage)));
  EXPECT_FALSE(is_aligned16(source.content().data(), bytes - sizeof(Storage), n * sizeof(Storage)));
}

TYPED_TEST(TensorOf, ReadsZerosBehindTheEnd) {
  using Storage = typename TypeParam::Storage;
  constexpr std::uint32_t n = TypeParam::elements;
  test::Guarded source(sizeof(Storage), 0);
  source.content()[0] = std::byte{1};
  const Pack pack = Tensor<Storage, n>(source.content().data(), 1).load(0);
  EXPECT_EQ(pack.word[0] & 0xff, 1u);
  EXPECT_EQ(sizeof(Storage) == 4 ? 0 : pack.word[0] >> 16, 0u);
  EXPECT_EQ(pack.word[1] | pack.word[2] | pack.word[3], 0u);
}

TYPED_TEST(TensorOf, ReachesPastTwoToThe31And32) {
  using Storage = typename TypeParam::Storage;
  constexpr std::uint32_t n = TypeParam::elements;
  constexpr std::uint64_t bytes = std::uint64_t{3} << 32, one = 1;
  const test::Sparse memory(bytes);
  for (const std::size_t shift : {std::size_t{0}, sizeof(Storage)}) {  // takes the wide and the narrow path
    const std::uint64_t count = (bytes - shift) / sizeof(Storage) - 1;
    const Tensor<Storage, n> tensor(memory.data() + shift, count);
    for (const std::uint64_t byte :
         {one << 31, (one << 31) * sizeof(Storage), one << 32, (one << 32) + 4096, bytes - 2 * sizeof(Pack)}) {
      const std::uint64_t pack = byte / tensor.kBytes;
      const std::byte* const place = memory.data() + shift + pack * tensor.kBytes;
      Pack value{};
      for (std::uint32_t i = 0; i < tensor.kBytes / 4; ++i)
        value.word[i] = static_cast<std::uint32_t>(byte >> 8) + i + 1;
      tensor.store(pack, value);
      ASSERT_EQ(std::memcmp(place, value.word, tensor.kBytes), 0) << "stored elsewhere than at byte " << byte;
      const Pack read = tensor.load(pack);
      ASSERT_EQ(std::memcmp(read.word, value.word, tensor.kBytes), 0) << "at byte " << byte;
    }
  }
}

}  // namespace
}  // namespace weft::detail
