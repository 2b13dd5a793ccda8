#pragma once

#include <memory>

#include "core/base/executor.h"
#include "core/base/mutex.h"
#include "fuse/kernel_cache.h"
#include "fuse/node_table.h"

namespace stdchk::mount {

/// A Follower lets readers go on with the newest version of a file to which others have only
/// appended, as `tail -F` expects. All other readers keep the version that they opened.
///
/// Owns: its thread, because a comparison of versions waits for the pool.
/// Threads: any.
/// Errors: none. A file whose versions cannot be compared is looked at again at the next getattr.
/// Limits: see client::File::find_grown().
class Follower {
 public:
  explicit Follower(KernelCache& cache) : cache_(cache) {}
  ~Follower() { stop(); }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  void start();
  /// Waits for a comparison under way.
  void stop();
  /// Somebody asks for the attributes of a node whose file has a newer version.
  void look(const NodePtr& node);

 private:
  void follow(Node& node);

  KernelCache& cache_;
  Mutex mutex_;
  std::unique_ptr<ThreadExecutor> thread_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::mount
