// Data from the wire is checked before use, for any sender: frames that no rank of this build would send.
#include <gtest/gtest.h>

#include <algorithm>
#include <new>

#include "comm/agreed_tuning.hpp"
#include "rendezvous/parts.hpp"
#include "rendezvous/socket.hpp"
#include "rendezvous/star.hpp"
#include "support/ranks.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using namespace test;
using namespace std::string_literals;

// Longer than any step here: a meeting that ends by this deadline has failed.
constexpr std::chrono::seconds short_patience(10);

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes numbers(std::initializer_list<std::uint64_t> values) {
  Bytes bytes;
  for (const std::uint64_t& value : values) {
    const auto more = std::as_bytes(std::span(&value, 1));
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

// Rank `rank` of `size`, and the other end of its only connection, which the test controls.
struct Meeting {
  explicit Meeting(int rank, int size = 2) {
    auto [own, other] = socket_pair();
    std::vector<Connection> peers(rank == 0 ? static_cast<std::size_t>(size) : 1);
    peers.back() = Connection(std::move(own));
    peer = std::move(other);
    bootstrap = std::make_unique<StarBootstrap>(StarBootstrap::Args{
        .rank = rank, .size = size, .deadline = short_patience, .address = {}, .peers = std::move(peers)});
  }
  void say(FrameKind kind, std::string_view text, std::span<const std::byte> body = {}) const {
    Connection connection{UniqueFd(::dup(peer.get()))};
    connection.queue(kind, text, body);
    connection.send_some();
  }
  void say(const Bytes& raw) const {
    ASSERT_EQ(::send(peer.get(), raw.data(), raw.size(), MSG_NOSIGNAL), static_cast<ssize_t>(raw.size()));
  }
  // The meeting fails with `part`, and so does every later meeting.
  void expect_refused(const std::string& part) const {
    expect_code([&] { bootstrap->all_gather_value("numbers", 1); }, Errc::rendezvous, part);
    expect_code([&] { bootstrap->barrier("later"); }, Errc::rendezvous, part);
  }

  UniqueFd peer;
  std::unique_ptr<StarBootstrap> bootstrap;
};

struct Answer {
  const char* name;
  Bytes body;
  const char* part;
};
void PrintTo(const Answer& answer, std::ostream* out) {
  *out << answer.name;
}

class Answers : public testing::TestWithParam<Answer> {};

const Bytes three_parts = pack(std::vector<Bytes>(3, Bytes(sizeof(int))));
const Bytes many_parts = pack(std::vector<Bytes>(1000, Bytes(sizeof(int))));

INSTANTIATE_TEST_SUITE_P(All, Answers,
                         testing::Values(Answer{"empty", {}, "the parts of 0 ranks instead of 2"},
                                         Answer{"one_part", numbers({0}), "the parts of 1 ranks instead of 2"},
                                         Answer{"three_parts", three_parts, "12 bytes more than the parts of 2 ranks"},
                                         Answer{"many_parts", many_parts, "bytes more than the parts of 2 ranks"},
                                         Answer{"half_a_length", Bytes(3), "the parts of 0 ranks instead of 2"},
                                         Answer{"truncated", numbers({0, 4}), "the part of rank 1 is said to have"},
                                         Answer{"a_part_of_2^64_bytes", numbers({0, ~std::uint64_t{0}}),
                                                "18446744073709551615 bytes, and 0"},
                                         Answer{"parts_of_another_size", numbers({8, 1, 8, 2}),
                                                "rank 0 sent 8 bytes instead of 4"}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '^', '_');
                           return name;
                         });

TEST_P(Answers, OfRank0AreChecked) {
  const Meeting leaf(1);
  leaf.say(FrameKind::result, "numbers", GetParam().body);
  expect_code([&] { leaf.bootstrap->all_gather_value("numbers", 1); }, Errc::rendezvous, GetParam().part);
}

TEST(Frames, ARightAnswerIsTaken) {
  const Meeting leaf(1);
  const std::vector<int> values = {7, 8};
  leaf.say(FrameKind::waiting, "rank 1");
  leaf.say(FrameKind::result, "numbers", pack(std::vector{bytes_of("\7\0\0\0"s), bytes_of("\b\0\0\0"s)}));
  EXPECT_EQ(leaf.bootstrap->all_gather_value("numbers", 8), values);
}

TEST(Frames, AnAnswerToAnotherMeetingIsNone) {
  const Meeting leaf(1);
  leaf.say(FrameKind::result, "letters", pack(std::vector<Bytes>(2, Bytes(sizeof(int)))));
  leaf.expect_refused("ranks met at different steps: rank 1 at 'numbers', rank 0 at 'letters'");
}

TEST(Frames, KindsThatHaveNoPlaceInAMeeting) {
  for (const auto kind : {FrameKind::hello, FrameKind::contribution, FrameKind{0}, FrameKind{0xffffffff}}) {
    const Meeting leaf(1);
    leaf.say(kind, "numbers", numbers({4, 4}));
    leaf.expect_refused("rank 0 sent a frame of kind " + std::to_string(static_cast<std::uint32_t>(kind)));
  }
  for (const auto kind : {FrameKind::hello, FrameKind::result, FrameKind::waiting, FrameKind{77}}) {
    const Meeting root(0);
    root.say(kind, "numbers", Bytes(4));
    root.expect_refused("rank 1 sent a frame of kind " + std::to_string(static_cast<std::uint32_t>(kind)));
  }
}

TEST(Frames, APartThatComesTwice) {
  const Meeting root(0, 3);
  for (int i = 0; i < 2; ++i) root.say(FrameKind::contribution, "numbers", Bytes(4));
  root.expect_refused("rank 2 sent its part twice");
}

// A frame's header: magic with the version in its last byte, kind, bytes of text, bytes of body.
Bytes header(std::uint32_t magic, std::uint64_t text_bytes, std::uint64_t body_bytes) {
  Bytes bytes = numbers({magic | std::uint64_t{4} << 32});
  const Bytes lengths = numbers({text_bytes, body_bytes});
  bytes.insert(bytes.end(), lengths.begin(), lengths.end());
  return bytes;
}
constexpr std::uint32_t magic = 0x57454602;

TEST(Frames, WhatIsNoFrameIsNamed) {
  const std::vector<std::pair<Bytes, std::string>> cases = {
      {bytes_of("HTTP/1.1 400 Bad Request"), "what is no frame of Weft's (another program?)"},
      {header(0x57454601, 0, 0), "frames of version 1, those of this build are of version 2"},
      {header(magic, 4097, 0), "a text of 4097 bytes, allowed are 4096"},
      {header(magic, ~std::uint64_t{0}, 0), "a text of 18446744073709551615 bytes"},
      {header(magic, 0, (std::uint64_t{1} << 30) + 1), "a frame that claims 1073741825 bytes, allowed are 1073741824"},
      {header(magic, 8, ~std::uint64_t{0} - 4), "a frame that claims"}};
  for (const int rank : {0, 1}) {
    for (const auto& [raw, part] : cases) {
      const Meeting meeting(rank);
      meeting.say(raw);
      meeting.expect_refused("rank " + std::to_string(1 - rank) + " sends " + part);
    }
  }
}

// A header announces a frame of a GiB, and no byte of the frame follows.
TEST(Frames, WhatIsClaimedIsNotAllocated) {
  Meeting leaf(1);
  leaf.say(header(magic, 0, std::uint64_t{1} << 30));
  leaf.peer.reset();
  leaf.expect_refused("rank 0 disconnected");
}

TEST(Frames, AFailureSaysSomething) {
  for (const std::string& text : {std::string(), std::string("\0why", 4)}) {
    const Meeting leaf(1), root(0);
    leaf.say(FrameKind::failure, text);
    leaf.expect_refused("rank 0 failed, and does not say why");
    root.say(FrameKind::failure, text);
    root.expect_refused("rank 1 failed, and does not say why");
  }
}

TEST(Frames, TextsThatAreTooLongAreCutBetweenCharacters) {
  Meeting leaf(1);
  std::string text = "x";
  while (text.size() < 10'000) text += "…";
  leaf.say(FrameKind::failure, text);
  const std::string error = error_of([&] { leaf.bootstrap->barrier("numbers"); });
  EXPECT_EQ(error.size(), 4096u);  // 1 + 1365 * 3
  EXPECT_EQ(error, text.substr(0, 4096));
}

TEST(Frames, WhatOthersThrowIsAnErrorOfWefts) {
  auto bootstraps = make_thread_bootstraps(2, long_deadline);
  run_ranks(2, [&](int rank) {
    Bootstrap& mine = *bootstraps[index(rank)];
    const auto step = [&] {
      if (rank == 1) throw std::bad_alloc();
    };
    if (rank == 0) expect_code([&] { mine.agree_on("step", step); }, Errc::rendezvous, "step: failed on rank 1");
    if (rank == 1) expect_code([&] { mine.agree_on("step", step); }, Errc::system, "out of memory");
  });
}

TEST(Frames, TuningTablesOfRank0AreChecked) {
  const AgreedTuning tuning{.processor = {std::string(59, 'p'), 103, 148}, .tables = shipped_tuning()};
  Bytes bytes = bytes_of(to_bytes(tuning));
  EXPECT_EQ(agreed_tuning(bytes).processor, tuning.processor);
  EXPECT_EQ(fingerprint_of(agreed_tuning(bytes).tables), fingerprint_of(tuning.tables));
  bytes[63] = std::byte{'q'};  // the terminator of the name
  EXPECT_EQ(agreed_tuning(bytes).processor.name, tuning.processor.name + "q");
  bytes[0] ^= std::byte{1};
  expect_code([&] { agreed_tuning(bytes); }, Errc::rendezvous, "different builds of Weft");
  for (const std::size_t size : {0, 1, 71}) {
    const auto beginning = std::span(bytes).first(size);
    expect_code([&] { agreed_tuning(beginning); }, Errc::rendezvous,
                "have " + std::to_string(size) + " bytes, and 72 come before the first");
  }
  expect_code([&] { agreed_tuning(std::span(bytes).first(72)); }, Errc::invalid_argument, "no JSON");
}

}  // namespace
}  // namespace weft::detail
