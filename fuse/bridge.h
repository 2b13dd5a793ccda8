#pragma once

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif
#include <fuse_lowlevel.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "fuse/cache_modes.h"
#include "fuse/caller.h"
#include "fuse/handle.h"
#include "fuse/init_exchange.h"
#include "fuse/locker.h"
#include "fuse/node_table.h"
#include "fuse/notifier.h"
#include "fuse/request_counts.h"

namespace stdchk::mount {

/// A ReadMode says how read-only opens use the kernel's page cache.
enum class ReadMode : std::uint8_t {
  kAuto,    ///< images with large reads go around it, if the kernel maps such files too
  kCached,  ///< all opens go through it
  kDirect,  ///< all opens go around it; shared mappings may fail
};

struct BridgeOptions {
  bool commit_unseen_writers = true;  ///< when a FLUSH comes from a process that cannot be seen
  bool writeback = true;              ///< let the kernel collect small cached writes
  ReadMode read_mode = ReadMode::kAuto;
};

/// A DirectoryHandle is one opendir. It keeps a snapshot of the entries, taken at offset 0, so that
/// offsets stay valid.
struct DirectoryHandle {
  NodePtr node;
  Mutex mutex;
  bool loaded STDCHK_GUARDED_BY(mutex) = false;
  std::vector<msg::DirectoryEntry> entries STDCHK_GUARDED_BY(mutex);
};

/// A Bridge answers the kernel's calls by calls of a client::Filesystem. It decides only which node
/// and which cache an open uses, and whether a FLUSH commits.
///
/// Owns: nodes, handles, the notifier; not the Filesystem.
/// Threads: the kernel's calls come on any of the mount's threads, several at once. Cache events
///   come on the library's thread.
/// Errors: answers the errno of the library's error. A call takes as long as the library's calls
///   may.
class Bridge {
 public:
  Bridge(client::Filesystem& filesystem, Clock& clock, const Attributes& root,
         BridgeOptions options);
  ~Bridge();  ///< drops all handles, which aborts what they did not commit
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  static const fuse_lowlevel_ops& operations();

  /// Begins to send notices to the kernel, which must have mounted `session`. Call stop() before
  /// the session is destroyed.
  void start(fuse_session* session);
  void stop();

  InitExchange& init_exchange() { return exchange_; }
  RequestCounts& counts() { return counts_; }
  const Clock& clock() const { return clock_; }

  // The kernel's calls, in the order of fuse_lowlevel_ops.
  void init(fuse_conn_info* connection);
  void lookup(fuse_req_t request, fuse_ino_t parent, const char* name);
  void forget(fuse_ino_t node, std::uint64_t count);
  void getattr(fuse_req_t request, fuse_ino_t node, fuse_file_info* info);
  void setattr(fuse_req_t request, fuse_ino_t node, struct stat* wanted, int mask,
               fuse_file_info* info);
  void readlink(fuse_req_t request, fuse_ino_t node);
  void mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device);
  void mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode);
  void remove(fuse_req_t request, fuse_ino_t parent, const char* name, bool directory);
  void symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name);
  void rename(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to,
              const char* new_name, unsigned flags);
  void link(fuse_req_t request, fuse_ino_t node, fuse_ino_t parent, const char* name);
  void open(fuse_req_t request, fuse_ino_t node, fuse_file_info* info);
  void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
              fuse_file_info* info);
  void read(fuse_req_t request, std::size_t size, off_t offset, fuse_file_info* info);
  void write(fuse_req_t request, const char* bytes, std::size_t size, off_t offset,
             fuse_file_info* info);
  void flush(fuse_req_t request, fuse_file_info* info);
  void release(fuse_req_t request, fuse_file_info* info);
  void fsync(fuse_req_t request, fuse_file_info* info);
  void fallocate(fuse_req_t request, int mode, off_t offset, off_t length, fuse_file_info* info);
  /// fcntl(2): `sleep` for F_SETLKW.
  void setlk(fuse_req_t request, fuse_file_info* info, const struct flock& lock, bool sleep);
  void getlk(fuse_req_t request, fuse_file_info* info, const struct flock& lock);
  void flock(fuse_req_t request, fuse_file_info* info, int operation);
  void opendir(fuse_req_t request, fuse_ino_t node, fuse_file_info* info);
  void readdir(fuse_req_t request, std::size_t size, off_t offset, fuse_file_info* info, bool plus);
  void releasedir(fuse_req_t request, fuse_file_info* info);
  void statfs(fuse_req_t request);
  void setxattr(fuse_req_t request, fuse_ino_t node, const char* name, std::string_view value,
                int flags, bool remove);
  void getxattr(fuse_req_t request, fuse_ino_t node, const char* name, std::size_t size);
  void listxattr(fuse_req_t request, fuse_ino_t node, std::size_t size);

 private:
  /// The path from the mount's root, as the kernel last found the node.
  std::string path_of(const Node& node) const;
  /// Does what reply() does for a call on an open file, and names the file in the log.
  void reply_for(const Node& node, fuse_req_t request, const Status& status);

  // Attributes and entries (bridge_attributes.cpp).
  Attributes view(Node& node);
  struct stat stat_of(const Attributes& attributes) const;
  fuse_entry_param entry_of(const Node& node, const Attributes& attributes) const;
  Result<fuse_entry_param> make_entry(const Attributes& attributes, fuse_ino_t parent,
                                      std::string_view name);
  void reply_entry(fuse_req_t request, const Attributes& attributes, fuse_ino_t parent,
                   std::string_view name);
  Status truncate(const NodePtr& node, Handle* handle, std::uint64_t size);
  void lost_name(Node& node, std::uint32_t names_left);
  Status change_attributes(const NodePtr& node, const msg::SetAttributes& change);
  Status set_policy(const Node& node, std::string_view name, std::string_view value);
  void get_policy(fuse_req_t request, const Node& node, std::string_view name, std::size_t size);
  client::Owner owner_of(fuse_req_t request, const Node& parent, mode_t mode) const;

  // Opens (bridge_files.cpp).
  struct Opened {
    std::unique_ptr<Handle> handle;
    bool keep_cache = false;
  };
  Result<Opened> open_node(const NodePtr& node, int flags, std::int32_t thread);
  bool refuse(std::int32_t thread, FileId file);
  void opened_well(std::int32_t thread);
  bool choose_direct(Node& node, int flags, bool insisted);
  bool kills_set_id(fuse_req_t request, const Handle* handle) const;
  void kill_set_id(Node& node, fuse_req_t request);
  void clear_set_id_of_pool(Node& node, fuse_req_t request);
  void clear_set_id(Node& node, fuse_req_t request, const Attributes& now);
  void learn(Handle& handle);
  bool folder_wants_cache(FileId directory);
  std::uint64_t keep(std::unique_ptr<Handle> handle);
  Status commit(Handle& handle, bool closes = false);
  void end_open(Handle& handle);
  static Status write_zeros(client::File& file, std::uint64_t from, std::uint64_t end);
  Status check_room(std::uint64_t bytes);
  Status allocate(Handle& handle, int mode, std::uint64_t from, std::uint64_t end);

  // Directories (bridge_directories.cpp).
  std::shared_ptr<DirectoryHandle> directory_of(const fuse_file_info* info);

  // Notices to the kernel (bridge.cpp).
  void expire_entry(fuse_ino_t parent, const std::string& name);
  void expire_node(const NodePtr& node);
  void entry_changed(FileId directory, const std::string& name);
  void file_changed(FileId file);

  client::Filesystem& filesystem_;
  Clock& clock_;
  const BridgeOptions options_;
  RequestCounts counts_;
  NodeTable nodes_;
  CacheModes write_modes_;
  CacheModes read_modes_;
  InitExchange exchange_;
  Notifier notifier_;
  Locker locker_;
  // Atomic, because the notifier may run before init() sets them.
  /// The kernel can look a name up again instead of dropping it.
  std::atomic<bool> can_expire_{false};
  /// The kernel drops cached pages at direct writes (since Linux 6.6).
  std::atomic<bool> kernel_drops_pages_{false};

  Mutex handles_mutex_;
  std::unordered_map<Handle*, std::unique_ptr<Handle>> handles_ STDCHK_GUARDED_BY(handles_mutex_);
  std::unordered_map<DirectoryHandle*, std::shared_ptr<DirectoryHandle>> directories_
      STDCHK_GUARDED_BY(handles_mutex_);

  Mutex refresh_mutex_;
  /// The next look-up that finds one of these files asks the manager.
  std::set<FileId> refresh_ STDCHK_GUARDED_BY(refresh_mutex_);
  /// By thread, the time when its open was refused.
  std::unordered_map<std::int32_t, Time> refused_ STDCHK_GUARDED_BY(refresh_mutex_);

  struct FolderMode {
    bool cached = false;
    Time until{};
  };
  Mutex folder_modes_mutex_;
  std::map<FileId, FolderMode> folder_modes_ STDCHK_GUARDED_BY(folder_modes_mutex_);
};

/// Extended attributes with a meaning in the mount.
inline constexpr std::string_view kXattrWriteMode = "user.stdchk.write_mode";
inline constexpr std::string_view kXattrVersion = "user.stdchk.version";
inline constexpr std::string_view kXattrDrained = "user.stdchk.drained";
/// Prefix of a policy's name (core/policy/policy.h). Reading gives the value in force; only folders
/// can be set.
inline constexpr std::string_view kXattrPolicy = "user.stdchk.policy.";

/// Answers with success, or with the errno of the error.
void reply(fuse_req_t request, const Status& status);
/// Answers with an errno, and counts the error.
void reply_error(fuse_req_t request, int number);

inline Handle& handle_of(fuse_file_info* info) { return *reinterpret_cast<Handle*>(info->fh); }

}  // namespace stdchk::mount
