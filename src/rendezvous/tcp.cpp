#include "rendezvous/tcp.hpp"

#include <fmt/format.h>

#include <utility>

#include "rendezvous/join.hpp"

namespace weft::detail {

std::unique_ptr<Bootstrap> make_tcp_bootstrap(TcpArgs args) {
  check_meeting(args.rank, args.world_size, args.deadline);
  check_name(args.name);
  JoinArgs join_args{.job = args.job,
                     .key = args.key,
                     .key_source = args.key_source,
                     .name = args.name,
                     .rank = args.rank,
                     .world_size = args.world_size,
                     .deadline = args.deadline,
                     .place = fmt::format("{} port {}", args.host, args.port)};
  if (args.rank != 0) {
    join_args.addresses = [host = args.host, port = args.port](std::string& why) { return resolve(host, port, why); };
  } else if (args.listener) {
    const auto listener = std::make_shared<UniqueFd>(std::move(args.listener));
    join_args.desk.open = [listener] { return std::move(*listener); };
  } else {
    const ListenArgs listen{
        .host = args.host, .port = args.port, .port_origin = args.port_origin, .other_hosts = args.other_hosts};
    join_args.desk = {.place = join_args.place, .open = [listen] { return listen_tcp(listen); }};
    if (!means_loopback(args.host) && is_loopback(args.host)) {
      join_args.remark =
          fmt::format(" ('{}' is a loopback address on its own host: no other host reaches rank 0 there)", args.host);
    }
  }
  return join(std::move(join_args));
}

}  // namespace weft::detail
