#include "fuse/node_table.h"

#include "core/base/assert.h"
#include "core/base/mutex.h"

namespace stdchk::mount {
namespace {

constexpr NodeId kRootNode = 1;  ///< the kernel's number
constexpr int kDepthMax = 64;

}  // namespace

NodeTable::NodeTable(const Attributes& root) {
  auto node = std::make_shared<Node>();
  node->id = kRootNode;
  node->file = root.id;
  node->type = FileType::kDirectory;
  node->last = root;
  nodes_[kRootNode] = {node, 1, 0, 0};  // the kernel never forgets the root
  current_[root.id] = {node, false};
}

NodePtr NodeTable::find(NodeId id) const {
  const MutexLock lock(mutex_);
  auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : found->second.node;
}

NodePtr NodeTable::current(FileId file) const {
  const MutexLock lock(mutex_);
  auto found = current_.find(file);
  return found == current_.end() ? nullptr : found->second.node;
}

Result<NodePtr> NodeTable::find_or_make(const Attributes& attributes, NodeId parent,
                                        std::string_view name) {
  const MutexLock lock(mutex_);
  auto remember = [&](Node& node, bool session) {
    const WriterLock guard(node.mutex);
    // The session's node keeps what its writers see. The size of a version never changes.
    if (!session) node.last = attributes;
    node.parent = parent;
    node.name = name;
  };
  if (auto found = current_.find(attributes.id); found != current_.end()) {
    const NodePtr& node = found->second.node;
    bool same =
        attributes.type != FileType::kRegular || found->second.session || node->holds(attributes);
    if (same) {
      remember(*node, found->second.session);
      nodes_[node->id].lookups++;
      return node;
    }
    current_.erase(found);
  }
  if (nodes_.size() >= kNodesMax) return fail(Code::kNoMemory, "mount.lookup");
  auto node = std::make_shared<Node>();
  node->id = next_++;
  node->file = attributes.id;
  node->type = attributes.type;
  remember(*node, false);
  nodes_[node->id] = {node, 1, 0, 0};
  current_[attributes.id] = {node, false};
  return node;
}

void NodeTable::add_name(const NodePtr& node, NodeId parent, std::string_view name) {
  const MutexLock lock(mutex_);
  auto found = nodes_.find(node->id);
  STDCHK_ASSERT(found != nodes_.end());
  found->second.lookups++;
  const WriterLock guard(node->mutex);
  node->parent = parent;
  node->name = name;
}

void NodeTable::forget(NodeId id, std::uint64_t count) {
  const MutexLock lock(mutex_);
  auto found = nodes_.find(id);
  if (found == nodes_.end() || id == 1) return;
  Entry& entry = found->second;
  entry.lookups -= count < entry.lookups ? count : entry.lookups;
  if (entry.lookups > 0 || entry.readers > 0 || entry.writers > 0) return;
  detach_locked(entry.node);
  nodes_.erase(found);
}

OpenTurn NodeTable::begin_open(const NodePtr& node, bool write, bool insist) {
  const MutexLock lock(mutex_);
  Entry& entry = nodes_[node->id];
  auto found = current_.find(node->file);
  // An unlinked file cannot be looked up again, so this node serves the open.
  bool is_current = found != current_.end() && found->second.node == node &&
                    (found->second.session || node->unlinked || !node->went_on);
  if (!is_current && !node->unlinked && !insist) return OpenTurn::kRefresh;
  if (write && is_current && !found->second.session) {
    if (entry.readers > 0 && !node->unlinked && !insist) {
      current_.erase(found);
      return OpenTurn::kRefresh;
    }
    found->second.session = true;
    node->changed = false;
  }
  (write ? entry.writers : entry.readers)++;
  return OpenTurn::kGo;
}

void NodeTable::begin_session(const NodePtr& node) {
  const MutexLock lock(mutex_);
  nodes_[node->id].writers++;
  current_[node->file] = {node, true};
}

void NodeTable::end_open(const NodePtr& node, bool write) {
  const MutexLock lock(mutex_);
  auto found = nodes_.find(node->id);
  STDCHK_ASSERT(found != nodes_.end());
  Entry& entry = found->second;
  (write ? entry.writers : entry.readers)--;
  if (write && entry.writers == 0) {
    // The pages are a mix of the session's writes and an older version: the node fits no version
    // now.
    auto current = current_.find(node->file);
    if (current != current_.end() && current->second.node == node) {
      if (node->changed) {
        current_.erase(current);
      } else {
        current->second.session = false;
      }
    }
  }
  if (entry.lookups == 0 && entry.readers == 0 && entry.writers == 0) {
    detach_locked(entry.node);
    nodes_.erase(found);
  }
}

void NodeTable::detach(const NodePtr& node) {
  const MutexLock lock(mutex_);
  detach_locked(node);
}

void NodeTable::detach_locked(const NodePtr& node) {
  auto found = current_.find(node->file);
  if (found != current_.end() && found->second.node == node) current_.erase(found);
}

bool NodeTable::is_open(NodeId id) const {
  const MutexLock lock(mutex_);
  auto found = nodes_.find(id);
  return found != nodes_.end() && (found->second.readers > 0 || found->second.writers > 0);
}

std::size_t NodeTable::size() const {
  const MutexLock lock(mutex_);
  return nodes_.size();
}

std::string NodeTable::path_of(const Node& node) const {
  std::string path;
  NodeId above = 0;
  {
    const ReaderLock lock(node.mutex);
    path = node.name;
    above = node.parent;
  }
  // The depth is limited, because a directory that is being moved may appear twice on the way.
  for (int depth = 0; above > kRootNode && depth < kDepthMax; ++depth) {
    const NodePtr parent = find(above);
    if (parent == nullptr) break;
    const ReaderLock parent_lock(parent->mutex);
    path.insert(0, parent->name + "/");
    above = parent->parent;
  }
  return path;
}

}  // namespace stdchk::mount
