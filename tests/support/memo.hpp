// Every rank of a world needs the same inputs and results for its checks: one thread computes them, others wait.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

namespace weft::test {

// Keeps the latest values up to a number of bytes, and always the newest.
template <class Key, class Value>
class Memo {
 public:
  explicit Memo(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // `make()` returns a Value that takes about `bytes` bytes.
  template <class Make>
  std::shared_ptr<const Value> get(const Key& key, std::size_t bytes, const Make& make) {
    const std::shared_ptr<Entry> entry = find_or_add(key, bytes);
    std::call_once(entry->once, [&] { entry->value = make(); });
    return {entry, &entry->value};
  }

 private:
  struct Entry {
    std::once_flag once;
    Value value;
    std::size_t bytes = 0;
  };

  std::shared_ptr<Entry> find_or_add(const Key& key, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<Entry>& entry = entries_[key];
    if (entry != nullptr) return entry;
    entry = std::make_shared<Entry>();
    entry->bytes = bytes;
    const std::shared_ptr<Entry> added = entry;
    by_age_.push_back(key);
    bytes_ += bytes;
    while (bytes_ > most_bytes_ && by_age_.size() > 1) {
      const auto oldest = entries_.find(by_age_.front());
      bytes_ -= oldest->second->bytes;
      entries_.erase(oldest);
      by_age_.pop_front();
    }
    return added;
  }

  std::size_t most_bytes_, bytes_ = 0;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_;
  std::deque<Key> by_age_;
};

}  // namespace weft::test
