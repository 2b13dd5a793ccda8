#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/figures.h"
#include "core/clock.h"
#include "core/messages/messages.h"
#include "core/result.h"
#include "core/secret.h"
#include "core/types.h"

/// The blocking interface of the client library: what the mount, the C API and the tools call.
namespace stdchk::client {

/// What was closed early is committed by then, or lost.
inline constexpr auto kEarlyCommit = std::chrono::seconds(60);

/// What close() waits for: one proven copy of every byte; nothing; or all copies. With kEarly a
/// commit that fails is told by the next open of the file, once, and to the manager.
enum class CloseMode : std::uint8_t { kStored = 0, kEarly = 1, kRedundant = 2 };

struct Options {
  std::string manager_address;
  msg::Secret secret;
  std::string role = "library";
  std::string transport = "auto";  ///< "auto" or a kind, see transport::choices()
  std::uint64_t window_bytes = 0;  ///< 0: limits::kWindowBytesDefault
  std::uint64_t cache_bytes = 0;   ///< chunks read ahead or lately read; 0: a quarter of the window
  std::optional<Naming> naming;    ///< unset: the pool's
  std::optional<bool> content_cuts;  ///< chunks end where their content says; unset: the pool's
  std::uint32_t chunk_bytes = 0;     ///< 0: the pool's
  std::uint32_t hash_threads = 0;    ///< 0: chosen by the number of processors
  CloseMode close_mode = CloseMode::kStored;
  /// The number of a Redundancy (core/redundancy.h); 0: as the folder or the pool says.
  std::uint32_t copies = 0;
  std::optional<Secret> key;  ///< opens encrypted chunks; unset: they cannot be read
  bool encrypts = false;      ///< what is written; needs the key, and a pool that does not drain
};

struct OpenFlags {
  bool read = false;
  bool write = false;
  bool create = false;
  bool exclusive = false;
  bool truncate = false;
  bool append = false;
};

/// Whose name a created file gets.
struct Owner {
  std::uint32_t mode = 0644;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
};

/// Counts of one open-to-close, for OT and AT.
struct SessionFigures {
  std::uint64_t bytes_written = 0;   ///< by the application
  std::uint64_t bytes_sent = 0;      ///< to benefactors, headers included
  std::uint64_t bytes_existing = 0;  ///< answered as existing, not sent
  std::uint64_t bytes_named = 0;     ///< that got a name
  std::uint64_t bytes_short = 0;     ///< stored in fewer places than they should be written to
  std::uint64_t manager_calls = 0;
  Duration open_to_stored{};  ///< the last byte was proven stored
  Duration open_to_close{};   ///< the close returned
};

/// A File is an open file. All opens of one file for writing through one Filesystem share one
/// session: they see each other's bytes, and a commit commits them all. An open for reading only
/// sees the newest committed version as of its open; if a session for writing is open in this
/// Filesystem, it sees that session's bytes.
///
/// Threads: any; calls on one File may overlap.
/// Errors: each call returns when nothing of it has moved for limits::kOperationDeadline, at the
///   latest; one of several steps (a close that commits and waits for copies) counts each.
class File {
 public:
  virtual ~File() =
      default;  ///< without close(): uncommitted bytes are dropped, the session aborted
  virtual FileId id() const = 0;
  /// As this opener sees the file now.
  virtual Attributes attributes() const = 0;
  /// Bytes read; fewer than asked only at the end of the file.
  virtual Result<std::size_t> read(std::uint64_t offset, MutableByteSpan out) = 0;
  virtual Status write(std::uint64_t offset, ByteSpan bytes) = 0;
  virtual Status truncate(std::uint64_t size_bytes) = 0;
  /// Zero-copy writing, sequential: a buffer of the window to fill, at most `bytes` long, for the
  /// file range from `offset`; then submit what was filled. The buffer is the library's again after
  /// submit.
  virtual Result<MutableByteSpan> reserve(std::uint64_t offset, std::size_t bytes) = 0;
  virtual Status submit(std::uint64_t offset, std::size_t bytes) = 0;
  /// fsync: for an A.Ni.Tj image its bytes become stored, private; for other files it commits.
  virtual Status sync() = 0;
  /// Commits what was written since the last commit. Idempotent. A new version becomes visible.
  virtual Status commit() = 0;
  /// Commits what was written as all that `version` of the file has in the drain directory: it is
  /// in memory then, and the file stays what it was, and drained. kStale when that version is not
  /// the newest any more, or not drained.
  virtual Status commit_as(Version version) = 0;
  /// commit() for who is about to close: with CloseMode::kEarly it returns when the commit has
  /// begun, and a failure shows at the next call.
  virtual Status flush() { return commit(); }
  /// True when close() would commit: this opener has written since its last commit, or is the last
  /// one of a session with bytes that were not committed.
  virtual bool dirty() const = 0;
  /// Drops what was not committed, for all openers of the session: who opens the name next finds
  /// what was there before.
  virtual void abort() = 0;
  /// The end of this opener, after commit() if it is dirty(): what another opener is in the middle
  /// of is left to that one. The File cannot be used after it, whatever it returns.
  virtual Status close() = 0;
  virtual SessionFigures figures() const = 0;
};

/// What happened elsewhere in the pool, for caches above this library. Called on the library's own
/// thread; must not call back into it.
struct CacheEvents {
  std::function<void(FileId directory, const std::string& name)> entry_changed;
  std::function<void(FileId file)> file_changed;
};

/// A Filesystem is a connection to one pool.
///
/// Owns: one reactor thread, the hash threads, the window, links to manager and benefactors.
/// Threads: any. Errors: each wait of a call ends within limits::kOperationDeadline; an open has
///   two, one for a close of the file that is under way.
/// Coherence: open() and lookup_fresh() see every version committed before they were called;
///   lookup(), attributes() and read_directory() may be answered from a cache that is at most
///   limits::kCacheLease old, and usually less, because the manager tells of changes.
class Filesystem {
 public:
  static Result<std::unique_ptr<Filesystem>> connect(const Options& options);
  virtual ~Filesystem() = default;

  virtual void set_cache_events(CacheEvents events) = 0;
  virtual msg::PoolConfig config() const = 0;

  virtual Result<Attributes> lookup(FileId parent, std::string_view name) = 0;
  virtual Result<Attributes> lookup_fresh(FileId parent, std::string_view name) = 0;
  virtual Result<Attributes> attributes(FileId file) = 0;
  /// From the root, "a/b/c". Follows no symbolic links.
  virtual Result<Attributes> resolve(std::string_view path) = 0;
  /// All entries, sorted by name, without "." and "..".
  virtual Result<std::vector<msg::DirectoryEntry>> read_directory(FileId directory) = 0;
  virtual Result<Attributes> set_attributes(const msg::SetAttributes& change) = 0;
  virtual Result<Attributes> make_directory(FileId parent, std::string_view name, Owner owner) = 0;
  virtual Result<Attributes> make_symlink(FileId parent, std::string_view name,
                                          std::string_view target, Owner owner) = 0;
  virtual Result<std::string> read_symlink(FileId file) = 0;
  virtual Status remove(FileId parent, std::string_view name, bool directory) = 0;
  virtual Status rename(const msg::Rename& change) = 0;
  virtual Status set_xattr(const msg::SetXattr& change) = 0;
  virtual Result<std::vector<std::pair<std::string, std::string>>> xattrs(FileId file) = 0;
  /// Of a folder, its own settings and those that hold; of a file, those that hold.
  virtual Result<msg::GetPolicy::Reply> policy(FileId file) = 0;
  virtual Status set_policy(FileId directory, const Policy& changes) = 0;
  virtual Result<msg::ListSets::Reply> sets(FileId directory) = 0;
  virtual Result<msg::StatPool::Reply> stat_pool() = 0;
  /// What copies or parity that version still lacks.
  virtual Result<msg::GetDebt::Reply> debt(FileId file, Version version) = 0;

  virtual Result<std::unique_ptr<File>> open(FileId file, OpenFlags flags) = 0;
  virtual Result<std::unique_ptr<File>> create(FileId parent, std::string_view name,
                                               OpenFlags flags, Owner owner) = 0;

  /// The newest version's whole chunk map, for `stdchk ls -l` and `stat`.
  virtual Result<std::pair<Attributes, ChunkMap>> map(FileId file) = 0;
  virtual Result<std::vector<msg::BenefactorInfo>> benefactors() = 0;
  virtual Result<msg::DrainNow::Reply> drain(FileId below) = 0;
  virtual Result<std::vector<msg::ListAborted::Entry>> aborted() = 0;
  /// What this client has done so far, for metrics. Waits at most `longest`: kDeadline then.
  virtual Result<Figures> figures(Duration /*longest*/) {
    return fail(Code::kUnsupported, "client.figures");
  }
  /// For those who look after the pool: any other request to the manager.
  virtual Result<msg::Reply> ask(msg::Request request) = 0;
};

}  // namespace stdchk::client
