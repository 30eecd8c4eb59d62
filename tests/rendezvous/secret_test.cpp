// The source of the ranks' secret, and the secrecy of messages.
#include "rendezvous/secret.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "rendezvous/key_file.hpp"
#include "support/ranks.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using namespace test;
namespace fs = std::filesystem;
using Variables = std::map<std::string, std::string>;

// A folder of this user that is removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "weft-secret-XXXXXX";
    ensure(::mkdtemp(name.data()) != nullptr, "mkdtemp");
    path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Secret secret_of(const std::string& host, const std::string& launcher, const Variables& variables) {
  LaunchEnvironment launch;
  launch.host = host;
  launch.launcher = launcher;
  return find_secret(launch, [&](const std::string& name) -> std::optional<std::string> {
    const auto entry = variables.find(name);
    return entry == variables.end() ? std::nullopt : std::optional(entry->second);
  });
}

const std::string transport_key = "0123456789abcdef-fedcba9876543210";

TEST(Secret, SourcesHaveAnOrder) {
  const Folder folder;
  const Variables file = {{"XDG_RUNTIME_DIR", folder.path()}};
  Variables openmpi = file, given = file;
  openmpi["OMPI_MCA_orte_precondition_transports"] = transport_key;
  given = openmpi;
  given["WEFT_SECRET"] = "sixteen letters!";
  EXPECT_EQ(secret_of("127.0.0.1", "Open MPI", given).source, "WEFT_SECRET");
  EXPECT_EQ(secret_of("192.0.2.1", "srun", given).source, "WEFT_SECRET");
  EXPECT_EQ(secret_of("192.0.2.1", "Open MPI", openmpi).source, "OMPI_MCA_orte_precondition_transports");
  EXPECT_EQ(secret_of("127.0.0.1", "torchrun", openmpi).source,
            folder.path() / "weft/key");  // the variable belongs to another launcher
  EXPECT_EQ(secret_of("127.0.0.1", "Open MPI", file).source, folder.path() / "weft/key");
  EXPECT_EQ(secret_of("localhost", "torchrun", file).source, folder.path() / "weft/key");
  openmpi["OMPI_MCA_orte_precondition_transports"] = "0-0";
  EXPECT_EQ(secret_of("127.0.0.1", "Open MPI", openmpi).source, folder.path() / "weft/key");
}

TEST(Secret, OfTheSameTextsAreTheSame) {
  const auto key = [](const std::string& text) {
    return secret_of("192.0.2.1", "torchrun", {{"WEFT_SECRET", text}}).key;
  };
  EXPECT_EQ(key("sixteen letters!"), key("sixteen letters!"));
  EXPECT_NE(key("sixteen letters!"), key("sixteen letters?"));
  EXPECT_NE(key(std::string(100, 'x')), key(std::string(101, 'x')));
}

TEST(Secret, ThatAreNoneAreRefusedAndNotTold) {
  for (const auto& [text, size] : std::vector<std::pair<std::string, std::string>>{
           {"", "0"}, {"fifteen letters", "15"}, {std::string(4097, 'q'), "4097"}}) {
    const Variables variables = {{"WEFT_SECRET", text}};
    expect_code([&] { secret_of("127.0.0.1", "torchrun", variables); }, Errc::rendezvous,
                "WEFT_SECRET has " + size + " characters, allowed are 16 … 4096");
    const std::string error = error_of([&] { secret_of("127.0.0.1", "torchrun", variables); });
    EXPECT_TRUE(text.empty() || error.find(text) == std::string::npos);
  }
}

TEST(Secret, OfRanksOnSeveralHostsHasToBeGiven) {
  const std::vector<std::string> ways = {"ranks that meet at '192.0.2.1'", "WEFT_SECRET", "openssl rand -hex 32",
                                         "from an id", "127.0.0.1"};
  for (const std::string& way : ways) {
    expect_code([] { secret_of("192.0.2.1", "torchrun", {}); }, Errc::rendezvous, way);
  }
}

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  ensure(::lstat(path.c_str(), &info) == 0, "lstat");
  return info.st_mode & 07777;
}

TEST(KeyFile, IsMadeOnceForThisUserAlone) {
  const Folder folder;
  std::vector<Key> keys(16);
  const mode_t before = ::umask(0);
  const auto errors = run_ranks(16, [&](int rank) { keys[index(rank)] = user_key("", folder.path()).key; });
  ::umask(before);
  expect_no_errors(errors);
  EXPECT_EQ(keys, std::vector<Key>(16, keys[0]));
  EXPECT_FALSE(is_none(keys[0]));
  const fs::path own = folder.path() / ("weft-" + std::to_string(::geteuid()));
  EXPECT_EQ(mode_of(own), 0700u);
  EXPECT_EQ(mode_of(own / "key"), 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(own), {}), 1);  // no draft remains
}

TEST(KeyFile, OfAnotherFolderIsAnother) {
  const Folder one, other;
  EXPECT_NE(user_key("", one.path()).key, user_key("", other.path()).key);
}

// Some launchers pass the variable on to hosts that have no such folder, or a folder of another user.
TEST(KeyFile, LiesInTheRuntimeFolderWhereThatIsFitForIt) {
  const Folder runtime, temporary;
  const std::string own = temporary.path() / ("weft-" + std::to_string(::geteuid())) / "key";
  EXPECT_EQ(user_key(runtime.path(), temporary.path()).path, runtime.path() / "weft/key");
  fs::permissions(runtime.path(), fs::perms(0755));
  for (const std::string& unfit : {runtime.path().string(), std::string("/no/such/folder"), std::string("relative")}) {
    EXPECT_EQ(user_key(unfit, temporary.path()).path, own);
  }
}

TEST(KeyFile, ThatOthersCouldHaveMadeOrReadIsRefused) {
  const std::vector<std::pair<std::function<void(const fs::path& own)>, std::string>> cases = {
      {[](const fs::path& own) { fs::permissions(own / "key", fs::perms(0640)); }, "is open to other users (mode 640)"},
      {[](const fs::path& own) { fs::permissions(own, fs::perms(0701)); }, "is open to other users (mode 701)"},
      {[](const fs::path& own) {
         fs::rename(own / "key", own / "elsewhere");
         fs::create_symlink("elsewhere", own / "key");
       },
       "cannot be opened: Too many levels of symbolic links"},
      {[](const fs::path& own) {
         fs::rename(own, own.string() + "-elsewhere");
         fs::create_directory_symlink(own.string() + "-elsewhere", own);
       },
       "cannot be opened as a folder: Not a directory"},
      {[](const fs::path& own) { fs::resize_file(own / "key", 31); }, "is not 32 random bytes"},
      {[](const fs::path& own) { fs::resize_file(own / "key", 33); }, "is not 32 random bytes"},
      {[](const fs::path& own) { fs::resize_file(own / "key", 0); }, "is not 32 random bytes"},
      {[](const fs::path& own) {
         fs::remove(own / "key");
         fs::create_directory(own / "key");
       },
       "is no ordinary file"},
      {[](const fs::path& own) {
         fs::resize_file(own / "key", 0);
         fs::resize_file(own / "key", 32);  // zeros
       },
       "is not 32 random bytes"}};
  for (const auto& [spoil, part] : cases) {
    const Folder folder;
    user_key("", folder.path());
    spoil(folder.path() / ("weft-" + std::to_string(::geteuid())));
    expect_code([&] { user_key("", folder.path()); }, Errc::rendezvous, part);
    expect_code([&] { user_key("", folder.path()); }, Errc::rendezvous, "set WEFT_SECRET for every rank");
  }
}

// A known answer from Python's hmac module over the text's length, as 8 bytes, and the text.
TEST(Secret, TheMacIsHmacSha256) {
  Key key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  const std::string_view text = "what do ya want for nothing?";
  const Mac mac = mac_of(key, {std::as_bytes(std::span(text))});
  EXPECT_EQ(std::to_integer<int>(mac[0]), 0xcd);
  EXPECT_EQ(std::to_integer<int>(mac[31]), 0x69);
  EXPECT_TRUE(same(mac, mac));
  Mac other = mac;
  other[31] ^= std::byte{1};
  EXPECT_FALSE(same(mac, other));
}

}  // namespace
}  // namespace weft::detail
