// The part of the module that weft.torch needs: operators, numbers of groups, the record of an error.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "weft/weft.hpp"

namespace weft::python::torch {

// Groups and exchanges have numbers from 1 on, until they are removed.
std::int64_t add_group(const Group& group);
void remove_group(std::int64_t number);
std::int64_t add_exchange(const MoeExchange& exchange, const Group& group);
void remove_exchange(std::int64_t number);
// The error that ended this thread's last operator, once: torch passes on its words alone.
std::optional<Error> take_last_error();

void define_operators();

}  // namespace weft::python::torch
