#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "client/write/chunk_ledger.h"
#include "client/write/chunk_writer.h"
#include "client/write/committer.h"
#include "client/write/equal_chunks.h"
#include "client/write/hash_queue.h"
#include "client/write/placement.h"
#include "client/write/resumer.h"
#include "client/write/session_core.h"
#include "client/write/slot_cutter.h"
#include "client/write/space_keeper.h"
#include "client/write/written_file.h"

namespace stdchk::client {

/// A Session writes one file for this process, from the first open to the last close.
/// The file client/write/session.cpp begins with the way of the bytes through the parts.
///
/// Owns: what was written and is not committed; its extents; its window slots while they fill.
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
  std::uint64_t size() const { return written_.size(); }
  bool dirty() const { return written_.dirty(); }
  bool ended() const { return core_.state == SessionCore::State::kEnded; }
  bool ending() const { return core_.state != SessionCore::State::kOpen; }
  const std::optional<Error>& error() const { return core_.error; }
  Attributes attributes() const;
  SessionFigures figures() const { return core_.figures; }
  void count_call() { ++core_.figures.manager_calls; }
  /// True when the folder's policy makes a close wait for all copies.
  bool waits_for_copies() const { return waits_for_copies_; }
  /// The number of benefactors that each chunk is written to, if there is space.
  std::uint32_t places() const { return core_.places; }

  // ---- writing: any thread, lock held. kWouldBlock: wait for a change and try again.
  /// Returns a slot for the bytes from `offset` on. Shortens `length` to what fits there.
  Result<Slot*> begin_write(std::uint64_t offset, std::size_t& length);
  /// Ends begin_write(): the bytes are in the slot. Returns a chunk whose CRC the caller should
  /// compute now, or nullptr.
  OutChunkPtr end_write(Slot& slot, std::uint64_t offset, std::size_t length);
  /// Takes a borrowed slot that holds the whole chunk at `offset`. Returns as end_write() does.
  Result<OutChunkPtr> adopt(Slot& slot, std::uint64_t offset);
  Status truncate(std::uint64_t size_bytes);
  /// Moves the end of the file for an append, and returns the old end.
  Result<std::uint64_t> extend(std::uint64_t bytes);

  // ---- cutting and hashing: any thread, lock held
  SlotCutter& cutter() { return cutter_; }
  HashQueue& hashes() { return hashes_; }
  /// True when the reactor's thread copies bytes itself and has fewer than two chunks to copy. It
  /// should compute the CRC then, which brings the bytes into its processor's cache.
  bool mover_idles() const { return writer_.mover_idles(hashes_.mover_count()); }
  const SeriesNaming& naming() const { return *core_.naming; }
  /// Takes a chunk with its CRC and, if wanted, its name.
  void hashed(const OutChunkPtr& chunk);

  // ---- versions: any thread, lock held
  /// Begins to store all that was written until now. Does not wait for later writes.
  CompletionPtr start_sync();
  /// Begins to make a version of all that was written until now. Joins the commit under way, if
  /// there is one, because writes wait for it. With `end` the session ends too.
  Result<CompletionPtr> start_commit(bool end);
  /// Has the promised commit end the session. Returns false when no commit was promised.
  bool end_after_promised_commit() { return committer_.promised() && start_commit(true); }
  Committer& committer() { return committer_; }
  const Committer& committer() const { return committer_; }
  /// Drops what is not committed, and ends the session.
  void abort(Code why);

  // ---- reading: lock held
  const Overlay& overlay() const { return written_.overlay(); }
  std::uint64_t cut() const { return written_.cut(); }
  EqualChunks& equal() { return equal_; }
  /// Returns the base version's map, and fetches it if necessary; nullptr when the base is empty.
  VersionMapPtr base();
  Shared& shared() { return core_.host.shared(); }

  // ---- reactor's thread, lock held
  void plan(Work& work);
  void written(const ChunkWrite& write, const Status& status) { writer_.written(write, status); }
  void benefactor_gone(BenefactorId benefactor);
  /// Fails the session, which the manager has ended.
  void fenced();
  /// Continues with a manager of another epoch, which does not know the session. Reports what is
  /// stored, and begins again what was under way.
  void manager_changed();
  /// Fails the session, and drops what is not stored. Chunks that are with hash threads, calls or
  /// the transport are dropped when they come back.
  void fail_with(Error why);
  /// Breaks the cycles of pointers between the session and its chunks, because the client ends.
  void let_go();

  // ---- a file without a version: its clients tell a restarted manager of it
  Resumer& resumer() { return resumer_; }
  const Resumer& resumer() const { return resumer_; }
  /// True until the present manager has accepted the session.
  bool is_unknown() const { return resumer_.under_way() && !core_.error.has_value(); }

  std::uint32_t openers = 0;  ///< Files that write through this session
  bool kicked = false;        ///< the host is about to call plan()

 private:
  Status may_write(std::uint64_t end) const;
  void plan_end(Work& work);
  void end();

  SessionCore core_;
  const bool waits_for_copies_;
  WrittenFile written_;
  Committer committer_;
  SpaceKeeper space_;
  ChunkLedger ledger_;
  EqualChunks equal_;
  ChunkWriter writer_;
  Placement placement_;
  HashQueue hashes_;
  SlotCutter cutter_;
  Resumer resumer_;
  bool close_sent_ = false;
};
using SessionPtr = std::shared_ptr<Session>;

}  // namespace stdchk::client
