#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/filesystem.h"
#include "core/result.h"
#include "core/types.h"

namespace stdchk::mount {

/// The kernel's number for a node; 1 is the root. Never used twice in one mount, so that the
/// generation number beside it is always 1.
using NodeId = std::uint64_t;

/// A Node is what the kernel takes for one inode. A directory or symbolic link is one node; a
/// regular file is one node for each version that the kernel has seen, because the kernel's page
/// cache belongs to the node and must hold one version only. The file id, which users see as inode
/// number, stays.
///
/// Threads: any; what `mutex` guards is marked.
struct Node {
  NodeId id = 0;
  FileId file;
  FileType type = FileType::kRegular;

  mutable std::shared_mutex mutex;
  Attributes last;    ///< guarded: as last told to the kernel; its version names the node
  NodeId parent = 0;  ///< guarded: where the kernel found it last
  std::string name;   ///< guarded
  std::vector<client::File*> writers;  ///< guarded: open for writing; not empty: a session is open
  std::optional<std::int64_t> mtime_set;  ///< guarded: set by utimens after the last write

  std::atomic<bool> unlinked{false};  ///< lost its name through this mount
  /// A caller without CAP_FSETID has written since the mode was set last: the file has no set-ID
  /// bits then, nor when that is committed.
  std::atomic<bool> set_id_killed{false};
  std::atomic<bool> changed{false};  ///< written to since it became a session's node
  std::atomic<int> cached_opens{0};  ///< opens that use the page cache
  /// Renamed, and the kernel has not yet flushed the times of its inode, as it does before the call
  /// returns. When the caller was killed in between, the kernel fails the next write to the inode.
  std::atomic<bool> times_due{false};
  std::atomic<bool> mtime_is_set{false};  ///< whether mtime_set holds a value, without the mutex

  Version version() const {
    std::shared_lock lock(mutex);
    return last.version;
  }
  /// Whether the kernel may go on with what it has of this node when the file is as `now` says.
  /// With the writeback cache the kernel takes no other modification time for an inode than its
  /// own, so a time that was set elsewhere needs another node, too.
  bool holds(const Attributes& now) const {
    std::shared_lock lock(mutex);
    return last.version == now.version && last.mtime_ns == now.mtime_ns;
  }
  bool in_session() const {
    std::shared_lock lock(mutex);
    return !writers.empty();
  }
};

using NodePtr = std::shared_ptr<Node>;

/// What an open found out about its node.
enum class OpenTurn : std::uint8_t {
  kGo,       ///< open it
  kRefresh,  ///< another node is the file's now: the kernel must look the name up again
};

/// A NodeTable knows which nodes the kernel holds, and which of them is the current one of each
/// file.
///
/// Owns: the nodes, each until the kernel forgets it.
/// Threads: any.
/// Limits: kNodesMax nodes; find_or_make() answers kNoMemory beyond it.
class NodeTable {
 public:
  static constexpr std::size_t kNodesMax = std::size_t{1} << 22;

  explicit NodeTable(const Attributes& root);

  /// The node of that number; nothing when the kernel does not hold it.
  NodePtr find(NodeId id) const;
  /// The current node of `file`, if the kernel holds one.
  NodePtr current(FileId file) const;

  /// The node for a file as `attributes` describe it, found by the kernel as `name` in `parent`;
  /// the kernel's count of it rises by one. While a session is open that session's node.
  Result<NodePtr> find_or_make(const Attributes& attributes, NodeId parent, std::string_view name);
  /// The kernel drops `count` of its references.
  void forget(NodeId id, std::uint64_t count);

  /// Before a file is opened. For writing: `node` becomes the session's node, unless another one
  /// is. A node with open readers does not become it, so that they keep their version. With
  /// `insist` the answer is kGo, whatever the node.
  OpenTurn begin_open(const NodePtr& node, bool write, bool insist);
  /// The end of what begin_open() or begin_session() allowed.
  void end_open(const NodePtr& node, bool write);
  /// A file was just created: `node` is its session's.
  void begin_session(const NodePtr& node);
  /// No new look-up gives this node.
  void detach(const NodePtr& node);

  /// Whether this node, not another one of its file, is open.
  bool is_open(NodeId id) const;

  std::size_t size() const;

 private:
  struct Entry {
    NodePtr node;
    std::uint64_t lookups = 0;
    int readers = 0;
    int writers = 0;
  };
  struct Current {
    NodePtr node;
    bool session = false;
  };

  void detach_locked(const NodePtr& node);

  mutable std::mutex mutex_;
  std::unordered_map<NodeId, Entry> nodes_;
  std::unordered_map<FileId, Current> current_;
  NodeId next_ = 2;
};

}  // namespace stdchk::mount
