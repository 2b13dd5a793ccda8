#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuse/node_table.h"
#include "fuse/notifier.h"
#include "fuse/request.h"

namespace stdchk::mount {

/// A KernelCache makes the kernel drop cached names, attributes and pages.
///
/// Threads: any. The notifier's thread does the work, but for drop_attributes(): callers of
///   entry_changed() and file_changed() must not wait.
class KernelCache {
 public:
  explicit KernelCache(const NodeTable& nodes) : nodes_(nodes) {}

  /// Learns what the kernel offers, when the mount begins.
  void init(const fuse_conn_info& connection);
  /// Notices are dropped before start() and after stop().
  void start(fuse_session* session) {
    session_ = session;
    notifier_.start(session);
  }
  void stop() {
    session_ = nullptr;
    notifier_.stop();
  }

  /// The kernel must look the name of the node up again.
  void expire_node(const Node& node);
  /// The kernel must ask for the node's attributes again. Returns when the kernel has dropped them,
  /// so a request can be answered afterwards.
  void drop_attributes(const Node& node);
  /// A write has gone around the page cache while other opens use it.
  void drop_pages(const Node& node, off_t offset, std::size_t size);
  /// The node's file has grown to `size_bytes` and ends with `last`. Drops the node's pages, and
  /// tells the kernel the size by its last byte: with the write-back cache the kernel takes no size
  /// from attributes.
  void grow(const Node& node, std::uint64_t size_bytes, std::byte last);
  // Another mount has changed the file.
  void entry_changed(FileId directory, const std::string& name);
  void file_changed(FileId file);

 private:
  void expire_entry(NodeId parent, const std::string& name);

  const NodeTable& nodes_;
  // Atomic, because the notifier may run before init() sets them.
  /// The kernel can look a name up again instead of dropping it.
  std::atomic<bool> can_expire_{false};
  /// The kernel drops cached pages at direct writes (since Linux 6.6).
  std::atomic<bool> drops_pages_{false};
  std::atomic<fuse_session*> session_{nullptr};  ///< from start() to stop()
  Notifier notifier_;
};

}  // namespace stdchk::mount
