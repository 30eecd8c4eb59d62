// The secret that the processes of one user on one host share: a file of 32 random bytes, which the first one makes.
#pragma once

#include <string>

#include "rendezvous/key.hpp"

namespace weft::detail {

struct KeyFile {
  Key key{};
  std::string path;
};

// $XDG_RUNTIME_DIR/weft/key where that folder (`runtime_dir`) is this user's own and nobody else's, else
// /tmp/weft-<uid>/key. The folder and the file are of this user with modes 0700 and 0600, and neither is a link; else
// it throws Errc::rendezvous with the path, what is wrong, and WEFT_SECRET as the way out.
KeyFile user_key(const std::string& runtime_dir, const std::string& temporary_dir = "/tmp");

}  // namespace weft::detail
