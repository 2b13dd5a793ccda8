#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>

#include "client/api/filesystem.h"
#include "fuse/node_table.h"

namespace stdchk::mount {

/// A Handle is one open of a regular file. The kernel carries its address as file handle.
struct Handle {
  NodePtr node;
  std::shared_ptr<client::File> file;  ///< shared with the Follower while it compares versions
  std::size_t place = 0;               ///< of a reader in Node::readers; guarded by Node::mutex
  bool writes = false;
  bool direct = false;
  std::atomic<bool> killed{false};      ///< its last FLUSH came from a process that a signal ended
  std::atomic<bool> synced{false};      ///< an fsync came after its last close
  bool of_user = false;                 ///< opened by another user than root
  std::atomic<std::uint64_t> calls{0};  ///< writes, or reads of a reader
  std::atomic<std::uint64_t> call_bytes{0};
  /// The value of Node::refreshes when `file` went on with the newest version.
  std::atomic<std::uint64_t> refreshes{0};
  /// Owners that have asked for record locks through this open since their last close(). At the end
  /// of the open, only the open file description is left (F_OFD_SETLK). Guarded by the Locker.
  std::set<std::uint64_t> lock_owners;
};

}  // namespace stdchk::mount
