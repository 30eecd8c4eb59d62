#include "fabric/liveness.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>

#include "rendezvous/process_identity.hpp"
#include "rendezvous/socket.hpp"

namespace weft::detail {

Liveness Liveness::create(Bootstrap& bootstrap) {
  const std::vector<ProcessIdentity> processes =
      bootstrap.all_gather_value("liveness processes", ProcessIdentity::current());
  const ProcessIdentity& own = processes[static_cast<std::size_t>(bootstrap.rank())];

  Liveness liveness;
  liveness.processes_.resize(processes.size());
  liveness.unwatched_.resize(processes.size());
  bootstrap.agree_on("liveness", [&] {
    liveness.epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    if (!liveness.epoll_) throw_errno("epoll_create1");
    for (std::size_t r = 0; r < processes.size(); ++r) {
      if (processes[r].same_process(own)) continue;
      std::string& reason = liveness.unwatched_[r];
      if (!processes[r].same_host(own)) {
        reason = "on another host";
      } else if (!processes[r].same_pids(own)) {
        reason = "in another PID namespace";
      } else {
        UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, processes[r].pid, 0)));
        epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<std::uint32_t>(r)}};
        if (!process || ::epoll_ctl(liveness.epoll_.get(), EPOLL_CTL_ADD, process.get(), &event) != 0) {
          reason = fmt::format("pidfd: {}", std::generic_category().message(errno));
        }
        liveness.processes_[r] = std::move(process);
      }
    }
  });
  // The meeting just held proves the pidfds right. Its ranks were alive after the pidfds were opened, so no other
  // process can have inherited a pid before.
  return liveness;
}

std::optional<int> Liveness::dead_peer() const {
  epoll_event event{};
  if (::epoll_wait(epoll_.get(), &event, 1, 0) != 1) return std::nullopt;
  return static_cast<int>(event.data.u32);
}

std::vector<int> Liveness::dead_peers() const {
  std::vector<epoll_event> events(processes_.size());
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  std::vector<int> peers;
  for (int i = 0; i < count; ++i) peers.push_back(static_cast<int>(events[static_cast<std::size_t>(i)].data.u32));
  return peers;
}

}  // namespace weft::detail
