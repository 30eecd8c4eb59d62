// How the host reads a record that calls of this rank write.
#pragma once

#include "protocol/channel.hpp"

namespace weft::detail {

// All of it once it is complete, else what its last two words say of waits that are slow. Waits for nothing.
FaultRecord read_record(FaultRecord& shared);

}  // namespace weft::detail
