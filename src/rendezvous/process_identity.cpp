#include "rendezvous/process_identity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace weft::detail {
namespace {

std::uint64_t inode(const char* path) {
  struct stat info {};
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

ProcessIdentity ProcessIdentity::current() {
  ProcessIdentity identity;
  // One byte short, so that the text always ends.
  if (!std::ifstream("/proc/sys/kernel/random/boot_id").get(identity.host.data(), identity.host.size())) {
    ::gethostname(identity.host.data(), identity.host.size() - 1);
  }
  identity.pid_namespace = inode("/proc/self/ns/pid");
  identity.network_namespace = inode("/proc/self/ns/net");
  identity.pid = ::getpid();
  return identity;
}

}  // namespace weft::detail
