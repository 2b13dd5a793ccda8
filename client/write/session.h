#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "client/api/filesystem.h"
#include "client/net/peers.h"
#include "client/net/shared.h"
#include "client/read/version_map.h"
#include "client/write/content_cutter.h"
#include "client/write/grant_set.h"
#include "client/write/overlay.h"
#include "client/write/series_naming.h"
#include "client/write/window.h"
#include "core/chunk/naming.h"
#include "core/messages/messages.h"

namespace stdchk::client {

class Session;

/// An OutChunk is a run of bytes that a session sends: cut from a slot, hashed, placed, written.
///
/// | step     | bytes are in | leaves when                                              |
/// |----------|--------------|----------------------------------------------------------|
/// | hashing  | slot         | CRC, and name if wanted, known -> asking, carving, stored|
/// | asking   | slot         | sent in a Place batch -> asked                           |
/// | asked    | slot         | answered: existing -> stored, else -> carving            |
/// | carving  | slot         | extents were carved -> writing                           |
/// | writing  | slot         | delivered to all -> stored; failed -> carving, elsewhere |
/// | stored   | the extents  |                                                          |
/// | dropped  | nowhere      | nothing refers to it, or the session has failed          |
struct OutChunk final {
  enum class Step : std::uint8_t {
    kHashing,
    kAsking,
    kAsked,
    kCarving,
    kWriting,
    kStored,
    kDropped
  };
  std::shared_ptr<Session> session;  ///< set while in the pipeline
  Chunk chunk;                       ///< its copies include those that are being written
  std::uint64_t file_offset = 0;
  std::uint64_t live_bytes = 0;  ///< bytes of the overlay that refer to it
  Segments segments;             ///< where its bytes are in the window; empty when stored
  /// Index among the chunks that begin in its first slot; decides where its header lies.
  std::uint32_t order = 0;
  std::uint32_t failures = 0;
  std::uint32_t writing = 0;  ///< number of writes under way
  Step step = Step::kHashing;
  std::uint32_t plain_crc = 0;  ///< CRC32C of the bytes as the application wrote them
  bool has_crc = false;         ///< plain_crc is set, and so is chunk.crc
  bool sealed = false;          ///< encrypted now or soon: window bytes must not be read
  bool ours = false;            ///< this session carved its extents, and has not committed them
  bool sought = false;          ///< a search for its places is under way
  std::uint32_t searches = 0;   ///< consecutive searches without a successful read

  bool in_window() const { return segments[0].slot != nullptr; }
  ChunkPieces content() const { return {piece(segments[0]), piece(segments[1])}; }
  /// Returns the part of the window that begins with the chunk's byte at `offset`.
  Segment from(std::uint32_t offset) const;

 private:
  static ByteSpan piece(const Segment& segment) {
    return segment.slot == nullptr ? ByteSpan() : segment.bytes();
  }
};
using OutChunkPtr = std::shared_ptr<OutChunk>;

/// A ChunkWrite is the transfer of a chunk to one benefactor.
struct ChunkWrite final : Transfer {
  OutChunkPtr chunk;
  std::unique_ptr<ChunkWrite> self;  ///< set while the transport has it

 protected:
  void finished(Status status) override;
};

/// A Work is what a session wants done outside the lock.
struct Work {
  struct Search {
    std::shared_ptr<Session> session;
    ScanPtr scan;
  };
  std::vector<Search> search;
  std::vector<std::vector<OutChunkPtr>> hash;  ///< each group for one hash thread
  std::vector<OutChunkPtr> checksum;           ///< for the reactor's thread
  std::vector<std::unique_ptr<ChunkWrite>> write;
  struct Call {
    msg::Request request;
    std::function<void(rpc::Answer)> done;
    std::function<bool()> may_go{};  ///< see ManagerClient::call
    std::function<void(rpc::Answer)> late{};
  };
  std::vector<Call> calls;
};

/// A SessionHost is what a session uses of the engine. All functions but shared() need the lock.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  virtual Shared& shared() = 0;
  virtual Window& window() = 0;
  virtual const Memory& window_memory() = 0;
  virtual Clock& clock() = 0;
  /// Settings of the mount or the pool, used where the folder's policy has none. The first says
  /// whether chunks get names from their content, the second whether their content decides where
  /// they end.
  virtual bool names_chunks() const = 0;
  virtual bool content_cuts() const = 0;
  virtual std::uint64_t arena_bytes_total() const = 0;
  /// True when the manager lists the benefactor as alive.
  virtual bool answers(BenefactorId benefactor) const = 0;
  virtual MapStore& maps() = 0;
  virtual ClientId client() const = 0;
  virtual msg::WriterTotals& totals() = 0;
  /// Has the reactor's thread call plan().
  virtual void kick(Session& session) = 0;
  virtual void kick_after(Session& session, Duration delay) = 0;
  /// Called when the manager has confirmed a commit.
  virtual void committed(const msg::Commit::Reply& reply) = 0;
  /// Called when the session has ended and has no work under way.
  virtual void ended(Session& session) = 0;
  /// Called when a promised commit has failed.
  virtual void promise_broken(const Session& session) = 0;
};

/// A Session writes one file for this process, from the first open to the last close.
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

  FileId file() const { return file_; }
  SessionId id() const { return id_; }
  std::uint64_t size() const { return size_; }
  bool dirty() const { return dirty_; }
  bool ended() const { return state_ == State::kEnded; }
  bool ending() const { return state_ != State::kOpen; }
  const std::optional<Error>& error() const { return error_; }
  Attributes attributes() const;
  /// Breaks the cycles of pointers between the session and its chunks, because the client ends.
  void let_go();
  /// True when the folder's policy makes a close wait for all copies.
  bool waits_for_copies() const { return waits_for_copies_; }
  /// The number of benefactors that each chunk is written to, if there is space.
  std::uint32_t places() const { return places_; }
  SessionFigures figures() const { return figures_; }
  /// Finds boundaries of content-defined chunks; for hash threads.
  const BoundaryFinder& boundaries() const { return boundaries_; }
  void count_call() { ++figures_.manager_calls; }
  void closed(Time opened);

  // ---- writing: any thread, lock held. kWouldBlock: wait for a change and try again.
  /// Returns a slot for the bytes from `offset` on. Shortens `length` to what fits there.
  Result<Slot*> begin_write(std::uint64_t offset, std::size_t& length);
  /// Ends begin_write(): the bytes are in the slot. Returns a chunk whose CRC the caller should
  /// compute now, or nullptr.
  OutChunkPtr end_write(Slot& slot, std::uint64_t offset, std::size_t length);
  /// Takes a borrowed slot that holds the whole chunk at `offset`. Returns as end_write() does.
  Result<OutChunkPtr> adopt(Slot& slot, std::uint64_t offset);
  /// Has a hash thread compute the chunk's CRC and, if wanted, its name.
  void hash_elsewhere(OutChunkPtr chunk);
  /// True when the reactor's thread copies bytes itself and has fewer than two chunks to copy. It
  /// should compute the CRC then, which brings the bytes into its processor's cache.
  bool mover_idles() const;
  /// Has the reactor's thread compute the CRC.
  void checksum_by_mover(OutChunkPtr chunk);
  /// Takes the boundaries found in a slot. Returns the chunks that the caller should hash now.
  std::vector<OutChunkPtr> scanned(const Scan& scan);
  /// True when every chunk is to be named, whatever its CRC.
  bool wants_all_names() const { return naming_->names_all(); }
  /// True when this chunk, whose CRC is known, is to be named.
  bool wants_name(const OutChunk& chunk) const { return naming_->names(chunk.plain_crc); }
  /// Takes a chunk with its CRC and, if wanted, its name.
  void hashed(const OutChunkPtr& chunk);
  Status truncate(std::uint64_t size_bytes);
  /// Moves the end of the file for an append, and returns the old end.
  Result<std::uint64_t> extend(std::uint64_t bytes);
  /// Seals or cuts `slot` although more bytes may come, because no slot is free.
  void give_up_waiting(Slot& slot);

  /// Begins to store all that was written until now. Does not wait for later writes.
  CompletionPtr start_sync();
  /// Begins to make a version of all that was written until now. Joins the commit under way, if
  /// there is one, because writes wait for it. With `end` the session ends too.
  Result<CompletionPtr> start_commit(bool end);
  /// Declares the next commit to be the content of that drained version (see File::commit_as).
  void commit_next_as(Version version) { same_as_ = version; }
  /// Says that nobody waits for the commit under way: it succeeds or fails within kEarlyCommit.
  void promise_commit();
  bool promised() const { return promised_; }
  /// Has the promised commit end the session. Returns false when no commit was promised.
  bool keeps_promise() { return promised_ && start_commit(true).has_value(); }
  /// Drops what is not committed, and ends the session.
  void abort(Code why);

  // ---- reading: lock held
  const Overlay& overlay() const { return overlay_; }
  std::uint64_t cut() const { return cut_; }
  /// Asks the manager where the copies of a stored chunk are now, because a read did not find them.
  /// Returns false for a chunk of this session's own, and after too many searches.
  bool find_again(const OutChunkPtr& chunk);
  /// Returns the base version's map, and fetches it if necessary; nullptr when the base is empty.
  VersionMapPtr base();

  Shared& shared() { return host_.shared(); }

  // ---- reactor's thread, lock held
  void plan(Work& work);
  void written(const ChunkWrite& write, const Status& status);
  void benefactor_gone(BenefactorId benefactor);
  /// Fails the session, which the manager has ended.
  void fenced();
  /// Continues with a manager of another epoch, which does not know the session. Reports what is
  /// stored, and begins again what was under way.
  void manager_changed();

  // ---- a file without a version: its clients tell a restarted manager of it
  bool is_pending() const { return attributes_.version == 0; }
  bool is_pending_as(FileId parent, std::string_view name) const {
    return is_pending() && parent_ == parent && name_ == name;
  }
  /// True until the present manager has accepted the session.
  bool is_unknown() const { return resume_ != Resume::kNone && !error_.has_value(); }
  /// Records what the manager has changed. Without a `parent`, the file has lost its name.
  void pending_renamed(FileId parent, std::string_view name);
  void pending_changed(const msg::SetAttributes& change);
  void pending_changed(const msg::SetXattr& change);
  /// Records that a change's outcome is unknown. A file without a version cannot resume then.
  void pending_unsure() { can_resume_ = can_resume_ && !is_pending(); }

  std::uint32_t openers = 0;  ///< Files that write through this session
  bool kicked = false;        ///< the host is about to call plan()

 private:
  enum class State { kOpen, kEnding, kEnded };
  enum class CommitStep { kNone, kFlushing, kSending };
  struct Sync {
    std::uint64_t until = 0;  ///< age of the newest slot that the sync waits for
    CompletionPtr done;
  };

  void begin_change();
  OutChunkPtr settle(Slot& slot);
  OutChunkPtr cut_in_order(Slot& slot);
  OutChunkPtr cut(Slot& slot);
  bool waits_for_neighbour(const Slot& slot) const;
  bool is_on_its_way(std::uint64_t part) const;
  struct Waiting {
    std::size_t count = 0;
    Slot* first = nullptr;
  };
  Waiting waiting() const;
  std::size_t waiting_max() const;
  bool outruns(std::uint64_t part);
  void stop_holding_back();
  void limit_waiting();
  Time give_up_holes(Duration wait);
  void plan_holes();
  OutChunkPtr make_chunk(std::uint64_t file_offset, const Segments& segments);
  void move(const Segments& segments, SlotState from, SlotState to);
  /// True when all written bytes belong to chunks.
  bool all_cut() const { return sealed_.empty() && cutter_.empty(); }
  void seal(Slot& slot);
  void seal_all();
  void removed(const Piece& piece, std::uint64_t length);
  void dead(OutChunk& chunk);
  void place(const OutChunkPtr& chunk);
  bool find_known(const OutChunkPtr& chunk);
  void alias(const OutChunkPtr& chunk, const OutChunkPtr& target);
  void stored(OutChunk& chunk, SlotState from);
  void give_up(OutChunk& chunk);
  bool waits_for_places(const OutChunk& chunk);
  bool can_do_with_fewer() const;
  void write(const OutChunkPtr& chunk, const std::vector<Extent>& places, Work& work);
  void avoid(const ChunkWrite& write, const Error& why);
  void drop(OutChunk& chunk, SlotState from);
  void finish_chunk();
  void fail_with(Error why);
  std::vector<OutChunkPtr> take_to_hash();
  void plan_hash(Work& work);
  void plan_checksum(Work& work);
  bool batch_is_due();
  void plan_place(Work& work);
  void plan_search(Work& work);
  void plan_writes(Work& work);
  void plan_grants(Work& work);
  void plan_return(Work& work);
  void plan_commit(Work& work);
  void plan_end(Work& work);
  std::vector<BenefactorId> beside() const;
  std::uint64_t needed_bytes(const std::vector<BenefactorId>& beside) const;
  std::uint64_t wanted_bytes(bool asking) const;
  void send_place(Work& work, std::vector<OutChunkPtr> batch, std::uint64_t want);
  void on_placed(const std::vector<OutChunkPtr>& batch, std::uint64_t want, std::uint64_t life,
                 rpc::Answer answer);
  void found(const OutChunk& chunk);
  void on_found(const std::vector<OutChunkPtr>& batch, const rpc::Answer& answer);
  void on_no_space(const rpc::Failure& failure, std::uint64_t want);
  void plan_resume(Work& work);
  void build_resume();
  void on_resumed(std::uint64_t life, const rpc::Answer& answer);
  bool asks_again(std::uint64_t life, const rpc::Answer& answer);
  std::size_t page_chunks_max() const;
  void build_commit();
  void send_commit_part(Work& work);
  void on_committed_part(std::uint64_t life, rpc::Answer answer);
  void on_committed(const msg::Commit::Reply& reply);
  void keep_promise_in_time();
  void finish_commit(Status status);
  void count_commit();
  void finish_syncs();
  void remember_similar();
  void give_up_similar();
  bool far_ahead() const;

  SessionHost& host_;
  const std::shared_ptr<SeriesNaming> naming_;
  const bool content_cuts_;  ///< chunks end where their content says
  const SessionId id_;
  const FileId file_;
  const std::uint64_t opened_after_;  ///< the pool's newest commit at the open
  const bool waits_for_copies_;
  const bool client_waits_;     ///< the client asked for that when it opened the session
  const std::uint32_t places_;  ///< benefactors that each chunk is written to
  FileId parent_;  ///< directory named in the open; of a file without a version, the present one
  std::string name_;
  const std::uint32_t copies_;  ///< Redundancy that the client asked for; 0: none
  Attributes attributes_;
  State state_ = State::kOpen;
  std::optional<Error> error_;
  SessionFigures figures_;
  Time opened_{};
  Time commit_from_{};  ///< time of the open; after a commit, of the first write
  std::uint64_t bytes_committed_ = 0;

  // Bytes that were written.
  Overlay overlay_;
  std::unordered_map<std::uint64_t, Slot*> filling_;  ///< keyed by part
  struct Sealed {
    Slot* slot = nullptr;
    Time since;
  };
  /// Not cut yet: copies are under way, or the slot before is awaited.
  std::vector<Sealed> sealed_;
  Time hole_timer_{};          ///< when plan() checks waiting slots again
  bool out_of_order_ = false;  ///< slots were recently filled out of order
  Time held_back_{};           ///< since when writers are held back; Time{}: they are not
  const BoundaryFinder boundaries_;
  ContentCutter cutter_;
  std::uint64_t size_ = 0;
  bool dirty_ = false;
  bool set_size_ = false;
  std::uint64_t cut_ = std::numeric_limits<std::uint64_t>::max();
  VersionMapPtr base_;

  // The pipeline. `pipeline_` counts the chunks that are cut, but neither stored nor dropped.
  std::vector<ScanPtr> to_scan_;
  std::deque<OutChunkPtr> to_hash_;
  std::deque<OutChunkPtr> to_checksum_;
  std::deque<OutChunkPtr> to_ask_;
  std::deque<OutChunkPtr> to_carve_;
  std::vector<OutChunkPtr> to_find_;
  std::uint64_t pipeline_ = 0;
  bool moves_itself_ = false;  ///< this process itself copied the last chunk without a name
  std::uint64_t in_transport_ = 0;
  std::uint64_t calls_in_flight_ = 0;
  std::size_t places_in_flight_ = 0;
  std::size_t batch_target_ = 16;
  Time ask_by_{};     ///< latest time to send the batch that is being collected
  Time ask_timer_{};  ///< the `ask_by_` for which a timer is set
  std::unordered_map<ChunkName, std::weak_ptr<OutChunk>> own_names_;
  VersionMapPtr similar_;
  VersionMapPtr given_up_;  ///< the former similar_, until its chunks were asked for
  KnownChunks known_;       ///< chunks of similar_
  bool similar_read_ = false;
  bool has_unnamed_ = false;  ///< a chunk got no name that follows from its content

  // Space.
  GrantSet grants_;
  std::set<BenefactorId> avoid_;
  std::vector<GrantId> returned_;
  Time grants_used_{};    ///< when space was last granted or carved
  Time idle_check_at_{};  ///< next check for unused grants; Time{}: none
  std::vector<Extent> abandoned_;
  bool want_in_flight_ = false;
  Time short_of_places_{};        ///< since when places lack space; Time{}: they do not
  bool asks_for_places_ = false;  ///< the request under way was sent for missing places
  bool fewer_places_ = false;     ///< such a request was in vain: use the places that exist
  bool shortage_ = false;
  std::uint32_t no_space_ = 0;
  Time no_space_since_{};
  Time grants_not_before_{};
  Time writes_not_before_{};  ///< set after repeated failures of a chunk's writes

  // Commit and sync.
  std::vector<Sync> syncs_;
  CommitStep commit_ = CommitStep::kNone;
  bool commit_ends_ = false;
  Version same_as_ = 0;  ///< drained version that the next commit brings back; 0: none
  bool commit_in_flight_ = false;
  bool promised_ = false;  ///< nobody waits for the commit under way
  Time promised_by_{};
  bool promise_timed_ = false;
  CompletionPtr commit_done_;
  std::vector<msg::Commit> parts_;
  std::size_t next_part_ = 0;
  bool close_sent_ = false;

  // Managers of another epoch. Calls made in an earlier life end with kFenced.
  enum class Resume : std::uint8_t { kNone, kWaits, kSending };
  Resume resume_ = Resume::kNone;
  bool can_resume_ = true;
  bool renamed_ = false;                       ///< its name changed while it had no version
  bool changed_ = false;                       ///< its attributes changed while it had no version
  std::map<std::string, std::string> xattrs_;  ///< set while it had no version
  std::uint64_t life_ = 0;                     ///< counts managers since the session was opened
  Time lost_since_{};                          ///< since when calls get no answer; Time{}: they do
  std::vector<msg::ResumeSession> resume_parts_;
  std::size_t next_resume_part_ = 0;
};
using SessionPtr = std::shared_ptr<Session>;

}  // namespace stdchk::client
