#include "c/handles.hpp"

namespace {

using weft::c::at;

const weft::Group& group_at(const weft_group* group) {
  return at("group", group).group;
}

// The answers that stay until the thread asks again.
struct Status {
  weft::Fault fault;
  weft_fault record;
};

struct RecentCalls {
  std::vector<weft::CallRecord> calls;
  std::vector<weft_call_record> records;
  std::vector<const weft_call_record*> addresses;
};

}  // namespace

using namespace weft::c;

extern "C" {

weft_code weft_group_copy(const weft_group* group, weft_group** copy) {
  return give_handle("copy", copy, [&] { return group_at(group); });
}

void weft_group_destroy(weft_group* group) {
  delete group;
}

weft_code weft_group_rank(const weft_group* group, int* rank) {
  return guarded([&] { at("rank", rank) = group_at(group).rank(); });
}

weft_code weft_group_size(const weft_group* group, int* size) {
  return guarded([&] { at("size", size) = group_at(group).size(); });
}

weft_code weft_group_members(const weft_group* group, const int** members) {
  return guarded([&] { at("members", members) = group_at(group).members().data(); });
}

weft_code weft_group_device(const weft_group* group, weft_device* device) {
  return guarded([&] { at("device", device) = static_cast<weft_device>(group_at(group).device()); });
}

weft_code weft_group_cuda_device(const weft_group* group, int* device) {
  return guarded([&] { at("device", device) = group_at(group).cuda_device(); });
}

void weft_group_refuse(const weft_group* group, const char* reason, weft_stream stream) {
  if (group != nullptr && reason != nullptr) group->group.refuse(reason, stream);
}

weft_code weft_group_tuning(const weft_group* group, char* text, size_t capacity, size_t* length) {
  return guarded([&] { give_text(group_at(group).tuning(), text, capacity, length); });
}

weft_code weft_group_status(const weft_group* group, const weft_fault** fault) {
  return guarded([&] {
    const weft_fault*& place = at("fault", fault);
    thread_local Status status;
    std::optional<weft::Fault> found = group_at(group).status();
    if (found.has_value()) {
      status.fault = std::move(*found);
      status.record = record_of(status.fault);
    }
    place = found.has_value() ? &status.record : nullptr;
  });
}

weft_code weft_group_check(const weft_group* group) {
  return guarded([&] { group_at(group).check(); });
}

weft_code weft_group_recent_calls(const weft_group* group, const weft_call_record* const** records, size_t* count) {
  return guarded([&] {
    const weft_call_record* const*& place = at("records", records);
    static_cast<void>(at("count", count));
    thread_local RecentCalls recent;
    RecentCalls found;
    found.calls = group_at(group).recent_calls();
    for (const weft::CallRecord& call : found.calls) {
      const auto since_1970 = std::chrono::duration_cast<std::chrono::nanoseconds>(call.time.time_since_epoch());
      found.records.push_back({.size = sizeof(weft_call_record),
                               .number = call.number,
                               .time_ns = since_1970.count(),
                               .operation = call.operation.c_str()});
    }
    for (const weft_call_record& record : found.records) found.addresses.push_back(&record);
    recent = std::move(found);
    place = recent.addresses.data();
    *count = recent.addresses.size();
  });
}

}  // extern "C"
