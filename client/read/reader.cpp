#include "client/read/reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/naming.h"

namespace stdchk::client {
namespace {

constexpr std::uint64_t kDrainedPlace = std::uint64_t{1} << 63;
constexpr std::uint32_t kReloadsMax = 3;
/// Bytes that were just moved and fit into the processor's second cache.
constexpr std::uint32_t kHotBytes = limits::kMiB;

/// Errors whose description says what to do.
constexpr Error kNoKey{
    Code::kPermission, 0,
    "client.read: the chunk is encrypted, and the pool's key is absent or wrong; "
    "give it by --key-file or STDCHK_KEY_FILE"};

constexpr Error kDrainedWrong{
    Code::kCorrupt, 0,
    "client.read: the drained file was damaged or changed, and the pool has "
    "no copy; stdchk verify lists such files"};

constexpr Duration kAskSilentAgain = std::chrono::seconds(1);
constexpr Duration kLogAgain = std::chrono::seconds(1);

bool has_crc(const Chunk& chunk) { return chunk.crc != 0 || chunk.name.is_named(); }

std::uint32_t owner_of(const Unit& unit) {
  return unit.map == nullptr ? msg::kUnknownUid : unit.map->attributes.uid;
}

bool is_only_drained(const Unit& unit) {
  return unit.map != nullptr && unit.chunk.copies.empty() && !is_sealed(unit.chunk.name);
}

}  // namespace

/// A Fetch brings one chunk into the cache. It tries the chunk's sources in turn.
struct Reader::Fetch final : Transfer {
  Reader* reader = nullptr;
  CachedChunk* entry = nullptr;
  Unit unit;
  bool ahead = false;  ///< no reader waits for it yet
  std::size_t next_copy = 0;
  bool near_asked = false;
  std::optional<Extent> near;  ///< place of the near copy, not read yet
  bool from_near = false;
  bool stripe_asked = false;
  bool from_drain = false;
  bool drained_wrong = false;        ///< the drained file has other bytes than at its drain
  DrainedReader::ReadPtr file_read;  ///< under way
  PartCrcList part_crcs;             ///< of a chunk that was found right, if they are wanted
  Error why{Code::kDataLost, 0, "client.read"};

 protected:
  void finished(Status status) override {
    const Chunk& chunk = unit.chunk;
    const bool hot = moved_here && chunk.length <= kHotBytes && has_crc(chunk);
    if (!status.has_value() || !hot || is_sealed(chunk.name)) {
      const Lock lock(reader->host_.shared.mutex);
      return reader->done(*this, std::move(status));
    }
    // In state fetching, only this thread may touch the bytes.
    Status good = reader->make_plain(*this);
    const Lock lock(reader->host_.shared.mutex);
    reader->settle(*this, std::move(good));
  }
};

Reader::Reader(Host host, StripeReader::Host stripes, std::unique_ptr<Memory> memory,
               std::size_t buffer_bytes)
    : host_(std::move(host)),
      near_({host_.shared, host_.maps, stripes.client, stripes.call}),
      stripes_(std::move(stripes)),
      memory_(std::move(memory)),
      parts_({host_.shared, host_.submit}, *memory_,
             memory_->bytes().last(PartReader::kMemoryBytes)),
      cache_(memory_->bytes().first(memory_->bytes().size() - PartReader::kMemoryBytes),
             buffer_bytes,
             [this](const CacheKey& key) STDCHK_REQUIRES(engine_lock) { fetches_.erase(key); }),
      drained_({host_.shared, host_.clock, host_.read_later, host_.drain_directory}) {}

Reader::~Reader() = default;

CacheKey Reader::key_of(const Unit& unit) const {
  if (!unit.chunk.copies.empty()) {
    const Extent& extent = unit.chunk.copies.front();
    return {extent.benefactor.value, extent.offset, 0, unit.chunk.length, unit.chunk.crc};
  }
  return {unit.map->file.value | kDrainedPlace, unit.file_offset, unit.map->version,
          unit.chunk.length, unit.chunk.crc};
}

Unit Reader::part_at(Unit unit, std::uint64_t file_offset) const {
  constexpr std::uint32_t kPart = limits::kDrainedPartBytes;
  if (!is_only_drained(unit) || unit.slice_length <= kPart) return unit;
  if (unit.slice_length == unit.chunk.length && has_crc(unit.chunk)) {
    std::shared_ptr<DrainedChunk>& whole = unit.map->in_parts[unit.file_offset];
    if (whole == nullptr || whole->length != unit.chunk.length || whole->crc != unit.chunk.crc) {
      whole = std::make_shared<DrainedChunk>(unit.file_offset, unit.chunk.length, unit.chunk.crc);
    }
    unit.part_of = whole;
  }
  const auto within = static_cast<std::uint32_t>(file_offset - unit.file_offset) / kPart * kPart;
  unit.file_offset += within;
  unit.slice_length = std::min(kPart, unit.slice_length - within);
  unit.slice_chunk_offset = 0;
  unit.chunk = Chunk{{}, unit.slice_length, 0, {}};
  return unit;
}

void Reader::start(const Unit& unit, bool ahead) {
  CachedChunk* entry = cache_.add(key_of(unit));
  while (entry == nullptr && !ahead && make_room(owner_of(unit))) entry = cache_.add(key_of(unit));
  if (entry == nullptr) return;
  ++(ahead ? counts_.ahead : counts_.fetched);
  auto& fetch = fetches_[entry->key];
  fetch = std::make_unique<Fetch>();
  fetch->reader = this;
  fetch->entry = entry;
  fetch->unit = unit;
  fetch->ahead = ahead;
  next_source(*fetch);
}

void Reader::prefetch(const Unit& unit) {
  if (unit.chunk.copies.empty() && unit.map == nullptr) return;
  if (unit.chunk.length > cache_.bytes_max() || !can_open(unit.chunk)) return;
  if (is_only_drained(unit) && drained_.hangs(owner_of(unit))) return;
  if (cache_.find(key_of(unit)) == nullptr) start(unit, true);
}

/// Tries the next source. Fails the fetch when no source is left.
void Reader::next_source(Fetch& fetch) {
  CachedChunk& entry = *fetch.entry;
  entry.state = CacheState::kFetching;
  if (try_near(fetch)) return;
  if (fetch.next_copy < fetch.unit.chunk.copies.size()) {
    const Extent& copy = fetch.unit.chunk.copies[fetch.next_copy++];
    fetch.patient = fetch.next_copy == fetch.unit.chunk.copies.size();
    return read_copy(fetch, copy);
  }
  const VersionMapPtr& map = fetch.unit.map;
  if (map != nullptr && !fetch.unit.chunk.copies.empty() &&
      !std::exchange(fetch.stripe_asked, true)) {
    return make_from_stripe(fetch);
  }
  // A drained version is whole in its file, also where memory should have the chunk.
  const bool in_file = map != nullptr && (fetch.unit.chunk.copies.empty() ||
                                          map->attributes.drain == DrainState::kDrained);
  const bool drained = in_file && !map->drained_path.empty() && !host_.drain_directory.empty();
  if (drained && !fetch.from_drain && !map->in_flight) {
    fetch.from_drain = true;
    if (map->drained != nullptr && map->drained->right) return read_drained(fetch);
    return open_drained(fetch);
  }
  cache_.unpin(entry);
  if (map != nullptr && (map->in_flight || map->reloads < kReloadsMax)) {
    // The chunk or its file may have moved. Fetches the map again and drops the fetch. Waiting
    // readers then begin anew with the new places.
    if (!map->in_flight) {
      ++map->reloads;
      map->drained.reset();
      host_.maps.reload(map);
    }
    cache_.erase(entry);  // and this fetch
    host_.shared.changed.notify_all();
    return;
  }
  // For a session's own chunk, the session may find other copies.
  if (map != nullptr) {
    log::error("file {}: {} bytes at {} cannot be read: {}", map->file.value,
               fetch.unit.chunk.length, fetch.unit.file_offset, describe(fetch.why));
  }
  entry.state = CacheState::kFailed;
  entry.error = Error{Code::kDataLost, 0, "client.read"};
  if (fetch.drained_wrong) entry.error = kDrainedWrong;
  if (fetch.why.code == kNoKey.code) entry.error = kNoKey;
  entry.failed_for = fetch.ahead ? nullptr : map.get();
  fetches_.erase(entry.key);
  host_.shared.changed.notify_all();
}

/// Asks once for a near copy, and reads that copy first. Returns false when the fetch
/// has to go on with the other sources.
bool Reader::try_near(Fetch& fetch) {
  const Unit& unit = fetch.unit;
  fetch.from_near = fetch.near.has_value();
  if (fetch.near) {
    fetch.patient = false;
    read_copy(fetch, *std::exchange(fetch.near, std::nullopt));
    return true;
  }
  if (fetch.near_asked || unit.map == nullptr || unit.chunk.copies.empty()) return false;
  // Only the checksum proves what a near copy holds. A short chunk is read sooner than asked for.
  if (!has_crc(unit.chunk) || unit.chunk.length < limits::kChunkBytesMin) return false;
  if (!near_.may_ask(*unit.map)) return false;
  fetch.near_asked = true;
  near_.find(*unit.map, unit.file_offset,
             [this, &fetch](std::optional<Extent> place) STDCHK_REQUIRES(engine_lock) {
               fetch.near = place;
               next_source(fetch);
             });
  return true;
}

void Reader::read_copy(Fetch& fetch, const Extent& copy) {
  CachedChunk& entry = *fetch.entry;
  fetch.from_drain = false;
  fetch.is_write = false;
  fetch.at = copy;
  fetch.skip = limits::kExtentHeaderBytes;
  fetch.memory = memory_.get();
  fetch.pieces = {MutableByteSpan(entry.data, fetch.unit.chunk.length), {}};
  entry.valid_from = 0;
  entry.valid_to = fetch.unit.chunk.length;
  host_.submit(fetch);
}

void Reader::make_from_stripe(Fetch& fetch) {
  CachedChunk& entry = *fetch.entry;
  entry.valid_from = 0;
  entry.valid_to = fetch.unit.chunk.length;
  stripes_.make(fetch.unit.chunk, {entry.data, fetch.unit.chunk.length},
                [this, &fetch](Status status) STDCHK_REQUIRES(engine_lock) {
                  // A chunk without a stripe keeps the error of its copies.
                  const bool none = !status && status.error().code == Code::kNotFound;
                  if (none) return next_source(fetch);
                  done(fetch, std::move(status));
                });
}

/// Opens the drained file. It is read after the manager, asked once more, has named the same file.
void Reader::open_drained(Fetch& fetch) {
  const VersionMapPtr& map = fetch.unit.map;
  fetch.file_read = drained_.open(
      owner_of(fetch.unit), map->drained_path, map->attributes.drain,
      [this, &fetch](Lock&, DrainedReader::Outcome& outcome) STDCHK_REQUIRES(engine_lock) {
        fetch.file_read.reset();
        const VersionMapPtr& known = fetch.unit.map;
        if (!outcome.refused.empty()) fetch.why = Error{Code::kSystem, 0, "client.drained file"};
        if (outcome.opened != nullptr && !known->in_flight) {
          known->drained = std::move(outcome.opened);
          host_.maps.reload(known);
        }
        next_source(fetch);
      });
}

void Reader::read_drained(Fetch& fetch) {
  CachedChunk& entry = *fetch.entry;
  const Unit& unit = fetch.unit;
  entry.valid_from = unit.slice_chunk_offset;
  entry.valid_to = unit.slice_chunk_offset + unit.slice_length;
  fetch.file_read = drained_.read(
      owner_of(unit), unit.map->drained, {unit.file_offset, unit.slice_length}, unit.part_of,
      [this, &fetch](Lock& lock, DrainedReader::Outcome& outcome) STDCHK_REQUIRES(engine_lock) {
        fetch.file_read.reset();
        if (outcome.status) {
          // Nobody takes the buffer of a fetch that has no read under way.
          const Unlocked unlocked(lock);
          std::ranges::copy(outcome.bytes, fetch.entry->data + fetch.entry->valid_from);
        } else if (fetch.unit.part_of != nullptr && outcome.status.error().code == Code::kCorrupt) {
          note_wrong(fetch);
        }
        done(fetch, std::move(outcome.status));
      });
}

bool Reader::is_late(const Fetch& fetch) const {
  return fetch.file_read != nullptr && drained_.is_late(*fetch.file_read);
}

/// Drops a read of a file that does not answer.
void Reader::give_up(Fetch& fetch) {
  CachedChunk& entry = *fetch.entry;
  const VersionMapPtr map = fetch.unit.map;
  const Time now = host_.clock.now();
  if (logged_silent_ == Time{} || now - logged_silent_ >= kLogAgain) {
    logged_silent_ = now;
    log::error("{}/{} does not answer: a read of {} bytes at {} fails", host_.drain_directory,
               map->drained_path, fetch.unit.slice_length, fetch.unit.file_offset);
  }
  DrainedReader::drop(*std::exchange(fetch.file_read, nullptr));
  map->silent_until = now + kAskSilentAgain;
  cache_.unpin(entry);
  cache_.erase(entry);  // and this fetch
  host_.shared.changed.notify_all();
}

/// Takes the buffer of a read of another user whose files hang. Returns false when there is none.
bool Reader::make_room(std::uint32_t for_owner) {
  const DrainedReader::ReadPtr hanging = drained_.find_hanging_read_of_others(for_owner);
  if (hanging == nullptr) return false;
  const auto waits = std::ranges::find_if(
      fetches_, [&](const auto& fetch) { return fetch.second->file_read == hanging; });
  STDCHK_ASSERT(waits != fetches_.end());
  give_up(*waits->second);
  return true;
}

void Reader::done(Fetch& fetch, Status status) {
  if (!status.has_value()) {
    fetch.why = status.error();
    return next_source(fetch);
  }
  fetch.entry->state = CacheState::kFetched;
  // The first reader checks the chunk, so the fetch needs no pin.
  cache_.unpin(*fetch.entry);
  host_.shared.changed.notify_all();
  // A chunk that was read ahead is checked ahead, too.
  if (fetch.ahead) host_.run_later([this, key = fetch.entry->key] { check_ahead(key); });
}

void Reader::check_ahead(const CacheKey& key) {
  Lock lock(host_.shared.mutex);
  CachedChunk* entry = cache_.find(key);
  if (entry == nullptr || entry->state != CacheState::kFetched) return;
  check(lock, *entry);
}

/// Checks a fetched chunk for its first reader. Releases the lock meanwhile.
void Reader::check(Lock& lock, CachedChunk& entry) {
  const auto found = fetches_.find(entry.key);
  if (found == fetches_.end()) return;
  Fetch& fetch = *found->second;
  const Chunk& chunk = fetch.unit.chunk;
  const bool whole = entry.valid_from == 0 && entry.valid_to == chunk.length;
  entry.state = CacheState::kChecking;
  ++entry.pins;
  Status good;
  if (whole && has_crc(chunk)) {
    const Unlocked unlocked(lock);
    good = make_plain(fetch);
  }
  settle(fetch, std::move(good));
}

/// Records that the drained file does not match its checksum.
void Reader::note_wrong(Fetch& fetch) {
  fetch.drained_wrong = true;
  log::warning("{}/{}: {} bytes at {} differ from the drained content", host_.drain_directory,
               fetch.unit.map->drained_path, fetch.unit.chunk.length, fetch.unit.file_offset);
}

/// Ends the check of a chunk. The checking thread has a pin.
void Reader::settle(Fetch& fetch, Status good) {
  CachedChunk& entry = *fetch.entry;
  host_.shared.changed.notify_all();
  if (!good.has_value()) {
    fetch.why = good.error();
    if (fetch.from_near) {
      // The manager has freed the near copy in the meantime, or it is wrong: the others are read.
      log::debug("benefactor {}: the near copy at {} is gone", fetch.at.benefactor.value,
                 fetch.at.offset);
    } else if (fetch.from_drain) {
      note_wrong(fetch);
    } else {
      log::warning("benefactor {}: the bytes at {} do not match their checksum: {}",
                   fetch.at.benefactor.value, fetch.at.offset, describe(good.error()));
    }
    const bool of_copy = !fetch.from_drain && !fetch.stripe_asked && !fetch.from_near;
    if (of_copy && fetch.unit.map != nullptr) host_.maps.report_wrong(*fetch.unit.map, fetch.at);
    return next_source(fetch);  // keeps the pin
  }
  if (fetch.unit.map != nullptr) fetch.unit.map->reloads = 0;
  if (fetch.direct_memory != nullptr) {
    parts_.add_direct_memory(fetch.at.benefactor, std::move(fetch.direct_memory));
  }
  if (!fetch.part_crcs.empty()) parts_.add_part_crcs(fetch.unit.chunk, std::move(fetch.part_crcs));
  entry.state = CacheState::kReady;
  entry.fresh = entry.valid_to - entry.valid_from;
  entry.from_drain = fetch.from_drain;
  --entry.pins;
  fetches_.erase(entry.key);
}

/// Checks the fetched bytes, and decrypts them in place.
Status Reader::make_plain(Fetch& fetch) const {
  const Chunk& chunk = fetch.unit.chunk;
  const MutableByteSpan bytes(fetch.entry->data, chunk.length);
  if (fetch.unit.learns_parts) {
    fetch.part_crcs = PartCrcs::compute(bytes);
    if (PartCrcs::joined(fetch.part_crcs, bytes.size()) != chunk.crc) {
      fetch.part_crcs.clear();
      return fail(Code::kCorrupt, "client.read checksum");
    }
  } else if (crc32c(0, bytes) != chunk.crc) {
    return fail(Code::kCorrupt, "client.read checksum");
  }
  if (!is_sealed(chunk.name)) return {};
  // If the seal does not open, the key belongs to another pool, or an attacker has changed the
  // bytes and the checksum. Another copy may be good.
  return host_.sealer->open(chunk.name, bytes).has_value() ? Status{} : fail(kNoKey);
}

Result<bool> Reader::read_part(Lock& lock, Unit& unit, std::uint32_t offset, MutableByteSpan out) {
  if (!reads_part(unit, out.size())) return false;
  STDCHK_ASSIGN(const bool read, parts_.read(lock, unit.chunk, offset, out));
  if (read) {
    ++counts_.given;
    totals_.pool_bytes += out.size();
  }
  unit.learns_parts = true;
  return read;
}

void Reader::give_back(CachedChunk& chunk, std::size_t bytes) {
  cache_.unpin(chunk);
  cache_.count_read(chunk, bytes);
  const auto fresh = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, chunk.fresh));
  chunk.fresh -= fresh;
  (chunk.from_drain ? totals_.drained_bytes : totals_.pool_bytes) += fresh;
  totals_.cached_bytes += bytes - fresh;
  host_.shared.changed.notify_all();
}

Result<CachedChunk*> Reader::get(Lock& lock, const Unit& unit) {
  if (unit.chunk.copies.empty() && unit.map == nullptr) return fail(Code::kDataLost, "client.read");
  if (unit.chunk.length > cache_.bytes_max()) return fail(Code::kNoMemory, "client.read cache");
  if (!can_open(unit.chunk)) {
    if (!std::exchange(logged_no_key_, true)) log::error("{}", describe(kNoKey));
    return fail(kNoKey);
  }
  if (unit.map != nullptr && unit.map->silent_until > host_.clock.now())
    return fail(kDrainedSilent);
  const CacheKey key = key_of(unit);
  CachedChunk* entry = nullptr;
  // Waiting callers are woken only by changes, so this loop uses up all that is known now.
  for (;;) {
    entry = cache_.find(key);
    if (entry == nullptr) {
      start(unit, false);
      entry = cache_.find(key);
    } else if (entry->state == CacheState::kFetched) {
      check(lock, *entry);
      entry = cache_.find(key);
    }
    if (entry == nullptr) return fail(Code::kWouldBlock, "client.read");
    if (entry->state == CacheState::kReady) {
      const std::uint32_t end = unit.slice_chunk_offset + unit.slice_length;
      if (unit.slice_chunk_offset >= entry->valid_from && end <= entry->valid_to) break;
      // Another part of the chunk came from the drained file: this one is fetched by itself.
      if (entry->pins > 0) return fail(Code::kWouldBlock, "client.read");
      cache_.erase(*entry);
      continue;
    }
    if (entry->state == CacheState::kFetching) {
      const auto fetch = fetches_.find(key);
      if (fetch != fetches_.end() && is_late(*fetch->second)) {
        give_up(*fetch->second);
        return fail(kDrainedSilent);
      }
    }
    if (entry->state != CacheState::kFailed) return fail(Code::kWouldBlock, "client.read");
    // A chunk that failed for another map may be readable again.
    const bool again = entry->failed_for != unit.map.get();
    const Error why = entry->error;
    cache_.erase(*entry);
    if (!again) return fail(why);
  }
  ++entry->pins;
  ++counts_.given;
  cache_.touch(*entry);
  return entry;
}

}  // namespace stdchk::client
