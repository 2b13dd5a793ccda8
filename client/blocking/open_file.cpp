#include "client/blocking/open_file.h"

#include <algorithm>
#include <cstring>

#include "core/base/limits.h"

namespace stdchk::client {
namespace {

constexpr std::size_t kComparedSlicesMax = 100'000;

Unit unit_of(PackedMap::Entry slice, const VersionMapPtr& map) {
  return {std::move(slice.chunk), slice.file_offset, slice.length, slice.chunk_offset, map, {}};
}

tl::unexpected<Error> would_block() { return fail(Code::kWouldBlock, "client.file"); }

}  // namespace

/// A Run is a range of the file whose bytes are in one place: a slot, a chunk, or a hole.
struct OpenFile::Run {
  std::uint64_t length = 0;
  Slot* slot = nullptr;  ///< set: the bytes are in this slot, from `slot_offset`
  std::uint32_t slot_offset = 0;
  bool in_chunk = false;  ///< the bytes are in `unit`, from `chunk_offset`
  Unit unit;
  std::uint32_t chunk_offset = 0;
  bool encrypted = false;  ///< the slot holds encrypted bytes, which must not be read
  OutChunkPtr written;     ///< set: the chunk is not committed, only this session's map names it
  // Neither a slot nor a chunk: a hole, which reads as zeros.
};

OpenFile::OpenFile(Engine& engine, SessionPtr session, bool append)
    : engine_(engine),
      file_(session->file()),
      session_(std::move(session)),
      writes_(true),
      append_(append) {}

OpenFile::OpenFile(Engine& engine, FileId file, SessionPtr session, VersionMapPtr map)
    : engine_(engine),
      file_(file),
      session_(std::move(session)),
      map_(std::move(map)),
      counted_(engine.counted_reader()),
      writes_(false),
      append_(false) {}

void OpenFile::drop_reserved() {
  for (auto& [offset, reserved] : reserved_) {
    OutChunkPtr chunk = session_->end_write(*reserved.slot, offset, 0);
    if (chunk != nullptr) session_->hashes().add(std::move(chunk));
  }
  reserved_.clear();
}

Status OpenFile::refresh(Lock& lock, const Attributes& newest) {
  if (uses_session()) return session_->refresh(newest);
  // A reader whose session has ended reads the committed version.
  if (map_ == nullptr || (map_->resolved && map_->attributes.version < newest.version)) {
    map_ = engine_.maps().open(file_);
    ahead_until_ = 0;
  }
  return opened(lock);
}

VersionMapPtr OpenFile::version_map() { return uses_session() ? nullptr : base(); }

Status OpenFile::compare(const OpenFile& other, std::optional<std::uint64_t>& same_bytes) {
  bool loads = false;
  for (const VersionMapPtr& map : {map_, other.map_}) {
    if (map->error.has_value()) return fail(*map->error);
    if (map->map.slice_count() > kComparedSlicesMax) return {};
    if (map->complete) continue;
    engine_.maps().load_next(map);
    loads = true;
  }
  if (loads) return would_block();
  same_bytes = 0;
  const std::size_t count = std::min(map_->map.slice_count(), other.map_->map.slice_count());
  for (std::size_t i = 0; i < count; ++i) {
    const PackedMap::Entry mine = map_->map.slice(i);
    const PackedMap::Entry others = other.map_->map.slice(i);
    const bool same_chunk = mine.chunk.name == others.chunk.name &&
                            mine.chunk.length == others.chunk.length &&
                            mine.chunk.crc == others.chunk.crc;
    if (!same_chunk || mine.file_offset != others.file_offset ||
        mine.chunk_offset != others.chunk_offset) {
      break;
    }
    same_bytes = mine.file_offset + std::min(mine.length, others.length);
    if (mine.length != others.length) break;
  }
  return {};
}

void OpenFile::follow(const OpenFile& other) {
  if (uses_session()) return;
  if (map_ != nullptr && map_->attributes.version >= other.map_->attributes.version) return;
  map_ = other.map_;
  ahead_until_ = 0;
}

void OpenFile::release(Lock&) {
  drop_reserved();
  map_.reset();
  session_.reset();
  counted_.reset();
}

Status OpenFile::opened(Lock&) const {
  if (uses_session() || map_ == nullptr) return {};
  if (map_->error.has_value()) return fail(*map_->error);
  if (!map_->resolved) return would_block();
  return {};
}

Attributes OpenFile::attributes(Lock&) const {
  if (uses_session()) return session_->attributes();
  if (map_ != nullptr) return map_->attributes;
  return session_->attributes();
}

std::uint32_t OpenFile::owner() {
  const VersionMapPtr map = base();
  return map == nullptr ? msg::kUnknownUid : map->attributes.uid;
}

VersionMapPtr OpenFile::base() {
  if (uses_session()) return session_->base();
  if (map_ == nullptr) map_ = engine_.maps().open(file_);
  return map_;
}

Result<std::uint64_t> OpenFile::size(Lock&) {
  if (uses_session()) {
    if (session_->error().has_value()) return fail(*session_->error());
    return session_->content().size();
  }
  const VersionMapPtr map = base();
  if (map->error.has_value()) return fail(*map->error);
  if (!map->resolved) return would_block();
  return map->attributes.size_bytes;
}

Result<OpenFile::Run> OpenFile::locate(std::uint64_t offset, std::uint64_t length) {
  Run run;
  run.length = length;
  if (!uses_session()) return locate_base(base(), offset, length);
  bool from_base = false;
  session_->content().overlay().visit(
      offset, offset + length, [&](std::uint64_t, std::uint64_t run_length, const Piece* piece) {
        run.length = run_length;
        if (piece == nullptr) {
          from_base = true;
        } else if (piece->slot != nullptr) {
          run.slot = piece->slot;
          run.slot_offset = piece->offset;
        } else if (piece->chunk->in_window()) {
          run.encrypted = piece->chunk->encrypted;
          const Segment segment = piece->chunk->from(piece->offset);
          run.slot = segment.slot;
          run.slot_offset = segment.offset;
          run.length = std::min<std::uint64_t>(run_length, segment.length);
        } else {
          run.in_chunk = true;
          run.chunk_offset = piece->offset;
          run.written = piece->chunk;
          run.unit.chunk = piece->chunk->chunk;
          run.unit.file_offset = offset;
          run.unit.slice_chunk_offset = piece->offset;
          run.unit.slice_length = static_cast<std::uint32_t>(run_length);
        }
        return false;
      });
  // Wait: encrypted bytes can be read once they are stored, and a chunk that is searched once it is
  // found.
  if (run.encrypted || (run.written != nullptr && run.written->search_under_way))
    return would_block();
  if (!from_base || offset >= session_->content().cut()) return run;
  const auto hole =
      session_->content().hole_at(offset, std::min(run.length, session_->content().cut() - offset));
  run.length = hole.length;
  if (hole.is_hole) return run;
  const VersionMapPtr map = base();
  if (map == nullptr) return run;
  return locate_base(map, offset, run.length);
}

Result<OpenFile::Run> OpenFile::locate_base(const VersionMapPtr& map, std::uint64_t offset,
                                            std::uint64_t length) {
  if (map->error.has_value()) return fail(*map->error);
  if (!map->resolved || !map->reaches(offset + 1)) {
    engine_.maps().load_next(map);
    return would_block();
  }
  Run run;
  run.length = length;
  if (offset >= map->attributes.size_bytes) return run;
  const std::size_t at = map->map.find(offset);
  if (at == map->map.slice_count()) return run;
  PackedMap::Entry slice = map->map.slice(at);
  if (slice.file_offset > offset) {
    run.length = std::min(length, slice.file_offset - offset);
    return run;
  }
  run.unit = engine_.reader().part_at(unit_of(std::move(slice), map), offset);
  const std::uint64_t within = offset - run.unit.file_offset;
  run.length = std::min<std::uint64_t>(length, run.unit.slice_length - within);
  run.in_chunk = true;
  run.chunk_offset = run.unit.slice_chunk_offset + static_cast<std::uint32_t>(within);
  return run;
}

/// Fetches chunks ahead for a sequential reader: twice as many at each read, up to half the cache.
void OpenFile::read_ahead(std::uint64_t offset, std::uint64_t length) {
  // A read that waited is repeated with the same range. That says nothing about the reader.
  if (offset == last_read_ && offset + length == next_read_) return;
  const bool sequential = offset == next_read_ && offset > 0;
  // Threads of a mount may take the requests of a sequential reader out of order.
  const std::uint64_t chunk = engine_.config().chunk_bytes;
  jumps_ = std::max(offset, next_read_) - std::min(offset, next_read_) > chunk;
  last_read_ = offset;
  next_read_ = offset + length;
  if (!sequential) ahead_until_ = 0;
  if (uses_session() && !session_->content().overlay().empty()) return;
  const VersionMapPtr map = base();
  if (map == nullptr || !map->resolved || map->error.has_value()) return;
  Reader& reader = engine_.reader();
  // Reader::read_part() reads such a range without its chunk, or get() with it.
  if (jumps_ && length <= chunk / 4 && offset / chunk == (offset + length - 1) / chunk) return;
  std::uint64_t until = offset + length;
  if (sequential || length > chunk) {
    ahead_chunks_ =
        std::min<std::uint64_t>(std::max<std::uint64_t>(ahead_chunks_ * 2, 2), reader.ahead_max());
    until += ahead_chunks_ * chunk;
  } else {
    ahead_chunks_ = 0;
  }
  until = std::min(until, map->attributes.size_bytes);
  if (!map->reaches(until)) engine_.maps().load_next(map);
  const std::uint64_t from = std::max(offset, ahead_until_);
  // Each reader fetches at most half the cache ahead.
  const std::uint64_t limit = offset + reader.ahead_max() * chunk;
  std::size_t at = map->map.find(from);
  // Each short chunk takes a whole buffer, so the number of chunks is limited too.
  const std::size_t last = map->map.find(offset) + reader.ahead_max();
  for (; at < std::min(map->map.slice_count(), last + 1); ++at) {
    PackedMap::Entry slice = map->map.slice(at);
    if (slice.file_offset >= until || slice.file_offset >= limit) break;
    const std::uint64_t end = slice.file_offset + slice.length;
    const Unit whole = unit_of(std::move(slice), map);
    ahead_until_ = std::max(from, whole.file_offset);
    while (ahead_until_ < std::min({end, until, limit})) {
      const Unit part = reader.part_at(whole, ahead_until_);
      reader.prefetch(part);
      ahead_until_ = part.file_offset + part.slice_length;
    }
  }
}

/// Handles a failed read. kWouldBlock: the chunk may have moved, and the manager is asked for its
/// new place.
Status OpenFile::find_lost_chunk_again(const Run& run, const Error& why) {
  const bool lost = why.code == Code::kDataLost;
  if (lost && run.written != nullptr && session_->equal().find_again(run.written))
    return would_block();
  return fail(why);
}

Status OpenFile::read(Lock& lock, std::uint64_t offset, MutableByteSpan out, std::size_t& done) {
  STDCHK_ASSIGN(const std::uint64_t end, size(lock));
  if (offset >= end) return {};
  const std::size_t wanted = std::min<std::uint64_t>(out.size(), end - offset);
  if (done == 0) read_ahead(offset, wanted);
  while (done < wanted) {
    STDCHK_ASSIGN(Run run, locate(offset + done, wanted - done));
    const MutableByteSpan to = out.subspan(done, static_cast<std::size_t>(run.length));
    if (run.slot != nullptr) {
      copy_from_slot(lock, run, to);
    } else if (run.in_chunk) {
      STDCHK_ASSIGN(const bool read, read_part(lock, run, to));
      if (read) {
        done += to.size();
        continue;
      }
      auto chunk = engine_.reader().get(lock, run.unit);
      if (!chunk.has_value()) return find_lost_chunk_again(run, chunk.error());
      if (run.written != nullptr) run.written->searches = 0;
      {
        const Unlocked unlocked(lock);
        std::memcpy(to.data(), (*chunk)->data + run.chunk_offset, to.size());
      }
      engine_.reader().give_back(**chunk, to.size());
    } else {
      std::memset(to.data(), 0, to.size());
    }
    done += to.size();
  }
  return {};
}

Status OpenFile::seek(Lock& lock, Seek what, std::uint64_t& at, bool& found) {
  constexpr int kRunsMax = 100'000;  // looked at under the lock
  STDCHK_ASSIGN(const std::uint64_t end, size(lock));
  found = false;
  if (at >= end) return {};
  for (int runs = 0; at < end; ++runs) {
    // A caller is told of no hole rather than of a hole that holds data.
    if (runs == kRunsMax && what == Seek::kHole) at = end;
    if (runs == kRunsMax) break;
    STDCHK_ASSIGN(const Run run, locate(at, end - at));
    const bool is_hole = run.slot == nullptr && !run.in_chunk;
    found = is_hole == (what == Seek::kHole);
    if (found) return {};
    at += run.length;
  }
  found = what == Seek::kHole || at < end;
  return {};
}

/// Reads a short range of a long chunk for a reader that jumps. Returns false when the whole chunk
/// is to be fetched.
Result<bool> OpenFile::read_part(Lock& lock, Run& run, MutableByteSpan to) {
  if (!jumps_ || run.unit.map == nullptr) return false;
  return engine_.reader().read_part(lock, run.unit, run.chunk_offset, to);
}

void OpenFile::copy_from_slot(Lock& lock, const Run& run, MutableByteSpan to) {
  const std::byte* const from = run.slot->data + run.slot_offset;
  if (engine_.hasher().encrypts()) {
    // Keep the lock: otherwise a hash thread could encrypt the bytes in their place meanwhile.
    std::memcpy(to.data(), from, to.size());
    return;
  }
  engine_.window().begin_read(*run.slot);
  {
    const Unlocked unlocked(lock);
    std::memcpy(to.data(), from, to.size());
  }
  engine_.window().end_read(*run.slot);
  engine_.shared().changed.notify_all();
}

Result<ReadView> OpenFile::view(Lock& lock, std::uint64_t offset, std::size_t bytes) {
  STDCHK_ASSIGN(const std::uint64_t end, size(lock));
  if (offset >= end) return ReadView();
  const std::size_t wanted = std::min<std::uint64_t>(bytes, end - offset);
  read_ahead(offset, wanted);
  STDCHK_ASSIGN(const Run run, locate(offset, wanted));
  if (!run.in_chunk || run.length < wanted) return ReadView();
  // read() brings such a range without the rest of its chunk.
  if (jumps_ && run.unit.map != nullptr && engine_.reader().reads_part(run.unit, wanted)) {
    return ReadView();
  }
  auto chunk = engine_.reader().get(lock, run.unit);
  if (!chunk.has_value()) return tl::unexpected(find_lost_chunk_again(run, chunk.error()).error());
  return ReadView(engine_, **chunk, ByteSpan((*chunk)->data + run.chunk_offset, wanted));
}

/// Begins a write into a slot. Without a free slot, frees one first.
Result<Slot*> OpenFile::begin_write(std::uint64_t offset, std::size_t& length) {
  for (;;) {
    auto slot = session_->begin_write(offset, length);
    if (slot.has_value() || slot.error().code != Code::kWouldBlock) return slot;
    // A slot whose bytes were overwritten or truncated is free at once, without a signal.
    if (!engine_.relieve_window()) return slot;
  }
}

Status OpenFile::write(Lock& lock, std::uint64_t offset, ByteSpan bytes, std::size_t& done) {
  while (done < bytes.size()) {
    std::size_t length = bytes.size() - done;
    const std::uint64_t at = offset + done;
    auto slot = begin_write(at, length);
    if (!slot.has_value()) return fail(slot.error());
    std::byte* const to = (*slot)->data + at % engine_.window().chunk_bytes();
    {
      const Unlocked unlocked(lock);
      std::memcpy(to, bytes.data() + done, length);
    }
    done += length;
    engine_.hasher().finish_checksum(lock, session_->end_write(**slot, at, length));
  }
  return {};
}

Result<std::uint64_t> OpenFile::append_at(Lock&, std::uint64_t bytes) {
  return session_->extend(bytes);
}

Result<MutableByteSpan> OpenFile::reserve(Lock&, std::uint64_t offset, std::size_t bytes) {
  if (bytes == 0 || reserved_.contains(offset))
    return fail(Code::kInvalidArgument, "client.reserve");
  auto slot = begin_write(offset, bytes);
  if (!slot.has_value()) return fail(slot.error());
  reserved_[offset] = Reserved{*slot, bytes};
  return MutableByteSpan((*slot)->data + offset % engine_.window().chunk_bytes(), bytes);
}

Status OpenFile::submit(Lock& lock, std::uint64_t offset, std::size_t bytes) {
  const auto found = reserved_.find(offset);
  if (found == reserved_.end() || bytes > found->second.bytes) {
    return fail(Code::kInvalidArgument, "client.submit");
  }
  Slot* slot = found->second.slot;
  reserved_.erase(found);
  engine_.hasher().finish_checksum(lock, session_->end_write(*slot, offset, bytes));
  if (session_->error().has_value()) return fail(*session_->error());
  return {};
}

Status OpenFile::adopt(Lock& lock, Slot& slot, std::uint64_t offset) {
  auto chunk = session_->adopt(slot, offset);
  if (!chunk.has_value()) return fail(chunk.error());
  // The reactor's thread copies the bytes itself and has time: computing the CRC there brings the
  // bytes into its processor's cache.
  if (*chunk != nullptr && !engine_.hasher().encrypts() &&
      session_->writer().is_copier_idle(session_->hashes().reactor_count())) {
    session_->hashes().add_for_reactor(std::move(*chunk));
  } else {
    engine_.hasher().finish_checksum(lock, std::move(*chunk));
  }
  return {};
}

}  // namespace stdchk::client
