// The way of written bytes, forward only:
//
//   begin_write, end_write   the application fills a slot of the window (WrittenFile remembers it)
//   SlotCutter               a full slot is cut into chunks
//   HashQueue                a chunk gets its CRC and, if wanted, its name
//   ChunkPlacer              the pool has an equal chunk (EqualChunks), or it must be written
//   SpaceKeeper              extents are carved out of grants
//   ChunkWriter              the bytes are written to one or several benefactors
//   ChunkLedger              the chunk is stored, and its part of the slot is free
//   Committer                the manager makes a version of all chunks
//
// A Resumer reports the session's state to a restarted manager. The function plan() goes through
// these parts in this order, and moves all work that waits for the reactor's thread.
#include "client/write/session.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::client {
namespace {

using State = SessionCore::State;

// The folder's policy decides, if it says anything. Otherwise the mount decides, then the pool.
std::shared_ptr<SeriesNaming> naming_of(const SessionHost& host, const Policy& policy,
                                        std::shared_ptr<SeriesNaming> series)
    STDCHK_REQUIRES(engine_lock) {
  const auto chunking = policy.chunking();
  const bool names = chunking ? chunking != Chunking::kNone : host.names_chunks();
  return names ? std::move(series) : std::make_shared<SeriesNaming>(Naming::kOff);
}
bool cut_by_content(const SessionHost& host, const Policy& policy) STDCHK_REQUIRES(engine_lock) {
  return policy.chunking() ? policy.chunking() == Chunking::kContent : host.content_cuts();
}

tl::unexpected<Error> would_block() { return fail(Code::kWouldBlock, "client.window"); }

}  // namespace

Segment OutChunk::from(std::uint32_t offset) const {
  const bool in_first = offset < segments[0].length;
  const Segment& segment = in_first ? segments[0] : segments[1];
  const std::uint32_t within = in_first ? offset : offset - segments[0].length;
  return {segment.slot, segment.offset + within, segment.length - within};
}

void ChunkWrite::finished(Status status) {
  // Keeps the session and this write alive until the function returns.
  const SessionPtr owner = chunk->session;
  const std::unique_ptr<ChunkWrite> keep = std::move(self);
  const Lock lock(owner->shared().mutex);
  owner->writer().written(*this, status);
}

std::shared_ptr<Session> SessionCore::self() const { return session.shared_from_this(); }
void SessionCore::fail_with(Error why) { session.fail_with(why); }

Session::Session(SessionHost& host, const msg::OpenSession& request, msg::OpenSession::Reply opened,
                 std::shared_ptr<SeriesNaming> naming)
    : waits_for_copies(opened.policy.commit() == CommitLevel::kRedundant),
      core_{.session = *this,
            .host = host,
            .id = opened.session,
            .file = opened.attributes.id,
            .places = std::clamp<std::uint32_t>(opened.places, 1, limits::kCopiesMax),
            .naming = naming_of(host, opened.policy, std::move(naming)),
            .attributes = opened.attributes,
            .opened = host.clock().now()},
      written_(core_.attributes.size_bytes, core_.attributes.version == 0, request.truncate),
      committer_(core_, written_,
                 [this]() STDCHK_REQUIRES(engine_lock) {
                   equal_.forget_own();
                   space_.forget_abandoned();
                 }),
      space_(core_),
      ledger_(core_, space_, committer_),
      equal_(core_, written_, space_),
      writer_(core_, space_, ledger_),
      placer_({core_, written_, committer_, space_, ledger_, equal_, writer_},
              cut_by_content(host, opened.policy) && !core_.naming->is_off()),
      hashes_(core_, ledger_),
      cutter_({core_, written_, committer_, ledger_, hashes_},
              cut_by_content(host, opened.policy) && !core_.naming->is_off()),
      resumer_({core_, written_, committer_, writer_, space_}, request, opened.opened) {
  space_.add(opened.grants);
  if (!core_.naming->is_off() && opened.similar_file) {
    equal_.compare_with(opened.similar_file, opened.similar_version);
  }
}

Session::~Session() = default;

void Session::let_go() {
  written_.overlay().clear();
  equal_.clear();
  hashes_.clear();
  placer_.clear();
  writer_.clear();
}

Attributes Session::attributes() const {
  Attributes now = core_.attributes;
  now.size_bytes = written_.size();
  if (written_.dirty()) now.mtime_ns = now.ctime_ns = core_.host.clock().wall_ns();
  return now;
}

// ---- writing ----------------------------------------------------------------------------------

/// Says whether bytes up to `end` may be written now.
Status Session::may_write(std::uint64_t end) const {
  if (core_.error.has_value()) return fail(*core_.error);
  if (ending()) return fail(Code::kStale, "client.write");
  if (end > limits::kFileBytesMax) return fail(Code::kTooLarge, "client.write");
  // A commit takes a consistent state of the file, so writes wait until the commit has ended.
  if (committer_.under_way()) return would_block();
  return {};
}

Result<Slot*> Session::begin_write(std::uint64_t offset, std::size_t& length) {
  STDCHK_TRY(may_write(offset + length));
  Window& window = core_.host.window();
  length = std::min<std::size_t>(length, window.chunk_bytes() - offset % window.chunk_bytes());
  Slot* const slot = cutter_.slot_for(offset / window.chunk_bytes(), !writer_.has_enough_to_copy());
  if (slot == nullptr) return would_block();
  window.begin_copy(*slot);
  written_.begin_change();
  committer_.begin_change();
  return slot;
}

OutChunkPtr Session::end_write(Slot& slot, std::uint64_t offset, std::size_t length) {
  Window& window = core_.host.window();
  const auto from = static_cast<std::uint32_t>(offset % window.chunk_bytes());
  window.end_copy(slot, from, from + static_cast<std::uint32_t>(length));
  if (length > 0 && !core_.error.has_value()) {
    written_.put(offset, length, Piece{&slot, nullptr, from},
                 [this](const Piece& piece, std::uint64_t gone) {
                   engine_lock.assert_held();
                   ledger_.removed(piece, gone);
                 });
    core_.figures.bytes_written += length;
  }
  return cutter_.end_copy(slot);
}

Result<OutChunkPtr> Session::adopt(Slot& slot, std::uint64_t offset) {
  Window& window = core_.host.window();
  const std::uint32_t length = window.chunk_bytes();
  STDCHK_TRY(may_write(offset + length));
  const std::uint64_t part = offset / length;
  if (writer_.has_enough_to_copy() || cutter_.must_hold_back(part)) return would_block();
  cutter_.seal_part(part);
  window.adopt(slot, core_.id.value, part);
  window.begin_copy(slot);
  written_.begin_change();
  committer_.begin_change();
  return end_write(slot, offset, length);
}

Status Session::truncate(std::uint64_t size_bytes) {
  STDCHK_TRY(may_write(size_bytes));
  written_.truncate(size_bytes, [this](const Piece& piece, std::uint64_t length) {
    engine_lock.assert_held();
    ledger_.removed(piece, length);
  });
  return {};
}

Status Session::punch(std::uint64_t from, std::uint64_t to) {
  STDCHK_TRY(may_write(to));
  to = std::min(to, written_.size());
  if (from >= to) return {};
  const auto removed = [this](const Piece& piece, std::uint64_t length) {
    engine_lock.assert_held();
    ledger_.removed(piece, length);
  };
  // Behind the end of the base version there are only written bytes, and those of other mounts.
  const std::uint64_t base_end = core_.attributes.version == 0 ? 0 : core_.attributes.size_bytes;
  if (from < base_end) {
    if (written_.holes().size() >= limits::kHolesMax) {
      return fail(Code::kUnsupported, "client.punch");
    }
    written_.punch(from, std::min(to, base_end), removed);
  }
  written_.begin_change();
  const std::uint64_t behind_base = std::max(from, base_end);
  if (behind_base < to) written_.overlay().erase(behind_base, to, removed);
  return {};
}

Status Session::refresh(const Attributes& newest) {
  if (core_.error.has_value()) return fail(*core_.error);
  if (committer_.under_way()) return would_block();
  // Another opener has begun to write, or this session has committed later.
  if (written_.dirty() || newest.version < core_.attributes.version) return {};
  core_.attributes = newest;
  written_.committed(newest.size_bytes);
  return {};
}

Result<std::uint64_t> Session::extend(std::uint64_t bytes) {
  if (core_.error.has_value()) return fail(*core_.error);
  if (committer_.under_way()) return would_block();
  const std::uint64_t end = written_.size();
  if (end + bytes > limits::kFileBytesMax) return fail(Code::kTooLarge, "client.write");
  written_.extend(bytes);
  return end;
}

void Session::hashed(const OutChunkPtr& chunk) {
  core_.move(chunk->segments, SlotState::kHashing, SlotState::kPlacing);
  placer_.place(chunk);
  core_.schedule();
}

// ---- versions ---------------------------------------------------------------------------------

CompletionPtr Session::start_sync() {
  cutter_.seal_all();
  return committer_.start_sync();
}

Result<CompletionPtr> Session::start_commit(bool end) {
  if (committer_.under_way()) {
    if (end) core_.state = State::kEnding;
    return committer_.join(end);
  }
  auto done = std::make_shared<Completion>();
  if (core_.error.has_value()) {
    done->end(fail(*core_.error));
    if (end) abort(core_.error->code);
    return done;
  }
  if (ending()) {
    if (end) core_.schedule();
    return fail(Code::kStale, "client.commit");
  }
  if (end) core_.state = State::kEnding;
  if (written_.dirty()) {
    done = committer_.start(end);
    cutter_.seal_all();
  } else {
    done->end({});
  }
  // Everything is committed, so nobody waits for the session's end.
  if (written_.dirty()) {
    core_.schedule();
  } else if (end) {
    core_.host.schedule_later(*this);
  }
  return done;
}

void Session::abort(Code why) {
  if (ended()) return;
  if (!core_.error.has_value()) fail_with(Error{why, 0, "client.abort"});
  core_.state = State::kEnding;
  core_.schedule();
}

VersionMapPtr Session::base() {
  if (core_.attributes.version == 0) return nullptr;
  return written_.base(core_.host.maps(), core_.file);
}

// ---- reactor's thread -------------------------------------------------------------------------

void Session::plan(Work& work) {
  if (ended()) return;
  const auto keep = shared_from_this();
  cutter_.plan(work);
  hashes_.plan(work);
  if (resumer_.is_unknown()) return resumer_.plan(work);
  placer_.plan_look_up(work);
  equal_.plan(work);
  writer_.plan(work);
  // A session that writes nothing more gets no space ahead.
  // Many open files with a few bytes each must not take a chunk's space each.
  const Window& window = core_.host.window();
  const bool may_ask_ahead =
      window.free_count() * 2 >= window.slot_count() && !space_.has_returned_grants();
  const bool writes_more = !ending() && (ledger_.count() > 0 || (!cutter_.idle() && may_ask_ahead));
  placer_.plan_grants(work, writes_more);
  placer_.plan_return(work);
  committer_.plan(work, ledger_.count() == 0 && cutter_.all_cut(), space_.abandoned());
  plan_end(work);
}

/// Ends the session once nothing of it is under way: tells the manager, then the host.
void Session::plan_end(Work& work) {
  if (core_.state != State::kEnding || committer_.under_way()) return;
  if (ledger_.count() > 0 || !cutter_.all_cut()) return;
  if (writer_.in_transport() > 0 || core_.calls_in_flight > 0) return;
  if (close_sent_ || committer_.has_closed()) return end();
  close_sent_ = true;
  msg::CloseSession close;
  close.session = core_.id;
  close.aborted = core_.error.has_value();
  close.aborted_bytes = core_.error.has_value() ? core_.figures.bytes_written : 0;
  close.writes_in_flight = !space_.abandoned().empty();
  // A lost answer does no harm: the manager ends the sessions of silent clients.
  core_.call(work, std::move(close),
             [this](const rpc::Answer&) STDCHK_REQUIRES(engine_lock) { core_.schedule(); });
}

void Session::end() {
  core_.state = State::kEnded;
  if (!core_.error.has_value() && (placer_.has_unnamed() || core_.figures.bytes_named > 0)) {
    core_.naming->committed(!placer_.has_unnamed());
  }
  written_.clear();
  equal_.forget_similar();
  core_.notify();
  core_.host.ended(*this);
}

void Session::benefactor_gone(BenefactorId benefactor) {
  if (ended() || core_.error.has_value()) return;
  space_.benefactor_gone(benefactor);
  // A commit may have been under way when the manager ended. The new manager says whether it was
  // executed, and checks the stored chunks.
  if (resumer_.under_way()) return;
  for (const auto& [offset, entry] : written_.overlay().entries()) {
    const OutChunkPtr& chunk = entry.piece.chunk;
    if (chunk == nullptr || !chunk->ours) continue;
    auto& copies = chunk->chunk.copies;
    std::erase_if(copies, [&](const Extent& copy) { return copy.benefactor == benefactor; });
    if (copies.empty() && chunk->step == OutChunk::Step::kStored) {
      return fail_with(Error{Code::kDataLost, 0, "client.session: a benefactor ended"});
    }
  }
}

void Session::fenced() {
  if (ended()) return;
  fail_with(Error{Code::kFenced, 0, "client.session"});
  close_sent_ = true;  // the manager has ended it
}

void Session::manager_changed() {
  if (ended()) return;
  if (core_.error.has_value() || close_sent_ || committer_.has_closed() || !resumer_.possible()) {
    return fenced();
  }
  ++core_.manager_generation;
  resumer_.begin();
  space_.forget();
  equal_.forget_similar();
  committer_.begin_again();
  core_.schedule();
}

void Session::fail_with(Error why) {
  if (core_.error.has_value()) return;
  core_.error = why;
  if (why.code != Code::kCancelled) {
    log::warning("file {}: the session has failed: {}", core_.file.value, describe(why));
  }
  cutter_.seal_all();
  hashes_.drop_all();
  placer_.drop_all();
  writer_.drop_all();
  committer_.failed(why);
  committer_.finish_syncs();
  core_.schedule();
  core_.notify();
}

}  // namespace stdchk::client
