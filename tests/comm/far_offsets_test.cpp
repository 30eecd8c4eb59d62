// Operations on hand-made windows whose slots lie past 4 GiB, and messages of more than 2^32 bytes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "kernel/executor.hpp"
#include "ops/all_reduce/all_reduce_kernels.hpp"
#include "support/cases.hpp"
#include "support/far.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"

namespace weft::detail {
namespace {

using test::Prepared;

using test::FarRank;

void expect_right(Algorithm algorithm, DataType type) {
  const auto ranks = test::far_ranks(20'000'000'000);
  // The farthest slot of the last area begins past 40 GiB, and no two slots share their low 32 bits.
  ASSERT_GT(ranks[0]->layout.gather + 5 * ranks[0]->layout.two_shot_packs * sizeof(Pack), 10ull << 32);
  std::vector<Prepared> calls;
  for (std::uint32_t call = 0; call < 5; ++call) {
    calls.push_back(test::prepare({.count = 100 + call, .type = type, .fill = test::Fill::random, .seed = call}, 3));
  }
  const auto kernel = find_kernel(AllReduceQuery{
      .instance = {.type = type, .ops = Ops::sum, .size = FarRank::kSize, .aligned16 = false}, .algorithm = algorithm});
  test::expect_no_errors(test::run_ranks(FarRank::kSize, [&](int r) {
    for (const Prepared& p : calls) {
      test::Tensors tensors(p.call, p.inputs[static_cast<std::size_t>(r)]);
      FarRank& mine = *ranks[static_cast<std::size_t>(r)];
      run_on_cpu(
          {.call = mine.call(77),
           .bound = kernel.with({tensors.input.content().data(), tensors.output.content().data(), p.call.count})},
          nullptr);
      if (mine.record->complete != 0) throw std::runtime_error("the call failed");
      tensors.check(p, r);
    }
  }));
  for (const auto& rank : ranks) EXPECT_FALSE(rank->strayed());
}

TEST(FarOffsets, OneShotSlots) {
  expect_right(Algorithm::one_shot, DataType::bf16);
  expect_right(Algorithm::one_shot, DataType::i32);
}

// The algorithm of CPU ranks above 2 KB. A short message uses the first slot of each rank: they are 4 GiB apart, and
// the gather's slots lie past 24 GiB.
TEST(FarOffsets, PipelinedSlots) {
  expect_right(Algorithm::pipelined, DataType::bf16);
  expect_right(Algorithm::pipelined, DataType::i32);
}

TEST(FarOffsets, TwoShotSlots) {
  expect_right(Algorithm::two_shot, DataType::f32);
  expect_right(Algorithm::two_shot, DataType::i32);
}

// A tensor of more than 4 GiB without so much memory: one stretch of memory, mapped again and again, and a last page of
// its own.
class Repeated {
 public:
  static constexpr std::size_t kPart = std::size_t{4} << 20;

  explicit Repeated(std::size_t parts)
      : bytes_(parts * kPart),
        data_(static_cast<std::byte*>(::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    const int memory = ::memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(::ftruncate(memory, 2 * kPart), 0);
    for (std::size_t part = 0; part < parts; ++part) {
      const auto offset = static_cast<off_t>(part + 1 == parts ? kPart : 0);
      EXPECT_NE(::mmap(data_ + part * kPart, kPart, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, offset),
                MAP_FAILED);
    }
    ::close(memory);
  }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;
  ~Repeated() { ::munmap(data_, bytes_); }

  std::byte* data() const { return data_; }
  std::byte* last_part() const { return data_ + bytes_ - kPart; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

// Bytes of a message without its last part.
constexpr std::size_t kBytes = std::size_t{1} << (test::kSanitized ? 24 : 32);

// More than 2^31 elements and 2^32 bytes in one call: pieces must find their places. A sanitizer would take minutes, so
// it gets a message of 16 MiB.
TEST(FarOffsets, AMessageOfMoreThanFourGigabytes) {
  constexpr std::size_t parts = kBytes / Repeated::kPart + 1;
  const Repeated input(parts), output(parts);
  constexpr std::size_t last = Repeated::kPart / 2 - 3;  // elements of the last part: no whole number of packs
  const test::Case tail{.count = last, .fill = test::Fill::random, .seed = 8};
  const test::Bytes wanted = test::input_of(tail, 0);
  std::memcpy(input.last_part(), wanted.data(), wanted.size());
  std::memset(output.last_part(), 0xa5, Repeated::kPart);
  const std::size_t count = (input.bytes() - Repeated::kPart) / 2 + last;
  ASSERT_TRUE(test::kSanitized || count > std::size_t{1} << 31);
  Config config = test::cpu_config();
  config.max_groups = 0;
  config.one_shot_bytes = kBytes / 64;
  test::expect_all_well(test::run_world(1, config, [&](Communicator& communicator, int) {
    all_reduce(communicator, {.input = input.data(), .output = output.data(), .count = count});
  }));
  EXPECT_EQ(std::memcmp(output.last_part(), wanted.data(), wanted.size()), 0);
  for (std::size_t i = wanted.size(); i < Repeated::kPart; ++i) ASSERT_EQ(output.last_part()[i], std::byte{0xa5});
}

// The same message for two ranks in one pipelined call, with places past 2^32 bytes. Input and output of a rank are 8
// MiB of memory mapped again and again, so every part except the last has the same sums. Moving the bytes takes the
// time, so a slow machine (a sanitizer) gets 16 MiB.
TEST(FarOffsets, AMessageOfMoreThanFourGigabytesPipelined) {
  constexpr std::size_t parts = kBytes / Repeated::kPart + 1;
  constexpr std::size_t last = Repeated::kPart / 2 - 3;
  const Prepared tail = test::prepare({.count = last, .fill = test::Fill::random, .seed = 8}, 2);
  Config config = test::cpu_config();
  config.max_groups = 0;
  test::expect_all_well(test::run_world(2, config, [&](Communicator& communicator, int rank) {
    const Repeated input(parts), output(parts);
    const test::Bytes& mine = tail.inputs[static_cast<std::size_t>(rank)];
    std::memcpy(input.last_part(), mine.data(), mine.size());
    std::memset(output.last_part(), 0xa5, Repeated::kPart);
    const std::size_t count = (input.bytes() - Repeated::kPart) / 2 + last;
    all_reduce(communicator,
               {.input = input.data(), .output = output.data(), .count = count, .algorithm = Algorithm::pipelined});
    EXPECT_EQ(std::memcmp(output.last_part(), tail.expected.data(), tail.expected.size()), 0) << "rank " << rank;
    for (std::size_t i = mine.size(); i < Repeated::kPart; ++i) ASSERT_EQ(output.last_part()[i], std::byte{0xa5});
  }));
}

}  // namespace
}  // namespace weft::detail
