#include "peers/gloo_peer.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "peers/peer.hpp"

namespace weft::cli {
namespace {

class GlooRank final : public Peer {
 public:
  GlooRank(std::shared_ptr<GlooPeer> gloo, int rank) : gloo_(std::move(gloo)), rank_(rank) {}

  std::vector<Contender> contenders(Operation operation) const override {
    switch (operation) {
      case Operation::all_reduce:
        return {Contender::gloo_ring, Contender::gloo_bcube};
      case Operation::all_gather:
      case Operation::all_gather_v:
      case Operation::four_tensors:
        return {Contender::gloo_ring};
      default:
        return {};
    }
  }

  void all_reduce(const Point& point, const void* input, void* output, Stream) override {
    gloo_->all_reduce(rank_, input, output, point.count, point.type, point.op,
                      point.contender == Contender::gloo_bcube);
  }

  // Gloo has no reduce-scatter, so nobody asks for its groups.
  void split(Ranks::Seat&, int) override {}
  void move_in_group(const GatherShape&, const void*, void*, Stream) override {
    throw Error(Errc::unsupported, "Gloo is not measured inside of groups");
  }

  void move(const GatherShape& shape, const void* input, void* output, Stream) override {
    const std::size_t size = size_of(shape.type);
    std::vector<std::size_t> bytes(shape.ranks());
    for (std::size_t t = 0; t < shape.widths.size(); ++t) {
      for (std::size_t r = 0; r < bytes.size(); ++r) bytes[r] = shape.rows[r] * shape.row_bytes(t);
      gloo_->all_gather(rank_, static_cast<const std::byte*>(input) + shape.input_at(t) * size,
                        static_cast<std::byte*>(output) + shape.output_at(t) * size, bytes);
    }
  }

  std::vector<Contender> exchangers() const override { return {Contender::gloo_ring}; }
  void exchange(const Exchange& part, Stream) override {
    gloo_->exchange(rank_, part.input, part.output, part.sent, part.received);
  }

 private:
  std::shared_ptr<GlooPeer> gloo_;
  int rank_;
};

}  // namespace

std::unique_ptr<Peer> open_gloo_rank(std::shared_ptr<GlooPeer> gloo, int rank) {
  return std::make_unique<GlooRank>(std::move(gloo), rank);
}

std::unique_ptr<GlooPeer> open_gloo(int ranks) {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
  if (none) return nullptr;
  void* module = dlopen((program.parent_path() / "weft-gloo-peer.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return nullptr;
  const auto open = reinterpret_cast<decltype(&weft_open_gloo_peer)>(dlsym(module, "weft_open_gloo_peer"));
  return std::unique_ptr<GlooPeer>(open == nullptr ? nullptr : open(ranks));
}

}  // namespace weft::cli
