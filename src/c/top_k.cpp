#include "weft/top_k.hpp"

#include "c/collectives.hpp"

namespace weft::c {

template <>
struct Mirror<weft_top_k_columns_args> {
  using Cpp = TopKColumnsArgs;
  static constexpr const char* name = "weft_top_k_columns_args";
  static constexpr std::size_t least = sizeof(weft_top_k_columns_args);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.input, cpp.input);
    copy(c.values, cpp.values);
    copy(c.indices, cpp.indices);
    copy(c.rows, cpp.rows);
    copy(c.k, cpp.k);
    copy(c.shard_columns, cpp.shard_columns);
    copy(c.columns, cpp.columns);
    copy(c.even_shards, cpp.even_shards);
    copy(c.input_stride, cpp.input_stride);
    copy(c.type, cpp.type);
    launch_fields(c, cpp, copy);
  }
};

}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_top_k_columns_args_init(weft_top_k_columns_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_top_k_columns(const weft_group* group, const weft_top_k_columns_args* args) {
  return call(weft::top_k_columns, group, args);
}

}  // extern "C"
