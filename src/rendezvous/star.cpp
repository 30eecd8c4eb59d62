#include "rendezvous/star.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <new>
#include <optional>
#include <utility>

#include "rendezvous/parts.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

// A rank's reason for its failure, up to a NUL, as an exception shows it.
std::string reason_of(const Frame& frame, int rank) {
  const std::string reason = frame.text.c_str();
  return reason.empty() ? fmt::format("rank {} failed, and does not say why", rank) : reason;
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
  return gather(what, mine, Deadline(args_.deadline), "rank 0");
}

void StarBootstrap::finish_joining(std::string_view what, const Deadline& deadline, std::string missing) {
  gather(what, {}, deadline, std::move(missing));
}

std::vector<Bytes> StarBootstrap::gather(std::string_view what, std::span<const std::byte> mine,
                                         const Deadline& deadline, std::string missing) {
  try {
    return rank() == 0 ? gather_as_root(what, mine, deadline)
                       : gather_as_leaf(what, mine, deadline, std::move(missing));
  } catch (const std::bad_alloc&) {
    fail(fmt::format("rendezvous '{}': rank {} has too little memory for the ranks' messages", what, rank()),
         Errc::system);
  } catch (const Error& error) {
    if (failure_.empty()) fail(error.what(), error.code());
    throw;
  }
}

void StarBootstrap::check_connection(std::string_view what, int rank, const Connection& peer) {
  if (peer.is_garbled()) fail(fmt::format("rendezvous '{}': rank {} sends {}", what, rank, peer.garbage()));
  if (peer.is_closed()) fail(gone(what, rank));
}

void StarBootstrap::refuse(std::string_view what, int rank, const Frame& frame) {
  fail(fmt::format(
      "rendezvous '{}': rank {} sent a frame of kind {}, which has no place there (another version of Weft?)", what,
      rank, static_cast<std::uint32_t>(frame.kind)));
}

std::vector<Bytes> StarBootstrap::gather_as_root(std::string_view what, std::span<const std::byte> mine,
                                                 const Deadline& deadline) {
  std::vector<Bytes> parts(args_.peers.size());
  std::vector<bool> came(parts.size());
  parts[0].assign(mine.begin(), mine.end());
  std::vector<Connection*> connections;
  for (Connection& peer : args_.peers) connections.push_back(&peer);

  std::vector<int> missing;
  const auto take = [&](int r, Frame& frame) {
    const auto place = static_cast<std::size_t>(r);
    if (frame.kind == FrameKind::failure) fail(reason_of(frame, r));
    if (frame.kind != FrameKind::contribution) refuse(what, r, frame);
    if (frame.text != what) {
      fail(fmt::format("ranks met at different steps: rank 0 at '{}', rank {} at '{}'", what, r, frame.text));
    }
    if (came[place]) fail(fmt::format("rendezvous '{}': rank {} sent its part twice", what, r));
    parts[place] = std::move(frame.body);
    came[place] = true;
  };
  const auto take_what_came = [&] {
    std::vector<int> still_missing;
    for (int r = 1; r < size(); ++r) {
      Connection& peer = args_.peers[static_cast<std::size_t>(r)];
      while (std::optional<Frame> frame = peer.next_frame()) take(r, *frame);
      check_connection(what, r, peer);
      if (!came[static_cast<std::size_t>(r)]) still_missing.push_back(r);
    }
    // Waiting ranks learn the missing ones, so that their own deadlines can name them.
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
  return parts;
}

std::vector<Bytes> StarBootstrap::gather_as_leaf(std::string_view what, std::span<const std::byte> mine,
                                                 const Deadline& deadline, std::string missing) {
  Connection& root = args_.peers[0];
  Connection* const connections[] = {&root};
  root.queue(FrameKind::contribution, what, mine);
  root.send_some();
  for (;;) {
    while (std::optional<Frame> frame = root.next_frame()) {
      if (frame->kind == FrameKind::failure) fail(reason_of(*frame, 0));
      if (frame->kind != FrameKind::result && frame->kind != FrameKind::waiting) refuse(what, 0, *frame);
      if (frame->kind == FrameKind::waiting) {
        missing = frame->text;
        continue;
      }
      if (frame->text != what) {
        fail(fmt::format("ranks met at different steps: rank {} at '{}', rank 0 at '{}'", rank(), what, frame->text));
      }
      return unpack(what, frame->body, static_cast<std::size_t>(size()));
    }
    check_connection(what, 0, root);
    if (deadline.passed()) fail(too_late(what, missing, deadline));
    move_some(connections, deadline);
  }
}

void StarBootstrap::fail(const std::string& message, Errc code) {
  failure_ = message;
  for (Connection& peer : args_.peers) {
    peer.queue(FrameKind::failure, message);
    peer.send_some();
  }
  throw Error(code, message);
}

}  // namespace weft::detail
