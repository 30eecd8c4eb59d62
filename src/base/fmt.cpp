// Compiles fmt once for all files. As headers alone it takes two to three seconds of each file that formats. No program
// needs fmt's shared library.
#if !defined(FMT_HEADER_ONLY) && !defined(FMT_SHARED)

#include <fmt/format.h>

// As weak as inline functions are: a program may link a libfmt of its own.
#undef FMT_FUNC
#define FMT_FUNC __attribute__((weak))
#include <fmt/format-inl.h>

namespace fmt::detail {

template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;
template thousands_sep_result<char> thousands_sep_impl<char>(locale_ref);
template char decimal_point_impl<char>(locale_ref);
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;

}  // namespace fmt::detail

#endif
