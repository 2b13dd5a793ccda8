#pragma once

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "fuse/attribute_requests.h"
#include "fuse/bridge_options.h"
#include "fuse/cache_choice.h"
#include "fuse/directory_requests.h"
#include "fuse/entries.h"
#include "fuse/file_requests.h"
#include "fuse/follower.h"
#include "fuse/init_exchange.h"
#include "fuse/kernel_cache.h"
#include "fuse/name_requests.h"
#include "fuse/node_table.h"
#include "fuse/refused_calls.h"
#include "fuse/request.h"
#include "fuse/request_counts.h"
#include "fuse/set_id_bits.h"
#include "fuse/xattr_requests.h"

namespace stdchk::mount {

/// A Bridge answers the kernel's calls by calls of a client::Filesystem. Each group of requests has
/// a class, which the table of operations() calls; the Bridge composes them.
///
/// Owns: nodes, open files and directories, notices to the kernel; not the Filesystem.
/// Threads: the kernel's calls come on any of the mount's threads, several at once. Cache events
///   come on the library's thread.
/// Errors: answers the errno of the library's error. A call takes as long as the library's calls
///   may.
class Bridge {
 public:
  Bridge(client::Filesystem& filesystem, Clock& clock, const Attributes& root,
         BridgeOptions options);
  ~Bridge();  ///< drops all open files, which aborts what they did not commit
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  /// The functions that libfuse calls (operations.cpp).
  static const fuse_lowlevel_ops& operations();

  void init(fuse_conn_info* connection);
  /// Begins to send notices to the kernel, which must have mounted `session`. Call stop() before
  /// the session is destroyed.
  void start(fuse_session* session);
  void stop();

  InitExchange& init_exchange() { return exchange_; }
  RequestCounts& counts() { return counts_; }
  const Clock& clock() const { return clock_; }

  // The groups of requests.
  NodeTable& nodes() { return nodes_; }
  NameRequests& names() { return names_; }
  AttributeRequests& attributes() { return attributes_; }
  XattrRequests& xattrs() { return xattrs_; }
  FileRequests& files() { return files_; }
  DirectoryRequests& directories() { return directories_; }

 private:
  client::Filesystem& filesystem_;
  Clock& clock_;
  const BridgeOptions options_;
  RequestCounts counts_;
  NodeTable nodes_;
  InitExchange exchange_;
  KernelCache cache_;
  Follower follower_;
  RefusedCalls refused_;
  SetIdBits set_id_;
  CacheChoice choice_;
  Entries entries_;
  NameRequests names_;
  AttributeRequests attributes_;
  XattrRequests xattrs_;
  FileRequests files_;
  DirectoryRequests directories_;
};

}  // namespace stdchk::mount
