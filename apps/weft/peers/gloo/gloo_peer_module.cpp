// The module weft-gloo-peer.so, see gloo_peer.hpp.
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <thread>
#include <vector>

#include "peers/gloo_peer.hpp"

namespace weft::cli {
namespace {

// Gloo has no bf16. PyTorch adds its own sum in the same way.
struct Bf16 {
  std::uint16_t bits;

  static Bf16 from(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    return {static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16)};
  }
  operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

template <class T>
void add(void* to, const void* a, const void* b, std::size_t count) {
  if constexpr (!std::is_same_v<T, Bf16>) return gloo::sum<T>(to, a, b, count);
  const auto* x = static_cast<const Bf16*>(a);
  const auto* y = static_cast<const Bf16*>(b);
  for (std::size_t i = 0; i < count; ++i) static_cast<Bf16*>(to)[i] = Bf16::from(float(x[i]) + float(y[i]));
}

template <class T>
void maximum(void* to, const void* a, const void* b, std::size_t count) {
  if constexpr (!std::is_same_v<T, Bf16>) return gloo::max<T>(to, a, b, count);
  const auto* x = static_cast<const Bf16*>(a);
  const auto* y = static_cast<const Bf16*>(b);
  for (std::size_t i = 0; i < count; ++i) static_cast<Bf16*>(to)[i] = Bf16::from(std::max(float(x[i]), float(y[i])));
}

class Peer final : public GlooPeer {
 public:
  explicit Peer(int ranks) : contexts_(static_cast<std::size_t>(ranks)) {
    gloo::rendezvous::HashStore store;
    std::vector<std::exception_ptr> errors(contexts_.size());
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < ranks; ++r) {
        threads.emplace_back([&, r] {
          try {
            // Each rank has a device, and so an event loop, as separate processes would have.
            auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
            auto context = std::make_shared<gloo::rendezvous::Context>(r, ranks);
            context->connectFullMesh(store, device);
            contexts_[static_cast<std::size_t>(r)] = std::move(context);
          } catch (...) {
            errors[static_cast<std::size_t>(r)] = std::current_exception();
          }
        });
      }
    }
    for (const auto& error : errors)
      if (error) std::rethrow_exception(error);
  }

  void all_reduce(int rank, const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  bool bcube) override {
    switch (type) {
      case DataType::bf16:
        return run<Bf16>(rank, input, output, count, op, bcube);
      case DataType::f16:
        return run<gloo::float16>(rank, input, output, count, op, bcube);
      case DataType::f32:
        return run<float>(rank, input, output, count, op, bcube);
      case DataType::i32:
        return run<std::int32_t>(rank, input, output, count, op, bcube);
      case DataType::i64:
        return run<std::int64_t>(rank, input, output, count, op, bcube);
      case DataType::u8:
        return run<std::uint8_t>(rank, input, output, count, op, bcube);
    }
  }

  void all_gather(int rank, const void* input, void* output, const std::vector<std::size_t>& bytes) override {
    const auto index = static_cast<std::size_t>(rank);
    gloo::AllgathervOptions options(contexts_[index]);
    options.setInput(const_cast<char*>(static_cast<const char*>(input)), bytes[index]);
    options.setOutput(static_cast<char*>(output), bytes);
    gloo::allgatherv(options);
  }

  void exchange(int rank, const void* input, void* output, const std::vector<std::size_t>& sent,
                const std::vector<std::size_t>& received) override {
    gloo::AlltoallvOptions options(contexts_[static_cast<std::size_t>(rank)]);
    options.setInput(const_cast<char*>(static_cast<const char*>(input)), {sent.begin(), sent.end()});
    options.setOutput(static_cast<char*>(output), {received.begin(), received.end()});
    gloo::alltoallv(options);
  }

 private:
  template <class T>
  void run(int rank, const void* input, void* output, std::size_t count, ReduceOp op, bool bcube) {
    gloo::AllreduceOptions options(contexts_[static_cast<std::size_t>(rank)]);
    options.setInput(const_cast<T*>(static_cast<const T*>(input)), count);
    options.setOutput(static_cast<T*>(output), count);
    options.setReduceFunction(op == ReduceOp::sum ? add<T> : maximum<T>);
    options.setAlgorithm(bcube ? gloo::AllreduceOptions::Algorithm::BCUBE : gloo::AllreduceOptions::Algorithm::RING);
    gloo::allreduce(options);
  }

  std::vector<std::shared_ptr<gloo::Context>> contexts_;
};

}  // namespace

extern "C" GlooPeer* weft_open_gloo_peer(int ranks) {
  try {
    return new Peer(ranks);
  } catch (...) {
    return nullptr;  // no loopback, no descriptors: the table shows that the peer is missing
  }
}

}  // namespace weft::cli
