#pragma once

#include "client/api/filesystem.h"
#include "fuse/kernel_cache.h"
#include "fuse/node_table.h"
#include "fuse/workers.h"

namespace stdchk::mount {

/// A Follower lets readers go on with the newest version of a file to which others have only
/// appended, as `tail -f` expects. All other readers keep the version that they opened.
///
/// Owns: its thread, because a comparison of versions waits for the pool.
/// Threads: any.
/// Errors: none. If a comparison fails, the next getattr of the node starts another one.
/// Limits: compares each newer version at most once, and one node at a time. A file whose
/// benefactors do not answer delays others by one operation's deadline. See also
/// File::find_grown().
class Follower {
 public:
  explicit Follower(KernelCache& cache) : cache_(cache) {}
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  void start() { worker_.start("stdchk-follow", 1); }
  /// Waits for a comparison under way.
  void stop() { worker_.stop(); }
  /// A program asks for the attributes of `node`, and the pool says `newest`. Without readers, or
  /// without a longer version, this costs no request.
  void look(const NodePtr& node, const Attributes& newest);

 private:
  void follow(Node& node, Version newest);

  KernelCache& cache_;
  Workers worker_;  ///< one thread
};

}  // namespace stdchk::mount
