#include "fuse/follower.h"

#include <array>
#include <cstddef>
#include <memory>

#include "core/base/log.h"
#include "fuse/handle.h"

namespace stdchk::mount {
namespace {

/// Returns a reader of the node's version, or nullptr. A reader may have a newer version than its
/// node: a lock has refreshed it, or the kernel did not look the name up again.
std::shared_ptr<client::File> reader_of(const Node& node) STDCHK_REQUIRES_SHARED(node.mutex) {
  if (!node.writers.empty()) return nullptr;
  for (const Handle* handle : node.readers) {
    if (handle->file->attributes().version == node.last.version) return handle->file;
  }
  return nullptr;
}

}  // namespace

void Follower::look(const NodePtr& node, const Attributes& newest) {
  if (node->compared == newest.version) return;
  {
    const ReaderLock lock(node->mutex);
    if (newest.version <= node->last.version || newest.size_bytes <= node->last.size_bytes) return;
    if (!node->writers.empty() || node->readers.empty()) return;
  }
  if (node->being_followed.exchange(true)) return;
  const bool runs = worker_.run([this, node, version = newest.version] {
    follow(*node, version);
    node->being_followed = false;
  });
  if (!runs) node->being_followed = false;
}

void Follower::follow(Node& node, Version newest) {
  std::shared_ptr<client::File> reader;
  Version before{};
  {
    const ReaderLock lock(node.mutex);
    before = node.last.version;
    reader = reader_of(node);
  }
  if (reader == nullptr) return;
  const auto grown = reader->find_grown();
  if (!grown) {
    log::debug("Comparing versions of file {} failed: {}", node.file.value,
               describe(grown.error()));
    return;
  }
  node.compared = newest;
  if (*grown == nullptr) return;
  const Attributes now = (*grown)->attributes();
  std::array<std::byte, 1> last{};
  const auto count = (*grown)->read(now.size_bytes - 1, last);
  if (!count || *count == 0) return;
  {
    const WriterLock lock(node.mutex);
    if (!node.writers.empty() || node.last.version != before) return;
    node.went_on = true;
    node.last = now;
    for (const Handle* handle : node.readers) handle->file->follow(**grown);
  }
  cache_.grow(node, now.size_bytes, last[0]);
}

}  // namespace stdchk::mount
