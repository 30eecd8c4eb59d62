#include "comm/call_board.hpp"

#include <array>
#include <atomic>
#include <cstring>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t kEntries = 1024, kTextWords = 29;

}  // namespace

// Read while it is written: `version` is odd meanwhile, and another one afterwards.
struct PublishedCall {
  std::uint32_t version;
  std::uint32_t channel;
  std::uint32_t fingerprint;
  std::uint32_t counted;
  std::array<std::uint64_t, kTextWords> text;  // ends with a zero
};

namespace {

template <class Word>
Word load(const Word& word, std::memory_order order = std::memory_order_relaxed) {
  return std::atomic_ref(const_cast<Word&>(word)).load(order);
}
template <class Word>
void store(Word& word, Word value, std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref(word).store(value, order);
}

// Nothing where it was written meanwhile, or never.
std::optional<std::pair<std::uint32_t, CallName>> read(const PublishedCall& entry) {
  const std::uint32_t version = load(entry.version, std::memory_order_acquire);
  if (version == 0 || version % 2 != 0) return std::nullopt;
  const std::uint32_t channel = load(entry.channel);
  CallName call{.fingerprint = load(entry.fingerprint), .text = {}, .counted = load(entry.counted) != 0};
  std::array<std::uint64_t, kTextWords> text;
  for (std::size_t i = 0; i < kTextWords; ++i) text[i] = load(entry.text[i], std::memory_order_acquire);
  if (load(entry.version) != version) return std::nullopt;
  text.back() = 0;  // whoever wrote it
  call.text = reinterpret_cast<const char*>(text.data());
  return std::pair{channel, std::move(call)};
}

}  // namespace

struct CallBoard::Part {
  std::uint32_t left;
  std::array<PublishedCall, kEntries> entries;
};

int match(const CallName& call, std::uint32_t fingerprint) {
  if (call.fingerprint == fingerprint) return 2;
  const auto half = [](std::uint32_t word) { return word & 0xffffu; };  // see protocol/handshake.hpp
  return call.counted && half(call.fingerprint) == half(fingerprint) ? 1 : 0;
}

std::unique_ptr<CallBoard> CallBoard::create(Bootstrap& bootstrap) {
  SharedMemoryWindow memory;
  try {
    memory = SharedMemoryWindow::create(bootstrap, sizeof(Part), "calls-of-weft");
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;  // that is thrown on all ranks
  }
  return std::unique_ptr<CallBoard>(new CallBoard(bootstrap.rank(), std::move(memory)));
}

CallBoard::~CallBoard() {
  // A child of fork() has not left, and has no such memory.
  if (is_shared() && origin_.is_here()) store(part(rank_).left, 1u, std::memory_order_release);
}

CallBoard::Part& CallBoard::part(int rank) const {
  return *reinterpret_cast<Part*>(memory_.at(rank));
}

std::uint64_t CallBoard::publish(std::uint32_t channel, const CallName& call) {
  if (!is_shared()) return 0;
  const std::scoped_lock lock(mutex_);
  PublishedCall& entry = part(rank_).entries[published_ % kEntries];
  std::array<std::uint64_t, kTextWords> text{};
  call.text.copy(reinterpret_cast<char*>(text.data()), sizeof(text) - 1);
  const std::uint32_t version = load(entry.version);
  store(entry.version, version + 1);
  std::atomic_thread_fence(std::memory_order_release);
  store(entry.channel, channel);
  store(entry.fingerprint, call.fingerprint);
  store(entry.counted, call.counted ? 1u : 0u);
  for (std::size_t i = 0; i < kTextWords; ++i) store(entry.text[i], text[i], std::memory_order_release);
  store(entry.version, version + 2, std::memory_order_release);
  return ++published_;
}

bool CallBoard::holds(std::uint64_t entry) const {
  if (!is_shared()) return true;
  const std::scoped_lock lock(mutex_);
  return entry != 0 && published_ - entry < kEntries;
}

std::optional<std::string> CallBoard::find(int rank, std::uint32_t channel, std::uint32_t fingerprint) const {
  if (!is_shared()) return std::nullopt;
  std::optional<std::string> found;
  // Of several the newest: its place was written most often, or it lies behind the others.
  std::pair best{1, 0u};
  for (const PublishedCall& entry : part(rank).entries) {
    const std::uint32_t version = load(entry.version);
    const auto read_entry = read(entry);
    if (!read_entry || read_entry->first != channel) continue;
    const std::pair how{match(read_entry->second, fingerprint), version};
    if (how < best) continue;
    best = how;
    found = read_entry->second.text;
  }
  return found;
}

bool CallBoard::has_left(int rank) const {
  return is_shared() && load(part(rank).left, std::memory_order_acquire) != 0;
}

}  // namespace weft::detail
