#include "weft/crossings.hpp"

#include "c/collectives.hpp"

namespace weft::c {

template <>
struct Mirror<weft_crossing_args> {
  using Cpp = CrossingArgs;
  static constexpr const char* name = "weft_crossing_args";
  static constexpr std::size_t least = offsetof(weft_crossing_args, cluster);
  static void fields(auto& c, auto& cpp, auto copy) {  // besides counts
    row_fields(c, cpp, copy);
    copy(c.width, cpp.width);
    copy(c.group_ranks, cpp.group_ranks);
    copy(c.input_rows, cpp.input_rows);
    copy(c.output_rows, cpp.output_rows);
    copy(c.type, cpp.type);
    launch_fields(c, cpp, copy);
  }
};

namespace {

weft_code cross(void (*run)(const Group&, const CrossingArgs&), const weft_group* group,
                const weft_crossing_args* args) {
  return guarded([&] {
    const weft_crossing_args full = whole(args);
    CrossingArgs cpp = cpp_of(full);
    cpp.counts = cpp_or_defaults(full.counts);
    run(at("group", group).group, cpp);
  });
}

}  // namespace
}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_crossing_args_init(weft_crossing_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_gather_sums(const weft_group* group, const weft_crossing_args* args) {
  return cross(weft::gather_sums, group, args);
}
weft_code weft_scatter_sums(const weft_group* group, const weft_crossing_args* args) {
  return cross(weft::scatter_sums, group, args);
}

}  // extern "C"
