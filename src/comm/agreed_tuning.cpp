#include "comm/agreed_tuning.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

constexpr const char* another_build = "the two have different builds of Weft";

struct TuningHead {
  std::uint32_t fingerprint = 0;
  char processor[60] = {};
  std::int32_t capability = 0, multiprocessors = 0;
};

}  // namespace

std::string to_bytes(const AgreedTuning& tuning) {
  TuningHead head{.fingerprint = fingerprint_of(tuning.tables),
                  .capability = tuning.processor.capability,
                  .multiprocessors = tuning.processor.multiprocessors};
  tuning.processor.name.copy(head.processor, sizeof(head.processor) - 1);
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + to_json(tuning.tables);
}

AgreedTuning agreed_tuning(std::span<const std::byte> bytes) {
  TuningHead head;
  if (bytes.size() < sizeof(head)) {
    throw Error(Errc::rendezvous, fmt::format("rank 0's tuning tables have {} bytes, and {} come before the first: {}",
                                              bytes.size(), sizeof(head), another_build));
  }
  std::memcpy(&head, bytes.data(), sizeof(head));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof(head), bytes.size() - sizeof(head));
  AgreedTuning tuning{.processor = {.name = {head.processor, ::strnlen(head.processor, sizeof(head.processor))},
                                    .capability = head.capability,
                                    .multiprocessors = head.multiprocessors},
                      .tables = parse_tuning(text, "rank 0's tuning tables")};
  if (fingerprint_of(tuning.tables) == head.fingerprint) return tuning;
  throw Error(Errc::rendezvous, fmt::format("rank 0's tuning tables are others here: {}", another_build));
}

}  // namespace weft::detail
