#include "rendezvous/hello.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/argument.hpp"
#include "base/build_info.hpp"

namespace weft::detail {
namespace {

constexpr std::size_t most_build = 128;

// The begin of every hello; name and build follow.
struct HelloHead {
  std::uint64_t job = 0;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  Nonce nonce{};
  std::uint32_t name_bytes = 0;
  std::uint32_t build_bytes = 0;
};

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

Bytes to_bytes(const Hello& hello) {
  const HelloHead head{.job = hello.job,
                       .rank = hello.rank,
                       .world_size = hello.world_size,
                       .nonce = hello.nonce,
                       .name_bytes = static_cast<std::uint32_t>(hello.name.size()),
                       .build_bytes = static_cast<std::uint32_t>(hello.build.size())};
  const auto first = std::as_bytes(std::span(&head, 1));
  Bytes bytes(first.begin(), first.end());
  for (const std::string* text : {&hello.name, &hello.build}) {
    const auto more = std::as_bytes(std::span(*text));
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

std::optional<Hello> read_hello(std::span<const std::byte> bytes) {
  HelloHead head;
  if (bytes.size() < sizeof(head)) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.name_bytes > most_name || head.build_bytes > most_build) return std::nullopt;
  if (bytes.size() != sizeof(head) + head.name_bytes + head.build_bytes) return std::nullopt;
  const char* const text = reinterpret_cast<const char*>(bytes.data()) + sizeof(head);
  return Hello{.job = head.job,
               .rank = head.rank,
               .world_size = head.world_size,
               .nonce = head.nonce,
               .name = std::string(text, head.name_bytes),
               .build = std::string(text + head.name_bytes, head.build_bytes)};
}

Mac proof_of(const Key& key, Role role, std::span<const std::byte> hello, const Nonce& nonce) {
  const std::string_view who = role == Role::rank ? "rank" : "rank 0";
  return mac_of(key, {std::as_bytes(std::span(who)), hello, nonce});
}

bool proves(std::span<const std::byte> bytes, const Mac& proof) {
  Mac given;
  if (bytes.size() != given.size()) return false;
  std::memcpy(given.data(), bytes.data(), given.size());
  return same(given, proof);
}

std::string this_build() {
  const BuildInfo& build = build_info();
  return fmt::format("Weft {}, commit {}{}", build.version, build.commit, build.dirty ? " with changes" : "");
}

void check_name(const std::string& name) {
  check_argument(name.size() <= most_name, "Config::name",
                 fmt::format("'{}' of {} bytes", printable(name), name.size()),
                 fmt::format("of at most {} bytes", most_name));
  check_argument(std::ranges::none_of(name, is_control), "Config::name", fmt::format("'{}'", printable(name)),
                 "free of control characters");
}

std::string printable(std::string_view text) {
  constexpr std::size_t most = 300;
  std::string shown(text.substr(0, most));
  std::ranges::replace_if(shown, is_control, '?');
  return text.size() > most ? shown + " …" : shown;
}

}  // namespace weft::detail
