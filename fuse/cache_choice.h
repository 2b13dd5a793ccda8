#pragma once

#include <map>

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "fuse/bridge_options.h"
#include "fuse/cache_modes.h"
#include "fuse/handle.h"
#include "fuse/init_exchange.h"
#include "fuse/node_table.h"

namespace stdchk::mount {

/// A CacheChoice decides whether an open uses the kernel's page cache. It asks the mount's options,
/// the folder's write mode, and what it has learned from earlier files of the series.
///
/// Threads: any. May ask the manager for a folder's write mode.
/// Limits: remembers the write mode of a folder for 10 s, because another mount may change it.
class CacheChoice {
 public:
  CacheChoice(client::Filesystem& filesystem, Clock& clock, const NodeTable& nodes,
              const InitExchange& exchange, ReadMode read_mode)
      : filesystem_(filesystem),
        clock_(clock),
        nodes_(nodes),
        exchange_(exchange),
        read_mode_(read_mode) {}

  /// Returns true when the open goes around the page cache. `flags`: of open(2). `insisted`: the
  /// node's pages belong to another version.
  bool is_direct(Node& node, int flags, bool insisted);
  /// Learns from the sizes of the application's calls, which only an open around the page cache
  /// shows.
  void record_calls(const Handle& handle);
  /// The folder's write mode has changed on this mount.
  void forget(FileId folder);

 private:
  struct FolderMode {
    bool cached = false;
    Time until{};
  };
  bool uses_cache_in_folder(FileId directory);

  client::Filesystem& filesystem_;
  Clock& clock_;
  const NodeTable& nodes_;
  const InitExchange& exchange_;
  const ReadMode read_mode_;
  CacheModes write_modes_;
  CacheModes read_modes_;
  Mutex mutex_;
  std::map<FileId, FolderMode> folder_modes_ STDCHK_GUARDED_BY(mutex_);
};

/// True when open(2) with these flags may write.
bool writes(int flags);

}  // namespace stdchk::mount
