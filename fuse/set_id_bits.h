#pragma once

#include "client/api/filesystem.h"
#include "fuse/handle.h"
#include "fuse/init_exchange.h"
#include "fuse/node_table.h"
#include "fuse/request.h"

namespace stdchk::mount {

/// A SetIdBits takes set-ID bits off files that a caller without CAP_FSETID changes. With
/// FUSE_HANDLE_KILLPRIV_V2 the kernel leaves that to the file system.
///
/// Threads: any.
class SetIdBits {
 public:
  SetIdBits(client::Filesystem& filesystem, const InitExchange& exchange)
      : filesystem_(filesystem), exchange_(exchange) {}

  /// Whether the caller may not leave set-ID bits on what it changes, as the kernel says with
  /// FUSE_HANDLE_KILLPRIV_V2. Otherwise every user but root may not. Pages that the kernel has
  /// collected come from itself: then the user who has opened the file counts.
  bool must_clear(fuse_req_t request, const Handle* handle) const;
  /// Clears the bits once; later writes skip this until a chmod or a commit. Returns true when that
  /// has changed the mode.
  bool clear_once(Node& node, fuse_req_t request);
  /// Clears the bits of the mode that the pool has: another mount, or another name of the file, may
  /// have changed it. Returns true when that has changed the mode.
  bool clear(Node& node, fuse_req_t request);
  /// Clears S_ISGID when the caller is neither root nor of the file's group. To be called after an
  /// access list was set.
  void clear_of_group(Node& node, fuse_req_t request);
  /// Clears the bits again at a commit, if they were cleared since the mode was set last.
  void clear_at_commit(Node& node);

 private:
  bool drop(Node& node, std::uint32_t mode, std::uint32_t drops);

  client::Filesystem& filesystem_;
  const InitExchange& exchange_;
};

}  // namespace stdchk::mount
