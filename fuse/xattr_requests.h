#pragma once

#include <string_view>

#include "client/api/filesystem.h"
#include "fuse/cache_choice.h"
#include "fuse/entries.h"
#include "fuse/node_table.h"
#include "fuse/refused_calls.h"
#include "fuse/request.h"
#include "fuse/set_id_bits.h"

namespace stdchk::mount {

/// Extended attributes with a meaning in the mount.
inline constexpr std::string_view kXattrWriteMode = "user.stdchk.write_mode";
inline constexpr std::string_view kXattrVersion = "user.stdchk.version";
inline constexpr std::string_view kXattrDrained = "user.stdchk.drained";
/// Prefix of a policy's name (core/policy/policy.h). Reading gives the value in force; only folders
/// can be set.
inline constexpr std::string_view kXattrPolicy = "user.stdchk.policy.";

/// An XattrRequests answers the requests for extended attributes: the stored ones, access lists, and
/// those that show versions, drain states and policies.
///
/// Threads: any; each function answers its request. Errors: as Bridge.
class XattrRequests {
 public:
  /// `writeback`: the kernel writes times of a changed file back.
  XattrRequests(client::Filesystem& filesystem, NodeTable& nodes, Entries& entries,
                CacheChoice& choice, SetIdBits& set_id, RefusedCalls& refused, bool writeback)
      : filesystem_(filesystem),
        nodes_(nodes),
        entries_(entries),
        choice_(choice),
        set_id_(set_id),
        refused_(refused),
        writeback_(writeback) {}

  void set(fuse_req_t request, fuse_ino_t node, const char* name, std::string_view value, int flags,
           bool remove);
  void get(fuse_req_t request, fuse_ino_t node, const char* name, std::size_t size);
  void list(fuse_req_t request, fuse_ino_t node, std::size_t size);

 private:
  Status set_list(fuse_req_t request, Node& node, const msg::SetXattr& change);
  Result<Attributes> attributes_of(const Node& node);
  Status check_stored(const Node& node, std::string_view name);
  void reply_failed(fuse_req_t request, const Node& node, const Error& error);
  Status set_policy(const Node& node, std::string_view name, std::string_view value);
  void get_policy(fuse_req_t request, const Node& node, std::string_view name, std::size_t size);

  client::Filesystem& filesystem_;
  NodeTable& nodes_;
  Entries& entries_;
  CacheChoice& choice_;
  SetIdBits& set_id_;
  RefusedCalls& refused_;
  const bool writeback_;
};

}  // namespace stdchk::mount
