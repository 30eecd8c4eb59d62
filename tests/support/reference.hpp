// Short names of the oracle's functions that tests use all the time.
#pragma once

#include "oracle/number.hpp"
#include "oracle/reduction.hpp"
#include "weft/types.hpp"

namespace weft::test {

using oracle::Bytes;
using oracle::Format;
using oracle::format_of;
using oracle::get;
using oracle::put;
using oracle::reduce;
using oracle::round_to;
using oracle::value_of;

}  // namespace weft::test
