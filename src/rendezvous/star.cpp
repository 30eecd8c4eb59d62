#include "rendezvous/star.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <optional>
#include <utility>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

Bytes pack(const std::vector<std::optional<Bytes>>& parts) {
  Bytes packed;
  for (const auto& part : parts) {
    const std::uint64_t length = part->size();
    const auto bytes = std::as_bytes(std::span(&length, 1));
    packed.insert(packed.end(), bytes.begin(), bytes.end());
    packed.insert(packed.end(), part->begin(), part->end());
  }
  return packed;
}

std::vector<Bytes> unpack(std::span<const std::byte> packed) {
  std::vector<Bytes> parts;
  while (!packed.empty()) {
    std::uint64_t length = 0;
    std::memcpy(&length, packed.data(), sizeof length);
    const auto part = packed.subspan(sizeof length, length);
    parts.emplace_back(part.begin(), part.end());
    packed = packed.subspan(sizeof length + length);
  }
  return parts;
}

std::string gone(std::string_view what, int rank) {
  return fmt::format("rendezvous '{}': rank {} disconnected (its process ended, or it failed elsewhere)", what, rank);
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string too_late(std::string_view what, std::string_view missing, const Deadline& deadline) {
  return fmt::format("rendezvous '{}': {} did not come {}", what, missing, deadline.text());
}

std::vector<Bytes> StarBootstrap::all_gather(std::string_view what, std::span<const std::byte> mine) {
  if (!failure_.empty()) {
    throw Error(Errc::rendezvous, fmt::format("rendezvous '{}': an earlier one failed: {}", what, failure_));
  }
  const Deadline deadline(args_.deadline);
  return rank() == 0 ? gather_as_root(what, mine, deadline) : gather_as_leaf(what, mine, deadline, "rank 0");
}

void StarBootstrap::finish_joining(std::string_view what, const Deadline& deadline, std::string missing) {
  rank() == 0 ? gather_as_root(what, {}, deadline) : gather_as_leaf(what, {}, deadline, std::move(missing));
}

std::vector<Bytes> StarBootstrap::gather_as_root(std::string_view what, std::span<const std::byte> mine,
                                                 const Deadline& deadline) {
  std::vector<std::optional<Bytes>> parts(args_.peers.size());
  parts[0] = Bytes(mine.begin(), mine.end());
  std::vector<Connection*> connections;
  for (Connection& peer : args_.peers) connections.push_back(&peer);

  std::vector<int> missing;
  const auto take_what_came = [&] {
    std::vector<int> still_missing;
    for (int r = 1; r < size(); ++r) {
      Connection& peer = args_.peers[static_cast<std::size_t>(r)];
      while (const std::optional<Frame> frame = peer.next_frame()) {
        if (frame->kind == FrameKind::failure) fail(frame->text);
        if (frame->text != what) {
          fail(fmt::format("ranks met at different steps: rank 0 at '{}', rank {} at '{}'", what, r, frame->text));
        }
        parts[static_cast<std::size_t>(r)] = frame->body;
      }
      if (peer.is_closed()) fail(gone(what, r));
      if (!parts[static_cast<std::size_t>(r)]) still_missing.push_back(r);
    }
    // Who waits learns for whom, so that its own deadline can name them.
    if (still_missing != missing) {
      missing = still_missing;
      for (Connection& peer : args_.peers) peer.queue(FrameKind::waiting, list_ranks(missing));
    }
  };

  for (take_what_came(); !missing.empty(); take_what_came()) {
    if (deadline.passed()) fail(too_late(what, list_ranks(missing), deadline));
    move_some(connections, deadline);
  }

  const Bytes packed = pack(parts);
  for (Connection& peer : args_.peers) peer.queue(FrameKind::result, what, packed);
  for (int r = 1; r < size(); ++r) {
    while (!args_.peers[static_cast<std::size_t>(r)].all_sent()) {
      if (deadline.passed()) fail(fmt::format("rendezvous '{}': rank {} takes no data {}", what, r, deadline.text()));
      move_some(connections, deadline);
    }
  }
  return unpack(packed);
}

std::vector<Bytes> StarBootstrap::gather_as_leaf(std::string_view what, std::span<const std::byte> mine,
                                                 const Deadline& deadline, std::string missing) {
  Connection& root = args_.peers[0];
  Connection* const connections[] = {&root};
  root.queue(FrameKind::contribution, what, mine);
  root.send_some();
  for (;;) {
    while (const std::optional<Frame> frame = root.next_frame()) {
      if (frame->kind == FrameKind::failure) fail(frame->text);
      if (frame->kind == FrameKind::result) return unpack(frame->body);
      missing = frame->text;
    }
    if (root.is_closed()) fail(gone(what, 0));
    if (deadline.passed()) fail(too_late(what, missing, deadline));
    move_some(connections, deadline);
  }
}

void StarBootstrap::fail(const std::string& message) {
  failure_ = message;
  for (Connection& peer : args_.peers) {
    peer.queue(FrameKind::failure, message);
    peer.send_some();
  }
  throw Error(Errc::rendezvous, message);
}

}  // namespace weft::detail
