#include "manager/chunk_table.h"

#include <algorithm>

#include "core/assert.h"
#include "core/extent_header.h"
#include "core/limits.h"

namespace stdchk::manager {
namespace {

constexpr std::uint64_t kOffsetBits = 40;
constexpr std::uint32_t kLengthMask = (1U << 26) - 1;

std::uint64_t pack(const Extent& extent) {
  STDCHK_ASSERT(extent.benefactor.value != 0 && extent.benefactor.value < (1U << 24));
  STDCHK_ASSERT(extent.offset / limits::kExtentAlignment < (std::uint64_t{1} << kOffsetBits));
  return extent.benefactor.value << kOffsetBits | extent.offset / limits::kExtentAlignment;
}

Extent unpack(std::uint64_t place) {
  constexpr std::uint64_t mask = (std::uint64_t{1} << kOffsetBits) - 1;
  return {BenefactorId{place >> kOffsetBits}, (place & mask) * limits::kExtentAlignment};
}

}  // namespace

std::size_t ChunkTable::slot_of(const ChunkName& name) const {
  return (std::hash<ChunkName>{}(name)*0x9E3779B97F4A7C15ULL >> 16) & (index_.size() - 1);
}

ChunkIndex ChunkTable::find(const ChunkName& name, std::uint32_t length) const {
  if (index_.empty() || !name.is_named()) return kNoChunk;
  for (std::size_t slot = slot_of(name);; slot = (slot + 1) & (index_.size() - 1)) {
    const ChunkIndex at = index_[slot];
    if (at == kNoChunk) return kNoChunk;
    if (entry(at).name == name && entry(at).length == length) return at;
  }
}

void ChunkTable::grow_index() {
  std::vector<ChunkIndex> old(std::max<std::size_t>(64, index_.size() * 2), kNoChunk);
  old.swap(index_);
  indexed_ = 0;
  for (const ChunkIndex at : old) {
    if (at != kNoChunk) index_insert(at);
  }
}

void ChunkTable::index_insert(ChunkIndex index) {
  if (index_.empty() || (indexed_ + 1) * 8 > index_.size() * 7) grow_index();
  std::size_t slot = slot_of(entry(index).name);
  while (index_[slot] != kNoChunk) slot = (slot + 1) & (index_.size() - 1);
  index_[slot] = index;
  ++indexed_;
}

// Linear probing without tombstones: the entries behind the hole move up (Knuth, volume 3, 6.4 R).
void ChunkTable::index_erase(ChunkIndex index) {
  const std::size_t mask = index_.size() - 1;
  std::size_t hole = slot_of(entry(index).name);
  while (index_[hole] != index) hole = (hole + 1) & mask;
  index_[hole] = kNoChunk;
  for (std::size_t next = (hole + 1) & mask; index_[next] != kNoChunk; next = (next + 1) & mask) {
    const std::size_t home = slot_of(entry(index_[next]).name);
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    index_[hole] = index_[next];
    index_[next] = kNoChunk;
    hole = next;
  }
  --indexed_;
}

ChunkIndex ChunkTable::add(const Chunk& chunk) {
  ChunkIndex index = kNoChunk;
  if (!unused_.empty()) {
    index = unused_.back();
    unused_.pop_back();
  } else {
    STDCHK_ASSERT(used_ < kNoChunk);
    index = used_++;
    if (index / kBlock == blocks_.size()) blocks_.push_back(std::make_unique<Entry[]>(kBlock));
  }
  entry(index) = {chunk.name, 0, chunk.length & kLengthMask, 0, chunk.crc, 0, 0};
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

void ChunkTable::want(ChunkIndex index, std::uint32_t copies) {
  const auto most = std::min<std::uint32_t>(copies, limits::kCopiesMax);
  if (most > wanted(index)) entry(index).more_wanted = (most - 1U) & 0x3FU;
}

void ChunkTable::refer(ChunkIndex index, bool undrained) {
  ++entry(index).references;
  if (undrained) ++entry(index).undrained;
}

void ChunkTable::mark_drained(ChunkIndex index) {
  STDCHK_ASSERT(entry(index).undrained > 0);
  --entry(index).undrained;
}

void ChunkTable::set_copies(ChunkIndex index, const std::vector<Extent>& wanted,
                            std::vector<FreedExtent>& freed) {
  const std::uint64_t bytes = extent_bytes(entry(index).length);
  const std::vector<Extent> had = copies(index);
  for (const Extent& old : had) {
    if (std::find(wanted.begin(), wanted.end(), old) == wanted.end()) freed.push_back({old, bytes});
  }
  stored_bytes_ = stored_bytes_ - had.size() * bytes + wanted.size() * bytes;
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
  unused_.push_back(index);
  --live_;
}

std::uint64_t ChunkTable::memory_bytes() const {
  return blocks_.size() * kBlock * sizeof(Entry) + index_.capacity() * sizeof(ChunkIndex) +
         more_copies_.size() * 64;
}

}  // namespace stdchk::manager
