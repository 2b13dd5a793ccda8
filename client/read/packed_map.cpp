#include "client/read/packed_map.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <unordered_map>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/chunk/sealed_chunk.h"

namespace stdchk::client {
namespace {

constexpr std::uint64_t kOffsetsEnd = std::uint64_t{1} << 40;
constexpr std::size_t kBenefactorsMost = std::size_t{1} << 16;

/// Stores the low bytes of a number, little endian.
template <std::size_t kBytes>
void pack(std::array<std::uint8_t, kBytes>& to, std::uint64_t number) {
  for (std::size_t i = 0; i < kBytes; ++i) to[i] = static_cast<std::uint8_t>(number >> (8 * i));
}
template <std::size_t kBytes>
std::uint64_t unpack(const std::array<std::uint8_t, kBytes>& from) {
  std::uint64_t number = 0;
  for (std::size_t i = kBytes; i-- > 0;) number = number << 8 | from[i];
  return number;
}

tl::unexpected<Error> malformed() { return fail(Code::kMalformed, "client.chunk map"); }

bool well_formed(const ChunkMap& page, std::uint64_t end) {
  for (const Slice& slice : page.slices) {
    if (slice.file_offset < end || slice.length == 0) return false;
    if (slice.chunk >= page.chunks.size()) return false;
    end = slice.file_offset + slice.length;
  }
  return true;
}

}  // namespace

// ---- a page -----------------------------------------------------------------------------------

std::uint32_t PackedMap::Page::length(std::size_t chunk) const {
  return static_cast<std::uint32_t>(unpack(chunks[chunk].length_less_1)) + 1;
}

std::size_t PackedMap::Page::places_to(std::size_t chunk) const {
  return places_end.empty() ? chunk + 1 : places_end[chunk];
}
std::size_t PackedMap::Page::places_from(std::size_t chunk) const {
  return chunk == 0 ? 0 : places_to(chunk - 1);
}

Chunk PackedMap::Page::chunk(std::size_t chunk) const {
  Chunk out{
      chunks[chunk].name, length(chunk), static_cast<std::uint32_t>(unpack(chunks[chunk].crc)), {}};
  for (std::size_t i = places_from(chunk); i < places_to(chunk); ++i) {
    out.copies.push_back({benefactors[unpack(places[i].benefactor)],
                          unpack(places[i].offset) * limits::kExtentAlignment});
  }
  return out;
}

PackedMap::Part PackedMap::Page::part(std::size_t slice) const {
  if (!parts.empty()) return parts[slice];
  std::size_t at = slice / kMarkEvery * kMarkEvery;
  std::uint64_t offset = marks[slice / kMarkEvery];
  for (; at < slice; ++at) offset += length(chunk_of(at));
  return {offset, length(chunk_of(slice)), 0};
}

std::size_t PackedMap::Page::find(std::uint64_t offset) const {
  if (!parts.empty()) {
    const auto found = std::partition_point(parts.begin(), parts.end(), [offset](const Part& each) {
      return each.file_offset + each.length <= offset;
    });
    return static_cast<std::size_t>(found - parts.begin());
  }
  const auto mark = std::upper_bound(marks.begin(), marks.end(), offset);
  if (mark == marks.begin()) return 0;
  auto at = static_cast<std::size_t>(mark - marks.begin() - 1) * kMarkEvery;
  std::uint64_t slice_end = *std::prev(mark) + length(chunk_of(at));
  while (slice_end <= offset) slice_end += length(chunk_of(++at));
  return at;
}

Status PackedMap::Page::set_chunks(const ChunkMap& page) {
  std::unordered_map<BenefactorId, std::size_t> indexes;
  const bool one_each = std::all_of(page.chunks.begin(), page.chunks.end(),
                                    [](const Chunk& chunk) { return chunk.copies.size() == 1; });
  std::size_t copies = 0;
  for (const Chunk& chunk : page.chunks) copies += chunk.copies.size();
  chunks.reserve(page.chunks.size());
  places.reserve(copies);
  if (!one_each) places_end.reserve(page.chunks.size());
  for (const Chunk& chunk : page.chunks) {
    if (chunk.length == 0 || chunk.length > limits::kChunkBytesMax) return malformed();
    PackedChunk& packed = chunks.emplace_back();
    packed.name = chunk.name;
    pack(packed.crc, chunk.crc);
    pack(packed.length_less_1, chunk.length - 1);
    for (const Extent& copy : chunk.copies) {
      const auto [index, is_new] = indexes.emplace(copy.benefactor, benefactors.size());
      if (is_new) benefactors.push_back(copy.benefactor);
      const std::uint64_t steps = copy.offset / limits::kExtentAlignment;
      if (copy.offset % limits::kExtentAlignment != 0 || steps >= kOffsetsEnd ||
          benefactors.size() > kBenefactorsMost) {
        return malformed();
      }
      PackedPlace& place = places.emplace_back();
      pack(place.benefactor, index->second);
      pack(place.offset, steps);
    }
    if (!one_each) places_end.push_back(static_cast<std::uint32_t>(places.size()));
  }
  benefactors.shrink_to_fit();
  return {};
}

void PackedMap::Page::set_slices(const ChunkMap& page) {
  bool in_order = page.slices.size() == page.chunks.size();
  bool whole = true;
  std::uint64_t next = page.slices.front().file_offset;
  for (std::size_t i = 0; i < page.slices.size(); ++i) {
    const Slice& slice = page.slices[i];
    in_order = in_order && slice.chunk == i;
    whole = whole && slice.file_offset == next && slice.chunk_offset == 0 &&
            slice.length == page.chunks[slice.chunk].length;
    next = slice.file_offset + slice.length;
  }
  end = next;
  if (!in_order) {
    numbers.reserve(page.slices.size());
    for (const Slice& slice : page.slices) numbers.push_back(slice.chunk);
  }
  if (whole) {
    marks.reserve(page.slices.size() / kMarkEvery + 1);
    for (std::size_t i = 0; i < page.slices.size(); i += kMarkEvery) {
      marks.push_back(page.slices[i].file_offset);
    }
  } else {
    parts.reserve(page.slices.size());
    for (const Slice& slice : page.slices) {
      parts.push_back({slice.file_offset, slice.length, slice.chunk_offset});
    }
  }
}

// ---- the map ----------------------------------------------------------------------------------

Status PackedMap::add(const ChunkMap& page) {
  static_assert(sizeof(PackedChunk) == 39 && sizeof(PackedPlace) == 7 && sizeof(Part) == 16);
  static_assert(sizeof(PackedChunk) + sizeof(PackedPlace) < 48 &&
                sizeof(std::uint64_t) < kMarkEvery);
  if (!well_formed(page, end())) return malformed();
  if (page.slices.empty()) return {};
  Page added;
  added.first_slice = slices_;
  added.first_chunk = chunks_;
  STDCHK_TRY(added.set_chunks(page));
  added.set_slices(page);
  slices_ += page.slices.size();
  chunks_ += page.chunks.size();
  pages_.push_back(std::move(added));
  return {};
}

const PackedMap::Page& PackedMap::page_of_slice(std::size_t number) const {
  STDCHK_ASSERT(number < slices_);
  return *std::prev(std::partition_point(pages_.begin(), pages_.end(), [number](const Page& page) {
    return page.first_slice <= number;
  }));
}

const PackedMap::Page& PackedMap::page_of_chunk(std::size_t number) const {
  STDCHK_ASSERT(number < chunks_);
  return *std::prev(std::partition_point(pages_.begin(), pages_.end(), [number](const Page& page) {
    return page.first_chunk <= number;
  }));
}

PackedMap::Entry PackedMap::slice(std::size_t number) const {
  const Page& page = page_of_slice(number);
  const std::size_t within = number - page.first_slice;
  const Part part = page.part(within);
  return {part.file_offset, part.length, part.chunk_offset, page.chunk(page.chunk_of(within))};
}

std::size_t PackedMap::find(std::uint64_t offset) const {
  const auto page = std::partition_point(pages_.begin(), pages_.end(),
                                         [offset](const Page& each) { return each.end <= offset; });
  return page == pages_.end() ? slices_ : page->first_slice + page->find(offset);
}

Chunk PackedMap::chunk(std::size_t number) const {
  const Page& page = page_of_chunk(number);
  return page.chunk(number - page.first_chunk);
}

const ChunkName& PackedMap::name(std::size_t number) const {
  const Page& page = page_of_chunk(number);
  return page.chunks[number - page.first_chunk].name;
}

bool PackedMap::has_copies(std::size_t number) const {
  const Page& page = page_of_chunk(number);
  const std::size_t within = number - page.first_chunk;
  return page.places_from(within) < page.places_to(within);
}

ChunkMap PackedMap::unpacked() const {
  ChunkMap map;
  map.chunks.reserve(chunks_);
  map.slices.reserve(slices_);
  for (const Page& page : pages_) {
    for (std::size_t i = 0; i < page.chunks.size(); ++i) map.chunks.push_back(page.chunk(i));
    for (std::size_t i = 0; i < page.slice_count(); ++i) {
      const Part part = page.part(i);
      map.slices.push_back({part.file_offset, part.length, part.chunk_offset,
                            static_cast<std::uint32_t>(page.first_chunk + page.chunk_of(i))});
    }
  }
  return map;
}

std::size_t PackedMap::memory_bytes() const {
  const auto bytes = [](const auto& vector) { return vector.capacity() * sizeof(vector.front()); };
  std::size_t sum = bytes(pages_);
  for (const Page& page : pages_) {
    sum += bytes(page.benefactors) + bytes(page.chunks) + bytes(page.places) +
           bytes(page.places_end) + bytes(page.numbers) + bytes(page.parts) + bytes(page.marks);
  }
  return sum;
}

// ---- by name ----------------------------------------------------------------------------------

void KnownChunks::add(const PackedMap& map) {
  clear();
  map_ = &map;
  // The table is at most half full.
  table_.assign(std::bit_ceil(2 * std::max<std::size_t>(map.chunk_count(), 1)), 0);
  for (std::size_t i = 0; i < map.chunk_count(); ++i) {
    const ChunkName& name = map.name(i);
    if (!follows_from_content(name)) {
      named_all_ = false;
      continue;
    }
    if (!map.has_copies(i)) continue;
    std::size_t at = std::hash<ChunkName>()(name) & (table_.size() - 1);
    while (table_[at] != 0 && map.name(table_[at] - 1) != name) at = (at + 1) & (table_.size() - 1);
    if (table_[at] == 0) table_[at] = static_cast<std::uint32_t>(i + 1);
  }
}

std::optional<Chunk> KnownChunks::find(const ChunkName& name) const {
  if (map_ == nullptr) return std::nullopt;
  std::size_t at = std::hash<ChunkName>()(name) & (table_.size() - 1);
  for (; table_[at] != 0; at = (at + 1) & (table_.size() - 1)) {
    const std::size_t number = table_[at] - 1;
    if (map_->name(number) == name) return map_->chunk(number);
  }
  return std::nullopt;
}

}  // namespace stdchk::client
