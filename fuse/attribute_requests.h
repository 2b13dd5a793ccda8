#pragma once

#include <sys/stat.h>

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "fuse/entries.h"
#include "fuse/follower.h"
#include "fuse/kernel_cache.h"
#include "fuse/node_table.h"
#include "fuse/request.h"
#include "fuse/set_id_bits.h"

namespace stdchk::mount {

/// An AttributeRequests answers the requests for attributes of files and of the pool, and those
/// that change attributes, the size among them.
///
/// Threads: any; each function answers its request. Errors: as Bridge.
class AttributeRequests {
 public:
  AttributeRequests(client::Filesystem& filesystem, Clock& clock, NodeTable& nodes,
                    Entries& entries, SetIdBits& set_id, KernelCache& cache, Follower& follower)
      : filesystem_(filesystem),
        clock_(clock),
        nodes_(nodes),
        entries_(entries),
        set_id_(set_id),
        cache_(cache),
        follower_(follower) {}

  void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info* info);
  void setattr(fuse_req_t request, fuse_ino_t node, struct stat* wanted, int mask,
               fuse_file_info* info);
  void statfs(fuse_req_t request);

 private:
  Status truncate(const NodePtr& node, Handle* handle, std::uint64_t size);
  Status change(const NodePtr& node, const msg::SetAttributes& change);

  client::Filesystem& filesystem_;
  Clock& clock_;
  NodeTable& nodes_;
  Entries& entries_;
  SetIdBits& set_id_;
  KernelCache& cache_;
  Follower& follower_;
};

}  // namespace stdchk::mount
