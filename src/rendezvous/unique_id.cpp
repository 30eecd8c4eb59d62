#include "rendezvous/unique_id.hpp"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <mutex>

#include "rendezvous/join.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::uint32_t id_magic = 0x57'45'46'49;
constexpr std::uint32_t id_version = 1;

struct IdFields {
  std::uint32_t magic = id_magic;
  std::uint32_t version = id_version;
  std::uint64_t nonce = 0;
  std::uint16_t port = 0;
  char host[102] = {};
};
static_assert(sizeof(IdFields) <= sizeof(UniqueId::bytes));

// Listeners of ids made in this process that rank 0 has not used yet.
struct Registry {
  std::mutex mutex;
  std::map<std::uint64_t, detail::UniqueFd> listeners;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

detail::UniqueFd take_listener(const IdFields& fields) {
  Registry& ids = registry();
  const std::lock_guard lock(ids.mutex);
  auto entry = ids.listeners.extract(fields.nonce);
  if (entry.empty()) {
    throw Error(Errc::rendezvous,
                fmt::format("rank 0 must be in the process that made the id ({} port {}), and an id serves one meeting",
                            fields.host, fields.port));
  }
  return std::move(entry.mapped());
}

}  // namespace

UniqueId UniqueId::create(const std::string& host) {
  IdFields fields{.nonce = detail::random_nonce()};
  if (host.empty() || host.size() >= sizeof fields.host) {
    throw Error(Errc::invalid_argument, fmt::format("host '{}' has {} characters, allowed are 1 … {}", host,
                                                    host.size(), sizeof fields.host - 1));
  }
  host.copy(fields.host, sizeof fields.host - 1);
  detail::UniqueFd listener = detail::listen_tcp(host, 0);
  fields.port = detail::local_address(listener.get()).port();

  UniqueId id;
  std::memcpy(id.bytes.data(), &fields, sizeof fields);
  Registry& ids = registry();
  const std::lock_guard lock(ids.mutex);
  ids.listeners.emplace(fields.nonce, std::move(listener));
  return id;
}

std::unique_ptr<detail::Bootstrap> detail::make_id_bootstrap(const UniqueId& id, int rank, int world_size,
                                                             std::chrono::nanoseconds deadline) {
  check_meeting(rank, world_size, deadline);
  IdFields fields;
  std::memcpy(&fields, id.bytes.data(), sizeof fields);
  if (fields.magic != id_magic || fields.version != id_version || fields.host[sizeof fields.host - 1] != 0) {
    throw Error(Errc::rendezvous, "these 128 bytes are no id of this version of Weft");
  }
  return make_tcp_bootstrap({.host = fields.host,
                             .port = fields.port,
                             .nonce = fields.nonce,
                             .rank = rank,
                             .world_size = world_size,
                             .deadline = deadline,
                             .listener = rank == 0 ? take_listener(fields) : UniqueFd()});
}

}  // namespace weft
