// Types of tensors that programs use most, which are asked in shorter ways than the protocols'.
#pragma once

#include <optional>

#include "tensor.hpp"

namespace weft::python {

// A class of a module that a program has loaded; None: it has not.
nb::object loaded_type(const char* module, const char* name);
bool is_numpy_array(nb::handle given);
// Whether two of torch's tensors (or one, and None) are plain memory without gradients, and no mode and no tracer of
// torch sees calls.
bool is_plain_and_unwatched(nb::handle x, nb::handle y);
// Empty for other types, and for torch's tensors that the protocol has to explain or to refuse: on other devices,
// without memory, negated lazily. The view holds the tensor, which holds its memory unless a program
// replaces it; so it is for calls that are made now.
std::optional<Tensor> tensor_of_torch(nb::handle given);

}  // namespace weft::python
