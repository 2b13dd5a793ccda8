#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "client/write/chunk_ledger.h"
#include "client/write/chunk_placer.h"
#include "client/write/chunk_writer.h"
#include "client/write/committer.h"
#include "client/write/equal_chunks.h"
#include "client/write/hash_queue.h"
#include "client/write/resumer.h"
#include "client/write/session_core.h"
#include "client/write/slot_cutter.h"
#include "client/write/space_keeper.h"
#include "client/write/written_file.h"

namespace stdchk::client {

/// A Session writes one file for this process, from the first open to the last close.
/// The file client/write/session.cpp begins with the way of the bytes through the parts.
///
/// Owns: the uncommitted bytes, with their extents, and the window slots that are being filled.
/// Threads: any, with the engine's lock held; plan() on the reactor's thread only.
/// Errors: the first error that cannot be mended stays: every later write, sync and commit returns
///   it.
/// Not: usable after it has ended.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  /// `naming` belongs to the file's series. The session ignores it where policy turns names off.
  Session(SessionHost& host, const msg::OpenSession& request, msg::OpenSession::Reply opened,
          std::shared_ptr<SeriesNaming> naming);
  ~Session();

  FileId file() const { return core_.file; }
  SessionId id() const { return core_.id; }
  bool ended() const STDCHK_REQUIRES(engine_lock) {
    return core_.state == SessionCore::State::kEnded;
  }
  bool ending() const STDCHK_REQUIRES(engine_lock) {
    return core_.state != SessionCore::State::kOpen;
  }
  const std::optional<Error>& error() const STDCHK_REQUIRES(engine_lock) { return core_.error; }
  Attributes attributes() const STDCHK_REQUIRES(engine_lock);
  SessionFigures& figures() STDCHK_REQUIRES(engine_lock) { return core_.figures; }
  /// The number of benefactors that each chunk is written to, if there is space.
  std::uint32_t places() const STDCHK_REQUIRES(engine_lock) { return core_.places; }

  // ---- writing: any thread, lock held. kWouldBlock: wait for a change and try again.
  /// Returns a slot for the bytes from `offset` on. Shortens `length` to what fits there.
  Result<Slot*> begin_write(std::uint64_t offset, std::size_t& length) STDCHK_REQUIRES(engine_lock);
  /// Ends begin_write(): the bytes are in the slot. Returns a chunk whose CRC the caller should
  /// compute now, or nullptr.
  OutChunkPtr end_write(Slot& slot, std::uint64_t offset, std::size_t length)
      STDCHK_REQUIRES(engine_lock);
  /// Takes a borrowed slot that holds the whole chunk at `offset`. Returns as end_write() does.
  Result<OutChunkPtr> adopt(Slot& slot, std::uint64_t offset) STDCHK_REQUIRES(engine_lock);
  Status truncate(std::uint64_t size_bytes) STDCHK_REQUIRES(engine_lock);
  /// Takes the bytes in [from, to) away; see File::punch().
  Status punch(std::uint64_t from, std::uint64_t to) STDCHK_REQUIRES(engine_lock);
  /// Notes a new opener. When all openers only append, commits move what was appended behind the
  /// newest version.
  void note_opener(bool appends) STDCHK_REQUIRES(engine_lock) {
    core_.appends = core_.appends.value_or(true) && appends;
  }
  /// Goes on with the newest version, which has these attributes. kWouldBlock while a commit is
  /// under way. Does nothing while bytes are not committed.
  Status refresh(const Attributes& newest) STDCHK_REQUIRES(engine_lock);
  /// Moves the end of the file for an append, and returns the old end.
  Result<std::uint64_t> extend(std::uint64_t bytes) STDCHK_REQUIRES(engine_lock);

  /// Finds boundaries of content-defined chunks; for hash threads, without the lock.
  const BoundaryFinder& boundaries() const { return cutter_.boundaries(); }

  // ---- cutting and hashing: any thread, lock held
  SlotCutter& cutter() STDCHK_REQUIRES(engine_lock) { return cutter_; }
  HashQueue& hashes() STDCHK_REQUIRES(engine_lock) { return hashes_; }
  const SeriesNaming& naming() const STDCHK_REQUIRES(engine_lock) { return *core_.naming; }
  /// Takes a chunk with its CRC and, if wanted, its name.
  void hashed(const OutChunkPtr& chunk) STDCHK_REQUIRES(engine_lock);

  // ---- versions: any thread, lock held
  /// Begins to store all that was written until now. Does not wait for later writes.
  CompletionPtr start_sync() STDCHK_REQUIRES(engine_lock);
  /// Begins to make a version of all that was written until now. Joins the commit under way, if
  /// there is one, because writes wait for it. With `end` the session ends too. A session without
  /// uncommitted bytes ends with the reactor's next work, and at once at the second such call.
  Result<CompletionPtr> start_commit(bool end) STDCHK_REQUIRES(engine_lock);
  Committer& committer() STDCHK_REQUIRES(engine_lock) { return committer_; }
  const Committer& committer() const STDCHK_REQUIRES(engine_lock) { return committer_; }
  /// Drops uncommitted bytes, and ends the session.
  void abort(Code why) STDCHK_REQUIRES(engine_lock);

  // ---- reading: lock held
  /// The file as this session has changed it.
  const WrittenFile& content() const STDCHK_REQUIRES(engine_lock) { return written_; }
  EqualChunks& equal() STDCHK_REQUIRES(engine_lock) { return equal_; }
  /// Returns the base version's map, and fetches it if necessary; nullptr when the base is empty.
  VersionMapPtr base() STDCHK_REQUIRES(engine_lock);
  Shared& shared() { return core_.host.shared(); }

  // ---- reactor's thread, lock held
  void plan(Work& work) STDCHK_REQUIRES(engine_lock);
  ChunkWriter& writer() STDCHK_REQUIRES(engine_lock) { return writer_; }
  void benefactor_gone(BenefactorId benefactor) STDCHK_REQUIRES(engine_lock);
  /// Fails the session, which the manager has ended.
  void fenced() STDCHK_REQUIRES(engine_lock);
  /// Continues with a manager of another epoch, which does not know the session. Reports the
  /// stored chunks, and restarts the work that was under way.
  void manager_changed() STDCHK_REQUIRES(engine_lock);
  /// Fails the session, and drops chunks that are not stored. Chunks that are with hash threads,
  /// calls or the transport are dropped when they come back.
  void fail_with(Error why) STDCHK_REQUIRES(engine_lock);
  /// Breaks the cycles of pointers between the session and its chunks, because the client ends.
  void let_go() STDCHK_REQUIRES(engine_lock);

  // ---- a file without a version: its clients tell a restarted manager of it
  Resumer& resumer() STDCHK_REQUIRES(engine_lock) { return resumer_; }
  const Resumer& resumer() const STDCHK_REQUIRES(engine_lock) { return resumer_; }

  const bool waits_for_copies;  ///< the folder's policy makes a close wait for all copies
  std::uint32_t openers = 0;    ///< Files that write through this session
  bool scheduled = false;       ///< the host is about to call plan()

 private:
  Status may_write(std::uint64_t end) const STDCHK_REQUIRES(engine_lock);
  void plan_end(Work& work) STDCHK_REQUIRES(engine_lock);
  void end() STDCHK_REQUIRES(engine_lock);

  SessionCore core_;
  WrittenFile written_ STDCHK_GUARDED_BY(engine_lock);
  Committer committer_;
  SpaceKeeper space_;
  ChunkLedger ledger_;
  EqualChunks equal_;
  ChunkWriter writer_;
  ChunkPlacer placer_;
  HashQueue hashes_;
  SlotCutter cutter_;
  Resumer resumer_;
  bool close_sent_ = false;
};
using SessionPtr = std::shared_ptr<Session>;

}  // namespace stdchk::client
