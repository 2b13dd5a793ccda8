#include "fuse/file_requests.h"

#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "client/blocking/name_leasing.h"
#include "client/blocking/read_view.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "fuse/receive_buffer.h"

namespace stdchk::mount {
namespace {

constexpr std::size_t kReadBytesMax = limits::kMiB;
constexpr std::uint64_t kZerosMax = 1024 * limits::kMiB;  ///< zeros that one fallocate() writes

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

/// Through the page cache, the kernel puts appended bytes at the end as it knows it, and may write
/// whole pages that begin before it. Around the cache the library finds the end, and the commit
/// puts the bytes behind what other mounts have appended.
bool appends(int flags, bool direct) { return direct && (flags & O_APPEND) != 0 && writes(flags); }

/// Writes zeros, at most kZerosMax bytes: the caller waits for all of them.
Status write_zeros(client::File& file, std::uint64_t from, std::uint64_t end) {
  if (end - from > kZerosMax) return fail(Code::kUnsupported, "mount.fallocate");
  static constexpr std::array<std::byte, 64 * limits::kKiB> kZeros{};
  while (from < end) {
    const std::uint64_t count = std::min<std::uint64_t>(kZeros.size(), end - from);
    STDCHK_TRY(file.write(from, ByteSpan(kZeros).first(count)));
    from += count;
  }
  return {};
}

/// Makes a hole of [from, end) in a file of `size` bytes. A file with too many holes gets zeros.
Status make_hole(client::File& file, std::uint64_t from, std::uint64_t end, std::uint64_t size) {
  const Status done = file.punch(from, std::min(end, size));
  if (done || done.error().code != Code::kUnsupported) return done;
  if (end < size) return write_zeros(file, from, end);
  STDCHK_TRY(file.truncate(from));
  return file.truncate(size);
}

/// Returns the number of bytes in the range that have no data: holes, and bytes beyond the end of
/// the file. Counts at most kPiecesMax pieces; the rest of the range counts as data.
std::uint64_t bytes_without_data(client::File& file, std::uint64_t from, std::uint64_t end) {
  const std::uint64_t size = file.attributes().size_bytes;
  const std::uint64_t in_file = std::min(end, size);
  std::uint64_t bytes = end - std::min(end, std::max(from, size));
  constexpr int kPiecesMax = 4096;
  std::uint64_t at = from;
  for (int i = 0; at < in_file && i < kPiecesMax; ++i) {
    const auto data = file.seek(at, client::Seek::kData);
    if (!data) return bytes;
    const std::uint64_t begin = std::min(data->value_or(in_file), in_file);
    bytes += begin - at;
    if (begin == in_file) return bytes;
    const auto hole = file.seek(begin, client::Seek::kHole);
    if (!hole) return bytes;
    at = hole->value_or(in_file);
  }
  return bytes;
}

}  // namespace

FileRequests::FileRequests(const Neighbours& neighbours, bool commit_unseen_writers)
    : neighbours_(neighbours),
      commit_unseen_writers_(commit_unseen_writers),
      locker_(neighbours.filesystem, [this](Handle& handle) { return commit(handle); }) {}

Result<FileRequests::Opened> FileRequests::open_node(const NodePtr& node, int flags,
                                                     std::int32_t thread) {
  bool write = writes(flags);
  bool insisted = false;
  auto held = neighbours_.refused.held(thread, node->file);
  if (held && held->error) {
    neighbours_.refused.end(thread);
    return fail(*held->error);
  }
  // The kernel repeats a refused open once.
  const auto refuse = [&] {
    return !held && neighbours_.refused.refuse(thread, node->file, RefusedCalls::Call::kOpen);
  };
  // The kernel may fail the next write and the next close of this inode, so the open gets another
  // inode.
  if (!node->in_session() && node->times_due.exchange(false)) neighbours_.nodes.detach(node);
  if (neighbours_.nodes.begin_open(node, write, false) == OpenTurn::kRefresh) {
    if (refuse()) return fail(Code::kStale, "mount.open");
    insisted = true;
    neighbours_.nodes.begin_open(node, write, true);
  }
  client::OpenFlags wanted;
  // The kernel reads before small writes into the page cache, even if the application only writes.
  wanted.read = true;
  wanted.write = write;
  wanted.truncate = write && (flags & O_TRUNC) != 0;
  const bool direct = neighbours_.choice.is_direct(*node, flags, insisted);
  wanted.append = appends(flags, direct);
  auto file = neighbours_.filesystem.open(node->file, wanted);
  // The held reader may have an earlier version, so it serves only when the pool has no such file.
  if (!file && is_gone(file.error()) && held && held->file != nullptr && !write)
    file = std::move(held->file);
  if (!file) {
    neighbours_.nodes.end_open(node, write);
    if (!is_gone(file.error())) return fail(file.error());
    // The name now belongs to another file, or to none.
    const bool again = !insisted && refuse();
    return fail(again ? Code::kStale : Code::kNotFound, "mount.open");
  }
  bool session = node->in_session();
  // A file without a name was removed or replaced. The manager keeps replaced files for up to 2 s
  // (ReplacedFiles). The first open asks the kernel for a fresh look-up. The second open takes what
  // that look-up has found, and holds.
  bool has_name = (*file)->attributes().link_count > 0 || node->unlinked;
  bool same = session || wanted.truncate || node->unlinked ||
              (*file)->attributes().version == node->version();
  bool matches = insisted || (has_name && same);
  if (!matches) {
    if (refuse()) {
      Status closed = (*file)->close();
      neighbours_.nodes.end_open(node, write);
      if (!closed) return fail(closed.error());
      return fail(Code::kStale, "mount.open");
    }
    insisted = true;
  }
  neighbours_.refused.end(thread);
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

std::uint64_t FileRequests::add_handle(std::unique_ptr<Handle> handle) {
  Handle* address = handle.get();
  if (!handle->direct) handle->node->cached_opens++;
  {
    const WriterLock lock(handle->node->mutex);
    if (handle->writes) {
      handle->node->writers.push_back(handle->file.get());
    } else {
      handle->place = handle->node->readers.size();
      handle->node->readers.push_back(address);
    }
  }
  const MutexLock lock(mutex_);
  handles_[address] = std::move(handle);
  return reinterpret_cast<std::uint64_t>(address);
}

void FileRequests::open(fuse_req_t request, fuse_ino_t number, fuse_file_info* info) {
  auto node = neighbours_.nodes.find(number);
  if (!node) return reply(request, fail(Code::kStale, "mount.open"));
  auto opened = open_node(node, info->flags, fuse_req_ctx(request)->pid);
  if (!opened) return reply(request, fail(opened.error()));
  opened->handle->of_user = fuse_req_ctx(request)->uid != 0;
  const bool truncates = writes(info->flags) && (info->flags & O_TRUNC) != 0;
  if (truncates && neighbours_.set_id.must_clear(request, nullptr))
    neighbours_.set_id.clear_once(*node, request);
  info->direct_io = opened->handle->direct;
  info->keep_cache = opened->keep_cache;
  info->fh = add_handle(std::move(opened->handle));
  // The kernel has stopped waiting and sends no release.
  if (fuse_reply_open(request, info) == -ENOENT) end_open(handle_of(info));
}

void FileRequests::create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
                          fuse_file_info* info) {
  auto directory = neighbours_.nodes.find(parent);
  if (!directory) return reply(request, fail(Code::kStale, "mount.create"));
  client::OpenFlags wanted{.read = true, .write = true, .create = true};
  wanted.exclusive = (info->flags & O_EXCL) != 0;
  wanted.truncate = (info->flags & O_TRUNC) != 0;
  wanted.append = appends(info->flags, neighbours_.exchange.allows_mmap());
  wanted.unnamed = name == InitExchange::kUnnamed;
  auto file = neighbours_.filesystem.create(
      directory->file, name, wanted,
      owner_of(request, *directory, mode & ~static_cast<mode_t>(S_IFMT)));
  if (!file) return reply(request, fail(file.error()));
  Attributes attributes = (*file)->attributes();
  auto node = neighbours_.nodes.find_or_make(attributes, parent, name);
  if (!node) return reply(request, fail(node.error()));
  neighbours_.refused.end(fuse_req_ctx(request)->pid);
  neighbours_.nodes.begin_session(*node);
  // The mount commits nothing until link() names the file.
  (*node)->unlinked = wanted.unnamed;
  auto handle = std::make_unique<Handle>();
  handle->node = *node;
  handle->of_user = fuse_req_ctx(request)->uid != 0;
  if (wanted.truncate && attributes.version != 0 &&
      neighbours_.set_id.must_clear(request, nullptr)) {
    neighbours_.set_id.clear_once(**node, request);
  }
  handle->writes = true;  // even a file that is created for reading is committed at its close
  handle->file = std::move(*file);
  // A new file without bytes has no pages in the cache: its node can serve its first version.
  (*node)->changed = wanted.truncate && attributes.version != 0;
  handle->refreshes = (*node)->refreshes.load();
  handle->direct = wanted.append || neighbours_.choice.is_direct(**node, info->flags, false);
  info->direct_io = handle->direct;
  info->keep_cache = false;
  fuse_entry_param entry = Entries::entry_of(**node, attributes);
  info->fh = add_handle(std::move(handle));
  if (fuse_reply_create(request, &entry, info) == -ENOENT) {
    end_open(handle_of(info));
    neighbours_.nodes.forget(entry.ino, 1);
  }
}

void FileRequests::read(fuse_req_t request, std::size_t size, off_t offset, fuse_file_info* info) {
  Handle& handle = handle_of(info);
  auto from = static_cast<std::uint64_t>(offset);
  if (!handle.writes) {
    handle.calls.fetch_add(1, std::memory_order_relaxed);
    handle.call_bytes.fetch_add(size, std::memory_order_relaxed);
  }
  // A lock has made another open of this node go on with the newest version.
  if (const std::uint64_t refreshes = handle.node->refreshes; handle.refreshes != refreshes) {
    if (const Status now = handle.writes ? Status{} : handle.file->refresh(); !now) {
      return reply_for(neighbours_.nodes, *handle.node, request, now);
    }
    handle.refreshes = refreshes;
  }
  auto seen = client::view(*handle.file, from, size);
  if (!seen) return reply_for(neighbours_.nodes, *handle.node, request, fail(seen.error()));
  if (*seen) {
    neighbours_.counts.count_read(seen->bytes().size());
    fuse_reply_buf(request, reinterpret_cast<const char*>(seen->bytes().data()),
                   seen->bytes().size());
    return;
  }
  thread_local ReadBuffer buffer;
  if (!buffer.usable()) return reply(request, fail(Code::kNoMemory, "mount.read"));
  MutableByteSpan out = buffer.first(size);
  auto count = handle.file->read(from, out);
  if (!count) return reply_for(neighbours_.nodes, *handle.node, request, fail(count.error()));
  neighbours_.counts.count_read(*count);
  fuse_reply_buf(request, reinterpret_cast<const char*>(out.data()), *count);
}

void FileRequests::write(fuse_req_t request, const char* bytes, std::size_t size, off_t offset,
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
  if (!done) return reply_for(neighbours_.nodes, node, request, done);
  neighbours_.counts.count_write(size);
  handle.calls.fetch_add(1, std::memory_order_relaxed);
  handle.call_bytes.fetch_add(size, std::memory_order_relaxed);
  if (neighbours_.set_id.must_clear(request, &handle)) neighbours_.set_id.clear_once(node, request);
  if (!node.changed.load(std::memory_order_relaxed)) node.changed = true;
  if (node.mtime_is_set) {
    const WriterLock lock(node.mutex);
    node.mtime_set.reset();
    node.mtime_is_set = false;
  }
  if (handle.direct) neighbours_.cache.drop_pages(node, offset, size);
  fuse_reply_write(request, size);
}

/// Commits, then sets the modification time that the program has set, if any.
Status FileRequests::commit(Handle& handle, bool closes) {
  Node& node = *handle.node;
  STDCHK_TRY(closes && !node.mtime_is_set ? handle.file->flush() : handle.file->commit());
  handle.killed = false;
  handle.synced = false;
  Attributes after = handle.file->attributes();
  std::optional<std::int64_t> mtime;
  {
    const WriterLock lock(node.mutex);
    if (node.mtime_set) after.mtime_ns = *node.mtime_set;
    mtime = node.mtime_set;
    node.last = after;
  }
  // A writer without the right to keep set-ID bits has written the committed bytes.
  neighbours_.set_id.clear_at_commit(node);
  if (!mtime) return {};
  msg::SetAttributes change;
  change.file = node.file;
  change.mask = static_cast<std::uint32_t>(msg::SetMask::kMtime);
  change.mtime_ns = *mtime;
  STDCHK_TRY(neighbours_.filesystem.set_attributes(change));
  const WriterLock lock(node.mutex);
  if (node.mtime_set == mtime) {
    node.mtime_set.reset();
    node.mtime_is_set = false;
  }
  return {};
}

/// Commits the file, so that its new version becomes visible: close() waits for this call. The
/// kernel sends one FLUSH per closed descriptor, also when a process ends.
void FileRequests::flush(fuse_req_t request, fuse_file_info* info) {
  Handle& handle = handle_of(info);
  const std::uint64_t owner = info->lock_owner;
  if (!handle.writes || handle.node->unlinked) {
    return locker_.closed(handle, owner, [request] { fuse_reply_err(request, 0); });
  }
  const fuse_ctx& caller = *fuse_req_ctx(request);
  callers_.inspect(caller.pid, caller.uid, [this, request, &handle, owner](CallerState state) {
    end_writes(request, handle, owner, state);
  });
}

void FileRequests::end_writes(fuse_req_t request, Handle& handle, std::uint64_t owner,
                              CallerState caller) {
  const bool part =
      caller == CallerState::kKilled || (caller == CallerState::kUnseen && !commit_unseen_writers_);
  if (part) {
    handle.killed = true;
    return locker_.closed(handle, owner, [request] { fuse_reply_err(request, 0); });
  }
  // Commits before the release: the next owner of these locks must see the bytes.
  const Status committed = commit(handle, true);
  locker_.closed(handle, owner, [this, request, node = handle.node, committed] {
    reply_for(neighbours_.nodes, *node, request, committed);
  });
}

void FileRequests::fsync(fuse_req_t request, fuse_file_info* info) {
  Handle& handle = handle_of(info);
  Status done;
  if (handle.writes && !handle.node->unlinked) {
    handle.synced = true;
    done = handle.file->sync();
  }
  // Also the file's earlier changes of names and attributes must be durable.
  if (done) done = client::sync_names(neighbours_.filesystem, handle.node->file);
  reply_for(neighbours_.nodes, *handle.node, request, done);
}

/// Says kNoSpace when the pool cannot take so many bytes more now. Nothing is reserved: others may
/// take the space before the bytes are written.
Status FileRequests::check_room(std::uint64_t bytes) {
  STDCHK_ASSIGN(const auto pool, neighbours_.filesystem.stat_pool());
  if (bytes > pool.free_bytes + pool.evictable_bytes) {
    return fail(Code::kNoSpace, "mount.fallocate");
  }
  return {};
}

/// fallocate(2). A range of zeros is a hole. Allocation within the file changes nothing: a range
/// takes space when it is written.
Status FileRequests::allocate(Handle& handle, int mode, std::uint64_t from, std::uint64_t end) {
  const std::uint64_t size = handle.file->attributes().size_bytes;
  const bool keeps_size = (mode & FALLOC_FL_KEEP_SIZE) != 0;
  const int kind = mode & ~FALLOC_FL_KEEP_SIZE;
  if (kind == FALLOC_FL_PUNCH_HOLE && keeps_size) {
    if (from >= size) return {};
    handle.node->changed = true;
    return make_hole(*handle.file, from, end, size);
  }
  if (kind == FALLOC_FL_ZERO_RANGE) {
    handle.node->changed = true;
    if (from < size) STDCHK_TRY(make_hole(*handle.file, from, end, size));
  } else if (kind != 0) {
    return fail(Code::kUnsupported, "mount.fallocate");
  }
  STDCHK_TRY(check_room(bytes_without_data(*handle.file, from, end)));
  if (end <= size) return {};
  if (keeps_size) return {};
  handle.node->changed = true;
  return handle.file->truncate(end);
}

void FileRequests::fallocate(fuse_req_t request, int mode, off_t offset, off_t length,
                             fuse_file_info* info) {
  Handle& handle = handle_of(info);
  auto from = static_cast<std::uint64_t>(offset);
  auto end = from + static_cast<std::uint64_t>(length);
  if (end > limits::kFileBytesMax) return reply(request, fail(Code::kTooLarge, "mount.fallocate"));
  // Local file systems take the set-ID bits away here. The kernel does not ask a FUSE mount to, and
  // would keep the earlier mode in its cache.
  const bool clears = fuse_req_ctx(request)->uid != 0;
  if (clears && neighbours_.set_id.clear_once(*handle.node, request))
    neighbours_.cache.drop_attributes(*handle.node);
  reply_for(neighbours_.nodes, *handle.node, request, allocate(handle, mode, from, end));
}

/// lseek(2) with SEEK_DATA and SEEK_HOLE; the kernel does all others itself. The answer ENOSYS
/// would switch these two off for all files of the mount, until it ends.
void FileRequests::lseek(fuse_req_t request, off_t offset, int whence, fuse_file_info* info) {
  const auto what = whence == SEEK_HOLE ? client::Seek::kHole : client::Seek::kData;
  locker_.seek(request, handle_of(info), static_cast<std::uint64_t>(offset), what);
}

/// Ends an open. Drops what a killed process left, unless others still write the file. Commits what
/// was written through a mapping after the last close. Without such bytes, the locks of the open end
/// first: the kernel waits for no RELEASE, and others may ask for a lock already.
void FileRequests::end_open(Handle& handle, std::optional<std::uint64_t> flock_owner) {
  NodePtr node = handle.node;
  const bool commits = handle.writes && handle.file->dirty();
  if (!commits) locker_.ended(handle, flock_owner);
  if (!handle.direct) node->cached_opens--;
  if (!handle.writes) {
    {
      const WriterLock lock(node->mutex);
      Handle* const last = node->readers.back();
      last->place = handle.place;
      node->readers[handle.place] = last;
      node->readers.pop_back();
    }
    Status closed = handle.file->close();
    if (!closed) log::warning("Closing a reader failed: {}", describe(closed.error()));
  } else {
    bool unfinished =
        handle.file->dirty() || handle.synced || handle.file->attributes().version == 0;
    bool drop = handle.killed && unfinished && !node->unlinked;
    if (!drop && !node->unlinked && handle.file->dirty()) {
      Status committed = commit(handle, true);
      if (!committed) log::error("A late commit failed: {}", describe(committed.error()));
    }
    {
      const WriterLock lock(node->mutex);
      if (!drop) {
        Attributes after = handle.file->attributes();
        // utimens() may have set the time since that version was committed.
        if (after.version == node->last.version) after.mtime_ns = node->last.mtime_ns;
        node->last = after;
      }
      std::erase(node->writers, handle.file.get());
    }
    if (drop) {
      // Without close(), the File aborts, unless other openers remain.
      log::info(
          "File {}: a signal ended its writer, so bytes that it has not committed are dropped.",
          node->file.value);
      node->changed = true;
    } else if (Status closed = handle.file->close(); !closed && !node->unlinked) {
      log::error("A close failed: {}", describe(closed.error()));
    }
  }
  neighbours_.choice.record_calls(handle);
  handle.file.reset();
  bool tell = handle.writes && node->changed && !node->unlinked;
  neighbours_.nodes.end_open(node, handle.writes);
  if (tell) neighbours_.cache.expire_node(*node);
  if (commits) locker_.ended(handle, flock_owner);
  const MutexLock lock(mutex_);
  handles_.erase(&handle);
}

void FileRequests::release(fuse_req_t request, fuse_file_info* info) {
  std::optional<std::uint64_t> flock_owner;
  if (info->flock_release != 0) flock_owner = info->lock_owner;
  end_open(handle_of(info), flock_owner);
  fuse_reply_err(request, 0);
}

}  // namespace stdchk::mount
