#include "fabric/origin.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "weft/error.hpp"

namespace weft::detail {

Origin::Origin() : fork_(forks_.load(std::memory_order_relaxed)), pid_(::getpid()) {
  static const int error = ::pthread_atfork(nullptr, nullptr, [] { forks_.fetch_add(1, std::memory_order_relaxed); });
  if (error != 0) throw Error(Errc::system, fmt::format("pthread_atfork: {}", std::strerror(error)));
}

void Origin::reject() const {
  throw Error(Errc::unsupported,
              fmt::format("the communicator belongs to process {}, and this is process {}, a child that fork() made: "
                          "it may destroy its copies and make communicators of its own",
                          pid_, ::getpid()));
}

}  // namespace weft::detail
