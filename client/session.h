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

#include "client/content_cutter.h"
#include "client/filesystem.h"
#include "client/grant_set.h"
#include "client/overlay.h"
#include "client/peers.h"
#include "client/series_naming.h"
#include "client/shared.h"
#include "client/version_map.h"
#include "client/window.h"
#include "core/messages/messages.h"
#include "core/naming.h"

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
  std::shared_ptr<Session> session;  ///< while in the pipeline
  Chunk chunk;                       ///< its copies: also those that are being written
  std::uint64_t file_offset = 0;
  std::uint64_t live_bytes = 0;  ///< of the overlay that refer to it
  Segments segments;             ///< where its bytes are, while they are in the window
  std::uint32_t order = 0;       ///< among the chunks of its first slot: the place of its header
  std::uint32_t failures = 0;
  std::uint32_t writing = 0;  ///< writes under way
  Step step = Step::kHashing;
  std::uint32_t plain_crc = 0;  ///< of the bytes as they were written
  bool has_crc = false;         ///< that one, and `chunk.crc` until it is sealed
  bool sealed = false;          ///< or about to be: nobody reads its bytes from the window
  bool ours = false;            ///< its extents were carved by this session and is not committed
  bool sought = false;          ///< the manager was asked where it is now
  std::uint32_t searches = 0;   ///< in a row, without its bytes having been read

  bool in_window() const { return segments[0].slot != nullptr; }
  ChunkPieces content() const { return {piece(segments[0]), piece(segments[1])}; }
  /// Where the byte at `offset` is, and those behind it.
  Segment from(std::uint32_t offset) const;

 private:
  static ByteSpan piece(const Segment& segment) {
    return segment.slot == nullptr ? ByteSpan() : segment.bytes();
  }
};
using OutChunkPtr = std::shared_ptr<OutChunk>;

/// A ChunkWrite is the writing of a chunk to one of its places.
struct ChunkWrite final : Transfer {
  OutChunkPtr chunk;
  std::unique_ptr<ChunkWrite> self;  ///< while the transport has it

 protected:
  void finished(Status status) override;
};

/// What a session wants done outside the lock.
struct Work {
  struct Search {
    std::shared_ptr<Session> session;
    ScanPtr scan;
  };
  std::vector<Search> search;
  std::vector<std::vector<OutChunkPtr>> hash;  ///< each group by one thread
  std::vector<OutChunkPtr> checksum;           ///< by the reactor's thread
  std::vector<std::unique_ptr<ChunkWrite>> write;
  struct Call {
    msg::Request request;
    std::function<void(rpc::Answer)> done;
    std::function<bool()> may_go{};  ///< as ManagerClient::call has them
    std::function<void(rpc::Answer)> late{};
  };
  std::vector<Call> calls;
};

/// What sessions use of the engine. Functions are called with the lock held, but for take_lock.
class SessionHost {
 public:
  virtual ~SessionHost() = default;
  virtual Shared& shared() = 0;
  virtual Window& window() = 0;
  virtual const Memory& window_memory() = 0;
  virtual Clock& clock() = 0;
  /// Chunks are named by their content, where a folder does not say otherwise; and end where it
  /// says.
  virtual bool names_chunks() const = 0;
  virtual bool content_cuts() const = 0;
  virtual std::uint64_t arena_bytes_total() const = 0;
  /// The manager has not told that the benefactor is silent.
  virtual bool answers(BenefactorId benefactor) const = 0;
  virtual MapStore& maps() = 0;
  virtual ClientId client() const = 0;
  virtual msg::WriterTotals& totals() = 0;
  /// Has the reactor call plan() soon.
  virtual void kick(Session& session) = 0;
  virtual void kick_after(Session& session, Duration delay) = 0;
  /// The manager has answered a commit.
  virtual void committed(const msg::Commit::Reply& reply) = 0;
  /// The session has ended for good: nothing of it is under way.
  virtual void ended(Session& session) = 0;
  /// What a close has promised before it was stored is not committed.
  virtual void promise_broken(const Session& session) = 0;
};

/// A Session is the writing of one file by this process, from the first open to the last close.
///
/// Owns: what was written and is not committed; its extents; its share of window slots while they
/// fill. Threads: any, with the engine's lock held; plan() on the reactor's thread only. Errors:
/// the first one that cannot be mended stays: every later write, sync and commit answers it. Not:
/// usable after it has ended.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  /// `naming` is that of its series, if its chunks are named.
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
  /// The client ends while chunks are on their way: they and the session keep each other no longer.
  void let_go();
  /// Its folder asks that a close waits for all copies.
  bool waits_for_copies() const { return waits_for_copies_; }
  /// That each chunk is written to, if it can be.
  std::uint32_t places() const { return places_; }
  SessionFigures figures() const { return figures_; }
  /// For the thread that looks for boundaries.
  const BoundaryFinder& boundaries() const { return boundaries_; }
  void count_call() { ++figures_.manager_calls; }
  void closed(Time opened);

  // ---- writing: any thread, lock held. kWouldBlock: wait for a change and try again.
  /// A place for bytes of the file from `offset` on; `length` is made shorter to what fits there.
  Result<Slot*> begin_write(std::uint64_t offset, std::size_t& length);
  /// The bytes are there. Answers a chunk whose CRC the caller should compute now, or nullptr.
  OutChunkPtr end_write(Slot& slot, std::uint64_t offset, std::size_t length);
  /// Takes a borrowed slot that holds the whole chunk at `offset`.
  Result<OutChunkPtr> adopt(Slot& slot, std::uint64_t offset);
  /// Has a hash thread compute what is wanted and not known.
  void hash_elsewhere(OutChunkPtr chunk);
  /// The thread that moves chunks waits for more: what it looks at first comes into its cache.
  bool mover_idles() const;
  /// Has that thread compute the CRC.
  void checksum_by_mover(OutChunkPtr chunk);
  /// The boundaries in a slot are found. Answers what the caller should hash now.
  std::vector<OutChunkPtr> scanned(const Scan& scan);
  /// Whatever its CRC.
  bool wants_all_names() const { return naming_->names_all(); }
  /// Its CRC is known.
  bool wants_name(const OutChunk& chunk) const { return naming_->names(chunk.plain_crc); }
  /// CRC, and name where that is wanted, are set.
  void hashed(const OutChunkPtr& chunk);
  Status truncate(std::uint64_t size_bytes);
  /// For appending: moves the end of the file and answers where it was.
  Result<std::uint64_t> extend(std::uint64_t bytes);
  /// The window is short of slots, and this one waits for more bytes: it does not any more.
  void give_up_waiting(Slot& slot);

  /// All that was written until now becomes stored. What is written later is not waited for.
  CompletionPtr start_sync();
  /// All that was written until now becomes a version: by the commit under way, if there is one,
  /// because writes wait for that. With `end` the session ends, too.
  Result<CompletionPtr> start_commit(bool end);
  /// What the next commit brings is the content of that drained version.
  void commit_next_as(Version version) { same_as_ = version; }
  /// Nobody waits for the commit under way: it ends within kEarlyCommit.
  void promise_commit();
  bool promised() const { return promised_; }
  /// Such a commit is under way: with it the session ends. False: there is none.
  bool keeps_promise() { return promised_ && start_commit(true).has_value(); }
  /// Drops what is not committed and ends the session.
  void abort(Code why);

  // ---- reading: lock held
  const Overlay& overlay() const { return overlay_; }
  std::uint64_t cut() const { return cut_; }
  /// A stored chunk that the pool had already is not where it was: extents are moved. False: it was
  /// looked for often enough, or is this session's own and does not move.
  bool find_again(const OutChunkPtr& chunk);
  /// The base version's map, asked for when it is not there yet; nullptr: the base is empty.
  VersionMapPtr base();

  Shared& shared() { return host_.shared(); }

  // ---- reactor's thread, lock held
  void plan(Work& work);
  void written(const ChunkWrite& write, const Status& status);
  void benefactor_gone(BenefactorId benefactor);
  /// The manager has ended it.
  void fenced();
  /// One of another epoch has come, which knows nothing of it: it is told what is stored, and what
  /// was under way begins again.
  void manager_changed();

  // ---- a file without a version: a manager that comes back knows of it what its clients tell
  bool is_pending() const { return attributes_.version == 0; }
  bool is_pending_as(FileId parent, std::string_view name) const {
    return is_pending() && parent_ == parent && name_ == name;
  }
  /// Another manager has come, and does not know it yet.
  bool is_unknown() const { return resume_ != Resume::kNone && !error_.has_value(); }
  /// What the manager has changed; no `parent`: it has no name any more.
  void pending_renamed(FileId parent, std::string_view name);
  void pending_changed(const msg::SetAttributes& change);
  void pending_changed(const msg::SetXattr& change);
  /// Nobody knows whether the manager has changed something.
  void pending_unsure() { can_resume_ = can_resume_ && !is_pending(); }

  std::uint32_t openers = 0;  ///< Files that write through it
  bool kicked = false;        ///< the host is about to call plan()

 private:
  enum class State { kOpen, kEnding, kEnded };
  enum class CommitStep { kNone, kFlushing, kSending };
  struct Sync {
    std::uint64_t until = 0;  ///< slots up to this age
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
  /// Nothing that was written waits to become a chunk.
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
  const std::uint64_t opened_after_;  ///< that many commits of the pool
  const bool waits_for_copies_;
  const bool client_waits_;     ///< so its client has asked
  const std::uint32_t places_;  ///< that each chunk is written to
  FileId parent_;               ///< that it was made in, if it was; of a pending file: of now
  std::string name_;
  const std::uint32_t copies_;  ///< that its client asks for
  Attributes attributes_;
  State state_ = State::kOpen;
  std::optional<Error> error_;
  SessionFigures figures_;
  Time opened_{};
  Time commit_from_{};  ///< its open; after a commit: the first write after it
  std::uint64_t bytes_committed_ = 0;

  // What was written.
  Overlay overlay_;
  std::unordered_map<std::uint64_t, Slot*> filling_;  ///< by part
  struct Sealed {
    Slot* slot = nullptr;
    Time since;
  };
  std::vector<Sealed> sealed_;  ///< not cut yet: copies are under way, or another slot waited for
  Time hole_timer_{};           ///< when plan() looks at the latter again
  bool out_of_order_ = false;   ///< what was waited for has come, lately
  Time held_back_{};            ///< since when writers wait for it; none: they do not
  const BoundaryFinder boundaries_;
  ContentCutter cutter_;
  std::uint64_t size_ = 0;
  bool dirty_ = false;
  bool set_size_ = false;
  std::uint64_t cut_ = std::numeric_limits<std::uint64_t>::max();
  VersionMapPtr base_;

  // The pipeline. `pipeline_` counts chunks between cut and stored or dropped.
  std::vector<ScanPtr> to_scan_;
  std::deque<OutChunkPtr> to_hash_;
  std::deque<OutChunkPtr> to_checksum_;
  std::deque<OutChunkPtr> to_ask_;
  std::deque<OutChunkPtr> to_carve_;
  std::vector<OutChunkPtr> to_find_;
  std::uint64_t pipeline_ = 0;
  bool moves_itself_ = false;  ///< this process has copied the last chunk without a name
  std::uint64_t in_transport_ = 0;
  std::uint64_t calls_in_flight_ = 0;
  std::size_t places_in_flight_ = 0;
  std::size_t batch_target_ = 16;
  Time ask_by_{};     ///< when the batch that is being collected goes at the latest
  Time ask_timer_{};  ///< the `ask_by_` that plan() is called at
  std::unordered_map<ChunkName, std::weak_ptr<OutChunk>> own_names_;
  VersionMapPtr similar_;
  VersionMapPtr given_up_;  ///< the same, until what was found in it is asked for
  KnownChunks known_;       ///< of the similar version
  bool similar_read_ = false;
  bool has_unnamed_ = false;  ///< a chunk was placed without a name

  // Space.
  GrantSet grants_;
  std::set<BenefactorId> avoid_;
  std::vector<GrantId> returned_;
  Time grants_used_{};    ///< when space was granted or carved last
  Time idle_check_at_{};  ///< none: no check is due
  std::vector<Extent> abandoned_;
  bool want_in_flight_ = false;
  Time short_of_places_{};        ///< since when there is no space for all of them; none: there is
  bool asks_for_places_ = false;  ///< the call under way does, because of that
  bool fewer_places_ = false;     ///< it was asked for in vain: what there is must do
  bool shortage_ = false;
  std::uint32_t no_space_ = 0;
  Time no_space_since_{};
  Time grants_not_before_{};
  Time writes_not_before_{};  ///< writes have failed again and again

  // Commit and sync.
  std::vector<Sync> syncs_;
  CommitStep commit_ = CommitStep::kNone;
  bool commit_ends_ = false;
  Version same_as_ = 0;  ///< 0: it is a new content
  bool commit_in_flight_ = false;
  bool promised_ = false;  ///< the commit, to someone who does not wait for it
  Time promised_by_{};
  bool promise_timed_ = false;
  CompletionPtr commit_done_;
  std::vector<msg::Commit> parts_;
  std::size_t next_part_ = 0;
  bool close_sent_ = false;

  // Managers of another epoch. Calls of an earlier life are answered kFenced.
  enum class Resume : std::uint8_t { kNone, kWaits, kSending };
  Resume resume_ = Resume::kNone;
  bool can_resume_ = true;
  bool renamed_ = false;                       ///< while it was pending
  bool changed_ = false;                       ///< its attributes, while it was pending
  std::map<std::string, std::string> xattrs_;  ///< set while it was pending
  std::uint64_t life_ = 0;  ///< how many managers came after the one that it was opened with
  Time lost_since_{};       ///< calls are not answered; none: they are
  std::vector<msg::ResumeSession> resume_parts_;
  std::size_t next_resume_part_ = 0;
};
using SessionPtr = std::shared_ptr<Session>;

}  // namespace stdchk::client
