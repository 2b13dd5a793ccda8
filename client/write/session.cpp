// The application's side of a session: writes, truncates, and reads of what was written. See
// session_pipeline.cpp for the way of chunks to benefactors, session_commit.cpp for versions.
#include "client/write/session.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"

namespace stdchk::client {
namespace {

// The folder's policy decides, if it says anything. Otherwise the mount decides, then the pool.
std::shared_ptr<SeriesNaming> naming_of(const SessionHost& host, const Policy& policy,
                                        std::shared_ptr<SeriesNaming> series) {
  const auto chunking = policy.chunking();
  const bool names = chunking ? chunking != Chunking::kNone : host.names_chunks();
  return names ? std::move(series) : std::make_shared<SeriesNaming>(Naming::kOff);
}
bool cut_by_content(const SessionHost& host, const Policy& policy) {
  return policy.chunking() ? policy.chunking() == Chunking::kContent : host.content_cuts();
}

/// The longest content-defined chunk is as long as a chunk of fixed length.
ChunkSizes content_sizes(const Window& window) {
  return ChunkSizes::around(window.chunk_bytes() / 4);
}

/// Limit of slots that wait for the slot before them. Beyond it, the first slots are cut anyway.
constexpr std::size_t kOutOfOrderMax = 16;

constexpr std::uint32_t kAheadOfCopies = 8 * limits::kMiB;

tl::unexpected<Error> would_block() { return fail(Code::kWouldBlock, "client.window"); }

}  // namespace

Segment OutChunk::from(std::uint32_t offset) const {
  const bool in_first = offset < segments[0].length;
  const Segment& segment = in_first ? segments[0] : segments[1];
  const std::uint32_t within = in_first ? offset : offset - segments[0].length;
  return {segment.slot, segment.offset + within, segment.length - within};
}

Session::Session(SessionHost& host, const msg::OpenSession& request, msg::OpenSession::Reply opened,
                 std::shared_ptr<SeriesNaming> naming)
    : host_(host),
      naming_(naming_of(host, opened.policy, std::move(naming))),
      content_cuts_(cut_by_content(host, opened.policy) && !naming_->off()),
      id_(opened.session),
      file_(opened.attributes.id),
      opened_after_(opened.opened),
      waits_for_copies_(opened.policy.commit() == CommitLevel::kRedundant),
      client_waits_(request.waits_for_copies),
      places_(std::clamp<std::uint32_t>(opened.places, 1, limits::kCopiesMax)),
      parent_(request.parent),
      name_(request.name),
      copies_(request.copies),
      boundaries_(content_sizes(host.window())),
      cutter_(host.window(), content_sizes(host.window()),
              [this](std::uint64_t file_offset, const Segments& segments) {
                if (OutChunkPtr chunk = make_chunk(file_offset, segments)) {
                  to_hash_.push_back(std::move(chunk));
                }
              }) {
  attributes_ = opened.attributes;
  size_ = attributes_.size_bytes;
  // A file without a version is dirty from the start: its first close creates it, as open(O_CREAT)
  // would, even without bytes.
  dirty_ = request.truncate || attributes_.version == 0;
  opened_ = commit_from_ = host_.clock().now();
  // A file without a version has no content to cut off. Content that others commit from now on
  // stays.
  if (request.truncate && attributes_.version != 0) {
    size_ = 0;
    cut_ = 0;
  }
  grants_.add(opened.grants);
  if (!naming_->off() && opened.similar_file) {
    similar_ = host_.maps().open(opened.similar_file, opened.similar_version);
  }
}

Session::~Session() = default;

void Session::let_go() {
  overlay_.clear();
  to_find_.clear();
  for (auto* const waiting : {&to_hash_, &to_checksum_, &to_ask_, &to_carve_}) waiting->clear();
}

Attributes Session::attributes() const {
  Attributes now = attributes_;
  now.size_bytes = size_;
  if (dirty_) now.mtime_ns = now.ctime_ns = host_.clock().wall_ns();
  return now;
}

void Session::closed(Time opened) { figures_.open_to_close = host_.clock().now() - opened; }

Result<Slot*> Session::begin_write(std::uint64_t offset, std::size_t& length) {
  if (error_.has_value()) return fail(*error_);
  if (state_ != State::kOpen) return fail(Code::kStale, "client.write");
  if (offset + length > limits::kFileBytesMax) return fail(Code::kTooLarge, "client.write");
  // A commit takes the file as it is at one moment, so writes wait until the commit has ended.
  if (commit_ != CommitStep::kNone) return would_block();
  Window& window = host_.window();
  const std::uint64_t part = offset / window.chunk_bytes();
  const std::uint64_t within = offset % window.chunk_bytes();
  length = std::min<std::size_t>(length, window.chunk_bytes() - within);
  auto found = filling_.find(part);
  if (found != filling_.end() && found->second->dirty.count() >= kSlotRangesMax) {
    seal(*found->second);
    found = filling_.end();
  }
  if (found == filling_.end()) {
    if (far_ahead() || outruns(part)) return would_block();
    Slot* slot = window.acquire(id_.value, part);
    if (slot == nullptr) return would_block();
    found = filling_.emplace(part, slot).first;
  }
  window.begin_copy(*found->second);
  begin_change();
  return found->second;
}

/// True when enough chunks wait for this process to copy them itself. There is no network latency
/// to hide then, and slots filled further ahead would have left the processor's caches.
bool Session::far_ahead() const {
  return moves_itself_ && to_carve_.size() + in_transport_ >=
                              std::max(2U, kAheadOfCopies / host_.window().chunk_bytes());
}

void Session::begin_change() {
  dirty_ = true;
  if (commit_from_ == Time{}) commit_from_ = host_.clock().now();
}

OutChunkPtr Session::end_write(Slot& slot, std::uint64_t offset, std::size_t length) {
  Window& window = host_.window();
  const auto from = static_cast<std::uint32_t>(offset % window.chunk_bytes());
  window.end_copy(slot, from, from + static_cast<std::uint32_t>(length));
  if (length > 0 && !error_.has_value()) {
    overlay_.put(offset, length, Piece{&slot, nullptr, from},
                 [this](const Piece& piece, std::uint64_t gone) { removed(piece, gone); });
    size_ = std::max(size_, offset + length);
    figures_.bytes_written += length;
  }
  if (slot.state == SlotState::kFilling && (window.full(slot) || error_.has_value())) {
    filling_.erase(slot.part);
    window.seal(slot);
    sealed_.push_back({&slot, host_.clock().now()});
  }
  if (!Window::settled(slot)) return nullptr;
  out_of_order_ =
      out_of_order_ || std::any_of(sealed_.begin(), sealed_.end(), [&](const auto& each) {
        return Window::settled(*each.slot) && each.slot->part == slot.part + 1;
      });
  return settle(slot);
}

Result<OutChunkPtr> Session::adopt(Slot& slot, std::uint64_t offset) {
  if (error_.has_value()) return fail(*error_);
  if (state_ != State::kOpen) return fail(Code::kStale, "client.write");
  Window& window = host_.window();
  const std::uint32_t length = window.chunk_bytes();
  if (offset + length > limits::kFileBytesMax) return fail(Code::kTooLarge, "client.write");
  const std::uint64_t part = offset / length;
  if (commit_ != CommitStep::kNone || far_ahead() || outruns(part)) return would_block();
  if (filling_.contains(part)) seal(*filling_[part]);
  window.adopt(slot, id_.value, part);
  window.begin_copy(slot);
  begin_change();
  return end_write(slot, offset, length);
}

/// Cuts a slot whose content is final, unless the slot before it must be cut first. Returns a chunk
/// whose CRC the caller should compute, or nullptr.
OutChunkPtr Session::settle(Slot& slot) {
  if (!waits_for_neighbour(slot)) return cut_in_order(slot);
  limit_waiting();
  host_.kick(*this);
  return nullptr;
}

OutChunkPtr Session::cut_in_order(Slot& slot) {
  std::erase_if(sealed_, [&](const Sealed& each) { return each.slot == &slot; });
  const std::uint64_t next = slot.part + 1;
  OutChunkPtr chunk = cut(slot);
  // Slots that have waited for this one; several when their part was written again meanwhile. Their
  // chunks are content-defined, so the caller has nothing to hash.
  std::vector<Slot*> behind;
  for (const Sealed& other : sealed_) {
    if (other.slot->part == next && Window::settled(*other.slot)) behind.push_back(other.slot);
  }
  for (Slot* other : behind) {
    if (Window::settled(*other)) (void)settle(*other);
  }
  if (waiting().count < waiting_max()) stop_holding_back();
  return chunk;
}

OutChunkPtr Session::cut(Slot& slot) {
  Window& window = host_.window();
  const std::uint64_t base = slot.part * window.chunk_bytes();
  if (content_cuts_ && !error_.has_value() && slot.dirty.count() > 0) {
    to_scan_.push_back(cutter_.take(slot, base));
    host_.kick(*this);
    return nullptr;
  }
  window.cut(slot, 1);  // keeps the slot until all its chunks are made
  std::vector<OutChunkPtr> chunks;
  for (const RangeSet::Range& range : slot.dirty.ranges()) {
    const Segments segments = {Segment{&slot, range.from, range.to - range.from}, Segment{}};
    OutChunkPtr chunk = make_chunk(base + range.from, segments);
    if (chunk != nullptr) chunks.push_back(std::move(chunk));
  }
  window.move(slot, SlotState::kHashing, SlotState::kStored);
  if (chunks.empty()) {
    finish_syncs();
    host_.shared().changed.notify_all();
    return nullptr;
  }
  // The calling thread computes the CRC: its processor's cache has the bytes.
  if (chunks.size() == 1) return chunks.front();
  to_hash_.insert(to_hash_.end(), chunks.begin(), chunks.end());
  host_.kick(*this);
  return nullptr;
}

/// True when the previous slot of the file must be cut first. Threads may fill slots out of order;
/// the chunks do not depend on that when slots are cut in order.
bool Session::waits_for_neighbour(const Slot& slot) const {
  if (!content_cuts_ || error_.has_value() || slot.part == 0 || !syncs_.empty()) return false;
  if (!slot.dirty.covers(0, 1)) return false;
  const std::uint64_t begin = slot.part * host_.window().chunk_bytes();
  if (cutter_.continues_at(begin)) return false;
  if (is_on_its_way(slot.part - 1)) return true;
  if (commit_ != CommitStep::kNone) return false;
  // The bytes before this slot may still come, unless they were written and cut already.
  bool was_written = false;
  overlay_.visit(begin - 1, begin, [&](std::uint64_t, std::uint64_t, const Piece* piece) {
    was_written = piece != nullptr;
    return false;
  });
  return !was_written;
}

/// True when a slot of that part is filling, or waits to be cut.
bool Session::is_on_its_way(std::uint64_t part) const {
  return filling_.contains(part) ||
         std::any_of(sealed_.begin(), sealed_.end(),
                     [&](const Sealed& each) { return each.slot->part == part; });
}

/// Counts the slots that wait for their predecessors, and finds the first one in the file.
Session::Waiting Session::waiting() const {
  Waiting all;
  for (const auto& [slot, since] : sealed_) {
    if (!Window::settled(*slot)) continue;
    ++all.count;
    if (all.first == nullptr || slot->part < all.first->part) all.first = slot;
  }
  return all;
}

std::size_t Session::waiting_max() const {
  return std::min(host_.window().slot_count() / 4, kOutOfOrderMax);
}

/// True when a write to `part` must wait. A thread that lost its processor has left a hole, and as
/// many slots as allowed already wait behind it. Applies only after slots were filled out of order,
/// and for at most kHeldBack.
bool Session::outruns(std::uint64_t part) {
  if (!out_of_order_) return false;
  const auto [count, first] = waiting();
  if (first == nullptr || count < waiting_max() || part < first->part) return false;
  if (held_back_ == Time{}) {
    held_back_ = host_.clock().now();
    host_.kick(*this);
  }
  return true;
}

void Session::stop_holding_back() {
  if (held_back_ == Time{}) return;
  held_back_ = {};
  host_.shared().changed.notify_all();
}

/// Cuts the first waiting slots although bytes before them are missing, while too many wait.
void Session::limit_waiting() {
  for (Waiting all = waiting(); all.count > waiting_max(); all = waiting()) {
    (void)cut_in_order(*all.first);
  }
}

/// Cuts slots that have waited at least `wait` although nothing of the slot before them has come.
/// Returns since when the next slot waits; Time{} when none does.
Time Session::give_up_holes(Duration wait) {
  const Time until = host_.clock().now() - wait;
  for (;;) {
    const Sealed* first = nullptr;
    for (const Sealed& each : sealed_) {
      if (!Window::settled(*each.slot) || is_on_its_way(each.slot->part - 1)) continue;
      if (first == nullptr || each.since < first->since) first = &each;
    }
    if (first == nullptr) return {};
    if (first->since > until) return first->since;
    (void)cut_in_order(*first->slot);
  }
}

std::vector<OutChunkPtr> Session::scanned(const Scan& scan) {
  // A sync or commit waits for all that was written, or the session has failed: keep no run open.
  if (!syncs_.empty() || commit_ != CommitStep::kNone || error_.has_value()) cutter_.end_all();
  cutter_.scanned(scan);
  std::vector<OutChunkPtr> chunks = take_to_hash();
  finish_syncs();
  host_.kick(*this);
  host_.shared().changed.notify_all();
  return chunks;
}

/// Makes a chunk of the bytes at `file_offset`. Returns nullptr when nothing refers to them.
OutChunkPtr Session::make_chunk(std::uint64_t file_offset, const Segments& segments) {
  auto chunk = std::make_shared<OutChunk>();
  chunk->file_offset = file_offset;
  for (const Segment& segment : segments) {
    if (segment.slot == nullptr) break;
    const std::uint64_t from = file_offset + chunk->chunk.length;
    chunk->live_bytes +=
        overlay_.refer(from, from + segment.length, *segment.slot, chunk, chunk->chunk.length);
    chunk->chunk.length += segment.length;
  }
  if (chunk->live_bytes == 0 || error_.has_value()) return nullptr;
  chunk->segments = segments;
  chunk->order = segments[0].slot->cuts++;
  chunk->session = shared_from_this();
  for (const Segment& segment : segments) {
    if (segment.slot != nullptr) host_.window().add_chunk(*segment.slot);
  }
  ++pipeline_;
  return chunk;
}

void Session::move(const Segments& segments, SlotState from, SlotState to) {
  for (const Segment& segment : segments) {
    if (segment.slot != nullptr) host_.window().move(*segment.slot, from, to);
  }
}

void Session::seal(Slot& slot) {
  filling_.erase(slot.part);
  host_.window().seal(slot);
  sealed_.push_back({&slot, host_.clock().now()});
  if (!Window::settled(slot)) return;
  if (OutChunkPtr chunk = settle(slot)) hash_elsewhere(std::move(chunk));
}

bool Session::mover_idles() const {
  return moves_itself_ && to_checksum_.size() + to_carve_.size() + in_transport_ < 2;
}

void Session::checksum_by_mover(OutChunkPtr chunk) {
  to_checksum_.push_back(std::move(chunk));
  host_.kick(*this);
}

void Session::hash_elsewhere(OutChunkPtr chunk) {
  to_hash_.push_back(std::move(chunk));
  host_.kick(*this);
}

void Session::seal_all() {
  std::vector<Slot*> slots;
  for (const auto& [part, slot] : filling_) slots.push_back(slot);
  std::sort(slots.begin(), slots.end(), [](auto* a, auto* b) { return a->part < b->part; });
  for (Slot* slot : slots) seal(*slot);
  (void)give_up_holes(Duration::zero());
  cutter_.end_all();
}

void Session::give_up_waiting(Slot& slot) {
  if (slot.state == SlotState::kOpen) {
    if (cutter_.end_in(slot)) host_.kick(*this);
  } else if (slot.state == SlotState::kFilling) {
    seal(slot);
  } else {
    (void)cut_in_order(slot);
  }
}

Status Session::truncate(std::uint64_t size_bytes) {
  if (error_.has_value()) return fail(*error_);
  if (state_ != State::kOpen) return fail(Code::kStale, "client.truncate");
  if (size_bytes > limits::kFileBytesMax) return fail(Code::kTooLarge, "client.truncate");
  if (commit_ != CommitStep::kNone) return would_block();
  dirty_ = true;
  set_size_ = true;
  if (size_bytes < size_) {
    overlay_.erase(size_bytes, std::numeric_limits<std::uint64_t>::max(),
                   [this](const Piece& piece, std::uint64_t length) { removed(piece, length); });
    cut_ = std::min(cut_, size_bytes);
  }
  size_ = size_bytes;
  return {};
}

Result<std::uint64_t> Session::extend(std::uint64_t bytes) {
  if (error_.has_value()) return fail(*error_);
  if (commit_ != CommitStep::kNone) return would_block();
  const std::uint64_t end = size_;
  if (end + bytes > limits::kFileBytesMax) return fail(Code::kTooLarge, "client.write");
  size_ = end + bytes;
  return end;
}

void Session::removed(const Piece& piece, std::uint64_t length) {
  if (piece.chunk == nullptr) return;
  OutChunk& chunk = *piece.chunk;
  STDCHK_ASSERT(chunk.live_bytes >= length);
  chunk.live_bytes -= length;
  if (chunk.live_bytes == 0) dead(chunk);
}

/// Gives back a stored chunk to which nothing refers any more. A chunk in an earlier step is
/// dropped when that step ends.
void Session::dead(OutChunk& chunk) {
  if (chunk.step != OutChunk::Step::kStored) return;
  chunk.step = OutChunk::Step::kDropped;
  if (chunk.ours) {
    for (const Extent& copy : chunk.chunk.copies) {
      grants_.give_back(copy, extent_bytes(chunk.chunk.length));
    }
    chunk.ours = false;
  }
}

VersionMapPtr Session::base() {
  if (attributes_.version == 0) return nullptr;
  if (base_ == nullptr) base_ = host_.maps().open(file_);
  return base_;
}

}  // namespace stdchk::client
