// Rules for copies in bulk. Each is broken by a warp of two lanes, and found under every schedule.
#include <gtest/gtest.h>

#include "copying.hpp"

namespace weft::sim {
namespace {

struct Rule {
  const char* name;
  Warp::Body body;
  const char* text;  // of all failures
};
const std::vector<Rule>& rules() {
  using Team = Warp::Team;
  static const std::vector<Rule> all{
      {"read_before_await",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(0, self.pack(0), 16);
         static_cast<void>(staged(team, 0));
         team.end_stage();
       },
       "place 0 of its warp's stage is read before its load is awaited"},
      {"second_load",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(1, self.pack(0), 16);
         team.load_bulk(1, self.pack(1), 16);
         team.end_stage();
       },
       "place 1 of its warp's stage is loaded again before lane"},
      {"await_of_nothing",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(0, self.pack(0), 16);
         team.await_load(0);
         team.await_load(0);
       },
       "place 0 of its warp's stage is awaited without a load"},
      {"other_address",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(2, self.pack(team.thread_rank()), 16);
         team.end_stage();
       },
       "place 2 of its warp's stage is loaded with other arguments than another lane's"},
      {"misaligned",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(0, self.word(1), 16);
         team.end_stage();
       },
       "is copied to or from an address that 16 does not divide"},
      {"too_long",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(0, self.pack(0), Team::kStageBytes + 16);
         team.end_stage();
       },
       "is copied with 528 bytes"},
      {"before_begin", [](Warp& self, const Team& team, unsigned) { team.load_bulk(0, self.pack(0), 16); },
       "place 0 of its warp's stage is used before begin_stage"},
      {"begin_twice",
       [](Warp&, const Team& team, unsigned) {
         team.begin_stage();
         team.begin_stage();
       },
       "begins twice in a launch"},
      {"load_without_end",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(2, self.pack(0), 16);
       },
       "place 2 of its warp's stage is being loaded when its launch ends"},
      {"store_without_end",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.store_bulk(self.pack(team.thread_rank()), 1, 16);
         team.commit_stores();
         team.await_reads<0>();
       },
       "place 1 of its warp's stage is being stored when its launch ends"},
      {"store_without_commit",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.store_bulk(self.pack(team.thread_rank()), 1, 16);
         team.end_stage();
       },
       "place 1 of its warp's stage is being stored when its launch ends"},
      {"refill_before_reads",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         if (team.thread_rank() == 0) {
           team.store_bulk(self.pack(0), 0, 16);
           team.commit_stores();
           team.store_bulk(self.pack(1), 0, 16);
           team.commit_stores();
           team.await_reads<1>();
         }
         team.sync_lanes();
         team.load_bulk(0, self.pack(2), 16);
         team.end_stage();
       },
       "thread 0: place 0 of its warp's stage is loaded while a store reads it"},
      {"stage_before_reads",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         if (team.thread_rank() == 0) team.store_bulk(self.pack(0), 0, 16);
         team.commit_stores();
         team.sync_lanes();
         if (team.thread_rank() == 1) team.stage(0, 3, 1u);
         team.sync_lanes();
         team.end_stage();
       },
       "thread 1: place 0 of its warp's stage is written while a store reads it"},
      {"refill_behind_another_lanes_reads",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         if (team.thread_rank() == 1) {
           team.store_bulk(self.pack(0), 0, 16);
           team.commit_stores();
           team.await_reads<0>();
         }
         static_cast<void>(team.or_of(1));  // which orders nothing
         team.load_bulk(0, self.pack(2), 16);
         team.end_stage();
       },
       "thread 0: place 0 of its warp's stage is loaded without a barrier behind a lane that has read it"},
      {"refill_while_another_lane_reads",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(0, self.pack(0), 16);
         team.await_load(0);
         static_cast<void>(team.or_of(staged(team, 0).word[0]));
         team.load_bulk(0, self.pack(1), 16);
         team.end_stage();
       },
       "thread 0: place 0 of its warp's stage is loaded without a barrier behind a lane that has read it"},
      {"stage_while_another_lane_reads",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(0, self.pack(0), 16);
         team.await_load(0);
         static_cast<void>(team.or_of(team.staged<std::uint32_t>(0, 1 - team.thread_rank())));
         team.stage(0, team.thread_rank(), 5u);
         team.end_stage();
       },
       "is written without a barrier behind a lane that has read it"},
      {"read_of_another_lanes_word",
       [](Warp&, const Team& team, unsigned) {
         team.begin_stage();
         team.stage(0, team.thread_rank(), 5u);
         static_cast<void>(team.or_of(1));
         static_cast<void>(staged(team, 0));
         team.end_stage();
       },
       "is read without a barrier behind the lane that has stored to it"},
      {"two_writers",
       [](Warp&, const Team& team, unsigned) {
         team.begin_stage();
         team.stage(0, 0, 5u);
         team.end_stage();
       },
       "is written by two lanes without a barrier between"},
      {"fence_stage_of_another_lane",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         if (team.thread_rank() == 1) team.stage(0, 0, 1u);
         if (team.thread_rank() == 0) team.fence_stage();
         team.sync_lanes();
         if (team.thread_rank() == 0) {
           team.fence_stage();
           team.store_bulk(self.pack(0), 0, 16);
         }
         team.end_stage();
       },
       "thread 0: place 0 of its warp's stage is stored without fence_stage of lane 1, which has written it"},
      {"fence_stage_before_the_last_word",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         if (team.thread_rank() == 0) {
           team.stage(0, 0, 1u);
           team.fence_stage();
           team.stage(0, 1, 2u);
           team.store_bulk(self.pack(0), 0, 16);
         }
         team.end_stage();
       },
       "thread 0: place 0 of its warp's stage is stored without fence_stage of lane 0, which has written it"},
      {"no_barrier_behind_fence_stage",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         if (team.thread_rank() == 1) {
           team.stage(0, 0, 1u);
           team.fence_stage();
         }
         static_cast<void>(team.or_of(1));
         if (team.thread_rank() == 0) team.store_bulk(self.pack(0), 0, 16);
         team.end_stage();
       },
       "thread 0: place 0 of its warp's stage is stored without a barrier behind lane 1, which has written it"},
      {"store_of_what_is_being_loaded",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         team.load_bulk(0, self.pack(0), 16);
         if (team.thread_rank() == 0) team.store_bulk(self.pack(1), 0, 16);
         team.end_stage();
       },
       "thread 0: place 0 of its warp's stage is stored before its load is awaited"},
      {"load_over_words_that_were_not_passed_on",
       [](Warp& self, const Team& team, unsigned) {
         team.begin_stage();
         if (team.thread_rank() == 1) team.stage(0, 0, 1u);
         team.sync_lanes();
         team.load_bulk(0, self.pack(0), 16);
         team.end_stage();
       },
       "thread 0: place 0 of its warp's stage is loaded without fence_stage behind a lane that has stored to it"},
  };
  return all;
}

class BrokenRule : public testing::TestWithParam<Rule> {};
TEST_P(BrokenRule, IsFoundWhateverTheSchedule) {
  Warp warp(GetParam().body);
  const std::set<std::string> all = warp.failures(2);
  EXPECT_FALSE(all.empty());
  for (const std::string& what : all) EXPECT_NE(what.find(GetParam().text), std::string::npos) << what;
}
INSTANTIATE_TEST_SUITE_P(Copies, BrokenRule, testing::ValuesIn(rules()),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace weft::sim
