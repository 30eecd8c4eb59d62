#include "support/letters.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "weft/messages.hpp"

namespace weft::test {
namespace {

Bytes content_of(const Move& move, const Letter& letter) {
  const Case c{.count = letter.bytes, .type = DataType::u8, .fill = Fill::bits, .seed = move.seed * 4096 + letter.seed};
  return input_of(c, letter.from);
}

void put_bytes(Bytes& memory, std::size_t begin, const Bytes& content) {
  std::ranges::copy(content, memory.begin() + static_cast<std::ptrdiff_t>(begin));
}

}  // namespace

std::string describe_letters(const Move& move) {
  constexpr std::size_t most = 6;
  std::string text =
      fmt::format("{} messages{}, seed {}, launch {}×{}:", move.letters.size(), move.one_by_one ? " one by one" : "",
                  move.seed, move.launch.blocks, move.launch.threads);
  for (std::size_t i = 0; i < std::min(most, move.letters.size()); ++i) {
    const Letter& letter = move.letters[i];
    text += fmt::format(" {}→{} {} bytes, shifts {} {}, tag {};", letter.from, letter.to, letter.bytes,
                        letter.send_shift, letter.receive_shift, letter.tag);
  }
  return move.letters.size() > most ? text + " …" : text;
}

RankMove prepare_letters(const Move& move, int rank) {
  RankMove result{.move = move, .memory = {}, .counts = memory_of(0, 0), .places = {}};
  for (const Letter& letter : move.letters) {
    if (letter.from != rank && letter.to != rank) continue;
    const Bytes content = content_of(move, letter);
    if (letter.from == rank) {
      Memory& sent = result.memory.emplace_back(memory_of(letter.bytes, letter.send_shift));
      put_bytes(sent.before, sent.begin, content);
      sent.after = sent.before;
    }
    if (letter.to == rank) {
      Memory& received = result.memory.emplace_back(memory_of(letter.bytes, letter.receive_shift));
      put_bytes(received.after, received.begin, content);
    }
  }
  return result;
}

void issue_letters(const Group& group, const RankMove& prepared,
                   const std::function<std::byte*(const Memory&)>& address, Stream stream) {
  const Move& move = prepared.move;
  std::vector<Send> sends;
  std::vector<Receive> receives;
  std::size_t next = 0;
  const auto place = [&] {
    const Memory& memory = prepared.memory[next++];
    return address(memory) + memory.begin;
  };
  const auto call = [&] {
    if (sends.empty() && receives.empty()) return;
    if (move.launch.blocks != 0 || sends.size() + receives.size() > 1) {
      send_receive(group, {.sends = sends, .receives = receives, .stream = stream, .launch = move.launch});
    } else if (receives.empty()) {
      send(group, sends[0], stream);
    } else {
      receive(group, receives[0], stream);
    }
    sends.clear();
    receives.clear();
  };
  for (const Letter& letter : move.letters) {
    if (letter.from == group.rank()) sends.push_back({letter.to, place(), letter.bytes, letter.tag});
    if (letter.to == group.rank()) receives.push_back({letter.from, place(), letter.bytes, letter.tag});
    if (move.one_by_one) call();
  }
  call();
}

}  // namespace weft::test
