#include "rendezvous/key_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "rendezvous/unique_fd.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

constexpr const char* key_name = "key";

[[noreturn]] void bad(const std::string& path, const std::string& what) {
  throw Error(Errc::rendezvous,
              fmt::format("{}, which holds the secret of this user's ranks on this host, {}; mend it, or "
                          "set WEFT_SECRET for every rank",
                          path, what));
}

[[noreturn]] void bad_errno(const std::string& path, const std::string& tried) {
  bad(path, fmt::format("cannot be {}: {}", tried, std::generic_category().message(errno)));
}

// The file's fault; empty if it is this user's alone. It checks the opened file: a moment later its name may mean
// another one.
std::string look_at(int fd, mode_t kind) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return "cannot be looked at";
  if ((info.st_mode & S_IFMT) != kind) return kind == S_IFDIR ? "is no folder" : "is no ordinary file";
  if (info.st_uid != ::geteuid()) return fmt::format("belongs to user {} instead of {}", info.st_uid, ::geteuid());
  if ((info.st_mode & 077) != 0) return fmt::format("is open to other users (mode {:o})", info.st_mode & 07777);
  return {};
}

UniqueFd open_folder(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

UniqueFd own_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) bad_errno(path, "made");
  UniqueFd folder = open_folder(path);
  if (!folder) bad_errno(path, "opened as a folder");
  if (const std::string wrong = look_at(folder.get(), S_IFDIR); !wrong.empty()) bad(path, wrong);
  return folder;
}

// It writes to a name of its own first, so that no process ever reads half of a key. If several do so at once, one
// wins.
void make_key(int folder, const std::string& path) {
  const std::string draft = fmt::format("draft-{:016x}", job_of(random_key()));
  const UniqueFd file(::openat(folder, draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) bad_errno(path, "made");
  const Key key = random_key();
  const bool written = ::fchmod(file.get(), 0600) == 0 &&
                       ::write(file.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size());
  const bool named = written && (::linkat(folder, draft.c_str(), folder, key_name, 0) == 0 || errno == EEXIST);
  const int error = errno;
  ::unlinkat(folder, draft.c_str(), 0);
  errno = error;
  if (!named) bad_errno(path, "written");
}

Key read_key(int folder, const std::string& path) {
  const auto open = [&] {
    return UniqueFd(::openat(folder, key_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  };
  UniqueFd file = open();
  if (!file && errno == ENOENT) {
    make_key(folder, path);
    file = open();
  }
  if (!file) bad_errno(path, "opened");
  if (const std::string wrong = look_at(file.get(), S_IFREG); !wrong.empty()) bad(path, wrong);
  Key key;
  std::byte more;
  if (::read(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()) ||
      ::read(file.get(), &more, 1) != 0 || is_none(key)) {
    bad(path, fmt::format("is not {} random bytes", key.size()));
  }
  return key;
}

}  // namespace

KeyFile user_key(const std::string& runtime_dir, const std::string& temporary_dir) {
  // Some launchers pass on the variable from a host on which the folder exists.
  bool usable = false;
  if (runtime_dir.starts_with('/')) {
    const UniqueFd folder = open_folder(runtime_dir);
    usable = folder && look_at(folder.get(), S_IFDIR).empty();
  }
  const std::string path = usable ? runtime_dir + "/weft" : fmt::format("{}/weft-{}", temporary_dir, ::geteuid());
  const UniqueFd folder = own_folder(path);
  const std::string file = fmt::format("{}/{}", path, key_name);
  return {.key = read_key(folder.get(), file), .path = file};
}

}  // namespace weft::detail
