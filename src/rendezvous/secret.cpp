#include "rendezvous/secret.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "rendezvous/key_file.hpp"
#include "rendezvous/socket.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t least_secret = 16, most_secret = 4096;
// 64 random bits, twice: "0123456789abcdef-0123456789abcdef".
constexpr const char* openmpi_key = "OMPI_MCA_orte_precondition_transports";
constexpr std::size_t openmpi_digits = 32;

bool is_openmpi_key(const std::string& text) {
  const auto digits = std::ranges::count_if(text, [](char c) { return std::isxdigit(static_cast<unsigned char>(c)); });
  return static_cast<std::size_t>(digits) == openmpi_digits && text.size() == openmpi_digits + 1;
}

}  // namespace

Secret find_secret(const LaunchEnvironment& launch, const Lookup& lookup) {
  if (const std::optional<std::string> given = lookup("WEFT_SECRET")) {
    if (given->size() < least_secret || given->size() > most_secret) {
      throw Error(Errc::rendezvous,
                  fmt::format("WEFT_SECRET has {} characters, allowed are {} … {}; `openssl rand -hex "
                              "32` makes a good one",
                              given->size(), least_secret, most_secret));
    }
    return {.key = key_of(*given), .source = "WEFT_SECRET"};
  }
  if (const std::optional<std::string> given = lookup(openmpi_key);
      launch.launcher == "Open MPI" && given && is_openmpi_key(*given)) {
    return {.key = key_of(*given), .source = openmpi_key};
  }
  if (is_loopback(launch.host)) {
    const KeyFile file = user_key(lookup("XDG_RUNTIME_DIR").value_or(""));
    return {.key = file.key, .source = file.path};
  }
  throw Error(
      Errc::rendezvous,
      fmt::format("ranks that meet at '{}' may be on several hosts, and need a secret that they alone know. Set "
                  "WEFT_SECRET to the same {} or more random characters for every rank (`openssl rand -hex 32`), or "
                  "create the communicator from an id or from NCCL's. If all ranks are on this host, they can "
                  "meet at 127.0.0.1 (MASTER_ADDR, WEFT_RENDEZVOUS=host:port)",
                  launch.host, least_secret));
}

}  // namespace weft::detail
