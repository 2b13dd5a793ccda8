#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/api/filesystem.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::mount {

/// A NodeId is the kernel's number for a node; 1 is the root. A mount never uses a number twice, so
/// the generation number beside it is always 1.
using NodeId = std::uint64_t;

struct Handle;

/// A Node is one inode for the kernel. A directory or symbolic link has one node. A regular file
/// has one node for each version that the kernel has seen, because a node's page cache must hold
/// only one version. Users see the file id as inode number, which stays the same.
///
/// Threads: any.
struct Node {
  NodeId id = 0;
  FileId file;
  FileType type = FileType::kRegular;

  mutable SharedMutex mutex;
  /// The attributes that the kernel was told last; the node holds this version.
  Attributes last STDCHK_GUARDED_BY(mutex);
  NodeId parent STDCHK_GUARDED_BY(mutex) = 0;  ///< the directory of the kernel's last look-up
  std::string name STDCHK_GUARDED_BY(mutex);
  /// The node's open Files for writing; if there is any, a session is open.
  std::vector<client::File*> writers STDCHK_GUARDED_BY(mutex);
  /// The node's opens for reading only, in any order. Each knows its place here.
  std::vector<Handle*> readers STDCHK_GUARDED_BY(mutex);
  /// The time that utimens() set after the last write.
  std::optional<std::int64_t> mtime_set STDCHK_GUARDED_BY(mutex);

  std::atomic<bool> unlinked{false};  ///< lost its name through this mount
  /// A caller without CAP_FSETID has written since the mode was set last: the file has no set-ID
  /// bits then, nor when that is committed.
  std::atomic<bool> set_id_killed{false};
  std::atomic<bool> changed{false};  ///< written to since it became a session's node
  /// How often a lock has made an open of this node go on with the newest version.
  std::atomic<std::uint64_t> refreshes{0};
  /// Opens of this node went on with a newer version. The kernel keeps the inode's size and time, so
  /// later opens need another node. Never reset. Set together with `last`, under the mutex.
  std::atomic<bool> went_on{false};
  std::atomic<bool> being_followed{false};  ///< the Follower has the node
  /// The newest version that the Follower has compared with this node's version.
  std::atomic<Version> compared{0};
  std::atomic<int> cached_opens{0};  ///< opens that use the page cache
  /// A name or an attribute has changed, and the kernel has not flushed the inode's times yet. It
  /// flushes them before the call returns. If the caller is killed in between, the kernel fails the
  /// inode's next write, or its next close. A reader's close fails, too.
  std::atomic<bool> times_due{false};
  std::atomic<bool> mtime_is_set{false};  ///< mtime_set has a value; readable without the mutex

  Version version() const {
    const ReaderLock lock(mutex);
    return last.version;
  }
  /// True when the kernel may keep its data of this node for a file with the attributes `now`. With
  /// the write-back cache the kernel accepts no modification time but its own. A time that was set
  /// elsewhere therefore needs another node, too.
  bool holds(const Attributes& now) const {
    const ReaderLock lock(mutex);
    return !went_on && last.version == now.version && last.mtime_ns == now.mtime_ns;
  }
  bool in_session() const {
    const ReaderLock lock(mutex);
    return !writers.empty();
  }
};

using NodePtr = std::shared_ptr<Node>;

/// An OpenTurn says whether an open may use its node.
enum class OpenTurn : std::uint8_t {
  kGo,       ///< open the node
  kRefresh,  ///< the file has another node now: the kernel must look the name up again
};

/// A NodeTable knows which nodes the kernel holds, and which node of each file is the current one.
///
/// Owns: the nodes, each until the kernel forgets it.
/// Threads: any.
/// Limits: kNodesMax nodes; beyond that, find_or_make() returns kNoMemory.
class NodeTable {
 public:
  static constexpr std::size_t kNodesMax = std::size_t{1} << 22;

  explicit NodeTable(const Attributes& root);

  /// Returns the node of that number, or nullptr when the kernel does not hold it.
  NodePtr find(NodeId id) const;
  /// Returns the current node of `file`, or nullptr when the kernel holds none.
  NodePtr current(FileId file) const;

  /// The path from the mount's root, as the kernel last found the node.
  std::string path_of(const Node& node) const;

  /// Returns the node for a file with these attributes, which the kernel has found as `name` in
  /// `parent`. While a session is open, returns the session's node. Counts one more reference of
  /// the kernel.
  Result<NodePtr> find_or_make(const Attributes& attributes, NodeId parent, std::string_view name);
  /// Counts one more reference of the kernel to a node that it holds, and knows as `name` now.
  void add_name(const NodePtr& node, NodeId parent, std::string_view name);
  /// Drops `count` references of the kernel.
  void forget(NodeId id, std::uint64_t count);

  /// To be called before a file is opened. An open for writing makes `node` the session's node, if
  /// no session is open. Returns kRefresh when `node` is not the current node, went on with a newer
  /// version, or has readers, which must keep their version. With `insist`, always returns kGo.
  OpenTurn begin_open(const NodePtr& node, bool write, bool insist);
  /// Ends an open that begin_open() or begin_session() has begun.
  void end_open(const NodePtr& node, bool write);
  /// Makes `node` the session's node of a file that was just created.
  void begin_session(const NodePtr& node);
  /// Makes later look-ups of the file use another node.
  void detach(const NodePtr& node);

  /// True when this node, not just another node of its file, is open.
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

  void detach_locked(const NodePtr& node) STDCHK_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::unordered_map<NodeId, Entry> nodes_ STDCHK_GUARDED_BY(mutex_);
  std::unordered_map<FileId, Current> current_ STDCHK_GUARDED_BY(mutex_);
  NodeId next_ STDCHK_GUARDED_BY(mutex_) = 2;
};

}  // namespace stdchk::mount
