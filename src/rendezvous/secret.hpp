// The source of a launched job's secret.
#pragma once

#include <string>

#include "rendezvous/environment.hpp"
#include "rendezvous/key.hpp"

namespace weft::detail {

struct Secret {
  Key key{};
  std::string source;  // for people, and never the secret itself: "WEFT_SECRET"
};

// The first one that exists of: WEFT_SECRET; the launcher's own (Open MPI's transport key); if ranks meet on a loopback
// address, this user's key file. Throws Errc::rendezvous if there is none, with the ways to give one, and if one is
// invalid.
Secret find_secret(const LaunchEnvironment& launch, const Lookup& lookup);

}  // namespace weft::detail
