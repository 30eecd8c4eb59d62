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

// Words for the values of an enumeration, which begin at 0: its enumerators in C++.
template <class E>
inline constexpr int kWords = 0;
template <>
inline constexpr auto kWords<Device> = std::to_array<std::string_view>({"automatic", "cpu", "cuda"});
template <>
inline constexpr auto kWords<ReduceOp> = std::to_array<std::string_view>({"sum", "max", "min", "avg"});
template <>
inline constexpr auto kWords<Algorithm> = std::to_array<std::string_view>({"automatic", "one_shot", "two_shot",
                                                                           "pipelined", "nccl", "multimem_one_shot",
                                                                           "multimem_two_shot"});
template <>
inline constexpr auto kWords<Padding> = std::to_array<std::string_view>({"none", "aligned", "max", "fixed",
                                                                         "per_rank"});
template <>
inline constexpr auto kWords<Sharding> = std::to_array<std::string_view>({"none", "balanced", "ceil"});
template <>
inline constexpr auto kWords<Fp8Scaling> = std::to_array<std::string_view>({"fixed", "per_token", "per_128_columns"});
template <>
inline constexpr auto kWords<ScaleType> = std::to_array<std::string_view>({"f32", "ue8m0"});
template <>
inline constexpr auto kWords<RowType> = std::to_array<std::string_view>({"bf16", "f16", "fp8"});
template <>
inline constexpr auto kWords<RowCast> = std::to_array<std::string_view>({"none", "fp8", "fp8_ue8m0", "fp8_pow2"});
template <>
inline constexpr auto kWords<RowLayout> = std::to_array<std::string_view>({"expert_masked", "expert_contiguous",
                                                                           "rank_major", "rank_compact"});
template <>
inline constexpr auto kWords<ScaleOrder> = std::to_array<std::string_view>({"rows", "columns"});
template <>
inline constexpr auto kWords<RowPath> = std::to_array<std::string_view>({"automatic", "slots", "ring"});
template <>
inline constexpr auto kWords<LayerSchedule> = std::to_array<std::string_view>({"plain", "rounds", "combine_rounds",
                                                                               "automatic"});
template <>
inline constexpr auto kWords<Overflow> = std::to_array<std::string_view>({"error", "drop"});
template <>
inline constexpr auto kWords<DataType> = std::to_array<std::string_view>({"bf16", "f16", "f32", "i32", "i64", "u8"});

// The enumeration's name in C++, and that of its Literal in Python.
template <class E>
inline constexpr int kTypeName = 0;
template <>
inline constexpr auto kTypeName<Device> = nb::detail::const_name("Device");
template <>
inline constexpr auto kTypeName<ReduceOp> = nb::detail::const_name("ReduceOp");
template <>
inline constexpr auto kTypeName<Algorithm> = nb::detail::const_name("Algorithm");
template <>
inline constexpr auto kTypeName<Padding> = nb::detail::const_name("Padding");
template <>
inline constexpr auto kTypeName<Sharding> = nb::detail::const_name("Sharding");
template <>
inline constexpr auto kTypeName<Fp8Scaling> = nb::detail::const_name("Fp8Scaling");
template <>
inline constexpr auto kTypeName<ScaleType> = nb::detail::const_name("ScaleType");
template <>
inline constexpr auto kTypeName<RowType> = nb::detail::const_name("RowType");
template <>
inline constexpr auto kTypeName<RowCast> = nb::detail::const_name("RowCast");
template <>
inline constexpr auto kTypeName<RowLayout> = nb::detail::const_name("RowLayout");
template <>
inline constexpr auto kTypeName<ScaleOrder> = nb::detail::const_name("ScaleOrder");
template <>
inline constexpr auto kTypeName<RowPath> = nb::detail::const_name("RowPath");
template <>
inline constexpr auto kTypeName<LayerSchedule> = nb::detail::const_name("LayerSchedule");
template <>
inline constexpr auto kTypeName<Overflow> = nb::detail::const_name("Overflow");
template <>
inline constexpr auto kTypeName<DataType> = nb::detail::const_name("DataType");

// A word that a caller gave for a value of E. value_of() rejects one that stands for none.
template <class E>
struct Word {
  const char* text = nullptr;
};

template <class E>
E value_of(const char* argument, Word<E> word) {
  int value = 0;
  for (const std::string_view one : kWords<E>) {
    if (one == word.text) return static_cast<E>(value);
    ++value;
  }
  reject(fmt::format("{} is '{}'; it must be one of {}", argument, word.text, fmt::join(kWords<E>, ", ")));
}

template <class E>
std::string word_of(E value) {
  return std::string(kWords<E>[static_cast<std::size_t>(value)]);
}

}  // namespace weft::python

template <class E>
struct nanobind::detail::type_caster<weft::python::Word<E>> {
  NB_TYPE_CASTER(weft::python::Word<E>, const_name("weft._words.") + weft::python::kTypeName<E>)

  bool from_python(handle given, std::uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<const char*> text;
    if (!text.from_python(given, flags, cleanup)) return false;
    value.text = text.value;
    return true;
  }
};
