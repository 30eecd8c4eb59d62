#include "rendezvous/under_way.hpp"

#include <fmt/format.h>

#include <mutex>
#include <set>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

struct NamesInUse {
  std::mutex mutex;
  std::set<std::string> names;
};

NamesInUse& under_way() {
  static NamesInUse names;
  return names;
}

}  // namespace

CreationUnderWay::CreationUnderWay(const std::string& name) : name_(name) {
  NamesInUse& all = under_way();
  const std::scoped_lock lock(all.mutex);
  if (!all.names.insert(name).second) {
    throw Error(Errc::invalid_argument,
                fmt::format("Config::name: '{}' is that of another communicator which this process creates from the "
                            "environment at the moment; give each a name of its own, the same on all ranks",
                            name));
  }
}

CreationUnderWay::~CreationUnderWay() {
  NamesInUse& all = under_way();
  const std::scoped_lock lock(all.mutex);
  all.names.erase(name_);
}

}  // namespace weft::detail
