// Opening, reading, writing and closing of regular files.

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

#include "client/blocking/read_view.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/policy/image_name.h"
#include "fuse/bridge.h"
#include "fuse/receive_buffer.h"

namespace stdchk::mount {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kReadBytesMax = limits::kMiB;
constexpr auto kRefusalMemory = 2s;
constexpr std::size_t kRefusalsMax = 4096;
/// For how long a folder's write mode is cached; another mount may change it.
constexpr auto kFolderModeAge = 10s;
constexpr std::size_t kFolderModesMax = 65536;
constexpr std::uint64_t kZerosMax = 1024 * limits::kMiB;  ///< that one fallocate() writes

bool writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

/// A ReadBuffer is a page-aligned buffer of kReadBytesMax bytes that its thread reuses.
///
/// Owns: its memory.
class ReadBuffer {
 public:
  ReadBuffer() : bytes_(static_cast<std::byte*>(std::aligned_alloc(4096, kReadBytesMax))) {}
  ~ReadBuffer() { std::free(bytes_); }
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;
  MutableByteSpan first(std::size_t size) { return {bytes_, std::min(size, kReadBytesMax)}; }
  bool usable() const { return bytes_ != nullptr; }

 private:
  std::byte* bytes_;
};

}  // namespace

/// Returns true when the kernel must look the name up again. Returns false when this thread's last
/// open was refused less than kRefusalMemory ago. The kernel asks no third time, so the file is
/// then opened as it is. This happens to opens through a descriptor (/proc/PID/fd), and when the
/// name keeps changing.
bool Bridge::refuse(std::int32_t thread, FileId file) {
  Time now = clock_.now();
  const MutexLock lock(refresh_mutex_);
  auto found = refused_.find(thread);
  if (found != refused_.end()) {
    bool lately = now - found->second < kRefusalMemory;
    refused_.erase(found);
    if (lately) return false;
  }
  if (refused_.size() >= kRefusalsMax) refused_.clear();
  if (refresh_.size() >= kRefusalsMax) refresh_.clear();
  refused_[thread] = now;
  refresh_.insert(file);
  return true;
}

void Bridge::opened_well(std::int32_t thread) {
  const MutexLock lock(refresh_mutex_);
  if (!refused_.empty()) refused_.erase(thread);
}

bool Bridge::folder_wants_cache(FileId directory) {
  Time now = clock_.now();
  {
    const MutexLock lock(folder_modes_mutex_);
    auto found = folder_modes_.find(directory);
    if (found != folder_modes_.end() && now < found->second.until) return found->second.cached;
  }
  bool cached = false;
  if (auto all = filesystem_.xattrs(directory)) {
    for (const auto& [key, value] : *all) cached |= key == kXattrWriteMode && value == "cached";
  }
  const MutexLock lock(folder_modes_mutex_);
  if (folder_modes_.size() >= kFolderModesMax) folder_modes_.clear();
  folder_modes_[directory] = {cached, now + kFolderModeAge};
  return cached;
}

bool Bridge::choose_direct(Node& node, int flags, bool insisted) {
  if (insisted) return true;  // the node's pages and size belong to another version
  bool write = writes(flags);
  if ((flags & O_APPEND) != 0 && write && exchange_.allows_mmap()) return node.cached_opens == 0;
  if ((flags & O_ACCMODE) == O_RDWR) return false;  // small accesses and mappings are likely
  if (!write && options_.read_mode != ReadMode::kAuto) {
    return options_.read_mode == ReadMode::kDirect;
  }
  if (node.cached_opens > 0 && write) return false;  // all openers must use one cache
  NodeId parent_id = 0;
  std::string name;
  {
    const ReaderLock lock(node.mutex);
    parent_id = node.parent;
    name = node.name;
    if (!write && !node.writers.empty()) return false;
  }
  auto parent = nodes_.find(parent_id);
  if (!parent) return write;
  if (write) {
    return !folder_wants_cache(parent->file) && !write_modes_.choose_cached(parent->file, name);
  }
  // An image is read once, from start to end. Other files may be programs and libraries.
  return exchange_.allows_mmap() && parse_image_name(name).has_value() &&
         !read_modes_.choose_cached(parent->file, name);
}

/// Learns from the sizes of the application's calls, which only an open around the page cache
/// shows.
void Bridge::learn(Handle& handle) {
  if (!handle.direct) return;
  Node& node = *handle.node;
  NodeId parent_id = 0;
  std::string name;
  {
    const ReaderLock lock(node.mutex);
    parent_id = node.parent;
    name = node.name;
  }
  auto parent = nodes_.find(parent_id);
  if (!parent) return;
  CacheModes& modes = handle.writes ? write_modes_ : read_modes_;
  modes.learn(parent->file, name, handle.calls, handle.call_bytes);
}

/// Whether the caller may not leave set-ID bits on what it changes, as the kernel says with
/// FUSE_HANDLE_KILLPRIV_V2. Otherwise every user but root may not. Pages that the kernel has
/// collected come from itself: then the user who has opened the file counts.
bool Bridge::kills_set_id(fuse_req_t request, const Handle* handle) const {
  if (const auto kills = exchange_.kills_set_id()) return *kills;
  return fuse_req_ctx(request)->uid != 0 || (handle != nullptr && handle->of_user);
}

/// Clears the set-ID bits once; later writes skip this until a chmod or a commit.
void Bridge::kill_set_id(Node& node, fuse_req_t request) {
  if (!node.set_id_killed.load(std::memory_order_relaxed) && !node.set_id_killed.exchange(true)) {
    clear_set_id_of_pool(node, request);
  }
}

/// Asks the pool for the mode: another mount, or another name of the file, may have changed the
/// mode.
void Bridge::clear_set_id_of_pool(Node& node, fuse_req_t request) {
  if (const auto now = filesystem_.attributes(node.file)) clear_set_id(node, request, *now);
}

namespace {

/// Without the group's x bit a file keeps S_ISGID for members of its group (inode_owner_or_capable
/// and setattr_should_drop_sgid in the kernel).
bool is_of_group(fuse_req_t request, std::uint32_t gid) {
  if (request == nullptr || fuse_req_ctx(request)->gid == gid) return true;
  std::array<gid_t, 256> groups{};
  const int count = fuse_req_getgroups(request, static_cast<int>(groups.size()), groups.data());
  const auto end = groups.begin() + std::clamp<int>(count, 0, static_cast<int>(groups.size()));
  return std::find(groups.begin(), end, gid) != end;
}

}  // namespace

/// With FUSE_HANDLE_KILLPRIV_V2 the kernel leaves this to the file system: who writes to a file
/// must not leave it runnable as its owner or group. Without a request: at a commit.
void Bridge::clear_set_id(Node& node, fuse_req_t request, const Attributes& now) {
  const auto set = now.mode & static_cast<std::uint32_t>(S_ISUID | S_ISGID);
  std::uint32_t drops = set & static_cast<std::uint32_t>(S_ISUID);
  const bool drops_group = (now.mode & S_IXGRP) != 0 || !is_of_group(request, now.gid);
  if (drops_group) drops |= set & static_cast<std::uint32_t>(S_ISGID);
  if (drops == 0) return;
  msg::SetAttributes change;
  change.file = node.file;
  change.mask = static_cast<std::uint32_t>(msg::SetMask::kMode);
  change.mode = now.mode & ~drops;
  const auto done = filesystem_.set_attributes(change);
  if (!done) return log::warning("Clearing set-id bits failed: {}", describe(done.error()));
  const WriterLock lock(node.mutex);
  node.last.mode = change.mode;
}

namespace {

/// Through the page cache, the kernel puts appended bytes at the end as it knows it, and may write
/// whole pages that begin before it. Around the cache the library finds the end, and the commit
/// puts the bytes behind what other mounts have appended.
bool appends(int flags, bool direct) { return direct && (flags & O_APPEND) != 0 && writes(flags); }

}  // namespace

Result<Bridge::Opened> Bridge::open_node(const NodePtr& node, int flags, std::int32_t thread) {
  bool write = writes(flags);
  bool insisted = false;
  // The next writer gets another inode.
  if (write && node->times_due.exchange(false) && !node->in_session()) nodes_.detach(node);
  if (nodes_.begin_open(node, write, false) == OpenTurn::kRefresh) {
    if (refuse(thread, node->file)) return fail(Code::kStale, "mount.open");
    insisted = true;
    nodes_.begin_open(node, write, true);
  }
  client::OpenFlags wanted;
  // The kernel reads before small writes into the page cache, even if the application only writes.
  wanted.read = true;
  wanted.write = write;
  wanted.truncate = write && (flags & O_TRUNC) != 0;
  const bool direct = choose_direct(*node, flags, insisted);
  wanted.append = appends(flags, direct);
  auto file = filesystem_.open(node->file, wanted);
  if (!file) {
    nodes_.end_open(node, write);
    bool gone = file.error().code == Code::kStale || file.error().code == Code::kNotFound;
    if (!gone) return fail(file.error());
    // The name now belongs to another file, or to none.
    const bool again = !insisted && refuse(thread, node->file);
    return fail(again ? Code::kStale : Code::kNotFound, "mount.open");
  }
  bool session = node->in_session();
  // A file without a name was removed or replaced. The manager keeps replaced files for 2 s
  // (ReplacedFiles). The first open asks the kernel for a fresh look-up. The second open takes what
  // that look-up has found.
  bool has_name = (*file)->attributes().link_count > 0 || node->unlinked;
  bool same = session || wanted.truncate || node->unlinked ||
              (*file)->attributes().version == node->version();
  bool matches = insisted || (has_name && same);
  if (!matches) {
    if (refuse(thread, node->file)) {
      Status closed = (*file)->close();
      nodes_.end_open(node, write);
      if (!closed) return fail(closed.error());
      return fail(Code::kStale, "mount.open");
    }
    insisted = true;
  }
  if (!insisted) opened_well(thread);
  if (wanted.truncate) node->changed = true;
  Opened opened;
  opened.handle = std::make_unique<Handle>();
  opened.handle->node = node;
  opened.handle->writes = write;
  opened.handle->refreshes = node->refreshes.load();
  opened.handle->direct = direct || insisted;
  opened.handle->file = std::move(*file);
  opened.keep_cache = !session && !write;
  return opened;
}

std::uint64_t Bridge::keep(std::unique_ptr<Handle> handle) {
  Handle* address = handle.get();
  if (!handle->direct) handle->node->cached_opens++;
  if (handle->writes) {
    const WriterLock lock(handle->node->mutex);
    handle->node->writers.push_back(handle->file.get());
  }
  const MutexLock lock(handles_mutex_);
  handles_[address] = std::move(handle);
  return reinterpret_cast<std::uint64_t>(address);
}

void Bridge::open(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  auto node = nodes_.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.open"));
  auto opened = open_node(node, info->flags, fuse_req_ctx(request)->pid);
  if (!opened) return reply(request, fail(opened.error()));
  opened->handle->of_user = fuse_req_ctx(request)->uid != 0;
  const bool truncates = writes(info->flags) && (info->flags & O_TRUNC) != 0;
  if (truncates && kills_set_id(request, nullptr)) kill_set_id(*node, request);
  info->direct_io = opened->handle->direct;
  info->keep_cache = opened->keep_cache;
  info->fh = keep(std::move(opened->handle));
  // The kernel has stopped waiting and sends no release.
  if (fuse_reply_open(request, info) == -ENOENT) end_open(handle_of(info));
}

void Bridge::create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
                    fuse_file_info* info) {
  auto directory = nodes_.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.create"));
  client::OpenFlags wanted{.read = true, .write = true, .create = true};
  wanted.exclusive = (info->flags & O_EXCL) != 0;
  wanted.truncate = (info->flags & O_TRUNC) != 0;
  wanted.append = appends(info->flags, exchange_.allows_mmap());
  auto file =
      filesystem_.create(directory->file, name, wanted,
                         owner_of(request, *directory, mode & ~static_cast<mode_t>(S_IFMT)));
  if (!file) return reply(request, fail(file.error()));
  Attributes attributes = (*file)->attributes();
  auto node = nodes_.find_or_make(attributes, parent, name);
  if (!node) return reply(request, fail(node.error()));
  nodes_.begin_session(*node);
  auto handle = std::make_unique<Handle>();
  handle->node = *node;
  handle->of_user = fuse_req_ctx(request)->uid != 0;
  if (wanted.truncate && attributes.version != 0 && kills_set_id(request, nullptr)) {
    kill_set_id(**node, request);
  }
  handle->writes = true;  // even a file that is created for reading is committed at its close
  handle->file = std::move(*file);
  // A new file without bytes has no pages in the cache: its node can serve its first version.
  (*node)->changed = wanted.truncate && attributes.version != 0;
  handle->refreshes = (*node)->refreshes.load();
  handle->direct = wanted.append || choose_direct(**node, info->flags, false);
  info->direct_io = handle->direct;
  info->keep_cache = false;
  fuse_entry_param entry = entry_of(**node, attributes);
  info->fh = keep(std::move(handle));
  if (fuse_reply_create(request, &entry, info) == -ENOENT) {
    end_open(handle_of(info));
    nodes_.forget(entry.ino, 1);
  }
}

void Bridge::read(fuse_req_t request, std::size_t size, off_t offset, fuse_file_info* info) {
  Handle& handle = handle_of(info);
  auto from = static_cast<std::uint64_t>(offset);
  if (!handle.writes) {
    handle.calls.fetch_add(1, std::memory_order_relaxed);
    handle.call_bytes.fetch_add(size, std::memory_order_relaxed);
  }
  // A lock has made another open of this node go on with the newest version.
  if (const std::uint64_t refreshes = handle.node->refreshes; handle.refreshes != refreshes) {
    if (const Status now = handle.writes ? Status{} : handle.file->refresh(); !now) {
      return reply_for(*handle.node, request, now);
    }
    handle.refreshes = refreshes;
  }
  auto seen = client::view(*handle.file, from, size);
  if (!seen) return reply_for(*handle.node, request, fail(seen.error()));
  if (*seen) {
    counts_.count_read(seen->bytes().size());
    fuse_reply_buf(request, reinterpret_cast<const char*>(seen->bytes().data()),
                   seen->bytes().size());
    return;
  }
  thread_local ReadBuffer buffer;
  if (!buffer.usable()) return reply(request, fail(Code::kNoMemory, "mount.read"));
  MutableByteSpan out = buffer.first(size);
  auto count = handle.file->read(from, out);
  if (!count) return reply_for(*handle.node, request, fail(count.error()));
  counts_.count_read(*count);
  fuse_reply_buf(request, reinterpret_cast<const char*>(out.data()), *count);
}

void Bridge::write(fuse_req_t request, const char* bytes, std::size_t size, off_t offset,
                   fuse_file_info* info) {
  Handle& handle = handle_of(info);
  Node& node = *handle.node;
  auto from = static_cast<std::uint64_t>(offset);
  if (from + size > limits::kFileBytesMax)
    return reply(request, fail(Code::kTooLarge, "mount.write"));
  ByteSpan span(reinterpret_cast<const std::byte*>(bytes), size);
  ReceiveBuffer* received = ReceiveBuffer::of_this_thread();
  Status done = received != nullptr ? received->write(*handle.file, from, span)
                                    : handle.file->write(from, span);
  if (!done) return reply_for(node, request, done);
  counts_.count_write(size);
  handle.calls.fetch_add(1, std::memory_order_relaxed);
  handle.call_bytes.fetch_add(size, std::memory_order_relaxed);
  if (kills_set_id(request, &handle)) kill_set_id(node, request);
  if (!node.changed.load(std::memory_order_relaxed)) node.changed = true;
  if (node.mtime_is_set) {
    const WriterLock lock(node.mutex);
    node.mtime_set.reset();
    node.mtime_is_set = false;
  }
  if (handle.direct && !kernel_drops_pages_ && node.cached_opens > 0) {
    notifier_.post([id = node.id, offset, size](fuse_session* session) {
      fuse_lowlevel_notify_inval_inode(session, id, offset, static_cast<off_t>(size));
    });
  }
  fuse_reply_write(request, size);
}

/// Commits, then sets the modification time that the program has set, if any.
Status Bridge::commit(Handle& handle, bool closes) {
  Node& node = *handle.node;
  STDCHK_TRY(closes && !node.mtime_is_set ? handle.file->flush() : handle.file->commit());
  handle.killed = false;
  Attributes after = handle.file->attributes();
  std::optional<std::int64_t> mtime;
  {
    const WriterLock lock(node.mutex);
    if (node.mtime_set) after.mtime_ns = *node.mtime_set;
    mtime = node.mtime_set;
    node.last = after;
  }
  // A writer without the right to keep set-ID bits has written the committed bytes.
  if (node.set_id_killed.exchange(false)) clear_set_id(node, nullptr, after);
  if (!mtime) return {};
  msg::SetAttributes change;
  change.file = node.file;
  change.mask = static_cast<std::uint32_t>(msg::SetMask::kMtime);
  change.mtime_ns = *mtime;
  STDCHK_TRY(filesystem_.set_attributes(change));
  const WriterLock lock(node.mutex);
  if (node.mtime_set == mtime) {
    node.mtime_set.reset();
    node.mtime_is_set = false;
  }
  return {};
}

/// Commits the file, so that its new version becomes visible: close() waits for this call. The
/// kernel sends one FLUSH per closed descriptor, also when a process ends.
void Bridge::flush(fuse_req_t request, fuse_file_info* info) {
  Handle& handle = handle_of(info);
  const std::uint64_t owner = info->lock_owner;
  if (!handle.writes || handle.node->unlinked) {
    return locker_.closed(handle, owner, [request] { fuse_reply_err(request, 0); });
  }
  CallerState caller = look_at_caller(fuse_req_ctx(request)->pid, fuse_req_ctx(request)->uid);
  bool part = caller == CallerState::kKilled ||
              (caller == CallerState::kUnseen && !options_.commit_unseen_writers);
  if (part) {
    handle.killed = true;
    return locker_.closed(handle, owner, [request] { fuse_reply_err(request, 0); });
  }
  // Commits before the release: the next owner of these locks must see the bytes.
  const Status committed = commit(handle, true);
  locker_.closed(handle, owner, [this, request, node = handle.node, committed] {
    reply_for(*node, request, committed);
  });
}

void Bridge::fsync(fuse_req_t request, fuse_file_info* info) {
  Handle& handle = handle_of(info);
  if (!handle.writes || handle.node->unlinked) {
    fuse_reply_err(request, 0);
    return;
  }
  reply_for(*handle.node, request, handle.file->sync());
}

/// Writes zeros, at most kZerosMax bytes: the caller waits for all of them.
Status Bridge::write_zeros(client::File& file, std::uint64_t from, std::uint64_t end) {
  if (end - from > kZerosMax) return fail(Code::kUnsupported, "mount.fallocate");
  static constexpr std::array<std::byte, 64 * limits::kKiB> kZeros{};
  while (from < end) {
    const std::uint64_t count = std::min<std::uint64_t>(kZeros.size(), end - from);
    STDCHK_TRY(file.write(from, ByteSpan(kZeros).first(count)));
    from += count;
  }
  return {};
}

/// Says kNoSpace when the pool cannot take so many bytes more now. Nothing is reserved: others may
/// take the space before the bytes are written.
Status Bridge::check_room(std::uint64_t bytes) {
  STDCHK_ASSIGN(const auto pool, filesystem_.stat_pool());
  if (bytes > pool.free_bytes + pool.evictable_bytes) {
    return fail(Code::kNoSpace, "mount.fallocate");
  }
  return {};
}

/// fallocate(2). Punches only holes that reach the end of the file. Allocation within the file
/// changes nothing: a range takes space when it is written.
Status Bridge::allocate(Handle& handle, int mode, std::uint64_t from, std::uint64_t end) {
  const std::uint64_t size = handle.file->attributes().size_bytes;
  const bool keeps_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
  const int kind = mode & ~FALLOC_FL_KEEP_SIZE;
  if (kind == FALLOC_FL_PUNCH_HOLE && keeps_size) {
    if (from >= size) return {};
    if (end < size) return fail(Code::kUnsupported, "mount.fallocate");
    handle.node->changed = true;
    STDCHK_TRY(handle.file->truncate(from));
    return handle.file->truncate(size);
  }
  if (kind == FALLOC_FL_ZERO_RANGE) {
    handle.node->changed = true;
    const std::uint64_t in_file = std::min(end, size);
    if (from < in_file) STDCHK_TRY(write_zeros(*handle.file, from, in_file));
  } else if (kind != 0) {
    return fail(Code::kUnsupported, "mount.fallocate");
  }
  if (end <= size) return {};
  STDCHK_TRY(check_room(end - size));
  if (keeps_size) return {};
  handle.node->changed = true;
  return handle.file->truncate(end);
}

void Bridge::fallocate(fuse_req_t request, int mode, off_t offset, off_t length,
                       fuse_file_info* info) {
  Handle& handle = handle_of(info);
  auto from = static_cast<std::uint64_t>(offset);
  auto end = from + static_cast<std::uint64_t>(length);
  if (end > limits::kFileBytesMax) return reply(request, fail(Code::kTooLarge, "mount.fallocate"));
  // The kernel says nothing of it here; on its own file systems it takes the bits away.
  if (fuse_req_ctx(request)->uid != 0) kill_set_id(*handle.node, request);
  reply_for(*handle.node, request, allocate(handle, mode, from, end));
}

/// Ends an open. Drops what a killed process left, unless others still write the file. Commits what
/// was written through a mapping after the last close.
void Bridge::end_open(Handle& handle) {
  NodePtr node = handle.node;
  if (!handle.direct) node->cached_opens--;
  if (!handle.writes) {
    Status closed = handle.file->close();
    if (!closed) log::warning("Closing a reader failed: {}", describe(closed.error()));
  } else {
    bool unfinished = handle.file->dirty() || handle.file->attributes().version == 0;
    bool drop = handle.killed && unfinished && !node->unlinked;
    if (!drop && !node->unlinked && handle.file->dirty()) {
      Status committed = commit(handle, true);
      if (!committed) log::error("A late commit failed: {}", describe(committed.error()));
    }
    {
      const WriterLock lock(node->mutex);
      if (!drop) node->last = handle.file->attributes();
      std::erase(node->writers, handle.file.get());
    }
    if (drop) {
      // Without close(), the File aborts, unless other openers remain.
      log::info("File {}: a signal ended its writer, so its uncommitted bytes are dropped.",
                node->file.value);
      node->changed = true;
    } else if (Status closed = handle.file->close(); !closed && !node->unlinked) {
      log::error("A close failed: {}", describe(closed.error()));
    }
  }
  learn(handle);
  handle.file.reset();
  bool tell = handle.writes && node->changed && !node->unlinked;
  nodes_.end_open(node, handle.writes);
  if (tell) expire_node(node);
  const MutexLock lock(handles_mutex_);
  handles_.erase(&handle);
}

void Bridge::release(fuse_req_t request, fuse_file_info* info) {
  const FileId file = handle_of(info).node->file;
  end_open(handle_of(info));
  if (info->flock_release != 0) locker_.released(file, info->lock_owner);
  fuse_reply_err(request, 0);
}

}  // namespace stdchk::mount
