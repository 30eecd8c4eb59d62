// Words for the values of enumerations. For checkers of types they are the Literals of python/weft/_words.py.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <array>
#include <string>
#include <string_view>

#include "tensor.hpp"
#include "weft/weft.hpp"

namespace weft::python {

// An enumeration's name in C++, which is that of its Literal in Python, and words for its values: these begin at 0, and
// the words are its enumerators.
template <std::size_t size, std::size_t count>
struct Named {
  nb::detail::descr<size> name;
  std::array<std::string_view, count> words;
};
template <std::size_t size, std::size_t count>
constexpr auto named(const char (&name)[size], const std::string_view (&words)[count]) {
  return Named<size - 1, count>{nb::detail::const_name(name), std::to_array(words)};
}
template <class E>
inline constexpr int kWords = 0;
template <>
inline constexpr auto kWords<Device> = named("Device", {"automatic", "cpu", "cuda"});
template <>
inline constexpr auto kWords<ReduceOp> = named("ReduceOp", {"sum", "max", "min", "avg"});
template <>
inline constexpr auto kWords<Algorithm> = named("Algorithm", {"automatic", "one_shot", "two_shot", "pipelined", "nccl",
                                                              "multimem_one_shot", "multimem_two_shot"});
template <>
inline constexpr auto kWords<Padding> = named("Padding", {"none", "aligned", "max", "fixed", "per_rank"});
template <>
inline constexpr auto kWords<Sharding> = named("Sharding", {"none", "balanced", "ceil"});
template <>
inline constexpr auto kWords<Fp8Scaling> = named("Fp8Scaling", {"fixed", "per_token", "per_128_columns"});
template <>
inline constexpr auto kWords<ScaleType> = named("ScaleType", {"f32", "ue8m0"});
template <>
inline constexpr auto kWords<RowType> = named("RowType", {"bf16", "f16", "fp8"});
template <>
inline constexpr auto kWords<RowCast> = named("RowCast", {"none", "fp8", "fp8_ue8m0", "fp8_pow2"});
template <>
inline constexpr auto kWords<RowLayout> = named("RowLayout",
                                                {"expert_masked", "expert_contiguous", "rank_major", "rank_compact"});
template <>
inline constexpr auto kWords<ScaleOrder> = named("ScaleOrder", {"rows", "columns"});
template <>
inline constexpr auto kWords<RowPath> = named("RowPath", {"automatic", "slots", "ring"});
template <>
inline constexpr auto kWords<LayerSchedule> = named("LayerSchedule",
                                                    {"plain", "rounds", "combine_rounds", "automatic"});
template <>
inline constexpr auto kWords<Overflow> = named("Overflow", {"error", "drop"});
template <>
inline constexpr auto kWords<DataType> = named("DataType", {"bf16", "f16", "f32", "i32", "i64", "u8"});

// A word that a caller gave for a value of E. value_of() rejects one that stands for none.
template <class E>
struct Word {
  const char* text = nullptr;
};

template <class E>
E value_of(const char* argument, Word<E> word) {
  int value = 0;
  for (const std::string_view one : kWords<E>.words) {
    if (one == word.text) return static_cast<E>(value);
    ++value;
  }
  reject(fmt::format("{} is '{}'; it must be one of {}", argument, word.text, fmt::join(kWords<E>.words, ", ")));
}

template <class E>
std::string word_of(E value) {
  return std::string(kWords<E>.words[static_cast<std::size_t>(value)]);
}

}  // namespace weft::python

template <class E>
struct nanobind::detail::type_caster<weft::python::Word<E>> {
  NB_TYPE_CASTER(weft::python::Word<E>, const_name("weft._words.") + weft::python::kWords<E>.name)

  bool from_python(handle given, std::uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<const char*> text;
    if (!text.from_python(given, flags, cleanup)) return false;
    value.text = text.value;
    return true;
  }
};
