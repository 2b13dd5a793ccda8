#include "tests/unit/fuse/memory_filesystem.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>

#include "core/base/limits.h"
#include "core/policy/access_list.h"

namespace stdchk::test {
namespace {

/// The limit of a pool, too, for names and values of one file.
constexpr std::size_t kXattrsBytesMax = 2 * limits::kXattrBytesMax;

}  // namespace

MemoryPool::MemoryPool() {
  auto root = std::make_shared<MemoryFile>();
  root->attributes.id = kRootFile;
  root->attributes.type = FileType::kDirectory;
  root->attributes.mode = 01777;
  root->attributes.link_count = 2;
  root->attributes.version = 1;
  root->attributes.atime_ns = root->attributes.mtime_ns = root->attributes.ctime_ns = now_ns();
  root->parent = kRootFile;
  files[kRootFile] = root;
}

std::int64_t MemoryPool::now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  last_ns = std::max(last_ns + 1, now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec);
  return last_ns;
}

std::optional<FileLock> MemoryPool::excludes_lock(const FileLock& wanted) {
  for (const FileLock& held : locks[{wanted.file, wanted.space}].all()) {
    if (excludes(held, wanted)) return held;
  }
  return std::nullopt;
}

std::vector<client::Filesystem::LockDone> MemoryPool::grant_locks() {
  std::vector<client::Filesystem::LockDone> granted;
  std::erase_if(lock_waits, [&](Wait& wait) {
    if (excludes_lock(wait.wanted)) return false;
    locks[{wait.wanted.file, wait.wanted.space}].put(wait.wanted);
    granted.push_back(std::move(wait.done));
    return true;
  });
  return granted;
}

std::shared_ptr<MemoryFile> MemoryPool::find(FileId id) {
  if (const auto found = files.find(id); found != files.end()) return found->second;
  if (const auto found = replaced.find(id); found != replaced.end()) return found->second;
  const auto found = opened.find(id);
  return found == opened.end() ? nullptr : found->second.lock();
}

void MemorySession::mark(std::uint64_t from, std::uint64_t to) {
  auto next = written.upper_bound(from);
  if (next != written.begin()) {
    auto before = std::prev(next);
    if (before->second >= from) {
      from = before->first;
      to = std::max(to, before->second);
      written.erase(before);
    }
  }
  while (next != written.end() && next->first <= to) {
    to = std::max(to, next->second);
    next = written.erase(next);
  }
  written[from] = to;
}

void MemorySession::forget_changes() {
  written.clear();
  cut = set_size = dirty = false;
  cut_bytes = 0;
}

/// A MemoryOpenFile is one open of a file: of a session, or of a committed version.
class MemoryOpenFile final : public client::File {
 public:
  MemoryOpenFile(MemoryFilesystem& filesystem, std::shared_ptr<MemoryFile> file,
                 std::shared_ptr<MemorySession> session, client::OpenFlags flags)
      : filesystem_(filesystem),
        file_(std::move(file)),
        session_(std::move(session)),
        content_(file_->content),
        pinned_(file_->attributes),
        writes_(flags.write),
        appends_(flags.append) {}

  ~MemoryOpenFile() override {
    if (writes_) filesystem_.end(session_, true);
  }

  FileId id() const override { return pinned_.id; }

  Attributes attributes() const override {
    if (!session_) {
      const std::scoped_lock lock(mutex_);
      return pinned_;
    }
    std::scoped_lock lock(filesystem_.pool_->mutex, session_->mutex);
    Attributes now = file_->attributes;
    now.version = session_->version;
    now.size_bytes = session_->bytes.size();
    if (session_->dirty) now.mtime_ns = session_->mtime_ns;
    return now;
  }

  Result<std::size_t> read(std::uint64_t offset, MutableByteSpan out) override {
    const std::unique_lock lock(session_ ? session_->mutex : mutex_);
    const Bytes& bytes = session_ ? session_->bytes : *content_;
    if (offset >= bytes.size()) return 0;
    std::size_t count = std::min<std::size_t>(out.size(), bytes.size() - offset);
    if (count > 0) std::memcpy(out.data(), bytes.data() + offset, count);
    return count;
  }

  /// The pool in memory has no holes.
  Result<std::optional<std::uint64_t>> seek(std::uint64_t offset, client::Seek what) override {
    const std::uint64_t end = attributes().size_bytes;
    if (offset >= end) return std::nullopt;
    return what == client::Seek::kData ? offset : end;
  }

  Status write(std::uint64_t offset, ByteSpan bytes) override {
    if (!writes_) return fail(Code::kPermission, "memory.write");
    if (offset + bytes.size() > filesystem_.pool_->capacity_bytes) {
      return fail(Code::kNoSpace, "memory.write");
    }
    std::scoped_lock lock(session_->mutex);
    if (bytes.empty()) return {};
    if (appends_) offset = session_->bytes.size();
    if (session_->bytes.size() < offset + bytes.size()) {
      session_->bytes.resize(offset + bytes.size());
    }
    std::memcpy(session_->bytes.data() + offset, bytes.data(), bytes.size());
    session_->mark(offset, offset + bytes.size());
    session_->dirty = true;
    changed_ = true;
    touch();
    return {};
  }

  Status refresh() override {
    if (session_) {
      if (writes_) STDCHK_TRY(filesystem_.commit(*session_));
      std::scoped_lock lock(filesystem_.pool_->mutex, session_->mutex);
      if (session_->dirty) return {};
      session_->bytes = *file_->content;
      session_->base_bytes = session_->bytes.size();
      session_->version = file_->attributes.version;
      return {};
    }
    std::scoped_lock lock(filesystem_.pool_->mutex, mutex_);
    content_ = file_->content;
    pinned_ = file_->attributes;
    return {};
  }

  Status truncate(std::uint64_t size) override {
    if (!writes_) return fail(Code::kPermission, "memory.truncate");
    if (size > filesystem_.pool_->capacity_bytes) return fail(Code::kTooLarge, "memory.truncate");
    std::scoped_lock lock(session_->mutex);
    if (size < session_->bytes.size() || !session_->cut) {
      session_->cut_bytes = session_->cut ? std::min(session_->cut_bytes, size) : size;
      session_->cut = true;
    }
    std::map<std::uint64_t, std::uint64_t> kept;
    for (auto [from, to] : session_->written) {
      if (from < size) kept[from] = std::min(to, size);
    }
    session_->written = std::move(kept);
    session_->bytes.resize(size);
    session_->set_size = true;
    session_->dirty = true;
    changed_ = true;
    touch();
    return {};
  }

  Result<MutableByteSpan> reserve(std::uint64_t, std::size_t) override {
    return fail(Code::kUnsupported, "memory.reserve");
  }
  Status submit(std::uint64_t, std::size_t) override {
    return fail(Code::kUnsupported, "memory.submit");
  }
  Status sync() override { return commit(); }
  Status commit() override {
    changed_ = false;
    return writes_ ? filesystem_.commit(*session_) : Status{};
  }
  Status commit_as(Version) override { return fail(Code::kUnsupported, "memory.commit_as"); }
  bool dirty() const override {
    if (!writes_) return false;
    std::scoped_lock lock(filesystem_.pool_->mutex, session_->mutex);
    return session_->dirty && (changed_ || session_->openers == 1);
  }

  void abort() override {
    if (!writes_) return;
    std::scoped_lock lock(filesystem_.pool_->mutex, session_->mutex);
    filesystem_.pool_->aborted.push_back(
        {file_->name, session_->bytes.size(), filesystem_.pool_->now_ns(), "here"});
    session_->forget_changes();
    session_->bytes = *file_->content;
  }

  Status close() override {
    Status done = dirty() ? commit() : Status{};
    if (writes_) filesystem_.end(session_, false);
    writes_ = false;
    return done;
  }
  client::SessionFigures figures() const override { return {}; }

 private:
  void touch() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    session_->mtime_ns = now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
  }

  MemoryFilesystem& filesystem_;
  std::shared_ptr<MemoryFile> file_;
  std::shared_ptr<MemorySession> session_;
  std::shared_ptr<const Bytes> content_;
  Attributes pinned_;
  bool writes_;
  const bool appends_;
  mutable std::mutex mutex_;           ///< guards what refresh() changes of a reader
  std::atomic<bool> changed_ = false;  ///< this opener has changed the file since its last commit
};

MemoryFilesystem::MemoryFilesystem(std::shared_ptr<MemoryPool> pool) : pool_(std::move(pool)) {
  std::scoped_lock lock(pool_->mutex);
  pool_->connections.push_back(this);
  number_ = ClientId{pool_->next_client++};
}

MemoryFilesystem::~MemoryFilesystem() {
  std::scoped_lock lock(pool_->mutex);
  std::erase(pool_->connections, this);
}

void MemoryFilesystem::set_cache_events(client::CacheEvents events) {
  std::scoped_lock lock(events_mutex_);
  events_ = std::move(events);
}

void MemoryFilesystem::tell_others(FileId file, FileId parent, const std::string& name) {
  std::vector<MemoryFilesystem*> others;
  {
    std::scoped_lock lock(pool_->mutex);
    others = pool_->connections;
  }
  for (MemoryFilesystem* other : others) {
    if (other == this) continue;
    std::scoped_lock lock(other->events_mutex_);
    if (file && other->events_.file_changed) other->events_.file_changed(file);
    if (!name.empty() && other->events_.entry_changed) other->events_.entry_changed(parent, name);
  }
}

std::shared_ptr<MemoryFile> MemoryFilesystem::child(FileId parent, std::string_view name) {
  auto directory = pool_->find(parent);
  if (!directory) return nullptr;
  auto found = directory->children.find(std::string(name));
  if (found == directory->children.end()) return nullptr;
  auto file = pool_->find(found->second);
  if (file && file->pending_of != nullptr && file->pending_of != this) return nullptr;
  return file;
}

Attributes MemoryFilesystem::seen(const MemoryFile& file) {
  Attributes now = file.attributes;
  now.has_no_xattrs = file.xattrs.empty();
  return now;
}

Result<Attributes> MemoryFilesystem::lookup(FileId parent, std::string_view name) {
  std::scoped_lock lock(pool_->mutex);
  if (name.size() > limits::kNameBytesMax) return fail(Code::kNameTooLong, "memory.lookup");
  auto file = child(parent, name);
  if (!file) return fail(Code::kNotFound, "memory.lookup");
  return seen(*file);
}

Result<Attributes> MemoryFilesystem::lookup_fresh(FileId parent, std::string_view name) {
  return lookup(parent, name);
}

Result<Attributes> MemoryFilesystem::attributes(FileId id) {
  std::scoped_lock lock(pool_->mutex);
  auto file = pool_->find(id);
  if (!file) return fail(Code::kNotFound, "memory.attributes");
  return seen(*file);
}

Result<Attributes> MemoryFilesystem::resolve(std::string_view path) {
  FileId at = kRootFile;
  Result<Attributes> found = attributes(at);
  while (!path.empty()) {
    std::size_t slash = path.find('/');
    std::string_view part = path.substr(0, slash);
    path = slash == std::string_view::npos ? std::string_view{} : path.substr(slash + 1);
    if (part.empty()) continue;
    found = lookup(at, part);
    if (!found) return found;
    at = found->id;
  }
  return found;
}

Result<std::vector<msg::DirectoryEntry>> MemoryFilesystem::read_directory(FileId id) {
  std::scoped_lock lock(pool_->mutex);
  auto directory = pool_->find(id);
  if (!directory) return fail(Code::kNotFound, "memory.readdir");
  std::vector<msg::DirectoryEntry> entries;
  for (const auto& [name, file_id] : directory->children) {
    if (auto file = child(id, name)) entries.push_back({name, seen(*file)});
  }
  return entries;
}

Result<Attributes> MemoryFilesystem::set_attributes(const msg::SetAttributes& change) {
  FileId parent;
  std::string name;
  Attributes result;
  {
    std::scoped_lock lock(pool_->mutex);
    auto file = pool_->find(change.file);
    if (!file) return fail(Code::kNotFound, "memory.setattr");
    auto has = [&](msg::SetMask bit) {
      return (change.mask & static_cast<std::uint32_t>(bit)) != 0;
    };
    if (has(msg::SetMask::kMode)) file->attributes.mode = change.mode & 07777;
    if (has(msg::SetMask::kUid)) file->attributes.uid = change.uid;
    if (has(msg::SetMask::kGid)) file->attributes.gid = change.gid;
    if (has(msg::SetMask::kAtime)) file->attributes.atime_ns = change.atime_ns;
    if (has(msg::SetMask::kMtime)) file->attributes.mtime_ns = change.mtime_ns;
    file->attributes.ctime_ns = pool_->now_ns();
    result = seen(*file);
    parent = file->parent;
    name = file->name;
  }
  tell_others(change.file, parent, name);
  return result;
}

Result<std::shared_ptr<MemoryFile>> MemoryFilesystem::make(FileId parent, std::string_view name,
                                                           FileType type, client::Owner owner) {
  auto directory = pool_->find(parent);
  if (!directory) return fail(Code::kNotFound, "memory.make");
  if (name.size() > limits::kNameBytesMax) return fail(Code::kNameTooLong, "memory.make");
  if (directory->children.contains(std::string(name))) return fail(Code::kExists, "memory.make");
  auto file = std::make_shared<MemoryFile>();
  file->attributes.id = FileId{pool_->next_file++};
  file->attributes.type = type;
  file->attributes.mode = owner.mode & 07777;
  file->attributes.uid = owner.uid;
  file->attributes.gid = owner.gid;
  file->attributes.link_count = type == FileType::kDirectory ? 2 : 1;
  file->attributes.version = type == FileType::kRegular ? 0 : 1;
  std::int64_t now = pool_->now_ns();
  file->attributes.atime_ns = file->attributes.mtime_ns = file->attributes.ctime_ns = now;
  file->parent = parent;
  file->name = name;
  directory->children[file->name] = file->attributes.id;
  directory->attributes.mtime_ns = directory->attributes.ctime_ns = now;
  if (type == FileType::kDirectory) directory->attributes.link_count++;
  pool_->files[file->attributes.id] = file;
  return file;
}

Result<Attributes> MemoryFilesystem::make_directory(FileId parent, std::string_view name,
                                                    client::Owner owner) {
  Attributes result;
  {
    std::scoped_lock lock(pool_->mutex);
    STDCHK_ASSIGN(auto file, make(parent, name, FileType::kDirectory, owner));
    result = file->attributes;
  }
  tell_others({}, parent, std::string(name));
  return result;
}

Result<Attributes> MemoryFilesystem::make_symlink(FileId parent, std::string_view name,
                                                  std::string_view target, client::Owner owner) {
  Attributes result;
  {
    std::scoped_lock lock(pool_->mutex);
    STDCHK_ASSIGN(auto file, make(parent, name, FileType::kSymlink, owner));
    file->target = target;
    file->attributes.mode = 0777;
    file->attributes.size_bytes = target.size();
    result = file->attributes;
  }
  tell_others({}, parent, std::string(name));
  return result;
}

Result<std::string> MemoryFilesystem::read_symlink(FileId id) {
  std::scoped_lock lock(pool_->mutex);
  auto file = pool_->find(id);
  if (!file) return fail(Code::kStale, "memory.readlink");
  if (file->attributes.type != FileType::kSymlink) {
    return fail(Code::kInvalidArgument, "memory.readlink");
  }
  return file->target;
}

Result<Attributes> MemoryFilesystem::make_node(FileId parent, std::string_view name, FileType type,
                                               client::Owner owner, std::uint32_t device) {
  Attributes result;
  {
    std::scoped_lock lock(pool_->mutex);
    STDCHK_ASSIGN(auto file, make(parent, name, type, owner));
    file->attributes.device = device;
    result = file->attributes;
  }
  tell_others({}, parent, std::string(name));
  return result;
}

Result<Attributes> MemoryFilesystem::make_link(FileId id, FileId parent, std::string_view name) {
  Attributes result;
  {
    std::scoped_lock lock(pool_->mutex);
    auto file = pool_->find(id);
    auto directory = pool_->find(parent);
    if (!file || !directory || file->attributes.link_count == 0) {
      return fail(Code::kNotFound, "memory.link");
    }
    if (child(parent, name)) return fail(Code::kExists, "memory.link");
    directory->children[std::string(name)] = id;
    file->attributes.link_count++;
    file->attributes.ctime_ns = pool_->now_ns();
    directory->attributes.mtime_ns = directory->attributes.ctime_ns = pool_->now_ns();
    result = file->attributes;
  }
  tell_others(id, parent, std::string(name));
  return result;
}

void MemoryFilesystem::unlink_entry(MemoryFile& parent, const std::string& name) {
  FileId id = parent.children[name];
  parent.children.erase(name);
  auto file = pool_->find(id);
  if (!file) return;
  parent.attributes.mtime_ns = parent.attributes.ctime_ns = pool_->now_ns();
  if (file->attributes.type == FileType::kDirectory) {
    parent.attributes.link_count--;
    file->attributes.link_count = 0;
  } else {
    file->attributes.link_count--;
    file->attributes.ctime_ns = pool_->now_ns();
  }
  if (file->attributes.link_count == 0) pool_->files.erase(id);
}

Result<std::uint32_t> MemoryFilesystem::remove(FileId parent, std::string_view name,
                                               bool directory) {
  std::uint32_t left = 0;
  {
    std::scoped_lock lock(pool_->mutex);
    auto file = child(parent, name);
    if (!file) return fail(Code::kNotFound, "memory.remove");
    bool is_directory = file->attributes.type == FileType::kDirectory;
    if (directory && !is_directory) return fail(Code::kNotDirectory, "memory.remove");
    if (!directory && is_directory) return fail(Code::kIsDirectory, "memory.remove");
    if (!file->children.empty()) return fail(Code::kNotEmpty, "memory.remove");
    unlink_entry(*pool_->find(parent), std::string(name));
    left = file->attributes.link_count;
  }
  tell_others({}, parent, std::string(name));
  return left;
}

Result<std::uint32_t> MemoryFilesystem::rename(const msg::Rename& change) {
  std::uint32_t left = 0;
  {
    std::scoped_lock lock(pool_->mutex);
    auto from = child(change.from_parent, change.from_name);
    auto to = child(change.to_parent, change.to_name);
    auto from_parent = pool_->find(change.from_parent);
    auto to_parent = pool_->find(change.to_parent);
    if (!from || !to_parent) return fail(Code::kNotFound, "memory.rename");
    if (change.no_replace && to) return fail(Code::kExists, "memory.rename");
    if (change.exchange && !to) return fail(Code::kNotFound, "memory.rename");
    if (from == to) return 1;
    bool moves_directory = from->attributes.type == FileType::kDirectory;
    for (auto at = to_parent; moves_directory;) {
      if (at == from) return fail(Code::kCrossesDirectory, "memory.rename");
      if (at->attributes.id == kRootFile) break;
      at = pool_->find(at->parent);
    }
    if (to && !change.exchange) {
      const bool onto_directory = to->attributes.type == FileType::kDirectory;
      if (moves_directory && !onto_directory) return fail(Code::kNotDirectory, "memory.rename");
      if (!moves_directory && onto_directory) return fail(Code::kIsDirectory, "memory.rename");
      if (!to->children.empty()) return fail(Code::kNotEmpty, "memory.rename");
      unlink_entry(*to_parent, change.to_name);
      left = to->attributes.link_count;
      if (!onto_directory && left == 0) pool_->replaced[to->attributes.id] = to;
      if (pool_->replaced.size() > pool_->replaced_max)
        pool_->replaced.erase(pool_->replaced.begin());
    }
    from_parent->children.erase(change.from_name);
    to_parent->children[change.to_name] = from->attributes.id;
    if (moves_directory) {
      from_parent->attributes.link_count--;
      to_parent->attributes.link_count++;
    }
    if (change.exchange) {
      from_parent->children[change.from_name] = to->attributes.id;
      to->parent = change.from_parent;
      to->name = change.from_name;
    }
    from->parent = change.to_parent;
    from->name = change.to_name;
    from->attributes.ctime_ns = pool_->now_ns();
  }
  tell_others({}, change.from_parent, change.from_name);
  tell_others({}, change.to_parent, change.to_name);
  return left;
}

Status MemoryFilesystem::set_xattr(const msg::SetXattr& change) {
  std::scoped_lock lock(pool_->mutex);
  auto file = pool_->find(change.file);
  if (!file) return fail(Code::kNotFound, "memory.setxattr");
  // Only the manager has the rules of access lists.
  if (is_access_list(change.name)) return fail(Code::kUnsupported, "memory.setxattr");
  bool has = file->xattrs.contains(change.name);
  if (change.remove) {
    if (!has) return fail(Code::kNoAttribute, "memory.setxattr");
    file->xattrs.erase(change.name);
    return {};
  }
  if (change.mode == msg::XattrMode::kCreate && has) return fail(Code::kExists, "memory.setxattr");
  if (change.mode == msg::XattrMode::kReplace && !has) {
    return fail(Code::kNoAttribute, "memory.setxattr");
  }
  std::size_t bytes = change.name.size() + change.value.size();
  for (const auto& [name, value] : file->xattrs) {
    if (name != change.name) bytes += name.size() + value.size();
  }
  if (bytes > kXattrsBytesMax) return fail(Code::kNoSpace, "memory.setxattr");
  file->xattrs[change.name] = change.value;
  return {};
}

Result<std::vector<std::pair<std::string, std::string>>> MemoryFilesystem::xattrs(FileId id) {
  std::scoped_lock lock(pool_->mutex);
  auto file = pool_->find(id);
  if (!file) return fail(Code::kStale, "memory.getxattr");
  return std::vector<std::pair<std::string, std::string>>(file->xattrs.begin(), file->xattrs.end());
}

Result<msg::GetPolicy::Reply> MemoryFilesystem::policy(FileId id) {
  std::scoped_lock lock(pool_->mutex);
  auto file = pool_->find(id);
  if (!file) return fail(Code::kNotFound, "memory.policy");
  msg::GetPolicy::Reply reply{file->policy, file->policy};
  while (file->attributes.id != kRootFile) {
    file = pool_->find(file->parent);
    if (!file) break;
    reply.effective.inherit(file->policy);
  }
  return reply;
}

Outcome<void> MemoryFilesystem::set_policy(FileId directory, const Policy& changes) {
  std::scoped_lock lock(pool_->mutex);
  auto file = pool_->find(directory);
  if (!file) return problem(Code::kNotFound, "memory.policy", 0, "There is no such folder.");
  if (file->attributes.type != FileType::kDirectory) {
    return problem(Code::kNotDirectory, "memory.policy", 0, "This is not a folder.");
  }
  file->policy.apply(changes);
  return {};
}

Result<msg::StatPool::Reply> MemoryFilesystem::stat_pool() {
  std::scoped_lock lock(pool_->mutex);
  msg::StatPool::Reply reply;
  reply.total_bytes = pool_->capacity_bytes;
  for (const auto& [id, file] : pool_->files) reply.stored_bytes += file->content->size();
  reply.free_bytes = reply.total_bytes - reply.stored_bytes;
  reply.file_count = pool_->files.size();
  return reply;
}

std::unique_ptr<client::File> MemoryFilesystem::open_locked(std::shared_ptr<MemoryFile> file,
                                                            client::OpenFlags flags) {
  auto& slot = sessions_[file->attributes.id];
  auto session = slot;
  pool_->opened[file->attributes.id] = file;
  if (flags.write) {
    if (!session) {
      session = slot = std::make_shared<MemorySession>();
      session->file = file;
      session->bytes = *file->content;
      session->version = file->attributes.version;
      session->dirty = file->pending_of != nullptr;
      session->base_bytes = session->bytes.size();
    }
    session->openers++;
    session->writes_anywhere |= !flags.append;
  } else if (!session) {
    sessions_.erase(file->attributes.id);
  }
  return std::make_unique<MemoryOpenFile>(*this, std::move(file), session, flags);
}

Result<std::unique_ptr<client::File>> MemoryFilesystem::open(FileId id, client::OpenFlags flags) {
  std::unique_ptr<client::File> opened;
  {
    std::scoped_lock lock(pool_->mutex);
    auto file = pool_->find(id);
    if (!file) return fail(Code::kStale, "memory.open");
    opened = open_locked(std::move(file), flags);
  }
  if (flags.write && flags.truncate) STDCHK_TRY(opened->truncate(0));
  return opened;
}

Result<std::unique_ptr<client::File>> MemoryFilesystem::create(FileId parent, std::string_view name,
                                                               client::OpenFlags flags,
                                                               client::Owner owner) {
  if (flags.unnamed) return fail(Code::kUnsupported, "memory.create");
  std::unique_ptr<client::File> opened;
  {
    std::scoped_lock lock(pool_->mutex);
    auto directory = pool_->find(parent);
    if (!directory) return fail(Code::kNotFound, "memory.create");
    auto found = directory->children.find(std::string(name));
    if (found != directory->children.end()) {
      if (flags.exclusive) return fail(Code::kExists, "memory.create");
      opened = open_locked(pool_->find(found->second), flags);
    } else {
      STDCHK_ASSIGN(auto file, make(parent, name, FileType::kRegular, owner));
      file->pending_of = this;
      opened = open_locked(std::move(file), flags);
    }
  }
  if (flags.write && flags.truncate) STDCHK_TRY(opened->truncate(0));
  return opened;
}

Status MemoryFilesystem::commit(MemorySession& session) {
  FileId id, parent;
  std::string name;
  {
    std::scoped_lock lock(pool_->mutex, session.mutex);
    if (!session.dirty) return {};
    MemoryFile& file = *session.file;
    auto merged = std::make_shared<Bytes>(*file.content);
    if (session.cut && merged->size() > session.cut_bytes) merged->resize(session.cut_bytes);
    const bool moves = !session.writes_anywhere && !session.cut && !session.set_size &&
                       merged->size() > session.base_bytes;
    const std::size_t distance = moves ? merged->size() - session.base_bytes : 0;
    if (session.set_size || merged->size() < session.bytes.size() + distance) {
      merged->resize(session.bytes.size() + distance);
    }
    for (auto [from, to] : session.written) {
      std::memcpy(merged->data() + from + distance, session.bytes.data() + from, to - from);
    }
    file.content = merged;
    file.pending_of = nullptr;
    file.attributes.version++;
    file.attributes.size_bytes = file.attributes.stored_bytes = merged->size();
    file.attributes.mtime_ns = session.mtime_ns != 0 ? session.mtime_ns : pool_->now_ns();
    file.attributes.ctime_ns = pool_->now_ns();
    session.bytes = *merged;
    session.base_bytes = merged->size();
    session.version = file.attributes.version;
    session.forget_changes();
    id = file.attributes.id;
    parent = file.parent;
    name = file.name;
  }
  tell_others(id, parent, name);
  return {};
}

void MemoryFilesystem::end(const std::shared_ptr<MemorySession>& session, bool list_as_aborted) {
  std::scoped_lock lock(pool_->mutex);
  if (--session->openers > 0) return;
  MemoryFile& file = *session->file;
  sessions_.erase(file.attributes.id);
  if (list_as_aborted && session->dirty) {
    pool_->aborted.push_back({file.name, session->bytes.size(), pool_->now_ns(), "here"});
  }
  bool elsewhere = std::any_of(
      pool_->connections.begin(), pool_->connections.end(),
      [&](MemoryFilesystem* other) { return other->sessions_.contains(file.attributes.id); });
  if (file.attributes.version == 0 && !elsewhere && file.attributes.link_count > 0) {
    if (auto parent = pool_->find(file.parent)) unlink_entry(*parent, file.name);
  }
}

FileLock MemoryFilesystem::lock_of(const msg::SetLock& request) const {
  return {request.file, request.space, request.kind, {number_, request.owner},
          request.pid,  request.first, request.last};
}

void MemoryFilesystem::lock(const msg::SetLock& request, LockDone done) {
  std::vector<LockDone> granted;
  msg::LockOutcome outcome = msg::LockOutcome::kGranted;
  {
    std::scoped_lock lock(pool_->mutex);
    const FileLock wanted = lock_of(request);
    FileLocks& held = pool_->locks[{request.file, request.space}];
    if (request.kind == msg::LockKind::kNone) {
      held.cut(wanted);
      granted = pool_->grant_locks();
    } else if (pool_->excludes_lock(wanted)) {
      if (request.ticket != 0) {
        pool_->lock_waits.push_back({number_, request.ticket, wanted, std::move(done)});
        return;
      }
      outcome = msg::LockOutcome::kRefused;
    } else {
      held.put(wanted);
    }
  }
  done(outcome);
  for (const LockDone& one : granted) one(msg::LockOutcome::kGranted);
}

void MemoryFilesystem::cancel_lock(std::uint64_t ticket) {
  LockDone done;
  {
    std::scoped_lock lock(pool_->mutex);
    const auto found = std::ranges::find_if(pool_->lock_waits, [&](const MemoryPool::Wait& wait) {
      return wait.client == number_ && wait.ticket == ticket;
    });
    if (found == pool_->lock_waits.end()) return;
    done = std::move(found->done);
    pool_->lock_waits.erase(found);
  }
  done(fail(Code::kCancelled, "memory.lock"));
}

Result<msg::GetLock::Reply> MemoryFilesystem::get_lock(msg::GetLock request) {
  std::scoped_lock lock(pool_->mutex);
  const FileLock wanted{request.file,  request.space, request.kind, {number_, request.owner}, 0,
                        request.first, request.last};
  const auto held = pool_->excludes_lock(wanted);
  if (!held) return msg::GetLock::Reply{};
  return msg::GetLock::Reply{held->kind, held->first, held->last,
                             held->owner.client == number_ ? held->pid : 0};
}

Result<std::pair<Attributes, ChunkMap>> MemoryFilesystem::map(FileId) {
  return fail(Code::kUnsupported, "memory.map");
}
Result<std::vector<msg::BenefactorInfo>> MemoryFilesystem::benefactors() {
  return std::vector<msg::BenefactorInfo>{};
}
Result<msg::DrainNow::Reply> MemoryFilesystem::drain(FileId) { return msg::DrainNow::Reply{}; }
Result<std::vector<msg::ListAborted::Entry>> MemoryFilesystem::aborted() {
  std::scoped_lock lock(pool_->mutex);
  return pool_->aborted;
}

}  // namespace stdchk::test
