#pragma once

#include <sys/stat.h>

#include <chrono>
#include <string_view>

#include "client/api/filesystem.h"
#include "core/base/limits.h"
#include "fuse/node_table.h"
#include "fuse/request.h"

namespace stdchk::mount {

/// For how long the kernel may use names and attributes without asking.
inline constexpr double kCacheSeconds = std::chrono::duration<double>(limits::kCacheLease).count();
/// The size of reads and writes that suits the pool.
inline constexpr blksize_t kPreferredBytes = limits::kMiB;

struct stat stat_of(const Attributes& attributes);
/// The owner and mode of a new file: the caller, or the group of a folder with S_ISGID. `mode` is
/// the caller's, before its umask.
client::Owner owner_of(fuse_req_t request, const Node& parent, mode_t mode);

/// An Entries makes the entries that the kernel gets for files: node and attributes.
///
/// Threads: any.
class Entries {
 public:
  Entries(client::Filesystem& filesystem, NodeTable& nodes)
      : filesystem_(filesystem), nodes_(nodes) {}

  /// Returns the attributes that users see. Names, modes and times come from the pool. Size and
  /// version are those of this node, which may belong to a session or to an older version.
  Attributes view(Node& node) { return view(node, filesystem_.attributes(node.file)); }
  /// The same, where the caller has asked the pool already.
  static Attributes view(const Node& node, const Result<Attributes>& in_pool);
  static fuse_entry_param entry_of(const Node& node, const Attributes& attributes);
  /// Finds or makes the node, and counts a reference of the kernel to it.
  Result<fuse_entry_param> make(const Attributes& attributes, fuse_ino_t parent,
                                std::string_view name);
  void reply(fuse_req_t request, const Attributes& attributes, fuse_ino_t parent,
             std::string_view name);
  /// The same for a new name of a node that the kernel holds, in answer to link(). Another node
  /// would leave the kernel an old count of links for the other names, until their lease ends.
  void reply_link(fuse_req_t request, const NodePtr& node, const Attributes& attributes,
                  fuse_ino_t parent, std::string_view name);

 private:
  client::Filesystem& filesystem_;
  NodeTable& nodes_;
};

}  // namespace stdchk::mount
