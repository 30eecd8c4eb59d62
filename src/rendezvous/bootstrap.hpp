// Host-side meetings of ranks: they create a communicator before any of its own memory exists.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "rendezvous/unique_fd.hpp"

namespace weft::detail {

using Bytes = std::vector<std::byte>;

// Slow, reliable, every meeting with a deadline. `what` names a meeting for people; ranks that meet at different names
// find that out. A meeting that fails throws Errc::rendezvous and ends the bootstrap: later meetings throw the same
// reason. Used by one thread at a time.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The most time that one meeting may take; 0: for ever.
  virtual std::chrono::nanoseconds deadline() const = 0;
  // The numeric address under which this rank meets rank 0; empty if ranks do not meet over a network.
  virtual std::string address() const = 0;

  // Each rank contributes bytes (lengths may differ); all receive all, in rank order: size() parts.
  virtual std::vector<Bytes> all_gather(std::string_view what, std::span<const std::byte> mine) = 0;

  // A duplicate of root's descriptor on every rank. All ranks must share a host and a network namespace; otherwise
  // throws Errc::unsupported on every rank. Only `fd` of `root` counts.
  UniqueFd share_fd(std::string_view what, int root, int fd);

  void barrier(std::string_view what) { all_gather(what, {}); }

  // Tells every rank whether all ranks' local steps worked ("prepare", then "commit"). If any failed, all ranks throw.
  // A failed rank throws its own error, or Errc::system if that is not Weft's. The others throw Errc::rendezvous with
  // the first failed rank and its message.
  void agree(std::string_view what, const std::exception_ptr& mine);

  // Runs a local step that may throw, and agrees on it: agree_on("map the window", [&] { … }).
  template <class Step>
  void agree_on(std::string_view what, Step&& step) {
    std::exception_ptr error;
    try {
      step();
    } catch (...) {
      error = std::current_exception();
    }
    agree(what, error);
  }

  template <class T>
  std::vector<T> all_gather_value(std::string_view what, const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> values(static_cast<std::size_t>(size()));
    const std::vector<Bytes> parts = all_gather(what, std::as_bytes(std::span(&mine, 1)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (parts[i].size() != sizeof(T)) throw_wrong_length(what, static_cast<int>(i), parts[i].size(), sizeof(T));
      std::memcpy(&values[i], parts[i].data(), sizeof(T));
    }
    return values;
  }

  // The bytes that `root` passed; other ranks' bytes are ignored.
  Bytes broadcast(std::string_view what, int root, std::span<const std::byte> mine);

  template <class T>
  T broadcast_value(std::string_view what, int root, const T& mine) {
    return all_gather_value(what, mine)[static_cast<std::size_t>(root)];
  }

 private:
  [[noreturn]] static void throw_wrong_length(std::string_view what, int rank, std::size_t got, std::size_t wanted);
};

// Throws Errc::invalid_argument if no world can have this rank or size, or no meeting this deadline. It does so before
// anything is opened, and before an id is used up.
void check_meeting(int rank, int world_size, std::chrono::nanoseconds deadline);

// Ranks that are threads of this process. Element i is rank i.
std::vector<std::unique_ptr<Bootstrap>> make_thread_bootstraps(int world_size, std::chrono::nanoseconds deadline);

// The part of `parent` with `members` (ranks of parent, ascending, this rank included). Collective over all of parent:
// every rank names its own group, or none (the result is then null). Groups are disjoint. Afterwards groups meet
// independently of parent and of each other.
std::unique_ptr<Bootstrap> make_group_bootstrap(Bootstrap& parent, std::span<const int> members);

}  // namespace weft::detail
