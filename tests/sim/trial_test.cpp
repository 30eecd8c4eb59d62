// A protocol from outside the library in the simulator. docs/architecture.md shows the part between the two marks.
#include "sim/trial.hpp"

#include <gtest/gtest.h>

#include "ops/all_reduce/all_reduce.hpp"
#include "sim/explore.hpp"
#include "telling.hpp"
#include "wire/sentinel.hpp"

namespace weft::sim {
namespace {

using detail::HeaderAddress;
using detail::Pack;
using detail::Session;
using detail::Team;

// Every rank passes its packs to the next one. `rests`: the reader resets them to rest, as it must.
template <bool rests>
struct PassOn : detail::PrefetchesNothing {
  using Wire = detail::Sentinel<DataType::bf16>;
  using Handshake = detail::Handshake<0>;
  struct Work {
    const Pack* input;
    Pack* output;
    std::uint64_t packs;
  };
  struct ThreadPlan {
    HeaderAddress header;
  };
  static constexpr int kPhases = 2;
  template <Team T>
  static ThreadPlan thread_plan(T& team, const detail::Call& call, const Work&) {
    return {.header = team.block_rank() == 0 ? Handshake::address(team, call) : HeaderAddress{}};
  }
  static Pack* slot(const Session& s, std::uint32_t owner, std::uint32_t sender) {
    auto* const area = reinterpret_cast<Pack*>(detail::region_of(*s.call, owner) + s.layout().one_shot);
    return area + (s.epoch % detail::kBanks * s.size() + sender) * s.layout().one_shot_packs;
  }
  template <int phase, Team T>
  static bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, const Prefetched&) {
    if (team.block_rank() == 0) {
      if constexpr (phase == 0) Handshake::send(team, s, p.header);
      return phase == 0 || Handshake::compare(team, s, p.header, 1);
    }
    const std::uint32_t next = (s.rank() + 1) % s.size(), before = (s.rank() + s.size() - 1) % s.size();
    Pack* const to = slot(s, next, s.rank());
    Pack* const from = slot(s, s.rank(), before);
    const auto [first, step] = detail::share_of(team);
    for (std::uint64_t i = first; i < work.packs; i += step) {
      if constexpr (phase == 0) {
        team.store(to + i, Wire::encode<T::kAtomicBytes>(work.input[i], s.epoch));
      } else {
        Pack got{};
        const auto arrived = [&] { return Wire::arrived<T::kAtomicBytes>(got = team.load(from + i), s.epoch); };
        if (!detail::wait(team, s, {.phase = 1}, arrived, [&] { return before; })) return false;
        if constexpr (rests) team.store(from + i, detail::kRestPack);
        work.output[i] = Wire::decode(got);
      }
    }
    return true;
  }
};

// begin: docs/architecture.md
template <class A>
sim::Setup pass_on(unsigned ranks) {
  const auto trial = [&](std::uint64_t packs) {
    return std::make_shared<Trial>(Trial{
        .inputs = packs * 8,
        .outputs = packs * 8,
        .expected = [=](unsigned rank, std::uint64_t i,
                        const Trial::Bits& input) { return input((rank + ranks - 1) % ranks, i); },
        .kernel =
            [=](const std::byte* input, std::byte* output) {
              const auto* const from = reinterpret_cast<const Pack*>(input);
              return kernel_of<A, 8>({from, reinterpret_cast<Pack*>(output), packs}, false);
            },
    });
  };
  std::vector<CallSetup> calls;
  for (const std::uint64_t packs : {2u, 1u, 3u}) {
    calls.push_back({.count = packs * 8, .grids = {{3, 1}, {2, 2}}, .moving = Moving::trial, .trial = trial(packs)});
  }
  return {.name = "pass-on", .ranks = ranks, .atomic_bytes = 8, .calls = calls};
}
// end: docs/architecture.md

Report explored(const sim::Setup& setup, Strategy strategy) {
  AllReduceProgram program(setup);
  return explore(program, {.strategy = strategy, .executions = 5'000, .bound = 1});
}

TEST(Trial, OfANewProtocolIsRight) {
  for (const unsigned ranks : {2u, 3u, 4u}) {
    for (const Strategy strategy : {Strategy::random, Strategy::pct, Strategy::exhaustive}) {
      EXPECT_EQ(explored(pass_on<PassOn<true>>(ranks), strategy).failure.what, "") << ranks << name(strategy);
    }
  }
}

TEST(Trial, FindsWhatIsWrongWithOne) {
  const Report report = explored(pass_on<PassOn<false>>(3), Strategy::random);
  EXPECT_TRUE(report.failure);
  EXPECT_LE(report.schedule.size(), 4u);
}

// `weft simulate` has no trials, not even if a set-up has the same name.
TEST(Trial, IsToldHowToRepeatItsFailure) {
  sim::Setup setup = pass_on<PassOn<false>>(3);
  setup.name = "one-shot-bf16";
  const Report report = explored(setup, Strategy::random);
  const std::string text = story(setup.name, {}, report);
  EXPECT_EQ(text.find("weft simulate --protocol"), std::string::npos) << text;
  const std::string call = fmt::format("\n  replay(program, parse_schedule(\"{}\"), 0)\n", to_string(report.schedule));
  EXPECT_NE(text.find(call), std::string::npos) << text;
  AllReduceProgram program(setup);
  EXPECT_EQ(replay(program, parse_schedule(to_string(report.schedule)), 0).failure.what, report.failure.what);
}

}  // namespace
}  // namespace weft::sim
