#include "c/collectives.hpp"

namespace weft::c {

template <>
struct Mirror<weft_all_reduce_args> {
  using Cpp = AllReduceArgs;
  static constexpr const char* name = "weft_all_reduce_args";
  static constexpr std::size_t least = offsetof(weft_all_reduce_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.input, cpp.input);
    copy(c.output, cpp.output);
    copy(c.count, cpp.count);
    copy(c.type, cpp.type);
    copy(c.op, cpp.op);
    copy(c.algorithm, cpp.algorithm);
    launch_fields(c, cpp, copy);
  }
};

template <>
struct Mirror<weft_reduce_args> {
  using Cpp = ReduceArgs;
  static constexpr const char* name = "weft_reduce_args";
  static constexpr std::size_t least = offsetof(weft_reduce_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.input, cpp.input);
    copy(c.output, cpp.output);
    copy(c.count, cpp.count);
    copy(c.type, cpp.type);
    copy(c.op, cpp.op);
    copy(c.root, cpp.root);
    launch_fields(c, cpp, copy);
  }
};

template <>
struct Mirror<weft_all_gather_args> {
  using Cpp = AllGatherArgs;
  static constexpr const char* name = "weft_all_gather_args";
  static constexpr std::size_t least = offsetof(weft_all_gather_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {
    row_fields(c, cpp, copy);
    copy(c.rows, cpp.rows);
    copy(c.row_bytes, cpp.row_bytes);
    launch_fields(c, cpp, copy);
  }
};

template <>
struct Mirror<weft_all_to_all_args> {
  using Cpp = AllToAllArgs;
  static constexpr const char* name = "weft_all_to_all_args";
  static constexpr std::size_t least = offsetof(weft_all_to_all_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {
    row_fields(c, cpp, copy);
    copy(c.rows, cpp.rows);
    copy(c.row_bytes, cpp.row_bytes);
    launch_fields(c, cpp, copy);
  }
};

template <>
struct Mirror<weft_broadcast_args> {
  using Cpp = BroadcastArgs;
  static constexpr const char* name = "weft_broadcast_args";
  static constexpr std::size_t least = offsetof(weft_broadcast_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {
    row_fields(c, cpp, copy);
    copy(c.rows, cpp.rows);
    copy(c.row_bytes, cpp.row_bytes);
    copy(c.root, cpp.root);
    launch_fields(c, cpp, copy);
  }
};

template <>
struct Mirror<weft_reduce_scatter_args> {
  using Cpp = ReduceScatterArgs;
  static constexpr const char* name = "weft_reduce_scatter_args";
  static constexpr std::size_t least = offsetof(weft_reduce_scatter_args, blocks);
  static void fields(auto& c, auto& cpp, auto copy) {
    row_fields(c, cpp, copy);
    copy(c.rows, cpp.rows);
    copy(c.width, cpp.width);
    copy(c.type, cpp.type);
    copy(c.op, cpp.op);
    launch_fields(c, cpp, copy);
  }
};

template <>
struct Mirror<weft_barrier_args> {
  using Cpp = BarrierArgs;
  static constexpr const char* name = "weft_barrier_args";
  static constexpr std::size_t least = sizeof(weft_barrier_args);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.tag, cpp.tag);
    copy(c.stream, cpp.stream);
  }
};

}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_all_reduce_args_init(weft_all_reduce_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_all_reduce(const weft_group* group, const weft_all_reduce_args* args) {
  return call(weft::all_reduce, group, args);
}

weft_code weft_reduce_args_init(weft_reduce_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_reduce(const weft_group* group, const weft_reduce_args* args) {
  return call(weft::reduce, group, args);
}

weft_code weft_all_gather_args_init(weft_all_gather_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_all_gather_into_tensor(const weft_group* group, const weft_all_gather_args* args) {
  return call(weft::all_gather_into_tensor, group, args);
}

weft_code weft_all_to_all_args_init(weft_all_to_all_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_all_to_all(const weft_group* group, const weft_all_to_all_args* args) {
  return call(weft::all_to_all, group, args);
}

weft_code weft_broadcast_args_init(weft_broadcast_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_broadcast(const weft_group* group, const weft_broadcast_args* args) {
  return call(weft::broadcast, group, args);
}

weft_code weft_reduce_scatter_args_init(weft_reduce_scatter_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_reduce_scatter_tensor(const weft_group* group, const weft_reduce_scatter_args* args) {
  return call(weft::reduce_scatter_tensor, group, args);
}

weft_code weft_barrier_args_init(weft_barrier_args* args, size_t size) {
  return init(args, size);
}
weft_code weft_barrier(const weft_group* group, const weft_barrier_args* args) {
  return call(weft::barrier, group, args);
}

}  // extern "C"
