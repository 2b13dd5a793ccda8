#include "fuse/follower.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/base/log.h"

namespace stdchk::mount {

void Follower::start() {
  const MutexLock lock(mutex_);
  thread_ = std::make_unique<ThreadExecutor>("stdchk-follow", 1);
}

void Follower::stop() {
  std::unique_ptr<ThreadExecutor> ends;
  const MutexLock lock(mutex_);
  ends.swap(thread_);
  // The destructor of `ends` waits for work: it runs after the lock's.
}

void Follower::look(const NodePtr& node) {
  {
    const ReaderLock lock(node->mutex);
    if (!node->writers.empty() || node->readers.empty()) return;
  }
  if (node->being_followed.exchange(true)) return;
  const MutexLock lock(mutex_);
  if (!thread_) {
    node->being_followed = false;
    return;
  }
  thread_->run([this, node] {
    follow(*node);
    node->being_followed = false;
  });
}

void Follower::follow(Node& node) {
  std::shared_ptr<client::File> reader;
  {
    const ReaderLock lock(node.mutex);
    if (!node.writers.empty() || node.readers.empty()) return;
    reader = node.readers.front();
  }
  const auto grown = reader->find_grown();
  if (!grown) log::debug("file {}: {}", node.file.value, describe(grown.error()));
  if (!grown || !*grown) return;
  const Attributes now = (*grown)->attributes();
  std::array<std::byte, 1> last{};
  const auto count = (*grown)->read(now.size_bytes - 1, last);
  if (!count || *count == 0) return;
  std::uint64_t before = 0;
  {
    const WriterLock lock(node.mutex);
    if (!node.writers.empty() || node.last.version != reader->attributes().version) return;
    before = node.last.size_bytes;
    node.last = now;
    for (const auto& each : node.readers) each->follow(**grown);
  }
  cache_.grew(node, before, now.size_bytes, last[0]);
}

}  // namespace stdchk::mount
