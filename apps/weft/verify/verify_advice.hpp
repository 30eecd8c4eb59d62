// The advice that failed checks give to the operator.
#pragma once

namespace weft::cli {

inline constexpr const char* kWrongPair =
    "Data between these two is lost or changed: look for NVLink errors (nvidia-smi nvlink --errorcounters), Xid "
    "messages (dmesg), ECC errors (nvidia-smi -q -d ECC) and, without NVLink, IOMMU or ACS settings. Do not serve "
    "from this machine.";
inline constexpr const char* kWrongResult =
    "If a pair fails, too, look there first. If all pairs are right, this is a bug of Weft's: please report it with "
    "the file that --json writes.";
inline constexpr const char* kFault =
    "A rank did not answer: look for other programs on its processor or GPU (nvidia-smi), for Xid messages (dmesg), "
    "and whether --deadline leaves enough time; then run this again.";
inline constexpr const char* kNoCommunicator =
    "Nothing was measured: the ranks could not be connected. `weft info` shows what this machine offers, "
    "WEFT_LOG=debug how far it came.";
inline constexpr const char* kNoPeerMemory =
    "Weft's own algorithms need GPUs that store into each other's memory: NVLink, or PCIe peer access, with NCCL's "
    "symmetric memory (NCCL_CUMEM_ENABLE and NCCL_P2P_DISABLE unset). nvidia-smi topo -p2p w shows what there is.";

}  // namespace weft::cli
