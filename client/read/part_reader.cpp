#include "client/read/part_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/assert.h"
#include "core/chunk/naming.h"
#include "core/chunk/sealed_chunk.h"

namespace stdchk::client {
namespace {

constexpr std::uint32_t kPart = PartCrcs::kPartBytes;
/// A range is read without its chunk when the chunk is at least so many times as long.
constexpr std::uint64_t kShareOneOf = 4;
/// After this many fetches in a row from one chunk, the whole chunk is fetched. That costs fewer
/// round trips for a reader that stays there.
constexpr std::uint32_t kBurstMax = 8;
/// Bytes that are read and checked at once. They stay in the processor's second cache.
constexpr std::size_t kStepBytes = 64 * limits::kKiB;
static_assert(kStepBytes % kPart == 0);

CacheKey key_of(const Chunk& chunk) {
  const Extent& extent = chunk.copies.front();
  return {extent.benefactor.value, extent.offset, 0, chunk.length, chunk.crc};
}

}  // namespace

/// A Range is the bytes that the caller wants, and the whole parts that contain them.
struct PartReader::Range {
  Range(const Chunk& chunk, std::uint32_t from, MutableByteSpan to)
      : offset(from),
        out(to),
        begin(from / kPart * kPart),
        end(std::min(chunk.length,
                     (from + static_cast<std::uint32_t>(to.size()) + kPart - 1) / kPart * kPart)) {}

  /// Copies to `out` the bytes of [at, at + size) that are wanted.
  void take(std::uint32_t at, ByteSpan bytes) const {
    const std::uint32_t first = std::max(at, offset);
    const auto last = std::min<std::uint64_t>(at + bytes.size(), offset + out.size());
    if (first >= last) return;
    std::memcpy(out.data() + (first - offset), bytes.data() + (first - at), last - first);
  }
  /// The key in the cache of parts: that of the chunk, where `version` says where the range begins.
  CacheKey key(const CacheKey& chunk) const {
    CacheKey key = chunk;
    key.version = begin + std::uint64_t{1};
    key.length = end - begin;
    return key;
  }

  /// Reads the content from `from` to `to` and checks each part: `is_right(number, crc)` says
  /// whether the part has the right CRC. Copies the bytes that the caller wants to `out`.
  template <class IsRight>
  Status read(const transport::DirectMemory& memory, const Extent& extent, std::uint32_t from,
              std::uint32_t to, IsRight is_right) const {
    alignas(64) thread_local std::array<std::byte, kStepBytes> room;
    for (std::uint32_t at = from; at < to;) {
      const auto step = MutableByteSpan(room).first(std::min<std::size_t>(kStepBytes, to - at));
      STDCHK_TRY(memory.read(extent.offset + limits::kExtentHeaderBytes + at, step));
      for (std::size_t part = 0; part < step.size(); part += kPart) {
        const ByteSpan bytes = step.subspan(part, std::min<std::size_t>(kPart, step.size() - part));
        if (!is_right((at + part) / kPart, crc32c(0, bytes))) {
          return fail(Code::kCorrupt, "client.read part");
        }
      }
      take(at, step);
      at += static_cast<std::uint32_t>(step.size());
    }
    return {};
  }

  std::uint32_t offset;  ///< in the chunk, as begin and end
  MutableByteSpan out;
  std::uint32_t begin;
  std::uint32_t end;
};

/// A Fetch is the transfer of the parts of one range.
struct PartReader::Fetch final : Transfer {
  PartReader* reader = nullptr;
  CachedChunk* entry = nullptr;
  CacheKey chunk;

 protected:
  void finished(Status status) override {
    const Lock lock(reader->host_.shared.mutex);
    reader->finished(*this, status);  // may destroy this
  }
};

PartReader::PartReader(Host host, const Memory& memory, MutableByteSpan room)
    : host_(std::move(host)),
      memory_(memory),
      cache_(room, kPart, [this](const CacheKey& key) { fetches_.erase(key); }) {}

PartReader::~PartReader() = default;

bool PartReader::suits(const Chunk& chunk, std::uint64_t bytes) {
  const bool checked = chunk.crc != 0 || chunk.name.is_named();
  return checked && !chunk.copies.empty() && !is_sealed(chunk.name) &&
         chunk.length >= kShareOneOf * kPart && bytes * kShareOneOf <= chunk.length;
}

void PartReader::add_part_crcs(const Chunk& chunk, PartCrcList parts) {
  crcs_.insert(key_of(chunk), std::move(parts));
}

void PartReader::add_direct_memory(BenefactorId benefactor, transport::DirectMemoryPtr memory) {
  direct_[benefactor] = std::move(memory);
}

Result<bool> PartReader::read(Lock& lock, const Chunk& chunk, std::uint32_t offset,
                              MutableByteSpan out) {
  STDCHK_ASSERT(suits(chunk, out.size()) && offset + out.size() <= chunk.length);
  const Range range(chunk, offset, out);
  const bool direct = std::ranges::any_of(
      chunk.copies, [&](const Extent& copy) { return direct_.contains(copy.benefactor); });
  return direct ? read_direct(lock, chunk, range) : read_remote(lock, chunk, range);
}

Result<bool> PartReader::read_direct(Lock& lock, const Chunk& chunk, const Range& range) {
  const auto copy = std::ranges::find_if(
      chunk.copies, [&](const Extent& each) { return direct_.contains(each.benefactor); });
  const transport::DirectMemoryPtr memory = direct_.at(copy->benefactor);
  const CacheKey key = key_of(chunk);
  PartCrcList learned;
  Status good;
  if (const PartCrcList* known = crcs_.find(key); known != nullptr) {
    const std::uint32_t first = range.begin / kPart;
    const PartCrcList expected(known->begin() + first,
                               known->begin() + (range.end + kPart - 1) / kPart);
    const Unlocked unlocked(lock);
    good = range.read(*memory, *copy, range.begin, range.end,
                      [&](std::size_t i, std::uint32_t crc) { return expected[i - first] == crc; });
  } else {
    const Unlocked unlocked(lock);
    good = range.read(*memory, *copy, 0, chunk.length, [&](std::size_t, std::uint32_t crc) {
      learned.push_back(crc);
      return true;
    });
    const bool right = PartCrcs::joined(learned, chunk.length) == chunk.crc;
    if (good.has_value() && !right) good = fail(Code::kCorrupt, "client.read part");
  }
  if (good.has_value()) {
    if (!learned.empty()) crcs_.insert(key, std::move(learned));
    return true;
  }
  // The Reader then reads the whole chunk, finds the fault, and reports it.
  crcs_.forget(key);
  direct_.erase(copy->benefactor);
  return false;
}

/// Counts the fetches in a row from one chunk.
bool PartReader::reads_whole_chunk(const CacheKey& key) {
  if (burst_.chunk != key) burst_ = {key, 0};
  if (++burst_.fetches <= kBurstMax) return false;
  burst_ = {};
  return true;
}

Result<bool> PartReader::read_remote(Lock& lock, const Chunk& chunk, const Range& range) {
  const CacheKey key = key_of(chunk);
  if (crcs_.find(key) == nullptr) return false;
  CachedChunk* entry = cache_.find(range.key(key));
  if (entry == nullptr) {
    if (reads_whole_chunk(key)) return false;
    start(key, chunk, range);
    entry = cache_.find(range.key(key));
    if (entry == nullptr) return false;  // no room
  }
  if (entry->state == CacheState::kFetched) {
    check(lock, *entry, chunk, range);
    entry = cache_.find(range.key(key));
    if (entry == nullptr) return false;  // the bytes were wrong
  }
  if (entry->state != CacheState::kReady) return fail(Code::kWouldBlock, "client.read part");
  ++entry->pins;
  cache_.touch(*entry);
  {
    const Unlocked unlocked(lock);
    range.take(range.begin, ByteSpan(entry->data, entry->key.length));
  }
  cache_.unpin(*entry);
  return true;
}

void PartReader::start(const CacheKey& key, const Chunk& chunk, const Range& range) {
  CachedChunk* const entry = cache_.add(range.key(key));
  if (entry == nullptr) return;
  auto& fetch = fetches_[entry->key];
  fetch = std::make_unique<Fetch>();
  fetch->reader = this;
  fetch->entry = entry;
  fetch->chunk = key;
  fetch->at = chunk.copies.front();
  fetch->skip = limits::kExtentHeaderBytes + range.begin;
  fetch->memory = &memory_;
  fetch->pieces = {MutableByteSpan(entry->data, entry->key.length), {}};
  host_.submit(*fetch);
}

void PartReader::finished(Fetch& fetch, const Status& status) {
  CachedChunk& entry = *fetch.entry;
  cache_.unpin(entry);
  if (status.has_value()) {
    entry.state = CacheState::kFetched;
    if (fetch.direct_memory != nullptr) add_direct_memory(fetch.at.benefactor, fetch.direct_memory);
  } else {
    // Without the CRCs, waiting readers read the whole chunk, from another copy if this one fails.
    crcs_.forget(fetch.chunk);
    cache_.erase(entry);  // and the fetch
  }
  host_.shared.changed.notify_all();
}

/// Checks parts that have come, with the lock released. Erases them when they are wrong.
void PartReader::check(Lock& lock, CachedChunk& entry, const Chunk& chunk, const Range& range) {
  const CacheKey key = key_of(chunk);
  const PartCrcList* const known = crcs_.find(key);
  const PartCrcList expected(known->begin() + range.begin / kPart,
                             known->begin() + (range.end + kPart - 1) / kPart);
  entry.state = CacheState::kChecking;
  ++entry.pins;
  bool right = false;
  {
    const Unlocked unlocked(lock);
    right = PartCrcs::compute(ByteSpan(entry.data, entry.key.length)) == expected;
  }
  cache_.unpin(entry);
  fetches_.erase(entry.key);
  host_.shared.changed.notify_all();
  if (right) {
    entry.state = CacheState::kReady;
  } else {
    crcs_.forget(key);
    cache_.erase(entry);
  }
}

}  // namespace stdchk::client
