// libFuzzer's entries. WEFT_FUZZ_TARGET names the target.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fuzz/targets.hpp"

namespace {

const weft::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* const name = std::getenv("WEFT_FUZZ_TARGET");
  for (const weft::fuzz::Target& target : weft::fuzz::targets) {
    if (name != nullptr && target.name == name) chosen = &target;
  }
  if (chosen != nullptr) return 0;
  std::fprintf(stderr, "WEFT_FUZZ_TARGET names none of the targets:");
  for (const weft::fuzz::Target& target : weft::fuzz::targets) {
    std::fprintf(stderr, " %.*s", static_cast<int>(target.name.size()), target.name.data());
  }
  std::fprintf(stderr, "\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run(std::as_bytes(std::span(data, size)));
  return 0;
}
