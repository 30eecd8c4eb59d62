// The calls of set-ups with a deliberate fault.
#pragma once

#include <string>

#include "sim/setup.hpp"

namespace weft::sim {

// Calls of a protocol (FaultArgs::protocol), and what the set-up of such calls must say. All-reduces of an algorithm
// have its name.
void set_fault_calls(Setup& setup, const std::string& protocol);

}  // namespace weft::sim
