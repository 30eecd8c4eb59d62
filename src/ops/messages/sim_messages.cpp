// Messages as calls of a program: their tensors, and the expected contents of those received.
#include <cstring>

#include "ops/messages/message_instances.hpp"
#include "sim/all_reduce.hpp"
#include "sim/run_as.hpp"

namespace weft::sim {
namespace {

Kernel find_message_kernel(const detail::MessagesWork& work, const RunAs& as) {
  return in_units(as.atomic_bytes,
                  [&]<int unit>() { return kernel_of<detail::MoveMessages, unit>(work, as.one_thread); });
}

}  // namespace

void AllReduceProgram::fill_messages(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  const auto& members = world_.groups()[spec.group];
  const unsigned me = world_.group_rank(spec.group, rank);
  const std::size_t element = size_of(setup_.type);
  // One tensor for each message, with a guard behind it.
  const auto room = [&](const Letter& letter) { return (letter.count * element + 15) / 16 * 16 + 16; };
  std::size_t total = 32;
  for (const Letter& letter : spec.letters) total += room(letter);
  auto* const memory = reinterpret_cast<std::byte*>(make_tensors(call, rank, 2 * total).data());
  Tensors& t = tensors(call, rank);
  const auto put = [&](std::vector<std::uint32_t>& words, std::size_t at, std::uint64_t bits) {
    std::memcpy(reinterpret_cast<std::byte*>(words.data()) + at, &bits, element);
  };
  detail::MessagesWork work{};
  std::size_t next = (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16 + 16;
  // Inputs first: `expected` begins as a copy of what is there.
  for (const bool sends : {true, false}) {
    if (!sends) t.output_offset = next, t.expected = t.initial;
    for (const Letter& letter : spec.letters) {
      if ((sends ? letter.from : letter.to) != me || (sends ? !letter.sends : !letter.receives)) continue;
      for (std::uint64_t k = 0; k < letter.count; ++k) {
        const unsigned first = letter.sent_in >= 0 ? static_cast<unsigned>(letter.sent_in) : call;
        const std::uint64_t bits = element_bits(setup_.payload, setup_.type, first, members[letter.from],
                                                letter.to * 1'009 + letter.count * 31 + k);
        if (sends) put(t.initial, next + k * element, bits);
        if (!sends && !world_.stale(call)) put(t.expected, next + k * element, bits);
      }
      const std::uint32_t peer = sends ? letter.to : letter.from;
      const std::uint32_t before = work.begin[work.queues];
      const bool queued = work.queues != (sends ? 0 : work.sends) && work.message[before - 1].peer == peer;
      if (!queued) work.begin[++work.queues] = static_cast<std::uint8_t>(before);
      work.message[work.begin[work.queues]++] = {.data = memory + next,
                                                 .bytes = letter.count * element,
                                                 .peer = peer,
                                                 .name = static_cast<std::uint32_t>(0x5ea1u + letter.count)};
      next += room(letter);
    }
    if (sends) work.sends = work.queues;
  }
  for (detail::Message& message : work.message) message.name ^= setup_.is_odd(call, rank) ? 0x100u : 0u;
  t.kernel = find_message_kernel(work, {setup_.atomic_bytes, setup_.one_thread});
}

}  // namespace weft::sim
