#include "c/handles.hpp"

using namespace weft::c;

extern "C" {

weft_code weft_symmetric_memory_allocate(const weft_communicator* communicator, size_t bytes,
                                         weft_symmetric_memory** memory) {
  return give_handle("memory", memory, [&] {
    return weft::SymmetricMemory::allocate(at("communicator", communicator).communicator, bytes);
  });
}

weft_code weft_symmetric_memory_free(weft_symmetric_memory* memory) {
  return guarded([&] { at("memory", memory).memory.free(); });
}

void weft_symmetric_memory_destroy(weft_symmetric_memory* memory) {
  delete memory;
}

weft_code weft_symmetric_memory_data(const weft_symmetric_memory* memory, void** data) {
  return guarded([&] { at("data", data) = at("memory", memory).memory.data(); });
}

weft_code weft_symmetric_memory_bytes(const weft_symmetric_memory* memory, size_t* bytes) {
  return guarded([&] { at("bytes", bytes) = at("memory", memory).memory.bytes(); });
}

weft_code weft_symmetric_memory_peer(const weft_symmetric_memory* memory, int rank, void** data) {
  return guarded([&] { at("data", data) = at("memory", memory).memory.peer(rank); });
}

}  // extern "C"
