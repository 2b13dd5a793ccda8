#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::client {

/// A PackedMap is a chunk map in little memory. A chunk with one copy and one slice takes at most
/// 48 bytes. Each further copy takes 7 bytes more. Each slice takes 4 bytes more where chunks have
/// several slices, and 16 more where slices are parts of chunks or have holes between them.
///
/// Threads: one at a time (the engine's lock).
/// Errors: kMalformed, and nothing is added.
class PackedMap {
 public:
  /// A slice and its chunk.
  struct Entry {
    std::uint64_t file_offset = 0;
    std::uint32_t length = 0;
    std::uint32_t chunk_offset = 0;
    Chunk chunk;
  };

  /// Adds slices, which must lie behind all present ones, with their chunks.
  Status add(const ChunkMap& page);
  void clear() { *this = PackedMap(); }

  /// Slices are counted from 0.
  std::size_t slice_count() const { return slices_; }
  Entry slice(std::size_t number) const;
  /// The first slice that ends behind `offset` of the file; slice_count() when there is none.
  std::size_t find(std::uint64_t offset) const;
  /// The file offset behind the last slice.
  std::uint64_t end() const { return pages_.empty() ? 0 : pages_.back().end; }

  /// Chunks are counted from 0, in the order in which they were added.
  std::size_t chunk_count() const { return chunks_; }
  Chunk chunk(std::size_t number) const;
  const ChunkName& name(std::size_t number) const;
  bool has_copies(std::size_t number) const;

  ChunkMap unpacked() const;
  /// The memory that the map takes, by its own count.
  std::size_t memory_bytes() const;

 private:
  struct PackedChunk {
    ChunkName name;
    std::array<std::uint8_t, 4> crc{};
    std::array<std::uint8_t, 3> length_less_1{};
  };
  struct PackedPlace {
    std::array<std::uint8_t, 2> benefactor{};  ///< index into the page's `benefactors`
    std::array<std::uint8_t, 5> offset{};      ///< in units of limits::kExtentAlignment
  };
  struct Part {
    std::uint64_t file_offset = 0;
    std::uint32_t length = 0;
    std::uint32_t chunk_offset = 0;
  };
  /// A Page holds the chunks that one call of add() has added.
  struct Page {
    std::size_t first_slice = 0;
    std::size_t first_chunk = 0;
    std::uint64_t end = 0;  ///< file offset behind the last slice
    std::vector<BenefactorId> benefactors;
    std::vector<PackedChunk> chunks;
    std::vector<PackedPlace> places;
    /// Per chunk, the end of its places; empty: each chunk has one place.
    std::vector<std::uint32_t> places_end;
    std::vector<std::uint32_t> numbers;  ///< per slice, its chunk; empty: slice i is of chunk i
    std::vector<Part> parts;  ///< empty: each slice is a whole chunk, and there are no holes
    /// File offset of each kMarkEvery-th slice; used when `parts` is empty.
    std::vector<std::uint64_t> marks;

    std::size_t slice_count() const { return numbers.empty() ? chunks.size() : numbers.size(); }
    std::size_t chunk_of(std::size_t slice) const {
      return numbers.empty() ? slice : numbers[slice];
    }
    std::uint32_t length(std::size_t chunk) const;
    std::size_t places_from(std::size_t chunk) const;
    std::size_t places_to(std::size_t chunk) const;
    Chunk chunk(std::size_t chunk) const;
    Part part(std::size_t slice) const;
    std::size_t find(std::uint64_t offset) const;
    Status set_chunks(const ChunkMap& page);
    void set_slices(const ChunkMap& page);
  };
  static constexpr std::size_t kMarkEvery = 32;

  const Page& page_of_slice(std::size_t number) const;
  const Page& page_of_chunk(std::size_t number) const;

  std::vector<Page> pages_;
  std::size_t slices_ = 0;
  std::size_t chunks_ = 0;
};

/// KnownChunks finds the chunks of a PackedMap by their names. It takes at most 16 bytes per chunk.
///
/// Threads: one at a time (the engine's lock).
class KnownChunks {
 public:
  /// Learns the chunks that have copies and a name that follows from their content. The map must
  /// outlive this object, or clear() must be called before the map ends.
  void add(const PackedMap& map);
  void clear() { *this = KnownChunks(); }
  /// True when the names of all chunks in the map follow from their content.
  bool named_all() const { return named_all_; }
  std::optional<Chunk> find(const ChunkName& name) const;

 private:
  const PackedMap* map_ = nullptr;
  bool named_all_ = true;
  /// A hash table with open addressing: the chunk's number + 1, or 0.
  std::vector<std::uint32_t> table_;
};

}  // namespace stdchk::client
