#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "client/write/session_core.h"
#include "client/write/written_file.h"

namespace stdchk::client {

/// A Committer makes a version of the bytes that a session has written. A sync only waits
/// until all bytes are stored.
///
/// | step     | leaves when                                                       |
/// |----------|-------------------------------------------------------------------|
/// | none     | start() -> flushing                                               |
/// | flushing | all chunks are stored -> sending                                  |
/// | sending  | the manager has answered the last part -> none; new manager -> flushing |
///
/// Threads: any, with the engine's lock held; plan() on the reactor's thread.
/// Errors: a commit that fails makes the session fail.
class Committer {
 public:
  /// Calls `committed` when the manager has confirmed a commit, before any waiting call returns.
  Committer(SessionCore& core, WrittenFile& written, std::function<void()> committed);

  // ---- sync
  /// Begins to wait until all bytes that are now in the window are stored.
  CompletionPtr start_sync() STDCHK_REQUIRES(engine_lock);
  bool has_syncs() const STDCHK_REQUIRES(engine_lock) { return !syncs_.empty(); }
  /// Ends the syncs whose slots are all stored; all, when the session has failed.
  void finish_syncs() STDCHK_REQUIRES(engine_lock);

  // ---- commit
  bool under_way() const STDCHK_REQUIRES(engine_lock) { return step_ != Step::kNone; }
  /// True when the commit under way ends the session.
  bool ends_session() const STDCHK_REQUIRES(engine_lock) { return under_way() && ends_; }
  /// Joins the commit under way. `end`: it also ends the session, unless it was sent already.
  CompletionPtr join(bool end) STDCHK_REQUIRES(engine_lock);
  CompletionPtr start(bool end) STDCHK_REQUIRES(engine_lock);
  /// Declares the next commit to be the content of that drained version (see File::commit_as).
  void commit_next_as(Version version) STDCHK_REQUIRES(engine_lock) { same_as_ = version; }
  /// Marks the commit under way as one without a waiting caller: it succeeds or fails within
  /// kEarlyCommit.
  void promise() STDCHK_REQUIRES(engine_lock);
  bool promised() const STDCHK_REQUIRES(engine_lock) { return promised_; }
  /// Fails a promised commit at its deadline. Calls to the manager end by their own deadlines.
  void keep_promise_in_time() STDCHK_REQUIRES(engine_lock);
  /// Sends the next part. `all_stored`: every written byte is in a stored chunk. `abandoned`:
  /// extents to which a write may still land.
  void plan(Work& work, bool all_stored, const std::vector<Extent>& abandoned)
      STDCHK_REQUIRES(engine_lock);
  /// Records that the manager has committed, as an answer says, or as a new manager says.
  void committed(const msg::Commit::Reply& reply) STDCHK_REQUIRES(engine_lock);
  /// The session has failed.
  void failed(const Error& why) STDCHK_REQUIRES(engine_lock);
  /// A new manager does not know of the commit: it begins again.
  void begin_again() STDCHK_REQUIRES(engine_lock);
  /// True when a commit that also closes the session has been answered.
  bool has_closed() const STDCHK_REQUIRES(engine_lock) { return closed_; }

  // ---- figures
  /// Records that a chunk was stored or dropped. `slot_age`: the age of the oldest slot that held
  /// bytes of the chunk.
  void chunk_ended(std::uint64_t slot_age) STDCHK_REQUIRES(engine_lock);
  /// Starts the clock of the next commit at the first write after a commit.
  void begin_change() STDCHK_REQUIRES(engine_lock);
  /// Returns the most chunks in one message; fewer when chunks have many places.
  std::size_t page_chunks_max() const STDCHK_REQUIRES(engine_lock);

 private:
  enum class Step : std::uint8_t { kNone, kFlushing, kSending };
  struct Sync {
    std::uint64_t until = 0;  ///< age of the newest slot that the sync waits for
    CompletionPtr done;
    std::uint64_t chunks_ended = 0;  ///< chunks of these slots that ended meanwhile
  };
  void build(const std::vector<Extent>& abandoned) STDCHK_REQUIRES(engine_lock);
  void send_part(Work& work) STDCHK_REQUIRES(engine_lock);
  void on_part(std::uint64_t generation, rpc::Answer answer) STDCHK_REQUIRES(engine_lock);
  void finish(Status status) STDCHK_REQUIRES(engine_lock);
  void count() STDCHK_REQUIRES(engine_lock);

  SessionCore& core_;
  WrittenFile& written_ STDCHK_GUARDED_BY(engine_lock);
  const std::function<void()> committed_;
  std::vector<Sync> syncs_;
  Step step_ = Step::kNone;
  bool ends_ = false;
  bool closed_ = false;
  Version same_as_ = 0;  ///< drained version that the next commit brings back; 0: none
  bool in_flight_ = false;
  bool promised_ = false;  ///< nobody waits for the commit under way
  Time promised_by_{};
  bool promise_timed_ = false;
  CompletionPtr done_;
  std::vector<msg::Commit> parts_;
  std::size_t next_part_ = 0;
  Time changed_from_;  ///< time of the open; after a commit, of the first write
  std::uint64_t bytes_committed_ = 0;
};

}  // namespace stdchk::client
