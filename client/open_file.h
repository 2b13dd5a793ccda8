#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "client/engine.h"
#include "client/filesystem.h"
#include "client/read_view.h"

namespace stdchk::client {

/// An OpenFile is one opener of a file, as steps that never wait: the code that File and a
/// simulator share. kWouldBlock: wait for Shared::changed, then call again.
///
/// Threads: any, with the engine's lock held where a Lock is passed; reads, copies and hashes let
///   go of it for a while.
class OpenFile {
 public:
  /// A writer: `session` counts it as an opener already.
  OpenFile(Engine& engine, SessionPtr session, bool reads, bool append);
  /// A reader of the newest version; `session` is that of this process, if there is one.
  OpenFile(Engine& engine, FileId file, SessionPtr session, VersionMapPtr map);

  FileId id() const { return file_; }
  bool writes() const { return writes_; }
  const SessionPtr& session() const { return session_; }

  /// Everything that can be had is there. A reader's first page of the map.
  Status opened(Lock& lock) const;
  Attributes attributes(Lock& lock) const;
  /// The user whose file it was when this was opened; msg::kUnknownUid of a new file. Lock held.
  std::uint32_t owner();
  /// Adds to `done` what it copied to `out` from `offset` + `done` on. Success: nothing is left.
  Status read(Lock& lock, std::uint64_t offset, MutableByteSpan out, std::size_t& done);
  /// Where the bytes lie in the cache, when they are in one chunk; else an empty view.
  Result<ReadView> view(Lock& lock, std::uint64_t offset, std::size_t bytes);
  /// Adds to `done` what it took. Success: nothing is left.
  Status write(Lock& lock, std::uint64_t offset, ByteSpan bytes, std::size_t& done);
  /// Where an appending opener's next `bytes` go.
  Result<std::uint64_t> append_at(Lock& lock, std::uint64_t bytes);
  bool appends() const { return append_; }
  Result<MutableByteSpan> reserve(Lock& lock, std::uint64_t offset, std::size_t bytes);
  Status submit(Lock& lock, std::uint64_t offset, std::size_t bytes);
  /// The borrowed slot becomes the chunk at `offset`. The slot is the window's afterwards.
  Status adopt(Lock& lock, Slot& slot, std::uint64_t offset);
  /// What was reserved and not submitted holds no bytes.
  void drop_reserved();
  /// Lets go of everything. Lock held.
  void release(Lock& lock);

 private:
  struct Run;
  struct Reserved {
    Slot* slot = nullptr;
    std::size_t bytes = 0;
  };
  bool through_session() const { return session_ != nullptr && !session_->ended(); }
  Result<std::uint64_t> size(Lock& lock);
  Result<Run> locate(std::uint64_t offset, std::uint64_t length);
  Result<Run> locate_base(const VersionMapPtr& map, std::uint64_t offset, std::uint64_t length);
  Status look_again(const Run& run, const Error& why);
  VersionMapPtr base();
  void read_ahead(std::uint64_t offset, std::uint64_t length);
  void copy_from_slot(Lock& lock, const Run& run, MutableByteSpan to);

  Engine& engine_;
  const FileId file_;
  SessionPtr session_;
  VersionMapPtr map_;
  std::shared_ptr<const void> counted_;  ///< as a reader
  const bool writes_;
  const bool append_;
  std::map<std::uint64_t, Reserved> reserved_;
  std::uint64_t last_read_ = 0;    ///< where the last read began
  std::uint64_t next_read_ = 0;    ///< where a sequential reader goes on
  std::uint64_t ahead_until_ = 0;  ///< asked for ahead up to here
  std::uint64_t ahead_chunks_ = 0;
};

}  // namespace stdchk::client
