#include "comm/call_board.hpp"

#include <array>
#include <atomic>
#include <cstring>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t kSets = 512, kPlaces = 8;
constexpr std::size_t kWords = CallWords::kMostBytes / sizeof(std::uint64_t);
static_assert(kWords * sizeof(std::uint64_t) == CallWords::kMostBytes);

}  // namespace

// Read while it is written: `version` is odd meanwhile, and different afterwards. All zeros: no call.
struct NotedCall {
  std::uint32_t version;
  std::uint32_t channel;
  std::uint32_t fingerprint;
  std::uint32_t counted;
  std::uint32_t kind;
  std::uint32_t size;
  std::uint32_t last;  // number of its newest note
  std::uint32_t unused;
  std::array<std::uint64_t, kWords> numbers;
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

std::size_t words_in(std::size_t bytes) {
  return std::min((bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t), kWords);
}

// 2: the fingerprints are equal; 1: only the counts differ; else 0.
int match(const NotedCall& call, std::uint32_t fingerprint) {
  const std::uint32_t own = load(call.fingerprint);
  if (own == fingerprint) return 2;
  const auto half = [](std::uint32_t word) { return word & 0xffffu; };  // see protocol/handshake.hpp
  return load(call.counted) != 0 && half(own) == half(fingerprint) ? 1 : 0;
}

// Its words; nothing if it was written since it had this version.
std::optional<CallWords> words_of(const NotedCall& call, std::uint32_t version) {
  const std::size_t size = load(call.size);
  std::array<std::uint64_t, kWords> numbers{};
  for (std::size_t i = 0; i < words_in(size); ++i) numbers[i] = load(call.numbers[i]);
  const CallWords words(load(call.kind), numbers.data(), size);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (load(call.version) != version) return std::nullopt;
  return words;
}

// A measure of how well a call matches, and its words; nothing if it does not match, was written meanwhile, or was
// never written.
std::optional<std::pair<int, CallWords>> read(const NotedCall& call, std::uint32_t channel, std::uint32_t fingerprint) {
  const std::uint32_t version = load(call.version, std::memory_order_acquire);
  if (version == 0 || version % 2 != 0 || load(call.channel) != channel) return std::nullopt;
  const int how = match(call, fingerprint);
  if (how == 0) return std::nullopt;
  const std::optional<CallWords> words = words_of(call, version);
  return words ? std::optional(std::pair{how, *words}) : std::nullopt;
}

void write(NotedCall& entry, std::uint32_t channel, const CallName& call) {
  std::array<std::uint64_t, kWords> numbers;
  numbers[words_in(call.words.size()) - (call.words.size() != 0 ? 1 : 0)] = 0;  // behind the last byte
  std::memcpy(numbers.data(), call.words.numbers(), call.words.size());
  const std::uint32_t version = load(entry.version);
  store(entry.version, version + 1);
  std::atomic_thread_fence(std::memory_order_release);
  store(entry.channel, channel);
  store(entry.fingerprint, call.fingerprint);
  store(entry.counted, call.counted ? 1u : 0u);
  store(entry.kind, call.words.kind(), std::memory_order_release);
  store(entry.size, static_cast<std::uint32_t>(call.words.size()));
  for (std::size_t i = 0; i < words_in(call.words.size()); ++i) {
    store(entry.numbers[i], numbers[i], std::memory_order_release);
  }
  // Never zero again, which would stand for no call.
  store(entry.version, version + 2 == 0 ? 2u : version + 2, std::memory_order_release);
}

}  // namespace

struct CallBoard::Part {
  std::uint32_t left;
  std::array<std::array<NotedCall, kPlaces>, kSets> sets;
};

CallBoard::CallBoard(int rank, SharedMemoryWindow memory) : rank_(rank), memory_(std::move(memory)) {
  if (!is_shared()) own_ = std::make_unique<Part>();
}

std::unique_ptr<CallBoard> CallBoard::create(Bootstrap& bootstrap) {
  SharedMemoryWindow memory;
  try {
    memory = SharedMemoryWindow::create(bootstrap, sizeof(Part), "calls-of-weft");
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;  // all ranks throw it
  }
  return std::unique_ptr<CallBoard>(new CallBoard(bootstrap.rank(), std::move(memory)));
}

CallBoard::~CallBoard() {
  // A child of fork() has not left, and has no such memory.
  if (is_shared() && origin_.is_here()) store(part(rank_).left, 1u, std::memory_order_release);
}

CallBoard::Part& CallBoard::part(int rank) const {
  return own_ != nullptr ? *own_ : *reinterpret_cast<Part*>(memory_.at(rank));
}

void CallBoard::note(std::uint32_t channel, const CallName& call) {
  note(channel, call, false);
}
void CallBoard::note_anew(std::uint32_t channel, const CallName& call) {
  note(channel, call, true);
}

void CallBoard::note(std::uint32_t channel, const CallName& call, bool anew) {
  const std::scoped_lock lock(mutex_);
  const std::uint32_t now = ++notes_;
  auto& set = part(rank_).sets[(call.fingerprint ^ channel * 0x9e3779b9u) % kSets];
  NotedCall* oldest = set.data();
  for (NotedCall& entry : set) {
    if (entry.version != 0 && entry.channel == channel && entry.fingerprint == call.fingerprint) {
      store(entry.last, now);
      if (anew) write(entry, channel, call);
      return;
    }
    if (entry.version == 0 || now - entry.last > now - oldest->last) oldest = &entry;
    if (entry.version == 0) break;
  }
  store(oldest->last, now);
  write(*oldest, channel, call);
}

std::optional<CallBoard::Match> CallBoard::find(int rank, std::uint32_t channel, std::uint32_t fingerprint) const {
  if (!is_shared() && rank != rank_) return std::nullopt;
  std::optional<Match> found;
  std::uint32_t found_at = 0;
  for (const auto& set : part(rank).sets) {
    for (const NotedCall& entry : set) {
      const auto fits = read(entry, channel, fingerprint);
      if (!fits) continue;
      if (fits->first == 2) return Match{.words = fits->second, .other_counts = false};
      const std::uint32_t last = load(entry.last);
      if (found && static_cast<std::int32_t>(last - found_at) < 0) continue;
      found = Match{.words = fits->second, .other_counts = true};
      found_at = last;
    }
  }
  return found;
}

std::optional<CallName> CallBoard::newest(int rank, std::uint32_t channel) const {
  if (!is_shared() && rank != rank_) return std::nullopt;
  const NotedCall* newest = nullptr;
  for (const auto& set : part(rank).sets) {
    for (const NotedCall& entry : set) {
      if (load(entry.version, std::memory_order_acquire) == 0 || load(entry.channel) != channel) continue;
      if (newest == nullptr || static_cast<std::int32_t>(load(entry.last) - load(newest->last)) > 0) newest = &entry;
    }
  }
  if (newest == nullptr) return std::nullopt;
  const std::uint32_t version = load(newest->version, std::memory_order_acquire), own = load(newest->fingerprint);
  if (version % 2 != 0 || load(newest->channel) != channel) return std::nullopt;
  const std::optional<CallWords> words = words_of(*newest, version);
  return words ? std::optional(CallName{own, *words}) : std::nullopt;
}

bool CallBoard::has_left(int rank) const {
  return is_shared() && load(part(rank).left, std::memory_order_acquire) != 0;
}

}  // namespace weft::detail
