// Types of tensors that programs use most, which are asked in shorter ways than the protocols'.
#pragma once

#include <optional>

#include "tensor.hpp"

namespace weft::python {

// A class of a module that a program has loaded; None: it has not.
nb::object loaded_type(const char* module, const char* name);
bool is_numpy_array(nb::handle given);
bool is_torch_tensor(nb::handle given);  // no subclass, which may mean something else
// Of torch's tensors:
bool requires_gradients(nb::handle tensor);
bool is_negated(nb::handle tensor);  // its memory holds the values with the other sign, until something asks
// Empty for tensors that the protocol has to explain or to refuse: without memory, conjugated lazily. The view holds
// the tensor, which holds its memory unless a program replaces it; so it is for calls that are made now.
std::optional<Tensor> tensor_of_torch(const char* argument, nb::handle tensor);

}  // namespace weft::python
