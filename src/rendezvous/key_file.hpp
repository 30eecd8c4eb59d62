// The secret that the processes of one user on one host share: a file of 32 random bytes. The first process makes it.
#pragma once

#include <string>

#include "rendezvous/key.hpp"

namespace weft::detail {

struct KeyFile {
  Key key{};
  std::string path;
};

// $XDG_RUNTIME_DIR/weft/key if that folder (`runtime_dir`) belongs to this user alone, else /tmp/weft-<uid>/key. Folder
// and file belong to this user with modes 0700 and 0600, and neither is a link. Otherwise it throws Errc::rendezvous
// with the path, the fault, and WEFT_SECRET as the way out.
KeyFile user_key(const std::string& runtime_dir, const std::string& temporary_dir = "/tmp");

}  // namespace weft::detail
