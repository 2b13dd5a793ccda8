#pragma once

#include <cstdint>
#include <deque>

#include "core/base/clock.h"
#include "transport/transport.h"

namespace stdchk::transport::verbs {

struct Buffer;

/// A SendQueue remembers, in order, what was given to a queue pair. Work requests of a reliable
/// connection complete in the order of posting. Requests that are not signalled complete with the
/// next signalled one (ibv_post_send(3), IBV_SEND_SIGNALED). So one completion ends everything
/// before it.
class SendQueue {
 public:
  struct Entry {
    Operation* operation = nullptr;  ///< finished with this entry
    Buffer* buffer = nullptr;        ///< buffer of a message; free again with this entry
    Time started{};
  };

  explicit SendQueue(std::size_t capacity) : capacity_(capacity) {}
  std::size_t size() const { return entries_.size(); }
  std::size_t room() const { return capacity_ - entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const Entry& oldest() const { return entries_.front(); }
  const std::deque<Entry>& entries() const { return entries_; }

  /// Appends an entry and returns its number, modulo 2^32.
  std::uint32_t push(const Entry& entry) {
    STDCHK_ASSERT(room() > 0);
    entries_.push_back(entry);
    return static_cast<std::uint32_t>(first_ + entries_.size() - 1);
  }
  /// Counts the entries up to and including `number`; 0 if that entry has ended already.
  std::size_t count_through(std::uint32_t number) const {
    const std::uint32_t distance = number - static_cast<std::uint32_t>(first_);
    return distance < entries_.size() ? distance + 1 : 0;
  }
  Entry pop() {
    const Entry entry = entries_.front();
    entries_.pop_front();
    ++first_;
    return entry;
  }

 private:
  std::size_t capacity_;
  std::uint64_t first_ = 0;  ///< number of the oldest entry
  std::deque<Entry> entries_;
};

}  // namespace stdchk::transport::verbs
