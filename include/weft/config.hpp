// Options of a communicator.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "weft/types.hpp"

namespace weft {

// All ranks must pass the same values; options marked "Each rank's own", and tuning_file,
// may differ. Creation finds a difference (Errc::rendezvous).
struct Config {
  Device device = Device::automatic;  // automatic: CUDA if this build and this machine can, else CPU
  // Each rank's own, 0 … number of GPUs − 1. −1: LOCAL_RANK (from_environment) or the rank (local), modulo the number
  // of GPUs; else the current device.
  int cuda_device = -1;

  // The longest wait inside an operation before the call fails with Errc::timeout. 0: for ever. Device memory holds it,
  // so it applies to captured graphs, too. A wait of a tenth of it is logged as a warning while it goes on; without a
  // deadline, one of 30 s. If NCCL serves a call, it is the time from the call's begin on the GPU to its end. Replays
  // of graphs with calls that NCCL serves have no deadline.
  std::chrono::nanoseconds deadline = std::chrono::seconds(30);
  // Each rank's own: how long creation, split, acquire and every other host-side meeting may take. 0: for ever.
  std::chrono::nanoseconds rendezvous_deadline = std::chrono::seconds(60);

  // Largest message that the one-shot and the two-shot algorithm take in one piece, up to 2^40 bytes; larger messages
  // go in several pieces. The limits decide the memory taken: `weft info` prints it. 0 for one-shot: on GPUs 8 MiB
  // among up to two ranks, 1 MiB among up to four, else 512 KiB; on CPU ranks 64 KiB. 0 for two-shot: on GPUs 16 MiB,
  // on CPU ranks 256 KiB. Errc::system: the windows of CPU ranks are more than their machine, or the control group that
  // they share, has left. No byte of them is touched before.
  std::size_t one_shot_bytes = 0;
  std::size_t two_shot_bytes = 0;
  // Most calls of split(), 0 … 63, and the two limits above for each group. Limits of 0: on GPUs 512 KiB and 4 MiB; on
  // CPU ranks the world's defaults.
  int max_groups = 4;
  std::size_t group_one_shot_bytes = 0;
  std::size_t group_two_shot_bytes = 0;
  // On GPUs: small buffers for the world, for engines that make a communicator for each of their groups. Limits of 0
  // are then 512 KiB and 3 MiB. With max_groups = 0 and without multicast, a communicator takes at most 32 MiB among up
  // to eight ranks. docs/integration.md says what that costs, and from which size on NCCL is the better choice.
  bool small_buffers = false;

  // For Algorithm::multimem_one_shot and _two_shot alone. NCCL binds the window to a multicast object of NVLink's
  // switches, and the window gets buffers for them: three times two_shot_bytes. Without it no multicast object is ever
  // made on Weft's behalf. If GPUs, NCCL or the NVLink domain cannot, creation fails with Errc::unsupported and the
  // reason; Communicator::multicast() tells it beforehand.
  bool multicast = false;

  // A file of tuning tables that `weft tune` wrote: algorithms and grids of all-reduces by size, ways of gathers,
  // scatters, crossings and exchanges, schedules of layers. All ranks use rank 0's; empty: those that are compiled in.
  // Errc::invalid_argument at creation: the file is no such table, or has a value outside its range. The message has
  // its name, the key, the value and the range. Ranks other than 0 throw Errc::rendezvous with the same words.
  std::string tuning_file = {};

  // Each rank's own, for GPUs. true: the calls of one group may come on different streams, in an order that is the same
  // on all ranks. An event is recorded behind each call, and a call on another stream waits for it. That costs about a
  // microsecond of the host, and the early start of the kernel behind. Dispatch and combine of an exchange are ordered
  // apart. false: the caller orders such calls, as those under capture and replays of graphs in any case.
  bool order_streams = false;

  // This communicator's name among several that the ranks create: up to 64 bytes without control characters (else
  // Errc::invalid_argument). Ranks meet only ranks with the same name. Communicators that a process creates from the
  // environment in several threads at a time need different names. A second creation under a name in use, or without a
  // name while one without a name is in use, is Errc::invalid_argument at once. Their order tells communicators of one
  // name apart; it must be the same on every rank. Ranks with one id (from_id, from_nccl) and different names are
  // Errc::rendezvous.
  std::string name = {};
};

}  // namespace weft
