// Creations from the environment that are under way in this process.
#pragma once

#include <string>

namespace weft::detail {

// One creation, for as long as it lives. Ranks find each other by their communicators' names. Two creations of one name
// at a time would take each other's ranks, so the second one is Errc::invalid_argument.
class CreationUnderWay {
 public:
  explicit CreationUnderWay(const std::string& name);
  CreationUnderWay(const CreationUnderWay&) = delete;
  CreationUnderWay& operator=(const CreationUnderWay&) = delete;
  ~CreationUnderWay();

 private:
  std::string name_;
};

}  // namespace weft::detail
