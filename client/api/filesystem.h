#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/api/figures.h"
#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/crypto/secret.h"
#include "core/messages/messages.h"
#include "core/values/types.h"
#include "transport/secure/keyring.h"

/// The blocking interface of the client library, which the mount, the C API and the tools call.
namespace stdchk::client {

/// An early close is committed within this time after it returned, or lost.
inline constexpr auto kEarlyCommit = std::chrono::seconds(60);

/// Says what close() waits for: one proven copy of every byte (kStored), nothing (kEarly), or all
/// copies (kRedundant). With kEarly, a failed commit is reported to the manager, and once by the
/// next open of the file.
enum class CloseMode : std::uint8_t { kStored = 0, kEarly = 1, kRedundant = 2 };

struct Options {
  std::string manager_address;
  /// The member of the pool that the client proves to be. Not for connect_over().
  std::shared_ptr<transport::secure::Keyring> keyring;
  std::string role = "library";
  std::string transport = "auto";  ///< "auto" or a kind of transport, see transport::choices()
  std::uint64_t window_bytes = 0;  ///< 0: limits::kWindowBytesDefault
  /// For chunks read ahead or read recently; 0: a quarter of the window.
  std::uint64_t cache_bytes = 0;
  std::optional<Naming> naming;  ///< unset: the pool's setting
  /// Chunks end where their content says; unset: the pool's setting.
  std::optional<bool> content_cuts;
  std::uint32_t chunk_bytes = 0;   ///< 0: the pool's setting
  std::uint32_t hash_threads = 0;  ///< 0: one for each processor, at most 4
  CloseMode close_mode = CloseMode::kStored;
  /// The number of a Redundancy (core/policy/redundancy.h); 0: the folder's or the pool's setting.
  std::uint32_t copies = 0;
  std::optional<Secret> key;  ///< the key for encrypted chunks; unset: they cannot be read
  /// Encrypt what is written; needs the key, and a pool that does not drain.
  bool encrypts = false;
};

struct OpenFlags {
  bool read = false;
  bool write = false;
  bool create = false;
  bool exclusive = false;
  bool truncate = false;
  /// Each write goes to the end of the file. When all writers of the file in this Filesystem
  /// append, a commit puts their bytes behind the newest version.
  bool append = false;
  /// create() makes a file without a name, whatever the name says (O_TMPFILE). make_link() gives it a
  /// name, which others see after the next commit. To be called before any other commit.
  bool unnamed = false;
};

enum class Seek : std::uint8_t { kData, kHole };

/// The mode and owner of a file that is created.
struct Owner {
  std::uint32_t mode = 0644;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  /// The mode before the caller's umask was applied, for directories with a default access list.
  /// 0: no umask was applied to `mode`.
  std::uint32_t unmasked = 0;
};

/// Figures of one session, from open to close, for OT and AT (observed and achieved throughput).
struct SessionFigures {
  std::uint64_t bytes_written = 0;   ///< written by the application
  std::uint64_t bytes_sent = 0;      ///< sent to benefactors, headers included
  std::uint64_t bytes_existing = 0;  ///< not sent: the pool or this session had an equal chunk
  std::uint64_t bytes_named = 0;     ///< in chunks that got a name
  std::uint64_t bytes_short = 0;     ///< stored in fewer places than the policy asks for
  std::uint64_t manager_calls = 0;
  Duration open_to_stored{};  ///< until the last byte was proven stored
  Duration open_to_close{};   ///< until close() returned
};

/// A File is an open file. All writers of one file in one Filesystem share one session: they see
/// each other's bytes, and a commit commits the bytes of all. A reader sees the newest version that
/// was committed when it opened the file. If this Filesystem also has a session for writing the
/// file, the reader sees that session's bytes.
///
/// Threads: any; calls on one File may overlap.
/// Errors: a call fails when nothing of it has moved for limits::kOperationDeadline. A call of
///   several steps (a close that commits and waits for copies) has this time for each step.
class File {
 public:
  /// Without close(): drops uncommitted bytes. The last opener's destructor aborts the session.
  virtual ~File() = default;
  virtual FileId id() const = 0;
  /// The attributes as this opener sees them now, uncommitted writes included.
  virtual Attributes attributes() const = 0;
  /// Returns the number of bytes read; fewer than asked only at the end of the file. All of them
  /// were checked. A short read far from the read before moves and checks only the parts of 16 KiB
  /// that it touches (docs/decisions/0040).
  virtual Result<std::size_t> read(std::uint64_t offset, MutableByteSpan out) = 0;
  /// Returns the first offset from `offset` on that has data, or that lies in a hole (lseek(2),
  /// SEEK_DATA and SEEK_HOLE). The end of the file counts as a hole. Returns nothing when `offset`
  /// lies behind the last data, or behind the end of the file.
  virtual Result<std::optional<std::uint64_t>> seek(std::uint64_t offset, Seek what) = 0;
  virtual Status write(std::uint64_t offset, ByteSpan bytes) = 0;
  virtual Status truncate(std::uint64_t size_bytes) = 0;
  /// For sequential writing without a copy. The result is a buffer of the window for the file range
  /// from `offset`, at most `bytes` long. Call submit() with the number of bytes filled. After
  /// submit() the buffer belongs to the library again.
  virtual Result<MutableByteSpan> reserve(std::uint64_t offset, std::size_t bytes) = 0;
  virtual Status submit(std::uint64_t offset, std::size_t bytes) = 0;
  /// fsync. For an A.Ni.Tj image: waits until its bytes are stored, and publishes nothing. For any
  /// other file: commits.
  virtual Status sync() = 0;
  /// Commits all bytes written since the last commit, as a new visible version. Idempotent.
  virtual Status commit() = 0;
  /// Commits the written bytes as the content of the drained `version`. Afterwards the content is
  /// in memory again; the file does not change and stays drained. Fails with kStale when `version`
  /// is not the newest version, or is not drained.
  virtual Status commit_as(Version version) = 0;
  /// Like commit(), for a close that follows. With CloseMode::kEarly it returns when the commit has
  /// begun, and the next call reports a failure.
  virtual Status flush() { return commit(); }
  /// Returns true when close() would commit: this opener has written since its last commit, or is
  /// the last opener of a session with uncommitted bytes.
  virtual bool dirty() const = 0;
  /// Drops uncommitted bytes, for all openers of the session. The next open of the name finds the
  /// last committed content.
  virtual void abort() = 0;
  /// Ends this opener, with a commit first if it is dirty(). The bytes of other openers stay
  /// uncommitted until those close. The File must not be used afterwards, whatever close() returns.
  virtual Status close() = 0;
  virtual SessionFigures figures() const = 0;
  /// Commits what was written, then goes on with the newest version: later reads, and the size, are
  /// those of that version. To be called when a lock was taken. Bytes that another opener writes
  /// meanwhile stay.
  virtual Status refresh() { return fail(Code::kUnsupported, "client.refresh"); }
  /// Requires a reader. Returns a reader of the newest version if that version is longer and begins
  /// with all bytes of this version; nullptr otherwise. Limits: 100,000 slices, and 64 MiB that
  /// equal chunk names do not cover. Beyond a limit the answer is nullptr.
  virtual Result<std::unique_ptr<File>> find_grown() { return std::unique_ptr<File>(); }
  /// For a reader: goes on with the version of `grown`, a result of find_grown() of this version.
  virtual void follow(const File& grown) { (void)grown; }
  /// Takes the bytes in [from, to) away, within the size of the file: they read as zeros, and are a
  /// hole for seek(). Fails with kUnsupported when the file has limits::kHolesMax holes that are not
  /// committed: then write zeros.
  virtual Status punch(std::uint64_t /*from*/, std::uint64_t /*to*/) {
    return fail(Code::kUnsupported, "client.punch");
  }
};

/// Notices of changes made elsewhere in the pool, for caches above this library. They are called on
/// the library's own thread and must not call back into the library.
struct CacheEvents {
  std::function<void(FileId directory, const std::string& name)> entry_changed;
  std::function<void(FileId file)> file_changed;
};

/// A Filesystem is a connection to one pool.
///
/// Owns: one reactor thread, the hash threads, the window, links to manager and benefactors.
/// Threads: any.
/// Errors: each wait of a call ends within limits::kOperationDeadline. An open may wait twice: it
///   first waits for a close of the same file.
/// Coherence: open() and lookup_fresh() see every version committed before the call. The others,
///   such as lookup() and read_directory(), may answer from a cache that is at most
///   limits::kCacheLease old. Usually it is fresher, because the manager reports changes.
class Filesystem {
 public:
  static Result<std::unique_ptr<Filesystem>> connect(const Options& options);
  virtual ~Filesystem() = default;

  virtual void set_cache_events(CacheEvents events) = 0;
  virtual msg::PoolConfig config() const = 0;

  virtual Result<Attributes> lookup(FileId parent, std::string_view name) = 0;
  virtual Result<Attributes> lookup_fresh(FileId parent, std::string_view name) = 0;
  virtual Result<Attributes> attributes(FileId file) = 0;
  /// Returns what the manager says now, without what this process has not committed. The holder of a
  /// directory asks, too: nobody tells it which files are drained.
  virtual Result<Attributes> attributes_fresh(FileId file) { return attributes(file); }
  /// Looks up a path such as "a/b/c" from the root. Does not follow symbolic links.
  virtual Result<Attributes> resolve(std::string_view path) = 0;
  /// All entries, sorted by name, without "." and "..".
  virtual Result<std::vector<msg::DirectoryEntry>> read_directory(FileId directory) = 0;
  virtual Result<Attributes> set_attributes(const msg::SetAttributes& change) = 0;
  virtual Result<Attributes> make_directory(FileId parent, std::string_view name, Owner owner) = 0;
  virtual Result<Attributes> make_symlink(FileId parent, std::string_view name,
                                          std::string_view target, Owner owner) = 0;
  virtual Result<std::string> read_symlink(FileId file) = 0;
  /// Makes a FIFO, a socket, or a device with the number `device`.
  virtual Result<Attributes> make_node(FileId parent, std::string_view name, FileType type,
                                       Owner owner, std::uint32_t device) = 0;
  /// Gives a committed file, which is no directory, one more name.
  virtual Result<Attributes> make_link(FileId file, FileId parent, std::string_view name) = 0;
  /// Removes a name. Returns how many names the file still has: 0 is certain; another number may
  /// be out of date.
  virtual Result<std::uint32_t> remove(FileId parent, std::string_view name, bool directory) = 0;
  /// Renames a file. Returns how many names the file still has that lost its name, as remove().
  virtual Result<std::uint32_t> rename(const msg::Rename& change) = 0;
  virtual Status set_xattr(const msg::SetXattr& change) = 0;
  virtual Result<std::vector<std::pair<std::string, std::string>>> xattrs(FileId file) = 0;
  /// Returns the settings in force; of a folder, also its own settings.
  virtual Result<msg::GetPolicy::Reply> policy(FileId file) = 0;
  /// Changes settings of a folder. On a refusal, the text of the Problem is the pool's reason.
  virtual Outcome<void> set_policy(FileId directory, const Policy& changes) = 0;
  virtual Result<msg::ListSets::Reply> sets(FileId directory) = 0;
  virtual Result<msg::StatPool::Reply> stat_pool() = 0;
  /// Returns which copies or parity that version still lacks.
  virtual Result<msg::GetDebt::Reply> debt(FileId file, Version version) = 0;

  virtual Result<std::unique_ptr<File>> open(FileId file, OpenFlags flags) = 0;
  /// Opens `version` of the file for reading. The manager keeps an open version. Fails with kStale
  /// when the version no longer exists.
  virtual Result<std::unique_ptr<File>> open_version(FileId /*file*/, Version /*version*/) {
    return fail(Code::kUnsupported, "client.open_version");
  }
  virtual Result<std::unique_ptr<File>> create(FileId parent, std::string_view name,
                                               OpenFlags flags, Owner owner) = 0;

  /// The whole chunk map of the newest version, for `stdchk ls -l` and `stat`.
  virtual Result<std::pair<Attributes, ChunkMap>> map(FileId file) = 0;
  virtual Result<std::vector<msg::BenefactorInfo>> benefactors() = 0;
  virtual Result<msg::DrainNow::Reply> drain(FileId below) = 0;
  virtual Result<std::vector<msg::ListAborted::Entry>> aborted() = 0;
  /// Takes, changes, or releases a lock. `done` runs once, perhaps before lock() returns, or on the
  /// library's own thread; it must not call back into the library. A request with a ticket may wait
  /// for longer than any deadline: until cancel_lock().
  using LockDone = std::function<void(Result<msg::LockOutcome>)>;
  virtual void lock(const msg::SetLock& /*request*/, LockDone done) {
    done(fail(Code::kUnsupported, "client.lock"));
  }
  /// Ends the wait with this ticket, if it has not ended: its `done` gets kCancelled.
  virtual void cancel_lock(std::uint64_t /*ticket*/) {}
  virtual Result<msg::GetLock::Reply> get_lock(msg::GetLock /*request*/) {
    return fail(Code::kUnsupported, "client.get_lock");
  }
  /// Returns what this client has done so far, for metrics. Fails with kDeadline after `longest`.
  virtual Result<Figures> figures(Duration /*longest*/) {
    return fail(Code::kUnsupported, "client.figures");
  }
  /// Sends any other request to the manager, for the tools that administer a pool.
  virtual Result<msg::Reply> ask(msg::Request request) = 0;
};

}  // namespace stdchk::client
