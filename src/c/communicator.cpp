#include "c/mirror.hpp"

namespace weft::c {

template <>
struct Mirror<weft_config> {
  using Cpp = Config;
  static constexpr const char* name = "weft_config";
  static constexpr std::size_t least = offsetof(weft_config, one_shot_bytes);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.device, cpp.device);
    copy(c.cuda_device, cpp.cuda_device);
    copy(c.deadline_ns, cpp.deadline);
    copy(c.rendezvous_deadline_ns, cpp.rendezvous_deadline);
    copy(c.one_shot_bytes, cpp.one_shot_bytes);
    copy(c.two_shot_bytes, cpp.two_shot_bytes);
    copy(c.group_one_shot_bytes, cpp.group_one_shot_bytes);
    copy(c.group_two_shot_bytes, cpp.group_two_shot_bytes);
    copy(c.max_groups, cpp.max_groups);
    copy(c.multicast, cpp.multicast);
    copy(c.tuning_file, cpp.tuning_file);
    copy(c.name, cpp.name);
    copy(c.small_buffers, cpp.small_buffers);
    copy(c.order_streams, cpp.order_streams);
  }
};

}  // namespace weft::c

using namespace weft::c;

extern "C" {

weft_code weft_config_init(weft_config* config, size_t size) {
  return init(config, size);
}

weft_code weft_use_nccl(const char* file) {
  return guarded([&] { weft::use_nccl(&at("file", file)); });
}

weft_code weft_unique_id_create(const char* host, weft_unique_id* id) {
  return guarded([&] {
    weft_unique_id& place = at("id", id);
    const weft::UniqueId made = host == nullptr ? weft::UniqueId::create() : weft::UniqueId::create(host);
    static_assert(sizeof place.bytes == sizeof made.bytes);
    std::memcpy(place.bytes, made.bytes.data(), sizeof place.bytes);
  });
}

weft_code weft_communicator_from_environment(const weft_config* config, weft_communicator** communicator) {
  return give_handle("communicator", communicator,
                     [&] { return weft::Communicator::from_environment(cpp_or_defaults(config)); });
}

weft_code weft_communicator_from_id(const weft_unique_id* id, int rank, int world_size, const weft_config* config,
                                    weft_communicator** communicator) {
  return give_handle("communicator", communicator, [&] {
    weft::UniqueId given;
    std::memcpy(given.bytes.data(), at("id", id).bytes, sizeof id->bytes);
    return weft::Communicator::from_id(given, rank, world_size, cpp_or_defaults(config));
  });
}

weft_code weft_communicator_from_nccl(ncclComm* nccl, const weft_config* config, weft_communicator** communicator) {
  return give_handle("communicator", communicator,
                     [&] { return weft::Communicator::from_nccl(&at("nccl", nccl), cpp_or_defaults(config)); });
}

weft_code weft_communicator_local(int world_size, const weft_config* config, weft_communicator** communicators) {
  return guarded([&] {
    static_cast<void>(at("communicators", communicators));
    std::vector<std::unique_ptr<weft_communicator>> handles;
    for (weft::Communicator& rank : weft::Communicator::local(world_size, cpp_or_defaults(config)))
      handles.emplace_back(new weft_communicator{std::move(rank)});
    for (std::size_t i = 0; i < handles.size(); ++i) communicators[i] = handles[i].release();
  });
}

void weft_communicator_destroy(weft_communicator* communicator) {
  delete communicator;
}

weft_code weft_communicator_world(const weft_communicator* communicator, weft_group** world) {
  return give_handle("world", world, [&] { return at("communicator", communicator).communicator.world(); });
}

weft_code weft_communicator_split(weft_communicator* communicator, int color, weft_group** group) {
  return guarded([&] {
    weft_group*& place = at("group", group);
    weft::Group part = at("communicator", communicator).communicator.split(color);
    place = color < 0 ? nullptr : new weft_group{std::move(part)};
  });
}

weft_code weft_communicator_release(weft_communicator* communicator) {
  return guarded([&] { at("communicator", communicator).communicator.release(); });
}

weft_code weft_communicator_acquire(weft_communicator* communicator) {
  return guarded([&] { at("communicator", communicator).communicator.acquire(); });
}

weft_code weft_communicator_abort(weft_communicator* communicator) {
  return guarded([&] { at("communicator", communicator).communicator.abort(); });
}

weft_code weft_communicator_memory(const weft_communicator* communicator, weft_memory_use* memory) {
  return guarded([&] {
    const weft::MemoryUse use = at("communicator", communicator).communicator.memory();
    give<weft_memory_use>("memory", memory, {.size = sizeof *memory, .window = use.window, .control = use.control});
  });
}

weft_code weft_communicator_fabric(const weft_communicator* communicator, char* text, size_t capacity, size_t* length) {
  return guarded([&] { give_text(at("communicator", communicator).communicator.fabric(), text, capacity, length); });
}

weft_code weft_communicator_multicast(const weft_communicator* communicator, char* text, size_t capacity,
                                      size_t* length) {
  return guarded([&] { give_text(at("communicator", communicator).communicator.multicast(), text, capacity, length); });
}

}  // extern "C"
