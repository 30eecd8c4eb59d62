#include "c/handles.hpp"

using namespace weft::c;

extern "C" {

weft_code weft_recording_capture(const weft_communicator* communicator, weft_code (*calls)(void* user), void* user,
                                 weft_recording** recording) {
  return give_handle("recording", recording, [&] {
    static_cast<void>(at("calls", calls));
    return weft::Recording::capture(at("communicator", communicator).communicator, [&] {
      const weft_code code = calls(user);
      if (code == WEFT_OK) return;
      // The words of the call that failed, if it was one of Weft's.
      const std::string last = weft_last_fault()->code == code ? weft_last_message() : "";
      throw weft::Error(static_cast<weft::Errc>(code), "calls: returned " + std::to_string(code) + ": " + last);
    });
  });
}

void weft_recording_destroy(weft_recording* recording) {
  delete recording;
}

weft_code weft_recording_replay(const weft_recording* recording) {
  return guarded([&] { at("recording", recording).recording.replay(); });
}

weft_code weft_recording_size(const weft_recording* recording, size_t* calls) {
  return guarded([&] { at("calls", calls) = at("recording", recording).recording.size(); });
}

}  // extern "C"
