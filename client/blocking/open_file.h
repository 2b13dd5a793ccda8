#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "client/api/filesystem.h"
#include "client/blocking/read_view.h"
#include "client/engine/engine.h"

namespace stdchk::client {

/// An OpenFile is one opener of a file, in steps that never wait. A BlockingFile adds the waits;
/// the simulator drives an OpenFile itself. After kWouldBlock, wait for Shared::changed and call
/// again.
///
/// Threads: any, as the attributes say. Functions with a Lock release it while they read, copy or
///   hash.
class OpenFile {
 public:
  /// A writer. `session` counts this opener already.
  OpenFile(Engine& engine, SessionPtr session, bool append);
  /// A reader of the newest version. `session` is this process's session for the file, if any.
  OpenFile(Engine& engine, FileId file, SessionPtr session, VersionMapPtr map);

  FileId id() const { return file_; }
  bool writes() const { return writes_; }
  const SessionPtr& session() const { return session_; }

  /// Succeeds when the file can be read and written; a reader needs the first page of the map.
  Status opened(Lock& lock) const STDCHK_REQUIRES(engine_lock);
  Attributes attributes(Lock& lock) const STDCHK_REQUIRES(engine_lock);
  /// The owner of the file at the open; msg::kUnknownUid for a new file.
  std::uint32_t owner() STDCHK_REQUIRES(engine_lock);
  /// Copies bytes from `offset` + `done` on to `out`, and adds their number to `done`. Succeeds
  /// when `out` is full or the file ends.
  Status read(Lock& lock, std::uint64_t offset, MutableByteSpan out, std::size_t& done)
      STDCHK_REQUIRES(engine_lock);
  /// Moves `at` forward to the next data or hole. `found`: there is one. See File::seek().
  Status seek(Lock& lock, Seek what, std::uint64_t& at, bool& found) STDCHK_REQUIRES(engine_lock);
  /// Returns where the bytes lie in the cache, if they are in one chunk. Otherwise returns an empty
  /// view.
  Result<ReadView> view(Lock& lock, std::uint64_t offset, std::size_t bytes)
      STDCHK_REQUIRES(engine_lock);
  /// Takes bytes from `bytes` and adds their number to `done`. Success means that all were taken.
  Status write(Lock& lock, std::uint64_t offset, ByteSpan bytes, std::size_t& done)
      STDCHK_REQUIRES(engine_lock);
  /// Reserves the end of the file for the next `bytes` of an appending opener. Returns their
  /// offset.
  Result<std::uint64_t> append_at(Lock& lock, std::uint64_t bytes) STDCHK_REQUIRES(engine_lock);
  bool appends() const { return append_; }
  Result<MutableByteSpan> reserve(Lock& lock, std::uint64_t offset, std::size_t bytes)
      STDCHK_REQUIRES(engine_lock);
  Status submit(Lock& lock, std::uint64_t offset, std::size_t bytes) STDCHK_REQUIRES(engine_lock);
  /// Makes the borrowed slot the chunk at `offset`. The slot belongs to the window afterwards.
  Status adopt(Lock& lock, Slot& slot, std::uint64_t offset) STDCHK_REQUIRES(engine_lock);
  /// Continues with the newest version, which has these attributes; see File::refresh(). After
  /// kWouldBlock, call it again after a change.
  Status refresh(Lock& lock, const Attributes& newest) STDCHK_REQUIRES(engine_lock);
  /// The map of a reader's version; nullptr while the reader reads a session. A reader whose
  /// session has ended, and which has not read since, gets the newest version.
  VersionMapPtr version_map() STDCHK_REQUIRES(engine_lock);
  /// Requires readers without sessions. Finds the number of bytes with which both versions begin,
  /// as far as whole slices tell. Leaves `same_bytes` empty when the files have too many slices.
  /// After kWouldBlock, call it again after a change.
  Status compare(const OpenFile& other, std::optional<std::uint64_t>& same_bytes)
      STDCHK_REQUIRES(engine_lock);
  /// For readers: goes on with the version of `other`, if that is newer.
  void follow(const OpenFile& other) STDCHK_REQUIRES(engine_lock);
  /// Gives back slots that were reserved and not submitted.
  void drop_reserved() STDCHK_REQUIRES(engine_lock);
  /// Drops the session and the map.
  void release(Lock& lock) STDCHK_REQUIRES(engine_lock);

 private:
  struct Run;
  struct Reserved {
    Slot* slot = nullptr;
    std::size_t bytes = 0;
  };
  bool uses_session() const STDCHK_REQUIRES(engine_lock) {
    return session_ != nullptr && !session_->ended();
  }
  Result<std::uint64_t> size(Lock& lock) STDCHK_REQUIRES(engine_lock);
  Result<Slot*> begin_write(std::uint64_t offset, std::size_t& length) STDCHK_REQUIRES(engine_lock);
  Result<Run> locate(std::uint64_t offset, std::uint64_t length) STDCHK_REQUIRES(engine_lock);
  Result<Run> locate_base(const VersionMapPtr& map, std::uint64_t offset, std::uint64_t length)
      STDCHK_REQUIRES(engine_lock);
  Status find_lost_chunk_again(const Run& run, const Error& why) STDCHK_REQUIRES(engine_lock);
  VersionMapPtr base() STDCHK_REQUIRES(engine_lock);
  void read_ahead(std::uint64_t offset, std::uint64_t length) STDCHK_REQUIRES(engine_lock);
  void copy_from_slot(Lock& lock, const Run& run, MutableByteSpan to) STDCHK_REQUIRES(engine_lock);
  Result<bool> read_part(Lock& lock, Run& run, MutableByteSpan to) STDCHK_REQUIRES(engine_lock);

  Engine& engine_;
  const FileId file_;
  SessionPtr session_;
  VersionMapPtr map_;
  std::shared_ptr<const void> counted_;  ///< counts this object as a reader
  const bool writes_;
  const bool append_;
  std::map<std::uint64_t, Reserved> reserved_;
  /// The last read began more than a chunk away from the end of the read before.
  bool jumps_ = false;
  std::uint64_t last_read_ = 0;    ///< offset of the last read
  std::uint64_t next_read_ = 0;    ///< offset at which a sequential reader continues
  std::uint64_t ahead_until_ = 0;  ///< all up to this offset was fetched ahead
  std::uint64_t ahead_chunks_ = 0;
};

}  // namespace stdchk::client
