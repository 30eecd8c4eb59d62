// A rank's side of the MoE benchmark on a GPU: graphs of 20 operations, the second of two back-to-back replays.
#include "cuda_graph.hpp"
#include "moe_device.hpp"

namespace weft::cli {
namespace {

constexpr int kOperations = 20;

class CudaMoeDevice final : public MoeDevice {
 public:
  explicit CudaMoeDevice(int device) : device_(device) {
    check(cudaSetDevice(device_), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~CudaMoeDevice() override {
    static_cast<void>(cudaSetDevice(device_));
    for (void* memory : memory_) static_cast<void>(cudaFree(memory));
    static_cast<void>(cudaEventDestroy(begin_));
    static_cast<void>(cudaEventDestroy(end_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  CudaMoeDevice(const CudaMoeDevice&) = delete;
  CudaMoeDevice& operator=(const CudaMoeDevice&) = delete;

  void* allocate(std::size_t bytes) override {
    use();
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    memory_.push_back(memory);
    return memory;
  }
  void upload(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes, cudaMemcpyHostToDevice); }
  void download(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void fill(void* to, int byte, std::size_t bytes) override {
    use();
    check(cudaMemsetAsync(to, byte, bytes, stream_), "cudaMemset");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  Stream stream() const override { return stream_; }

  std::vector<double> time(Ranks::Seat& seat, int samples, const std::function<void()>& operation,
                           const std::function<void()>& before_last) override {
    use();
    operation();
    synchronize(seat);
    seat.barrier();
    const Graph graph(stream_, [&] {
      for (int i = 0; i < kOperations; ++i) operation();
    });
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) {
      if (i + 1 == samples) before_last();
      seat.barrier();
      graph.replay(stream_);
      check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      graph.replay(stream_);
      check(cudaEventRecord(end_, stream_), "cudaEventRecord");
      synchronize(seat);
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
      times.push_back(milliseconds * 1e3 / kOperations);
    }
    seat.barrier();  // no rank frees its graph while another one's waits for it
    return times;
  }

 private:
  void use() const { check(cudaSetDevice(device_), "cudaSetDevice"); }  // every call may come from another thread
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    use();
    check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpy");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void synchronize(Ranks::Seat& seat) {
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    seat.communicator().check();
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace

std::unique_ptr<MoeDevice> open_cuda_moe_device(int device) {
  return std::make_unique<CudaMoeDevice>(device);
}

}  // namespace weft::cli
