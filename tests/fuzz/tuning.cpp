#include "tuning/tuning.hpp"

#include <string>

#include "fuzz/targets.hpp"
#include "weft/error.hpp"

namespace weft::fuzz {

void tuning(Bytes data) {
  std::vector<detail::TuningTable> tables;
  try {
    tables = detail::parse_tuning(text_of(data), "tuning.json");
  } catch (const Error& error) {
    require(error.code() == Errc::invalid_argument, "a wrong file is an invalid argument");
    require(std::string_view(error.what()).starts_with("tuning.json: "), "its error has its name");
    return;
  }
  const auto again = detail::parse_tuning(detail::to_json(tables), "again");
  require(detail::fingerprint_of(again) == detail::fingerprint_of(tables), "tables are written as they were read");
}

}  // namespace weft::fuzz
