// Hears what Weft logs.
#pragma once

#include <spdlog/sinks/base_sink.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/log.hpp"

namespace weft::test {

// Keeps everything that is logged while it lives. Other threads may log once it is made, and until it goes.
class LogListener {
 public:
  LogListener() { detail::logger().sinks().push_back(sink_); }
  ~LogListener() { detail::logger().sinks().pop_back(); }
  LogListener(const LogListener&) = delete;
  LogListener& operator=(const LogListener&) = delete;

  std::string text() const {
    const std::scoped_lock lock(sink_->mutex);
    return sink_->text;
  }
  int times(const std::string& part) const {
    const std::string all = text();
    int count = 0;
    for (std::size_t at = all.find(part); at != std::string::npos; at = all.find(part, at + 1)) ++count;
    return count;
  }
  // Waits for it. False if nobody logs it for long.
  bool hears(const std::string& part) const {
    std::unique_lock lock(sink_->mutex);
    return sink_->changed.wait_for(lock, std::chrono::seconds(20),
                                   [&] { return sink_->text.find(part) != std::string::npos; });
  }

 private:
  struct Sink final : spdlog::sinks::base_sink<spdlog::details::null_mutex> {
    void sink_it_(const spdlog::details::log_msg& message) override {
      const std::scoped_lock lock(mutex);
      text.append(message.payload.data(), message.payload.size());
      text += '\n';
      changed.notify_all();
    }
    void flush_() override {}

    std::mutex mutex;
    std::condition_variable changed;
    std::string text;
  };
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
};

}  // namespace weft::test
