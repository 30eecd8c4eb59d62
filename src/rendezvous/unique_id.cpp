#include "rendezvous/unique_id.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>

#include "base/foreign.hpp"
#include "rendezvous/hello.hpp"
#include "rendezvous/socket.hpp"
#include "rendezvous/tcp.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using detail::Key;
using detail::UniqueFd;

constexpr std::uint32_t id_magic = 0x57'45'46'49;
constexpr std::uint16_t id_version = 2;

struct IdFields {
  std::uint32_t magic = id_magic;
  std::uint16_t version = id_version;
  std::uint16_t port = 0;
  Key key{};
  char host[88] = {};
};
static_assert(sizeof(IdFields) == sizeof(UniqueId::bytes));

// Listeners of ids made in this process that rank 0 has not used yet. An id is a plain value, so the end of its last
// copy is unknown. Therefore their number has a limit.
struct Registry {
  struct Entry {
    std::uint64_t job;
    UniqueFd listener;
  };
  std::mutex mutex;
  std::deque<Entry> entries;  // the oldest first
};

Registry& registry() {
  static Registry instance;
  return instance;
}

UniqueFd take_listener(const Key& key) {
  Registry& ids = registry();
  const std::lock_guard lock(ids.mutex);
  const auto entry = std::ranges::find(ids.entries, detail::job_of(key), &Registry::Entry::job);
  if (entry == ids.entries.end()) return {};
  UniqueFd listener = std::move(entry->listener);
  ids.entries.erase(entry);
  return listener;
}

IdFields fields_of(const UniqueId& id) {
  IdFields fields;
  std::memcpy(&fields, id.bytes.data(), sizeof fields);
  if (fields.magic != id_magic || fields.version != id_version || fields.host[sizeof fields.host - 1] != 0 ||
      detail::is_none(fields.key)) {
    throw Error(Errc::rendezvous, "these 128 bytes are no id of this version of Weft");
  }
  return fields;
}

// A host's own name is often a loopback address on that host alone (Debian's 127.0.1.1). Its only other address, if it
// has one, is the one that other hosts resolve the name to: the id carries it.
std::string reachable_host(const std::string& host) {
  if (detail::means_loopback(host) || !detail::is_loopback(host)) return host;
  const auto addresses = detail::interface_addresses(0);
  return addresses.size() == 1 ? addresses.front().host() : host;
}

}  // namespace

UniqueId UniqueId::create(const std::string& host) {
  return detail::with_errors_only([&] {
    IdFields fields{.key = detail::random_key()};
    if (host.empty() || host.size() >= sizeof fields.host) {
      throw Error(Errc::invalid_argument, fmt::format("host '{}' has {} characters, allowed are 1 … {}", host,
                                                      host.size(), sizeof fields.host - 1));
    }
    const std::string reachable = reachable_host(host);
    UniqueFd listener = detail::listen_tcp({.host = reachable});
    reachable.copy(fields.host, sizeof fields.host - 1);
    fields.port = detail::local_address(listener.get()).port();

    UniqueId id;
    std::memcpy(id.bytes.data(), &fields, sizeof fields);
    Registry& ids = registry();
    const std::lock_guard lock(ids.mutex);
    if (ids.entries.size() == detail::most_unused_ids) ids.entries.pop_front();
    ids.entries.push_back({.job = detail::job_of(fields.key), .listener = std::move(listener)});
    return id;
  });
}

std::unique_ptr<detail::Bootstrap> detail::make_id_bootstrap(const UniqueId& id, int rank, int world_size,
                                                             std::chrono::nanoseconds deadline,
                                                             const std::string& name) {
  check_meeting(rank, world_size, deadline);
  check_name(name);
  const IdFields fields = fields_of(id);
  UniqueFd listener = rank == 0 ? take_listener(fields.key) : UniqueFd();
  if (rank == 0 && !listener) {
    throw Error(
        Errc::rendezvous,
        fmt::format("rank 0 must be in the process that made the id ({} port {}), and an id serves one meeting; "
                    "a process keeps the {} newest that are unused",
                    fields.host, fields.port, most_unused_ids));
  }
  return make_tcp_bootstrap({.host = fields.host,
                             .port = fields.port,
                             .job = job_of(fields.key),
                             .key = fields.key,
                             .key_source = "the id",
                             .name = name,
                             .rank = rank,
                             .world_size = world_size,
                             .deadline = deadline,
                             .listener = std::move(listener)});
}

void detail::discard(const UniqueId& id) {
  if (id.bytes != UniqueId{}.bytes) take_listener(fields_of(id).key);
}

}  // namespace weft
