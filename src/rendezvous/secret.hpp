// Where the ranks of a launched job have their secret from.
#pragma once

#include <string>

#include "rendezvous/environment.hpp"
#include "rendezvous/key.hpp"

namespace weft::detail {

struct Secret {
  Key key{};
  std::string source;  // for people, and never the secret itself: "WEFT_SECRET"
};

// The first that there is of: WEFT_SECRET; the launcher's own (Open MPI's transport key); where ranks meet on a
// loopback address, this user's key file. Throws Errc::rendezvous where there is none, with the ways to give one, and
// where one is no good.
Secret find_secret(const LaunchEnvironment& launch, const Lookup& lookup);

}  // namespace weft::detail
