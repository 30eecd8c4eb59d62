#include "models/models.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/targets.hpp"
#include "rendezvous/unique_fd.hpp"
#include "weft/error.hpp"

namespace weft::fuzz {

void models(Bytes data) {
  const detail::UniqueFd file(::memfd_create("config.json", MFD_CLOEXEC));
  const auto size = static_cast<ssize_t>(data.size());
  if (!file || ::write(file.get(), data.data(), data.size()) != size) return;
  try {
    const cli::ModelShape shape = cli::shape_from_config(fmt::format("/proc/self/fd/{}", file.get()));
    require(shape.hidden > 0 && shape.layers > 0, "a model has a width and layers");
    require(shape.num_experts >= 0 && shape.top_k <= shape.num_experts,
            "experts are chosen among those that there are");
  } catch (const Error& error) {
    require(error.code() == Errc::invalid_argument, "a wrong file is an invalid argument");
  }
}

}  // namespace weft::fuzz
