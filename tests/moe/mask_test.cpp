// Rows that a mask sends to ranks, without ids (DispatchArgs::rank_mask), on CPU ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "support/moe_masks.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

// A rank's call: the mask instead of ids, between words that nobody may write.
class MaskedMoe {
 public:
  MaskedMoe(const MoeExchange& exchange, const PreparedMoe& p, std::uint32_t rank)
      : moe(exchange, p, rank), mask_(mask_of(p, rank)), ids_(mask_.size() + 2, kBeside) {}
  DispatchArgs dispatch() {
    DispatchArgs args = moe.dispatch();
    args.topk_ids = nullptr;
    args.rank_mask = mask_.data();
    args.mask_ids = ids_.data() + 1;
    return args;
  }
  void fill(const PreparedMoe& p, std::uint32_t rank) {
    moe.fill(p);
    std::ranges::copy(mask_of(p, rank), mask_.begin());  // recordings keep the address
  }
  void check() {
    moe.check_dispatch();
    moe.check_combine();
    ensure(ids_.front() == kBeside && ids_.back() == kBeside, "a word beside the ids was written");
  }

  CpuMoe moe;

 private:
  static constexpr std::int32_t kBeside = 77;
  std::vector<std::uint8_t> mask_;
  std::vector<std::int32_t> ids_;
};

class MoeMasks : public testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MoeMasks, testing::Values(1, 2, 3));

TEST_P(MoeMasks, RowsGoToTheRanksOfTheMask) {
  for (const Batch& batch : masked_batches(GetParam())) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, GetParam());
    expect_all_well(
        run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
          const auto rank = static_cast<std::uint32_t>(number);
          const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
          for (const PreparedMoe& p : prepared) {
            MaskedMoe masked(exchange, p, rank);
            exchange.combine(masked.moe.combine(exchange.dispatch(masked.dispatch())));
            masked.check();
            if (exchange.args().path == RowPath::ring) continue;
            masked.fill(p, rank);
            const DispatchArgs args = masked.dispatch();
            const DispatchHandle handle = exchange.dispatch_send(args);
            exchange.dispatch_wait(handle, args);
            exchange.combine(masked.moe.combine(handle));
            masked.check();
          }
        }));
  }
}

// A replay makes the ids of the mask that is there then. Ranks with ids meet ranks with masks.
TEST_P(MoeMasks, RecordingsReadTheMaskAnew) {
  const MoeExchangeArgs args{.tokens = 6, .hidden = 128};
  const std::vector<PreparedMoe> prepared =
      prepare_all({masked_case(args, GetParam(), 3), masked_case(args, GetParam(), 4)}, GetParam());
  expect_all_well(
      run_world(static_cast<int>(GetParam()), smallest_buffers(), [&](Communicator& communicator, int number) {
        const auto rank = static_cast<std::uint32_t>(number);
        const MoeExchange exchange = MoeExchange::create(communicator, prepared[0].call.args);
        MaskedMoe masked(exchange, prepared[0], rank);
        const Recording recording = Recording::capture(communicator, [&] {
          exchange.combine(
              masked.moe.combine(exchange.dispatch(rank == 1 ? masked.moe.dispatch() : masked.dispatch())));
        });
        for (int round = 0; round < 4; ++round) {
          masked.fill(prepared[static_cast<std::size_t>(round) % 2], rank);
          recording.replay();
          masked.check();
        }
      }));
}

// With contiguous experts the rows of a rank lie one behind the other, in (source rank, token) order.
TEST(MoeMasksLayout, ContiguousRowsAreCompact) {
  constexpr std::uint32_t kRanks = 3;
  MoeExchangeArgs args{.tokens = 10, .hidden = 64};
  args.layout = RowLayout::expert_contiguous;
  const PreparedMoe p = prepare(masked_case(args, kRanks, 5), kRanks, 5);
  expect_all_well(run_world(kRanks, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    MaskedMoe masked(exchange, p, rank);
    std::vector<std::int32_t> sources(exchange.output_rows(), -7), count(1), wanted;
    DispatchArgs to = masked.dispatch();
    to.output_sources = sources.data();
    to.counts = count.data();
    exchange.dispatch(to);
    for (std::uint32_t source = 0; source < kRanks; ++source) {
      for (std::uint32_t token = 0; token < p.tokens[source].count; ++token) {
        if (goes_to(5, source, token, rank)) wanted.push_back(static_cast<std::int32_t>(source * args.tokens + token));
      }
    }
    EXPECT_EQ(count[0], static_cast<std::int32_t>(wanted.size()));
    sources.resize(wanted.size());
    EXPECT_EQ(sources, wanted);
  }));
}

TEST(MoeMasksArguments, MisuseIsRejected) {
  const MoeExchangeArgs args{.tokens = 6, .hidden = 128};
  MoeCase c = masked_case(args, 2, 1);
  c.tokens = {6};
  const PreparedMoe p = prepare(c, 2, 1);
  expect_all_well(run_world(2, smallest_buffers(), [&](Communicator& communicator, int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    const MoeExchange exchange = MoeExchange::create(communicator, p.call.args);
    const auto rejected = [&](const MoeExchange& of, const DispatchArgs& call, const std::string& says) {
      try {
        of.dispatch(call);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
        EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
        return;
      }
      ADD_FAILURE() << "nothing says: " << says;
    };
    MaskedMoe masked(exchange, p, rank);
    DispatchArgs call = masked.dispatch();
    call.topk_ids = call.mask_ids;
    rejected(exchange, call, "topk_ids: not null, and rank_mask is given");
    call = masked.dispatch();
    call.mask_ids = nullptr;
    rejected(exchange, call, "mask_ids: null");
    call = masked.dispatch();
    call.mask_ids = reinterpret_cast<std::int32_t*>(const_cast<void*>(call.input));
    rejected(exchange, call, "mask_ids");
    call = masked.moe.dispatch();
    call.mask_ids = masked.dispatch().mask_ids;
    rejected(exchange, call, "mask_ids: not null, and rank_mask is null");
    exchange.combine(masked.moe.combine(exchange.dispatch(masked.dispatch())));
    masked.check();
    // Experts in another order, more of them, and fewer entries.
    for (int which = 0; which < 3; ++which) {
      MoeExchangeArgs other = p.call.args;
      if (which == 0) other.rank_of_expert = {1, 0};
      if (which == 1) other.experts = 4;
      if (which == 2) other.top_k = 1;
      const MoeExchange of_others = MoeExchange::create(communicator, other);
      rejected(of_others, masked.dispatch(),
               "rank_mask: not null, and the exchange has not 2 experts, one on each rank in their order, and top_k 2");
    }
  }));
}

}  // namespace
}  // namespace weft::test
