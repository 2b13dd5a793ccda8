#pragma once

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif
#include <fuse_lowlevel.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/filesystem.h"
#include "core/clock.h"
#include "core/result.h"
#include "fuse/cache_modes.h"
#include "fuse/caller.h"
#include "fuse/init_exchange.h"
#include "fuse/node_table.h"
#include "fuse/notifier.h"
#include "fuse/request_counts.h"

namespace stdchk::mount {

/// How read-only opens go.
enum class ReadMode : std::uint8_t {
  kAuto,    ///< images in large reads around the page cache, where the kernel maps such files too
  kCached,  ///< all through the page cache
  kDirect,  ///< all around it; shared mappings may fail
};

struct BridgeOptions {
  bool commit_unseen_writers = true;  ///< at a FLUSH by a process that cannot be seen
  bool writeback = true;              ///< let the kernel collect small cached writes
  ReadMode read_mode = ReadMode::kAuto;
};

/// A Handle is one open of a regular file; the kernel carries its address as file handle.
struct Handle {
  NodePtr node;
  std::unique_ptr<client::File> file;
  bool writes = false;
  bool direct = false;
  std::atomic<bool> killed{false};      ///< its last FLUSH came from a process that a signal ended
  bool of_user = false;                 ///< opened by another user than root
  std::atomic<std::uint64_t> calls{0};  ///< writes, or reads of a reader
  std::atomic<std::uint64_t> call_bytes{0};
};

/// A DirectoryHandle is one opendir: a snapshot of the entries, taken at offset 0, so that offsets
/// stay.
struct DirectoryHandle {
  NodePtr node;
  std::mutex mutex;
  bool loaded = false;
  std::vector<msg::DirectoryEntry> entries;
};

/// A Bridge answers the kernel's calls by calling a client::Filesystem. It decides nothing about
/// files but which node and which cache an open uses, and whether a FLUSH commits.
///
/// Owns: nodes, handles, the notifier; not the Filesystem.
/// Threads: the calls come on any of the mount's threads, several at once. Cache events come on the
///   library's thread.
/// Errors: the errno of the library's error; each call is bounded as the library's calls are.
class Bridge {
 public:
  Bridge(client::Filesystem& filesystem, Clock& clock, const Attributes& root,
         BridgeOptions options);
  ~Bridge();  ///< drops all handles: what they did not commit is aborted
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  static const fuse_lowlevel_ops& operations();

  /// Lets notices to the kernel go out, once `session` is mounted; stop() before it is destroyed.
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
  void mknod(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode);
  void mkdir(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode);
  void remove(fuse_req_t request, fuse_ino_t parent, const char* name, bool directory);
  void symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name);
  void rename(fuse_req_t request, fuse_ino_t from, const char* name, fuse_ino_t to,
              const char* new_name, unsigned flags);
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
  void opendir(fuse_req_t request, fuse_ino_t node, fuse_file_info* info);
  void readdir(fuse_req_t request, std::size_t size, off_t offset, fuse_file_info* info, bool plus);
  void releasedir(fuse_req_t request, fuse_file_info* info);
  void statfs(fuse_req_t request);
  void setxattr(fuse_req_t request, fuse_ino_t node, const char* name, std::string_view value,
                int flags, bool remove);
  void getxattr(fuse_req_t request, fuse_ino_t node, const char* name, std::size_t size);
  void listxattr(fuse_req_t request, fuse_ino_t node, std::size_t size);

 private:
  /// From the mount's root, as the kernel found it last.
  std::string path_of(const Node& node) const;
  /// As reply(), for a call on an open file, which the log names.
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

  // Directories (bridge_directories.cpp).
  std::shared_ptr<DirectoryHandle> directory_of(const fuse_file_info* info);

  // What the kernel is told (bridge.cpp).
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
  // Set by init(), before which the notifier may be at work.
  std::atomic<bool> can_expire_{false};          ///< the kernel takes "look again", not only "drop"
  std::atomic<bool> kernel_drops_pages_{false};  ///< at direct writes, as kernels from 6.6 on do

  std::mutex handles_mutex_;
  std::unordered_map<Handle*, std::unique_ptr<Handle>> handles_;
  std::unordered_map<DirectoryHandle*, std::shared_ptr<DirectoryHandle>> directories_;

  std::mutex refresh_mutex_;
  std::set<FileId> refresh_;  ///< the next look-up that finds one of these asks the manager
  std::unordered_map<std::int32_t, Time> refused_;  ///< by thread: when its open was refused

  struct FolderMode {
    bool cached = false;
    Time until{};
  };
  std::mutex folder_modes_mutex_;
  std::map<FileId, FolderMode> folder_modes_;
};

/// The names of extended attributes that mean something here.
inline constexpr std::string_view kXattrWriteMode = "user.stdchk.write_mode";
inline constexpr std::string_view kXattrVersion = "user.stdchk.version";
inline constexpr std::string_view kXattrDrained = "user.stdchk.drained";
/// In front of a policy's name: core/policy.h. Of files and folders what holds; set on folders.
inline constexpr std::string_view kXattrPolicy = "user.stdchk.policy.";

/// Answers with success or with the errno of the error.
void reply(fuse_req_t request, const Status& status);
/// Answers with an errno, and counts it.
void reply_error(fuse_req_t request, int number);

inline Handle& handle_of(fuse_file_info* info) { return *reinterpret_cast<Handle*>(info->fh); }

}  // namespace stdchk::mount
