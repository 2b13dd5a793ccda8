#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/result.h"
#include "core/types.h"

namespace stdchk::client {

/// A PackedMap is a chunk map in little memory: at most 48 bytes for a chunk that is in one place
/// and one slice; 7 bytes for each further copy, 4 where chunks are in several slices, 16 where
/// slices are parts of chunks or have holes between them.
///
/// Threads: one at a time (the engine's lock). Errors: kMalformed, and nothing is added.
class PackedMap {
 public:
  /// A slice and its chunk.
  struct Entry {
    std::uint64_t file_offset = 0;
    std::uint32_t length = 0;
    std::uint32_t chunk_offset = 0;
    Chunk chunk;
  };

  /// Adds slices that lie behind all that are there, with their chunks.
  Status add(const ChunkMap& page);
  void clear() { *this = PackedMap(); }

  /// Slices are counted from 0.
  std::size_t slice_count() const { return slices_; }
  Entry slice(std::size_t number) const;
  /// The first slice that ends behind that byte of the file; slice_count(): none.
  std::size_t find(std::uint64_t offset) const;
  /// Of the file, behind the last slice.
  std::uint64_t end() const { return pages_.empty() ? 0 : pages_.back().end; }

  /// Chunks are counted from 0, in the order in which they were added.
  std::size_t chunk_count() const { return chunks_; }
  Chunk chunk(std::size_t number) const;
  const ChunkName& name(std::size_t number) const;
  bool has_copies(std::size_t number) const;

  ChunkMap unpacked() const;
  /// What it takes, by its own count.
  std::size_t memory_bytes() const;

 private:
  struct PackedChunk {
    ChunkName name;
    std::array<std::uint8_t, 4> crc{};
    std::array<std::uint8_t, 3> length_less_1{};
  };
  struct PackedPlace {
    std::array<std::uint8_t, 2> benefactor{};  ///< index into those of the page
    std::array<std::uint8_t, 5> offset{};      ///< in steps of the alignment
  };
  struct Part {
    std::uint64_t file_offset = 0;
    std::uint32_t length = 0;
    std::uint32_t chunk_offset = 0;
  };
  /// What was added at once.
  struct Page {
    std::size_t first_slice = 0;
    std::size_t first_chunk = 0;
    std::uint64_t end = 0;  ///< file offset behind the last slice
    std::vector<BenefactorId> benefactors;
    std::vector<PackedChunk> chunks;
    std::vector<PackedPlace> places;
    std::vector<std::uint32_t> places_end;  ///< by chunk; empty: each has one place
    std::vector<std::uint32_t> numbers;     ///< slices' chunks; empty: slice i is of chunk i
    std::vector<Part> parts;  ///< empty: each slice is a whole chunk, without holes between them
    std::vector<std::uint64_t> marks;  ///< file offset of each kMarkEvery-th slice, without parts

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

/// KnownChunks finds the chunks of a PackedMap by their names. At most 16 bytes a chunk.
///
/// Threads: one at a time (the engine's lock).
class KnownChunks {
 public:
  /// The chunks whose names follow from their content, and that have copies. The map must outlive
  /// this, or clear() come first.
  void learn(const PackedMap& map);
  void clear() { *this = KnownChunks(); }
  /// All chunks that were learned have such names.
  bool named_all() const { return named_all_; }
  std::optional<Chunk> find(const ChunkName& name) const;

 private:
  const PackedMap* map_ = nullptr;
  bool named_all_ = true;
  /// Open addressing by the name's first bytes: a chunk's number + 1, or 0.
  std::vector<std::uint32_t> table_;
};

}  // namespace stdchk::client
