#include "client/read/reader.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/chunk/crc_joined.h"
#include "core/chunk/naming.h"

namespace stdchk::client {
namespace {

constexpr std::uint64_t kDrainedPlace = std::uint64_t{1} << 63;
constexpr std::uint32_t kReloadsMax = 3;
/// So many bytes that were just moved are in the processor's second cache still.
constexpr std::uint32_t kHotBytes = limits::kMiB;

/// What describe() makes of it says what to do.
constexpr Error kNoKey{Code::kPermission, 0,
                       "client.read: it is encrypted, and the pool's key (--key-file, "
                       "STDCHK_KEY_FILE) was not given, or is another one"};

constexpr Error kDrainedWrong{Code::kCorrupt, 0,
                              "client.read: the drained file was damaged or changed, and it is "
                              "nowhere else; stdchk verify says what else is"};

constexpr Error kSilent{Code::kSystem, 0,
                        "client.read: the drain directory does not answer in time; look at its "
                        "file system"};
constexpr Duration kAskSilentAgain = std::chrono::seconds(1);
constexpr Duration kSayAgain = std::chrono::seconds(1);

bool has_crc(const Chunk& chunk) { return chunk.crc != 0 || chunk.name.is_named(); }

std::uint32_t owner_of(const Unit& unit) {
  return unit.map == nullptr ? msg::kUnknownUid : unit.map->attributes.uid;
}

bool is_in_file_only(const Unit& unit) {
  return unit.map != nullptr && unit.chunk.copies.empty() && !is_sealed(unit.chunk.name);
}

/// Reads exactly [offset, + size) of a file.
Status read_file(int fd, std::uint64_t offset, MutableByteSpan out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t count =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("client.drained file");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  if (done < out.size()) return fail(Code::kCorrupt, "client.drained file is short");
  return {};
}

/// What its parts must be, by all of it, read through `room`.
Result<std::vector<std::uint32_t>> part_crcs(int fd, const DrainedChunk& chunk,
                                             MutableByteSpan room) {
  std::vector<std::uint32_t> parts;
  std::uint32_t all = 0;
  for (std::uint32_t at = 0; at < chunk.length;) {
    const auto length = static_cast<std::uint32_t>(
        std::min<std::size_t>(limits::kDrainedPartBytes, chunk.length - at));
    const MutableByteSpan part = room.first(length);
    STDCHK_TRY(read_file(fd, chunk.offset + at, part));
    parts.push_back(crc32c(0, part));
    all = crc32c_joined(all, parts.back(), length);
    at += length;
  }
  if (all != chunk.crc) return fail(Code::kCorrupt, "client.drained file");
  return parts;
}

/// Reads a part into `out`; kCorrupt: it is not what was drained.
Status read_file_part(int fd, DrainedChunk& chunk, std::uint64_t offset, MutableByteSpan out) {
  {
    const MutexLock lock(chunk.mutex);
    if (chunk.part_crcs.empty()) {
      std::vector<std::byte> room(limits::kDrainedPartBytes);
      STDCHK_ASSIGN(chunk.part_crcs, part_crcs(fd, chunk, room));
    }
  }
  STDCHK_TRY(read_file(fd, offset, out));
  const std::size_t number = (offset - chunk.offset) / limits::kDrainedPartBytes;
  if (crc32c(0, out) == chunk.part_crcs[number]) return {};
  return fail(Code::kCorrupt, "client.drained file");
}

}  // namespace

/// A FileRead is what a thread reads for a Fetch. It outlives the fetch when the file hangs.
struct Reader::FileRead {
  Fetch* fetch = nullptr;  ///< guarded by the lock; none: nobody wants the bytes any more
  std::uint32_t owner = 0;
  Time asked{};
  std::atomic<Time> began{Time{}};  ///< by its thread; Time{}: not yet
  // The thread's, then the reader's.
  std::vector<std::byte> bytes;
  std::shared_ptr<DrainedFile> opened;
  std::string refused;
  Status status;
};

/// A Fetch is the way of one chunk into the cache: its sources, one after the other.
struct Reader::Fetch final : Transfer {
  Reader* reader = nullptr;
  CachedChunk* entry = nullptr;
  Unit unit;
  bool ahead = false;  ///< nobody waits for it yet
  std::size_t next_copy = 0;
  bool stripe_asked = false;
  bool from_drain = false;
  bool drained_wrong = false;  ///< the drained file is not what was drained
  FileReadPtr file_read;       ///< under way
  PartCrcList part_crcs;       ///< of a chunk that was found right, if they are wanted
  Error why{Code::kDataLost, 0, "client.read"};

 protected:
  void finished(Status status) override {
    const Chunk& chunk = unit.chunk;
    const bool hot = moved_here && chunk.length <= kHotBytes && has_crc(chunk);
    if (!status.has_value() || !hot || is_sealed(chunk.name)) {
      const Lock lock(reader->host_.shared.mutex);
      return reader->done(*this, std::move(status));
    }
    // Nobody else may touch the bytes before this is over.
    Status good = reader->make_plain(*this);
    const Lock lock(reader->host_.shared.mutex);
    reader->settle(*this, std::move(good));
  }
};

Reader::Reader(Host host, StripeReader::Host stripes, std::unique_ptr<Memory> memory,
               std::size_t buffer_bytes)
    : host_(std::move(host)),
      stripes_(std::move(stripes)),
      memory_(std::move(memory)),
      parts_({host_.shared, host_.submit}, *memory_,
             memory_->bytes().last(PartReader::kMemoryBytes)),
      cache_(memory_->bytes().first(memory_->bytes().size() - PartReader::kMemoryBytes),
             buffer_bytes, [this](const CacheKey& key) { fetches_.erase(key); }),
      drain_(std::make_shared<DrainDirectory>(host_.drain_directory)) {}

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
  if (!is_in_file_only(unit) || unit.slice_length <= kPart) return unit;
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
  if (is_in_file_only(unit) && hangs(owner_of(unit))) return;
  if (cache_.find(key_of(unit)) == nullptr) start(unit, true);
}

/// Tries what was not tried yet; when nothing is left the fetch has failed.
void Reader::next_source(Fetch& fetch) {
  CachedChunk& entry = *fetch.entry;
  entry.state = CacheState::kFetching;
  if (fetch.next_copy < fetch.unit.chunk.copies.size()) {
    fetch.from_drain = false;
    fetch.is_write = false;
    fetch.at = fetch.unit.chunk.copies[fetch.next_copy++];
    fetch.patient = fetch.next_copy == fetch.unit.chunk.copies.size();
    fetch.skip = limits::kExtentHeaderBytes;
    fetch.memory = memory_.get();
    fetch.pieces = {MutableByteSpan(entry.data, fetch.unit.chunk.length), {}};
    entry.valid_from = 0;
    entry.valid_to = fetch.unit.chunk.length;
    return host_.submit(fetch);
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
    // The chunk may have moved, or its file: the map is fetched again, and who waits comes back
    // with the new places. Nothing stays here that they would have to clear away first.
    if (!map->in_flight) {
      ++map->reloads;
      map->drained.reset();
      host_.maps.reload(map);
    }
    cache_.erase(entry);  // and this fetch
    host_.shared.changed.notify_all();
    return;
  }
  // A session's own chunk may be looked for elsewhere.
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

void Reader::make_from_stripe(Fetch& fetch) {
  CachedChunk& entry = *fetch.entry;
  entry.valid_from = 0;
  entry.valid_to = fetch.unit.chunk.length;
  stripes_.make(fetch.unit.chunk, {entry.data, fetch.unit.chunk.length},
                [this, &fetch](Status status) {
                  // Of a chunk in no stripe it is told why its copies could not be read.
                  const bool none = !status && status.error().code == Code::kNotFound;
                  if (none) return next_source(fetch);
                  done(fetch, std::move(status));
                });
}

Reader::FileReadPtr Reader::begin_file_read(Fetch& fetch) {
  auto read = std::make_shared<FileRead>();
  read->fetch = &fetch;
  read->owner = owner_of(fetch.unit);
  read->asked = host_.clock.now();
  fetch.file_read = read;
  reading_.push_back(read);
  return read;
}

/// The fetch that still waits for it. Lock held.
Reader::Fetch* Reader::end_file_read(const FileReadPtr& read) {
  std::erase(reading_, read);
  Fetch* const fetch = std::exchange(read->fetch, nullptr);
  if (fetch != nullptr) fetch->file_read.reset();
  return fetch;
}

/// The file is read when the manager has said once more where it is.
void Reader::open_drained(Fetch& fetch) {
  const VersionMapPtr& map = fetch.unit.map;
  const FileReadPtr read = begin_file_read(fetch);
  const auto open = [read, drain = drain_, &clock = host_.clock, path = map->drained_path,
                     state = map->attributes.drain] {
    read->began = clock.now();
    const auto root = drain->open();
    if (!root) {
      read->refused = root.error().why;
      return;
    }
    auto opened = root->open(path, Access::kRead);
    if (!opened) {
      if (opened.error().os_errno != ENOENT) read->refused = opened.error().why;
    } else if (!drain->may_belong(*root, opened->status, read->owner)) {
      read->refused = fmt::format(
          "{} in the drain directory belongs to uid {}, and in the pool to uid {}: it "
          "is not the file that was drained",
          path, opened->status.st_uid, read->owner);
    } else {
      read->opened = std::make_shared<DrainedFile>(std::move(opened->file), path, state);
    }
  };
  const auto deliver = [this, read] {
    const Lock lock(host_.shared.mutex);
    Fetch* const of = end_file_read(read);
    if (!read->refused.empty()) note_refused(read->refused);
    if (of == nullptr) return;
    const VersionMapPtr& known = of->unit.map;
    if (!read->refused.empty()) of->why = Error{Code::kSystem, 0, "client.drained file"};
    if (read->opened != nullptr && !known->in_flight) {
      known->drained = std::move(read->opened);
      host_.maps.reload(known);
    }
    next_source(*of);
  };
  host_.read_later({read->owner, open, deliver});
}

void Reader::read_drained(Fetch& fetch) {
  CachedChunk& entry = *fetch.entry;
  entry.valid_from = fetch.unit.slice_chunk_offset;
  entry.valid_to = fetch.unit.slice_chunk_offset + fetch.unit.slice_length;
  const FileReadPtr read = begin_file_read(fetch);
  const auto move = [read, &clock = host_.clock, file = fetch.unit.map->drained,
                     of = fetch.unit.part_of, offset = fetch.unit.file_offset,
                     length = fetch.unit.slice_length] {
    read->began = clock.now();
    read->bytes.resize(length);
    const MutableByteSpan out(read->bytes);
    const int fd = file->file.get();
    read->status =
        of == nullptr ? read_file(fd, offset, out) : read_file_part(fd, *of, offset, out);
  };
  const auto deliver = [this, read, of = fetch.unit.part_of] {
    Lock lock(host_.shared.mutex);
    Fetch* const wants = end_file_read(read);
    if (wants == nullptr) return;
    if (read->status) {
      // Nobody takes the buffer of a fetch that has no read under way.
      lock.unlock();
      std::ranges::copy(read->bytes, wants->entry->data + wants->entry->valid_from);
      lock.lock();
    } else if (of != nullptr && read->status.error().code == Code::kCorrupt) {
      note_wrong(*wants);
    }
    done(*wants, std::move(read->status));
  };
  host_.read_later({read->owner, move, deliver});
}

/// Once a second at most: whoever has put it there may read it as often as he likes.
void Reader::note_refused(const std::string& why) {
  const Time now = host_.clock.now();
  if (said_refused_ != Time{} && now - said_refused_ < kSayAgain) return;
  said_refused_ = now;
  log::warning("{}", why);
}

bool Reader::hangs(std::uint32_t owner) const {
  const Time now = host_.clock.now();
  return std::ranges::any_of(reading_, [&](const FileReadPtr& read) {
    const Time began = read->began;
    return read->owner == owner && began != Time{} && now - began > kHangsAfter;
  });
}

/// What was not begun waits for threads of its owner: it is late when one of these hangs.
bool Reader::is_late(const Fetch& fetch) const {
  if (fetch.file_read == nullptr) return false;
  const FileRead& read = *fetch.file_read;
  const Time began = read.began;
  const Time now = host_.clock.now();
  if (began != Time{}) return now - began > kGivesUpAfter;
  return now - read.asked > kGivesUpAfter && hangs(read.owner);
}

/// Nobody waits for the file any more; what comes of the read is dropped.
void Reader::give_up(Fetch& fetch) {
  CachedChunk& entry = *fetch.entry;
  const VersionMapPtr map = fetch.unit.map;
  const Time now = host_.clock.now();
  if (said_silent_ == Time{} || now - said_silent_ >= kSayAgain) {
    said_silent_ = now;
    log::error("{}/{} does not answer: a read of {} bytes at {} fails", host_.drain_directory,
               map->drained_path, fetch.unit.slice_length, fetch.unit.file_offset);
  }
  std::exchange(fetch.file_read, nullptr)->fetch = nullptr;
  map->silent_until = now + kAskSilentAgain;
  cache_.unpin(entry);
  cache_.erase(entry);  // and this fetch
  host_.shared.changed.notify_all();
}

/// Takes the buffer of a read of another user whose files hang. False: there is none.
bool Reader::make_room(std::uint32_t for_owner) {
  for (const FileReadPtr& read : reading_) {
    if (read->fetch == nullptr || read->owner == for_owner || !hangs(read->owner)) continue;
    give_up(*read->fetch);
    return true;
  }
  return false;
}

Status Reader::Wait::end(Status status) const {
  const bool late = !status && status.error().code == Code::kDeadline;
  if (late && reader_.hangs(owner_)) return fail(kSilent);
  return status;
}

Status Reader::Wait::check() const {
  const bool too_many = reader_.waits_.at(owner_) + reader_.wait_count_ > kWaitsMax;
  if (!too_many || !reader_.hangs(owner_)) return {};
  return fail(kSilent);
}

void Reader::done(Fetch& fetch, Status status) {
  if (!status.has_value()) {
    fetch.why = status.error();
    return next_source(fetch);
  }
  fetch.entry->state = CacheState::kFetched;
  // Nobody waits for a pin to look at it: the first who wants it checks it.
  cache_.unpin(*fetch.entry);
  host_.shared.changed.notify_all();
  // What was read ahead is checked ahead, too.
  if (fetch.ahead) host_.run_later([this, key = fetch.entry->key] { check_ahead(key); });
}

void Reader::check_ahead(const CacheKey& key) {
  Lock lock(host_.shared.mutex);
  CachedChunk* entry = cache_.find(key);
  if (entry == nullptr || entry->state != CacheState::kFetched) return;
  check(lock, *entry);
}

/// Whoever wants a fetched chunk first checks it, without the lock.
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
    lock.unlock();
    good = make_plain(fetch);
    lock.lock();
  }
  settle(fetch, std::move(good));
}

/// Of the drained file.
void Reader::note_wrong(Fetch& fetch) {
  fetch.drained_wrong = true;
  log::warning("{}/{}: {} bytes at {} are not what was drained", host_.drain_directory,
               fetch.unit.map->drained_path, fetch.unit.chunk.length, fetch.unit.file_offset);
}

/// Its bytes were checked, by who has a pin of it.
void Reader::settle(Fetch& fetch, Status good) {
  CachedChunk& entry = *fetch.entry;
  host_.shared.changed.notify_all();
  if (!good.has_value()) {
    fetch.why = good.error();
    if (fetch.from_drain) {
      note_wrong(fetch);
    } else {
      log::warning("benefactor {}: bytes at {} are not what they should be: {}",
                   fetch.at.benefactor.value, fetch.at.offset, describe(good.error()));
    }
    const bool of_copy = !fetch.from_drain && !fetch.stripe_asked;
    if (of_copy && fetch.unit.map != nullptr) host_.maps.report_wrong(*fetch.unit.map, fetch.at);
    return next_source(fetch);  // keeps the pin
  }
  if (fetch.unit.map != nullptr) fetch.unit.map->reloads = 0;
  if (fetch.direct_memory != nullptr) {
    parts_.learn(fetch.at.benefactor, std::move(fetch.direct_memory));
  }
  if (!fetch.part_crcs.empty()) parts_.learn(fetch.unit.chunk, std::move(fetch.part_crcs));
  entry.state = CacheState::kReady;
  entry.fresh = entry.valid_to - entry.valid_from;
  entry.from_drain = fetch.from_drain;
  --entry.pins;
  fetches_.erase(entry.key);
}

/// When it succeeds the bytes are those of the chunk, and not sealed any more.
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
  // Otherwise the key is another pool's, or somebody has changed the bytes who knows about
  // checksums: another copy may be better.
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
    if (!std::exchange(said_no_key_, true)) log::error("{}", describe(kNoKey));
    return fail(kNoKey);
  }
  if (unit.map != nullptr && unit.map->silent_until > host_.clock.now()) return fail(kSilent);
  const CacheKey key = key_of(unit);
  CachedChunk* entry = nullptr;
  // Who waits is woken by others only: what is known by now is looked at before.
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
        return fail(kSilent);
      }
    }
    if (entry->state != CacheState::kFailed) return fail(Code::kWouldBlock, "client.read");
    // What failed for an earlier reader, or for nobody, may be there again.
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
