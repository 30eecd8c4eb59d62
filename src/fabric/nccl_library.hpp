// Finds the copy of NCCL that Weft calls. Weft does not link NCCL: an engine brings a copy of its own, and a second one
// in the same process breaks communicators.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft::detail {

inline constexpr int kOldestNccl = 22809;  // as NCCL_VERSION_CODE; the first with all that Weft calls
inline constexpr char kNcclVariable[] = "WEFT_NCCL";

std::string nccl_version_text(int code);  // "2.28.9"

// A function's address. It turns into a pointer to a function of any type.
class NcclSymbol {
 public:
  explicit NcclSymbol(void* address) : address_(address) {}
  template <class Function>
  operator Function*() const {
    return reinterpret_cast<Function*>(address_);
  }

 private:
  void* address_;
};

enum class NcclOrigin { process, named, system };

struct NcclLibrary {
  void* handle = nullptr;  // never closed: NCCL's threads may outlive every communicator
  std::string path;
  int version = 0;
  NcclOrigin origin = NcclOrigin::system;

  NcclSymbol find(const char* function) const;  // null if there is none
  NcclSymbol need(const char* function) const;  // Errc::unsupported if there is none
};

// The places where a copy may be.
struct NcclSearch {
  std::string named{};  // empty: none is named
  std::string namer = kNcclVariable;
  std::string system = "libnccl.so.2";
};

struct NcclFinding {
  std::optional<NcclLibrary> taken{};
  std::string problem{};             // why none was taken
  std::vector<std::string> notes{};  // for each other place, why its copy was not taken

  void refuse(std::string reason);  // gives back what was taken
};

// The first copy there is, in this order: the process's own, the named one, the system's. If that one cannot be used,
// none is taken: to load another beside it, or in spite of the name, would be worse. If the process has several copies,
// the name chooses between them.
NcclFinding find_nccl(const NcclSearch& search);

// The files that define NCCL's functions in this process, in the order of loading.
std::vector<std::string> nccl_copies();

}  // namespace weft::detail
