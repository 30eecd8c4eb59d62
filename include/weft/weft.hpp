// Everything of Weft's public interface.
#pragma once

#include "weft/collectives.hpp"
#include "weft/columns.hpp"
#include "weft/communicator.hpp"
#include "weft/counts.hpp"
#include "weft/crossings.hpp"
#include "weft/error.hpp"
#include "weft/fused.hpp"
#include "weft/messages.hpp"
#include "weft/moe.hpp"
#include "weft/moe_layer.hpp"
#include "weft/parallel.hpp"
#include "weft/recording.hpp"
#include "weft/symmetric.hpp"
#include "weft/take.hpp"
#include "weft/top_k.hpp"
#include "weft/types.hpp"
