#include "weft/columns.hpp"

#include "c/collectives.hpp"

namespace weft::c {
namespace {

// The fields that both calls have.
void column_fields(auto& c, auto& cpp, auto copy) {
  row_fields(c, cpp, copy);
  copy(c.shard_columns, cpp.shard_columns);
  copy(c.columns, cpp.columns);
  copy(c.even_shards, cpp.even_shards);
  copy(c.type, cpp.type);
  copy(c.output_f32, cpp.output_f32);
  copy(c.scale, cpp.scale);
  copy(c.soft_cap, cpp.soft_cap);
  launch_fields(c, cpp, copy);
}

}  // namespace

template <>
struct Mirror<weft_all_gather_columns_args> {
  using Cpp = AllGatherColumnsArgs;
  static constexpr const char* name = "weft_all_gather_columns_args";
  static constexpr std::size_t least = offsetof(weft_all_gather_columns_args, cluster);
  static void fields(auto& c, auto& cpp, auto copy) {
    column_fields(c, cpp, copy);
    copy(c.rows, cpp.rows);
  }
};

template <>
struct Mirror<weft_all_to_all_columns_args> {
  using Cpp = AllToAllColumnsArgs;
  static constexpr const char* name = "weft_all_to_all_columns_args";
  static constexpr std::size_t least = offsetof(weft_all_to_all_columns_args, cluster);
  static void fields(auto& c, auto& cpp, auto copy) {  // besides counts
    column_fields(c, cpp, copy);
    copy(c.group_ranks, cpp.group_ranks);
    copy(c.input_rows, cpp.input_rows);
    copy(c.output_rows, cpp.output_rows);
  }
};

}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_all_gather_columns_args_init(weft_all_gather_columns_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_all_gather_columns(const weft_group* group, const weft_all_gather_columns_args* args) {
  return call(weft::all_gather_columns, group, args);
}
weft_code weft_all_to_all_columns_args_init(weft_all_to_all_columns_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_all_to_all_columns(const weft_group* group, const weft_all_to_all_columns_args* args) {
  return guarded([&] {
    const weft_all_to_all_columns_args full = whole(args);
    weft::AllToAllColumnsArgs cpp = cpp_of(full);
    cpp.counts = cpp_or_defaults(full.counts);
    weft::all_to_all_columns(at("group", group).group, cpp);
  });
}

}  // extern "C"
