#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/api/filesystem.h"
#include "core/files/file_locks.h"

namespace stdchk::test {

using Bytes = std::vector<std::byte>;

/// A MemoryFile is a file, directory or symbolic link of a MemoryPool.
struct MemoryFile {
  Attributes attributes;
  std::shared_ptr<const Bytes> content = std::make_shared<Bytes>();
  std::map<std::string, FileId> children;
  std::string target;
  std::map<std::string, std::string> xattrs;
  Policy policy;
  /// the creating connection, which alone sees the file before its first commit
  const void* pending_of = nullptr;
  FileId parent;
  std::string name;
};

class MemoryFilesystem;

/// A MemoryPool is a pool in memory that several MemoryFilesystems share. It has the names,
/// versions and session semantics of docs/internals/architecture.md, so that tests can use the
/// mount alone.
///
/// Threads: any. Not: bounded, durable or fast.
class MemoryPool {
 public:
  MemoryPool();

  std::mutex mutex;
  std::map<FileId, std::shared_ptr<MemoryFile>> files;
  /// files whose names a rename gave to others, and that can still be opened; the oldest goes first
  std::map<FileId, std::shared_ptr<MemoryFile>> replaced;
  std::size_t replaced_max = 10000;
  /// files that are open, or were
  std::map<FileId, std::weak_ptr<MemoryFile>> opened;
  std::vector<MemoryFilesystem*> connections;
  std::vector<msg::ListAborted::Entry> aborted;
  std::uint64_t next_file = 2;
  std::uint64_t capacity_bytes = std::uint64_t{16} << 30;
  std::int64_t last_ns = 0;
  std::map<std::pair<FileId, msg::LockSpace>, FileLocks> locks;
  struct Wait {
    ClientId client;
    std::uint64_t ticket = 0;
    FileLock wanted;
    client::Filesystem::LockDone done;
  };
  std::vector<Wait> lock_waits;
  std::uint64_t next_client = 1;

  std::optional<FileLock> excludes_lock(const FileLock& wanted);
  /// Grants waiting requests that nothing excludes any more.
  std::vector<client::Filesystem::LockDone> grant_locks();
  /// The time of day in nanoseconds; never repeats.
  std::int64_t now_ns();
  std::shared_ptr<MemoryFile> find(FileId id);
};

/// The session that all writers of one file on one connection share.
struct MemorySession {
  std::shared_ptr<MemoryFile> file;
  Bytes bytes;                 ///< the file as this session sees it
  std::size_t base_bytes = 0;  ///< length of the session's base version
  bool writes_anywhere = false;
  /// begin -> end of written ranges, which do not touch
  std::map<std::uint64_t, std::uint64_t> written;
  bool cut = false;
  std::uint64_t cut_bytes = 0;
  bool set_size = false;
  bool dirty = false;
  std::int64_t mtime_ns = 0;
  Version version = 0;
  int openers = 0;
  std::mutex mutex;

  void mark(std::uint64_t from, std::uint64_t to);
  void forget_changes();
};

/// A MemoryFilesystem is one connection to a MemoryPool: the client::Filesystem for tests of the
/// mount.
class MemoryFilesystem final : public client::Filesystem {
 public:
  explicit MemoryFilesystem(std::shared_ptr<MemoryPool> pool);
  ~MemoryFilesystem() override;

  void set_cache_events(client::CacheEvents events) override;
  msg::PoolConfig config() const override { return {1 << 20, 4, Naming::kAuto, "", 0}; }
  Result<Attributes> lookup(FileId parent, std::string_view name) override;
  Result<Attributes> lookup_fresh(FileId parent, std::string_view name) override;
  Result<Attributes> attributes(FileId file) override;
  Result<Attributes> resolve(std::string_view path) override;
  Result<std::vector<msg::DirectoryEntry>> read_directory(FileId directory) override;
  Result<Attributes> set_attributes(const msg::SetAttributes& change) override;
  Result<Attributes> make_directory(FileId parent, std::string_view name,
                                    client::Owner owner) override;
  Result<Attributes> make_symlink(FileId parent, std::string_view name, std::string_view target,
                                  client::Owner owner) override;
  Result<std::string> read_symlink(FileId file) override;
  Result<Attributes> make_node(FileId parent, std::string_view name, FileType type,
                               client::Owner owner, std::uint32_t device) override;
  Result<Attributes> make_link(FileId file, FileId parent, std::string_view name) override;
  Result<std::uint32_t> remove(FileId parent, std::string_view name, bool directory) override;
  Result<std::uint32_t> rename(const msg::Rename& change) override;
  Status set_xattr(const msg::SetXattr& change) override;
  Result<std::vector<std::pair<std::string, std::string>>> xattrs(FileId file) override;
  Result<msg::GetPolicy::Reply> policy(FileId file) override;
  Outcome<void> set_policy(FileId directory, const Policy& changes) override;
  Result<msg::ListSets::Reply> sets(FileId) override {
    return fail(Code::kUnsupported, "memory.sets");
  }
  Result<msg::StatPool::Reply> stat_pool() override;
  Result<msg::GetDebt::Reply> debt(FileId, Version) override { return msg::GetDebt::Reply{}; }
  Result<std::unique_ptr<client::File>> open(FileId file, client::OpenFlags flags) override;
  Result<std::unique_ptr<client::File>> create(FileId parent, std::string_view name,
                                               client::OpenFlags flags,
                                               client::Owner owner) override;
  Result<std::pair<Attributes, ChunkMap>> map(FileId file) override;
  Result<std::vector<msg::BenefactorInfo>> benefactors() override;
  Result<msg::DrainNow::Reply> drain(FileId below) override;
  Result<std::vector<msg::ListAborted::Entry>> aborted() override;
  void lock(const msg::SetLock& request, LockDone done) override;
  void cancel_lock(std::uint64_t ticket) override;
  Result<msg::GetLock::Reply> get_lock(msg::GetLock request) override;
  Result<msg::Reply> ask(msg::Request) override { return fail(Code::kUnsupported, "test"); }

 private:
  friend class MemoryOpenFile;

  std::shared_ptr<MemoryFile> child(FileId parent, std::string_view name);
  Result<std::shared_ptr<MemoryFile>> make(FileId parent, std::string_view name, FileType type,
                                           client::Owner owner);
  void unlink_entry(MemoryFile& parent, const std::string& name);
  Attributes seen(const MemoryFile& file);
  std::unique_ptr<client::File> open_locked(std::shared_ptr<MemoryFile> file,
                                            client::OpenFlags flags);
  Status commit(MemorySession& session);
  void end(const std::shared_ptr<MemorySession>& session, bool list_as_aborted);
  void tell_others(FileId file, FileId parent, const std::string& name);

  FileLock lock_of(const msg::SetLock& request) const;

  std::shared_ptr<MemoryPool> pool_;
  ClientId number_;
  std::map<FileId, std::shared_ptr<MemorySession>> sessions_;  ///< guarded by the pool's mutex
  std::mutex events_mutex_;
  client::CacheEvents events_;
};

}  // namespace stdchk::test
