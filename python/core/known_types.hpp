// Types of tensors that programs use most, which are asked in shorter ways than the protocols'.
#pragma once

#include <optional>

#include "tensor.hpp"

namespace weft::python {

// A class of a module that a program has loaded; None: it has not.
nb::object loaded_type(const char* module, const char* name);
bool is_numpy_array(nb::handle given);
bool is_torch_tensor(nb::handle given);  // no subclass, which may mean something else
// One of these that is not negated and needs no gradients: a call with it is none of the dispatcher's business.
bool is_plain_torch_tensor(nb::handle given);
// Whether a tensor of torch holds its values with the other sign, until something asks for them.
bool is_negated(nb::handle tensor);
// Whether a mode or a tracer of torch, which the program has loaded, sees this thread's calls.
bool is_watched_by_torch();
// Empty for tensors that the protocol has to explain or to refuse: without memory, conjugated lazily. The view holds
// the tensor, which holds its memory unless a program replaces it; so it is for calls that are made now.
std::optional<Tensor> tensor_of_torch(const char* argument, nb::handle tensor);

}  // namespace weft::python
