#pragma once

#include "client/api/filesystem.h"
#include "fuse/entries.h"
#include "fuse/node_table.h"
#include "fuse/refused_calls.h"
#include "fuse/request.h"

namespace stdchk::mount {

/// A NameRequests answers the requests that find, make, move and remove names.
///
/// Threads: any; each function answers its request. Errors: as Bridge.
class NameRequests {
 public:
  /// `writeback`: the kernel writes times of a renamed file back.
  NameRequests(client::Filesystem& filesystem, NodeTable& nodes, Entries& entries,
               RefusedCalls& refused, bool writeback)
      : filesystem_(filesystem),
        nodes_(nodes),
        entries_(entries),
        refused_(refused),
        writeback_(writeback) {}

  void lookup(fuse_req_t request, fuse_ino_t parent, const char* name);
  void readlink(fuse_req_t request, fuse_ino_t node);
  void mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device);
  void mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode);
  void remove(fuse_req_t request, fuse_ino_t parent, const char* name, bool directory);
  void symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name);
  void rename(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to,
              const char* new_name, unsigned flags);
  void link(fuse_req_t request, fuse_ino_t node, fuse_ino_t parent, const char* name);

 private:
  bool is_unlinked(FileId file) const;
  Result<Attributes> hold(std::int32_t thread, FileId directory, const char* name,
                          Attributes found);
  void lost_name(Node& node, std::uint32_t names_left);
  Result<Attributes> commit_first(Node& node);

  client::Filesystem& filesystem_;
  NodeTable& nodes_;
  Entries& entries_;
  RefusedCalls& refused_;
  const bool writeback_;
};

}  // namespace stdchk::mount
