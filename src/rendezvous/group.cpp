// Bootstraps of groups: member 0 of each group listens, and the world's bootstrap tells the members its address.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "rendezvous/join.hpp"
#include "rendezvous/process_identity.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

// Each rank's data for the meetings of groups.
struct Place {
  ProcessIdentity process;
  char address[64];
};

// Only members may come: they learn the key over a meeting that is already theirs alone.
struct Meeting {
  SocketAddress address;
  Key key;
};

// `lists`: every rank's list of its group's members.
void check_members(const Bootstrap& parent, std::span<const int> members, const std::vector<Bytes>& lists) {
  const auto bad = [&](const std::string& reason) {
    throw Error(Errc::rendezvous, fmt::format("group [{}]: {}", fmt::join(members, ", "), reason));
  };
  if (members.empty()) return;
  if (std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) != members.end()) {
    bad("members must ascend");
  }
  if (members.front() < 0 || members.back() >= parent.size()) {
    bad(fmt::format("members must be 0 … {}", parent.size() - 1));
  }
  if (std::find(members.begin(), members.end(), parent.rank()) == members.end()) {
    bad(fmt::format("rank {} names a group that it is no member of", parent.rank()));
  }
  for (const int member : members) {
    if (lists[static_cast<std::size_t>(member)] != lists[static_cast<std::size_t>(parent.rank())]) {
      bad(fmt::format("ranks {} and {} disagree about its members", parent.rank(), member));
    }
  }
}

// A Unix socket if one network namespace holds the group: it needs no interface, not even loopback.
UniqueFd open_meeting(std::span<const int> members, const std::vector<Place>& places) {
  const Place& leader = places[static_cast<std::size_t>(members[0])];
  const bool together = std::all_of(members.begin(), members.end(), [&](int member) {
    return places[static_cast<std::size_t>(member)].process.same_network(leader.process);
  });
  if (together) return bind_unix(SOCK_STREAM);
  std::string why;
  std::vector<SocketAddress> addresses = resolve(leader.address, 0, why);
  if (addresses.empty()) throw Error(Errc::rendezvous, why);
  if (addresses[0].is_loopback()) {
    // This rank met rank 0 over loopback, so it is on its host. The others can reach it at the address where they
    // reached rank 0.
    addresses = resolve(places[0].address, 0, why);
  }
  return listen_at(addresses.at(0));
}

}  // namespace

std::unique_ptr<Bootstrap> make_group_bootstrap(Bootstrap& parent, std::span<const int> members) {
  const std::vector<Bytes> lists = parent.all_gather("group members", std::as_bytes(members));
  parent.agree_on("group members", [&] { check_members(parent, members, lists); });

  Place place{.process = ProcessIdentity::current(), .address = {}};
  parent.address().copy(place.address, sizeof place.address - 1);
  const std::vector<Place> places = parent.all_gather_value("group places", place);

  UniqueFd listener;
  Meeting meeting{.address = {}, .key = random_key()};
  parent.agree_on("group listeners", [&] {
    if (members.size() < 2 || members[0] != parent.rank()) return;
    listener = open_meeting(members, places);
    meeting.address = local_address(listener.get());
  });
  const std::vector<Meeting> meetings = parent.all_gather_value("group meetings", meeting);
  if (members.empty()) return nullptr;

  const Meeting mine = meetings[static_cast<std::size_t>(members[0])];
  const auto own = std::find(members.begin(), members.end(), parent.rank());
  return join({.job = job_of(mine.key),
               .key = mine.key,
               .rank = static_cast<int>(own - members.begin()),
               .world_size = static_cast<int>(members.size()),
               .deadline = parent.deadline(),
               .desk = {.open = [&] { return std::move(listener); }},
               .addresses = [mine](std::string&) { return std::vector{mine.address}; },
               .place = fmt::format("the group's rank 0, which is rank {}", members[0])});
}

}  // namespace weft::detail
