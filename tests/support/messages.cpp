#include "support/messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weft/messages.hpp"

namespace weft::test {
namespace {

Move letters(std::vector<Letter> all, std::uint32_t seed) {
  std::uint32_t number = 0;
  for (Letter& letter : all) letter.seed = number++;
  return {.kind = Kind::messages, .letters = std::move(all), .seed = seed};
}

// The letters of these numbers, each by a call of its own.
Move in_order(const Move& move, const std::vector<std::size_t>& order) {
  Move result = move;
  result.one_by_one = true;
  result.letters.clear();
  for (const std::size_t number : order) result.letters.push_back(move.letters[number]);
  return result;
}

}  // namespace

Move ring(int ranks, std::size_t bytes, std::uint32_t seed) {
  std::vector<Letter> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back({.from = rank, .to = (rank + 1) % ranks, .bytes = bytes});
  return letters(std::move(all), seed);
}

std::vector<Move> rings(int ranks, std::size_t most) {
  std::vector<Move> moves;
  for (const std::size_t bytes :
       {std::size_t{1}, std::size_t{7}, std::size_t{16}, std::size_t{100}, std::size_t{4096}, std::size_t{4099},
        std::size_t{16'384}, std::size_t{65'537}, std::size_t{300'000}, most, most + 5}) {
    for (const bool shifted : {false, true}) {
      const auto seed = static_cast<std::uint32_t>(moves.size());
      Move move = ring(ranks, bytes, seed);
      for (Letter& letter : move.letters) {
        if (!shifted) continue;
        letter.send_shift = (seed * 5 + static_cast<std::uint32_t>(letter.from)) % 16;
        letter.receive_shift = (seed * 3 + 1 + static_cast<std::uint32_t>(letter.to)) % 16;
      }
      moves.push_back(std::move(move));
    }
  }
  return moves;
}

Move everyone(int ranks, std::uint32_t seed) {
  constexpr std::size_t lengths[] = {33, 0, 1, 5000, 160, 20'003};
  std::vector<Letter> all;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      const std::size_t bytes = lengths[static_cast<std::size_t>(from * 5 + to) % std::size(lengths)];
      all.push_back({.from = from, .to = to, .bytes = bytes, .tag = static_cast<std::uint32_t>(to)});
    }
  }
  return letters(std::move(all), seed);
}

Move several_to_one_peer(int ranks, std::size_t longest, std::uint32_t seed) {
  const int last = ranks - 1;
  return letters({{.from = 0, .to = last, .bytes = 100},
                  {.from = 0, .to = last, .bytes = 100},
                  {.from = last, .to = 0, .bytes = longest},
                  {.from = 0, .to = last, .bytes = longest, .send_shift = 3},
                  {.from = 0, .to = last, .bytes = 1},
                  {.from = last, .to = 0, .bytes = 64, .receive_shift = 5},
                  {.from = 0, .to = last, .bytes = 100}},
                 seed);
}

Move pair_of(int one, int other, std::size_t bytes, std::uint32_t seed) {
  return letters({{.from = one, .to = other, .bytes = bytes}, {.from = other, .to = one, .bytes = bytes + 3}}, seed);
}

std::vector<Move> answered_one_by_one(int rank, std::size_t bytes) {
  std::vector<Move> moves;
  const Move both_ways = letters({{.from = 0, .to = 1, .bytes = bytes},
                                  {.from = 0, .to = 1, .bytes = bytes + 1},
                                  {.from = 1, .to = 0, .bytes = bytes + 2},
                                  {.from = 1, .to = 0, .bytes = bytes + 3}},
                                 static_cast<std::uint32_t>(bytes % 1000));
  const std::vector<std::vector<std::size_t>> orders{{0, 1, 2, 3}, {2, 3, 0, 1}, {0, 2, 1, 3},
                                                     {2, 0, 3, 1}, {0, 2, 3, 1}, {2, 0, 1, 3}};
  for (const auto& order : orders) moves.push_back(rank == 1 ? in_order(both_ways, order) : both_ways);
  const Move chain = letters({{.from = 0, .to = 1, .bytes = bytes},
                              {.from = 1, .to = 2, .bytes = bytes},
                              {.from = 2, .to = 0, .bytes = bytes},
                              {.from = 2, .to = 1, .bytes = bytes}},
                             7);
  if (rank == 0) moves.push_back(chain);
  if (rank == 1) moves.push_back(in_order(chain, {0, 3, 1}));
  if (rank == 2) moves.push_back(in_order(chain, {3, 2, 1}));
  return moves;
}

std::vector<UnequalLetters> unequal_letters() {
  const auto changed = [](Move move, auto change) {
    for (Letter& letter : move.letters) change(letter);
    return move;
  };
  const Move brief = pair_of(0, 1, 100, 1), lengthy = pair_of(0, 1, 200'000, 2);
  return {{"longer", brief, changed(brief, [](Letter& letter) { letter.bytes += 1; })},
          {"much longer", brief, changed(brief, [](Letter& letter) { letter.bytes += 300'000; })},
          {"shorter by a chunk", lengthy, changed(lengthy, [](Letter& letter) { letter.bytes -= 50'000; })},
          {"nothing", brief, changed(brief, [](Letter& letter) { letter.bytes = 0; })},
          {"another tag", brief, changed(brief, [](Letter& letter) { letter.tag = 9; })},
          {"another tag of long ones", lengthy, changed(lengthy, [](Letter& letter) { letter.tag = 9; })}};
}

void expect_unequal_found(const std::vector<Ending>& endings, const std::string& what) {
  int mismatches = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const Ending& ending = endings[index(rank)];
    expect_fault(ending, {Errc::mismatch, Errc::peer_failed}, what);
    if (!ending.error) continue;
    const Fault& fault = ending.error->fault();
    const bool found = fault.code == Errc::mismatch;
    mismatches += found;
    EXPECT_EQ(found ? fault.peer : fault.reporter, 1 - rank) << what << ": " << ending.what;
    if (!found) {
      EXPECT_EQ(fault.reported, Errc::mismatch) << what << ": " << ending.what;
    }
  }
  EXPECT_GE(mismatches, 1) << what;
}

Move lonely_letter(std::size_t bytes, bool sends) {
  return {.kind = Kind::messages, .letters = {{.from = sends ? 0 : 1, .to = sends ? 1 : 0, .bytes = bytes}}};
}

void expect_lonely_found(const std::vector<Ending>& endings, const Move& lonely) {
  EXPECT_EQ(endings[1].what, "");
  expect_fault(endings[0], {Errc::timeout}, describe(lonely));
  if (!endings[0].error) return;
  EXPECT_EQ(endings[0].error->fault().peer, 1) << endings[0].what;
  const Letter& letter = lonely.letters.front();
  expect_says(endings[0].what, fmt::format("{} {} bytes {} rank 1", letter.from == 0 ? "send" : "receive", letter.bytes,
                                           letter.from == 0 ? "to" : "from"));
}

std::vector<RejectedMove> rejected_messages(std::byte* memory, Device device) {
  std::vector<RejectedMove> all;
  const auto add = [&](const std::string& part, std::vector<Send> sends, std::vector<Receive> receives,
                       Launch launch = {}, Stream stream = nullptr) {
    all.push_back({part, [=](const Group& group) {
                     send_receive(group, {.sends = sends, .receives = receives, .stream = stream, .launch = launch});
                   }});
  };
  for (const int peer : {-1, 3, 1000}) {
    const std::string words = fmt::format(".peer: {} is not a rank of the group, 0 … 2", peer);
    add("send" + words, {{peer, memory, 64}}, {});
    add("receive" + words, {}, {{peer, memory, 64}});
  }
  add("send.data: null, with 64 bytes", {{0, memory, 64}, {1, nullptr, 64}}, {{0, memory + 64, 64}});
  add("receive.data: null, with 1 bytes", {}, {{1, nullptr, 1}});
  const std::size_t most = std::size_t{1} << 46;
  add(fmt::format("send.bytes: {} is not between 0 and 2^46", most + 1), {{1, memory, most + 1}}, {});
  add(fmt::format("receive.bytes: {} is not between 0 and 2^46", SIZE_MAX), {}, {{1, memory, SIZE_MAX}});
  const auto overlap = [](std::size_t bytes, int peer) {
    return fmt::format("receive.data: {} bytes from rank {} share memory with another message of the call", bytes,
                       peer);
  };
  add(overlap(64, 1), {}, {{1, memory, 64}, {2, memory + 63, 64}});
  add(overlap(64, 2), {{1, memory + 40, 1}}, {{2, memory, 64}});
  add(overlap(32, 2), {{1, memory, 64}}, {{2, memory, 32}});
  const auto lonely = [](int sends, int receives) {
    return fmt::format("send.peer: {} messages to this rank itself, and {} receives from it, are not as many", sends,
                       receives);
  };
  // Each rank names itself.
  const auto to_itself = [&](int sends, int receives) {
    all.push_back({lonely(sends, receives), [=](const Group& group) {
                     const Send send{group.rank(), memory, 64};
                     const Receive receive{group.rank(), memory + 64, 64};
                     const std::vector<Send> of_sends(static_cast<std::size_t>(sends), send);
                     std::vector<Receive> of_receives;
                     if (receives != 0) of_receives.push_back(receive);
                     send_receive(group, {.sends = of_sends, .receives = of_receives});
                   }});
  };
  to_itself(1, 0);
  to_itself(0, 1);
  to_itself(2, 1);
  const std::string many = fmt::format("s: {} is not between 0 and {}", kMaxMessages + 1, kMaxMessages);
  add("send" + many, std::vector<Send>(kMaxMessages + 1, Send{1, memory, 0}), {});
  add("receive" + many, {}, std::vector<Receive>(kMaxMessages + 1, Receive{1, memory, 0}));
  add("launch.blocks: 1 is not 0 or ", {{1, memory, 64}}, {}, {.blocks = 1});
  add("launch.threads: 33 is not 0 or a multiple of 32 between 32 and 512", {{1, memory, 64}}, {}, {.threads = 33});
  // GPU streams are left out: CUDA must not be asked about a pointer that is no stream.
  if (device == Device::cpu)
    add("stream: must be null on CPU ranks", {{1, memory, 64}}, {}, {}, reinterpret_cast<Stream>(memory));

  const auto rooted = [&](const std::string& part, auto args, auto function, auto&& spoil) {
    args.input = memory;
    args.output = memory + 4096;
    args.bytes = 64;
    spoil(args);
    all.push_back({part, [args, function](const Group& group) { function(group, args); }});
  };
  const auto of_each_root = [&](auto args, auto function) {
    const auto as_root = [function](const Group& group, auto rooted) {
      rooted.root = group.rank();
      function(group, rooted);
    };
    rooted("root: 3 is not a rank of the group, 0 … 2", args, function, [](auto& a) { a.root = 3; });
    rooted("root: -1 is not a rank of the group, 0 … 2", args, function, [](auto& a) { a.root = -1; });
    rooted("bytes: 18446744073709551615 is not between 0 and 2^40", args, function,
           [](auto& a) { a.bytes = SIZE_MAX; });
    rooted("input: null, with 64 bytes", args, as_root, [](auto& a) { a.input = nullptr; });
    rooted("output: null, with 64 bytes", args, as_root, [](auto& a) { a.output = nullptr; });
    rooted("launch.blocks: 1 is not 0 or ", args, function, [](auto& a) { a.launch.blocks = 1; });
  };
  of_each_root(GatherArgs{}, gather);
  of_each_root(ScatterArgs{}, scatter);
  return all;
}

}  // namespace weft::test
