// The machine of a measurement: processors, links and versions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/nvlink.hpp"

namespace weft::cli {

struct Gpu {
  std::string name;
  std::uint64_t memory = 0;  // bytes
  int multiprocessors = 0;
  std::string architecture;        // "sm_90"
  std::vector<std::string> reach;  // to each GPU: "self", "NVLink", "PCIe" or "none"
  NvLinks links;
};

struct Machine {
  std::string cpu;
  unsigned cores = 0;
  int gpus_present = 0;  // known to the kernel's driver, usable or not
  std::vector<Gpu> gpus;
  std::string driver;         // version of CUDA that the driver supports, "13.0"; empty: no driver
  std::string cuda_runtime;   // linked into this program; empty: built without CUDA
  std::string nccl_compiled;  // headers
  std::string nccl_runtime;   // the library that was taken; empty: none
  std::string nccl_path;
  std::string nccl_origin;              // the place where it was found
  std::vector<std::string> nccl_notes;  // why no other copy was taken, or none; what does not work with this one
  std::string cuda_problem;             // why no GPU can be used; empty if one can
};

Machine describe_machine();

// Fills the parts that only CUDA and NCCL know. Without CUDA, cuda_problem says so.
void describe_cuda(Machine& machine);

}  // namespace weft::cli
