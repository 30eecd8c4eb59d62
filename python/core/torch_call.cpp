#include "torch_call.hpp"

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "torch_module.hpp"

namespace weft::python::torch {

namespace {

// Objects by number, from 1 on. Numbers are not used again.
template <class T>
class Numbered {
 public:
  std::int64_t add(T object) {
    const std::scoped_lock lock(mutex_);
    objects_.emplace(++last_, std::move(object));
    return last_;
  }
  void remove(std::int64_t number) {
    std::optional<T> last;  // its end may wait, without the lock
    const std::scoped_lock lock(mutex_);
    if (const auto found = objects_.find(number); found != objects_.end()) {
      last = std::move(found->second);
      objects_.erase(found);
    }
  }
  T at(const char* what, std::int64_t number) {
    const std::scoped_lock lock(mutex_);
    const auto found = objects_.find(number);
    if (found == objects_.end()) reject(fmt::format("{0} is {1}; no {0} of weft.torch has this number", what, number));
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::int64_t, T> objects_;
  std::int64_t last_ = 0;
};

// They are never destroyed: at the process's end, a thread may still wait in a call.
template <class T>
Numbered<T>& numbered() {
  static auto* const all = new Numbered<T>;
  return *all;
}

thread_local std::optional<Error> last_error;

std::shared_ptr<void> keeper_of(TensorHandle handle) {
  return {handle, [](void* held) {
            static_cast<void>(functions().aoti_torch_delete_tensor_object(static_cast<TensorHandle>(held)));
          }};
}

}  // namespace

std::int64_t add_group(const Group& group) {
  return numbered<Group>().add(group);
}
void remove_group(std::int64_t number) {
  numbered<Group>().remove(number);
}

std::int64_t add_exchange(const MoeExchange& exchange, const Group& group) {
  return numbered<NumberedExchange>().add({exchange, group});
}
void remove_exchange(std::int64_t number) {
  numbered<NumberedExchange>().remove(number);
}

void check_device(const Group& group, const Tensor& tensor) {
  if (tensor.type.bits == 0)  // Stack::taken() could not say it: other ranks wait for this call
    reject(fmt::format("a tensor of more than {} dimensions, or of a type that Weft has no name for",
                       Tensor::kMostDimensions));
  if (tensor.on_gpu() == (group.device() == Device::cuda)) return;
  reject(fmt::format("a tensor on {}, but the group's ranks work on {}", device_text(tensor), name(group.device())));
}

const Tensor* checked_of_root(const char* argument, const Group& group, int root, const std::optional<Tensor>& given) {
  const Tensor* const tensor = of_root(argument, group.rank() == root, given);
  if (tensor != nullptr) check_device(group, *tensor);
  return tensor;
}

std::optional<Error> take_last_error() {
  return std::exchange(last_error, std::nullopt);
}

Value Stack::next() {
  if (at_ == count_) throw std::runtime_error("weft: an operator was called with too few values");
  return values_[at_++];
}

float Stack::real() {
  const Value value = next();
  double number = 0;
  std::memcpy(&number, &value, sizeof number);
  return static_cast<float>(number);
}

Tensor Stack::taken(TensorHandle handle) {
  const Functions& f = functions();
  Tensor tensor;
  tensor.keeper = keeper_of(handle);
  void* data = nullptr;
  std::int64_t dimensions = 0;
  std::int64_t *sizes = nullptr, *strides = nullptr;
  std::int32_t type = 0, device_type = 0, device = 0;
  check(f.aoti_torch_get_dim(handle, &dimensions), "get_dim");
  check(f.aoti_torch_get_sizes(handle, &sizes), "get_sizes");
  check(f.aoti_torch_get_strides(handle, &strides), "get_strides");
  check(f.aoti_torch_get_dtype(handle, &type), "get_dtype");
  check(f.aoti_torch_get_device_type(handle, &device_type), "get_device_type");
  check(f.aoti_torch_get_device_index(handle, &device), "get_device_index");
  check(f.aoti_torch_get_data_ptr(handle, &data), "get_data_ptr");
  requires_grad_ |= requires_grad(handle);
  tensor.data = static_cast<char*>(data);
  if (dimensions <= Tensor::kMostDimensions) {
    tensor.type = type_numbered(type);
    tensor.dimensions = static_cast<int>(dimensions);
    std::copy_n(sizes, dimensions, tensor.shape.begin());
    std::copy_n(strides, dimensions, tensor.strides.begin());
  }
  tensor.device = device_type == f.cuda ? nb::dlpack::device{nb::device::cuda::value, device}
                                        : nb::dlpack::device{nb::device::cpu::value, 0};
  if (recorded != nullptr) recorded->tensors.push_back(tensor);
  return tensor;
}

Tensor Stack::tensor() {
  return taken(reinterpret_cast<TensorHandle>(next()));
}

std::optional<Tensor> Stack::optional() {
  const std::unique_ptr<Value> value(reinterpret_cast<Value*>(next()));  // torch has made it with new
  if (value == nullptr) return std::nullopt;
  return taken(reinterpret_cast<TensorHandle>(*value));
}

std::vector<Value> Stack::list() {
  const Functions& f = functions();
  const auto list = reinterpret_cast<ListHandle>(next());
  std::size_t size = 0;
  check(f.torch_list_size(list, &size), "list_size");
  std::vector<Value> items(size);
  for (std::size_t i = 0; i < size; ++i) check(f.torch_list_get_item(list, i, &items[i]), "list_get_item");
  check(f.torch_delete_list(list), "delete_list");
  return items;
}

std::vector<Tensor> Stack::tensors() {
  std::vector<Tensor> all;
  for (const Value item : list()) all.push_back(taken(reinterpret_cast<TensorHandle>(item)));
  return all;
}

std::vector<std::int64_t> Stack::integers() {
  const std::vector<Value> items = list();
  return {items.begin(), items.end()};
}

void Stack::refuse_gradients() const {
  if (requires_grad_ && functions().aoti_torch_grad_mode_is_enabled())
    throw std::runtime_error("weft has no gradients: call it under torch.no_grad(), or detach the tensor");
}

Group Stack::group() {
  refuse_gradients();
  return numbered<Group>().at("group", integer());
}

NumberedExchange Stack::exchange() {
  refuse_gradients();
  return numbered<NumberedExchange>().at("exchange", integer());
}

void Stack::give(const Tensor& tensor) {
  TensorHandle handle = nullptr;
  check(functions().aoti_torch_new_tensor_handle(static_cast<TensorHandle>(tensor.keeper.get()), &handle),
        "new_tensor_handle");
  values_[0] = reinterpret_cast<Value>(handle);
}

Tensor empty_like(const Tensor& like) {
  const Functions& f = functions();
  std::int32_t type = 0;
  check(f.aoti_torch_get_dtype(static_cast<TensorHandle>(like.keeper.get()), &type), "get_dtype");
  Tensor tensor = like;
  set_dense_strides(tensor);
  TensorHandle handle = nullptr;
  check(f.aoti_torch_empty_strided(tensor.dimensions, tensor.shape.data(), tensor.strides.data(), type,
                                   like.on_gpu() ? f.cuda : f.cpu, like.on_gpu() ? like.device.device_id : 0, &handle),
        "empty_strided");
  tensor.keeper = keeper_of(handle);
  void* data = nullptr;
  check(f.aoti_torch_get_data_ptr(handle, &data), "get_data_ptr");
  tensor.data = static_cast<char*>(data);
  return tensor;
}

Stream current_stream(int cuda_device) {
  if (cuda_device < 0) return nullptr;
  void* stream = nullptr;
  if (functions().aoti_torch_get_current_cuda_stream == nullptr) reject("this torch is built without CUDA");
  check(functions().aoti_torch_get_current_cuda_stream(cuda_device, &stream), "get_current_cuda_stream");
  return static_cast<Stream>(stream);
}

void run(Value* values, std::uint64_t count, void (*body)(Stack& stack)) {
  last_error.reset();
  Stack stack(values, count);
  try {
    body(stack);
  } catch (const Error& error) {
    last_error = error;
    throw;
  }
}

}  // namespace weft::python::torch
