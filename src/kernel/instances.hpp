// A family's list of instances: the templates that are compiled, and the query that each serves. Finding, loading and
// the simulator's share follow from it.
//
// A query is a plain struct with a type `Work`, operator== and key(): the query of the row that serves it.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace weft::detail {

template <class Algorithm, auto query>
struct Instance {
  using A = Algorithm;
  static constexpr auto kQuery = query;
};

template <class... Rows>
struct Instances {
  static constexpr std::size_t kCount = sizeof...(Rows);
};

template <class... Lists>
struct Joined;
template <class... Rows>
struct Joined<Instances<Rows...>> {
  using Type = Instances<Rows...>;
};
template <class... First, class... Second, class... Rest>
struct Joined<Instances<First...>, Instances<Second...>, Rest...> {
  using Type = typename Joined<Instances<First..., Second...>, Rest...>::Type;
};
// The rows of all lists in one.
template <class... Lists>
using Join = typename Joined<Lists...>::Type;

template <class Row, class Query>
constexpr bool serves(const Query& key) {
  if constexpr (std::is_same_v<std::remove_cv_t<decltype(Row::kQuery)>, Query>) return Row::kQuery == key;
  return false;
}

// The number of the row that serves the query; kCount if none does.
template <class Query, class... Rows>
constexpr std::size_t row_of(Instances<Rows...>, const Query& query) {
  const Query key = query.key();
  std::size_t row = 0;
  static_cast<void>(((serves<Rows>(key) || (++row, false)) || ...));
  return row;
}

// Calls `run.template operator()<Algorithm>()` for the row that serves the query. False if none does.
template <class Query, class Run, class... Rows>
bool with_instance(Instances<Rows...>, const Query& query, Run&& run) {
  const Query key = query.key();
  const auto try_row = [&]<class Row>() {
    if constexpr (std::is_same_v<std::remove_cv_t<decltype(Row::kQuery)>, Query>) {
      if (Row::kQuery == key) return run.template operator()<typename Row::A>(), true;
    }
    return false;
  };
  return (try_row.template operator()<Rows>() || ...);
}

}  // namespace weft::detail
