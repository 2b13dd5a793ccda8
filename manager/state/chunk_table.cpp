#include "manager/state/chunk_table.h"

#include <algorithm>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/chunk/extent_header.h"

namespace stdchk::manager {
namespace {

constexpr std::uint64_t kOffsetBits = 40;
constexpr std::uint32_t kLengthMask = (1U << 25) - 1;

// Packs a redundancy into 7 bits: copies - 1 first, then a code for each pair of data and parity.
constexpr std::uint32_t kFirstParity = limits::kCopiesMax;
constexpr std::uint32_t kParityCodes =
    (limits::kStripeDataMax - limits::kStripeDataMin + 1) * limits::kStripeParityMax;
static_assert(kFirstParity + kParityCodes <= (1U << 7));

std::uint32_t pack(const Redundancy& wanted) {
  if (!wanted.has_parity()) return wanted.copies - 1;
  return kFirstParity + (wanted.data - limits::kStripeDataMin) * limits::kStripeParityMax +
         wanted.parity - 1;
}

Redundancy unpack_redundancy(std::uint32_t code) {
  if (code < kFirstParity) return {code + 1, 0, 0};
  code -= kFirstParity;
  return {1, limits::kStripeDataMin + code / limits::kStripeParityMax,
          code % limits::kStripeParityMax + 1};
}
/// A chunk with two copies costs a map node, its hash bucket and the list of copies.
constexpr std::uint64_t kMoreCopiesBytes = 112;
/// A map node and its hash bucket.
constexpr std::uint64_t kByPlaceBytes = 40;
constexpr std::uint64_t kHomeBytes = 40;

std::uint64_t pack(const Extent& extent) {
  STDCHK_ASSERT(extent.benefactor.value != 0 && extent.benefactor.value < (1U << 24));
  STDCHK_ASSERT(extent.offset / limits::kExtentAlignment < (std::uint64_t{1} << kOffsetBits));
  return extent.benefactor.value << kOffsetBits | extent.offset / limits::kExtentAlignment;
}

Extent unpack(std::uint64_t place) {
  constexpr std::uint64_t mask = (std::uint64_t{1} << kOffsetBits) - 1;
  return {BenefactorId{place >> kOffsetBits}, (place & mask) * limits::kExtentAlignment};
}

std::uint64_t spread_of(const ChunkName& name) {
  return std::hash<ChunkName>{}(name)*0x9E3779B97F4A7C15ULL;
}

}  // namespace

std::size_t ChunkTable::IndexPart::home(std::uint64_t spread) const {
  // The upper bits choose the part; the next 32 bits, as a fraction, choose the slot in it.
  return (spread << kPartBits >> 32) * slots.size() >> 32;
}

/// Returns the first chunk with that name and length for which `accepts(index)` is true.
template <class Accepts>
ChunkIndex ChunkTable::find_if(const ChunkName& name, std::uint32_t length, Accepts accepts) const {
  if (!name.is_named()) return kNoChunk;
  const std::uint64_t spread = spread_of(name);
  const IndexPart& part = part_of(spread);
  if (part.slots.empty()) return kNoChunk;
  for (std::size_t slot = part.home(spread);; slot = part.behind(slot)) {
    const ChunkIndex at = part.slots[slot];
    if (at == kNoChunk) return kNoChunk;
    if (entry(at).name == name && entry(at).length == length && accepts(at)) return at;
  }
}

ChunkIndex ChunkTable::find(const ChunkName& name, std::uint32_t length, BenefactorId home) const {
  return find_if(name, length, [&](ChunkIndex at) { return this->home(at) == home; });
}

ChunkIndex ChunkTable::find_at(const ChunkName& name, std::uint32_t length,
                               const Extent& extent) const {
  if (!has_homes()) return find(name, length);
  return find_if(name, length, [&](ChunkIndex at) {
    const std::vector<Extent> here = copies(at);
    return std::find(here.begin(), here.end(), extent) != here.end();
  });
}

std::vector<ChunkIndex> ChunkTable::find_all(const ChunkName& name, std::uint32_t length) const {
  std::vector<ChunkIndex> out;
  (void)find_if(name, length, [&](ChunkIndex at) {
    out.push_back(at);
    return false;
  });
  return out;
}

BenefactorId ChunkTable::home(ChunkIndex index) const {
  const auto found = homes_.find(index);
  return found == homes_.end() ? BenefactorId{} : found->second;
}

/// Grows by a quarter, so that 60 to 75 % of the slots are used.
void ChunkTable::grow(IndexPart& part) {
  IndexPart larger;
  larger.slots.assign(std::max<std::size_t>(4, part.slots.size() * 5 / 4), kNoChunk);
  for (const ChunkIndex at : part.slots) {
    if (at != kNoChunk) insert(larger, at);
  }
  part = std::move(larger);
}

void ChunkTable::insert(IndexPart& part, ChunkIndex index) {
  std::size_t slot = part.home(spread_of(entry(index).name));
  while (part.slots[slot] != kNoChunk) slot = part.behind(slot);
  part.slots[slot] = index;
  ++part.used;
}

void ChunkTable::index_insert(ChunkIndex index) {
  IndexPart& part = part_of(spread_of(entry(index).name));
  if ((part.used + 1) * 4 > part.slots.size() * 3) grow(part);
  insert(part, index);
}

// Uses linear probing without tombstones: the entries behind the hole move up
// (Knuth, volume 3, 6.4 R).
void ChunkTable::index_erase(ChunkIndex index) {
  const std::uint64_t spread = spread_of(entry(index).name);
  IndexPart& part = part_of(spread);
  std::size_t hole = part.home(spread);
  while (part.slots[hole] != index) hole = part.behind(hole);
  part.slots[hole] = kNoChunk;
  for (std::size_t next = part.behind(hole); part.slots[next] != kNoChunk;
       next = part.behind(next)) {
    const std::size_t home = part.home(spread_of(entry(part.slots[next]).name));
    if (part.distance(home, next) < part.distance(hole, next)) continue;
    part.slots[hole] = std::exchange(part.slots[next], kNoChunk);
    hole = next;
  }
  --part.used;
}

ChunkIndex ChunkTable::add(const Chunk& chunk, BenefactorId home) {
  ChunkIndex index = unused_;
  if (index != kNoChunk) {
    unused_ = entry(index).crc;
  } else {
    STDCHK_ASSERT(used_ < kNoChunk);
    index = used_++;
    if (index / kBlock == blocks_.size()) blocks_.push_back(std::make_unique<Entry[]>(kBlock));
  }
  entry(index) = {chunk.name, 0, chunk.length & kLengthMask, 0, chunk.crc, 0, 0};
  if (home) homes_[index] = home;
  if (chunk.name.is_named()) index_insert(index);
  ++live_;
  std::vector<FreedExtent> none;
  set_copies(index, chunk.copies, none);
  return index;
}

std::vector<Extent> ChunkTable::copies(ChunkIndex index) const {
  if (entry(index).place == 0) return {};
  const auto more = more_copies_.find(index);
  if (more != more_copies_.end()) return more->second;
  return {unpack(entry(index).place)};
}

Chunk ChunkTable::get(ChunkIndex index) const {
  const Entry& from = entry(index);
  return {from.name, from.length, from.crc, copies(index)};
}

Redundancy ChunkTable::redundancy(ChunkIndex index) const {
  return unpack_redundancy(entry(index).wanted);
}

void ChunkTable::strengthen(ChunkIndex index, const Redundancy& wanted) {
  if (!is_stronger(wanted, redundancy(index))) return;
  const bool indexed = has_place_index(index);
  entry(index).wanted = pack(wanted) & 0x7FU;
  if (has_place_index(index) == indexed) return;
  for (const Extent& copy : copies(index)) {
    if (indexed) {
      by_place_.erase(pack(copy));
    } else {
      by_place_[pack(copy)] = index;
    }
  }
}

/// Chunks without names that may become members of stripes are found by their places.
bool ChunkTable::has_place_index(ChunkIndex index) const {
  return !entry(index).name.is_named() && redundancy(index).has_parity();
}

ChunkIndex ChunkTable::find_place(const Extent& extent) const {
  const bool valid = extent.benefactor && extent.benefactor.value < (1U << 24) &&
                     extent.offset / limits::kExtentAlignment < (std::uint64_t{1} << kOffsetBits);
  if (!valid) return kNoChunk;
  const auto found = by_place_.find(pack(extent));
  return found == by_place_.end() ? kNoChunk : found->second;
}

void ChunkTable::refer(ChunkIndex index, bool undrained) {
  ++entry(index).references;
  if (undrained) mark_undrained(index);
}

/// Returns the bytes that all copies of the chunk take.
std::uint64_t ChunkTable::bytes_of(ChunkIndex index) const {
  if (entry(index).place == 0) return 0;
  const auto more = more_copies_.find(index);
  const std::size_t count = more == more_copies_.end() ? 1 : more->second.size();
  return count * extent_bytes(entry(index).length);
}

void ChunkTable::mark_undrained(ChunkIndex index) {
  if (entry(index).undrained++ == 0) undrained_bytes_ += bytes_of(index);
}

void ChunkTable::mark_drained(ChunkIndex index) {
  STDCHK_ASSERT(entry(index).undrained > 0);
  if (--entry(index).undrained == 0) undrained_bytes_ -= bytes_of(index);
}

void ChunkTable::set_copies(ChunkIndex index, const std::vector<Extent>& wanted,
                            std::vector<FreedExtent>& freed) {
  const std::uint64_t bytes = extent_bytes(entry(index).length);
  const std::vector<Extent> had = copies(index);
  for (const Extent& old : had) {
    if (std::find(wanted.begin(), wanted.end(), old) == wanted.end()) freed.push_back({old, bytes});
  }
  stored_bytes_ = stored_bytes_ - had.size() * bytes + wanted.size() * bytes;
  if (entry(index).undrained > 0) {
    undrained_bytes_ = undrained_bytes_ - had.size() * bytes + wanted.size() * bytes;
  }
  if (has_place_index(index)) {
    for (const Extent& old : had) by_place_.erase(pack(old));
    for (const Extent& now : wanted) by_place_[pack(now)] = index;
  }
  entry(index).place = wanted.empty() ? 0 : pack(wanted.front());
  if (wanted.size() > 1) {
    more_copies_[index] = wanted;
  } else {
    more_copies_.erase(index);
  }
}

void ChunkTable::release(ChunkIndex index, bool undrained, std::vector<FreedExtent>& freed) {
  STDCHK_ASSERT(entry(index).references > 0);
  if (undrained) mark_drained(index);
  if (--entry(index).references > 0) return;
  set_copies(index, {}, freed);
  if (entry(index).name.is_named()) index_erase(index);
  homes_.erase(index);
  entry(index).crc = std::exchange(unused_, index);
  --live_;
}

std::uint64_t ChunkTable::memory_bytes() const {
  std::uint64_t bytes = blocks_.size() * kBlock * sizeof(Entry);
  for (const IndexPart& part : index_) {
    bytes += sizeof(part) + part.slots.capacity() * sizeof(ChunkIndex);
  }
  return bytes + more_copies_.size() * kMoreCopiesBytes + by_place_.size() * kByPlaceBytes +
         homes_.size() * kHomeBytes;
}

}  // namespace stdchk::manager
