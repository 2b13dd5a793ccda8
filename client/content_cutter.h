#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "client/window.h"
#include "core/chunker.h"

namespace stdchk::client {

/// A Segment is a part of a slot.
struct Segment {
  Slot* slot = nullptr;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;

  ByteSpan bytes() const { return {slot->data + offset, length}; }
};
/// Where a chunk's bytes are in the window: in one slot, or at the end of one and the beginning of
/// another.
using Segments = std::array<Segment, 2>;

/// A Scan is the bytes of one slot whose boundaries are looked for by a hash thread. That thread
/// alone may touch `boundaries` until the scan is handed to ContentCutter::scanned().
struct Scan {
  struct Part {
    Segment segment;
    std::vector<std::uint32_t> boundaries;  ///< within the segment
    bool done = false;                      ///< lock held
  };
  std::vector<std::shared_ptr<Part>> parts;

  void find(const BoundaryFinder& finder);
};
using ScanPtr = std::shared_ptr<Scan>;

/// A ContentCutter cuts what a session writes where its content says (core/chunker.h). Written
/// bytes that lie side by side in the file are one run, which is cut as one stream, whichever slots
/// they are in; the chunk at its end stays open for what is written next.
///
/// A run ends where it does not reach the end of its slot, and where something needs its bytes:
/// fsync, commit, a window without free slots. There a chunk ends whatever its content. So an image
/// that is written from its beginning to its end is cut as core/chunker.h says, and of a file that
/// is written here and there each written range is.
///
/// Owns: the runs, and a hold on each slot with bytes that are in no chunk.
/// Threads: any, with the engine's lock held.
class ContentCutter {
 public:
  /// Makes a chunk of bytes that lie at a file offset.
  using MakeChunk = std::function<void(std::uint64_t file_offset, const Segments& segments)>;
  /// No chunk is longer than a slot.
  ContentCutter(Window& window, ChunkSizes sizes, MakeChunk make);

  /// Takes the written ranges of a settled slot, which lies at `base` of the file. The slot counts
  /// as being hashed until the boundaries in it, and in what its runs have before it, are known.
  ScanPtr take(Slot& slot, std::uint64_t base);
  /// True when a run waits for the byte at this offset.
  bool continues_at(std::uint64_t file_offset) const;
  /// The boundaries are known. Cuts what can be cut.
  void scanned(const Scan& scan);
  /// Every run ends where its bytes end, as soon as their boundaries are known.
  void end_all();
  /// The run that holds the slot ends. False: it does so already.
  bool end_in(const Slot& slot);
  /// Nothing is waiting to be cut.
  bool empty() const { return runs_.empty(); }

 private:
  struct Run {
    Run(std::uint64_t first, ChunkSizes sizes) : begin(first), chunker(sizes) {}
    std::uint64_t begin;  ///< file offset
    Chunker chunker;
    std::deque<std::shared_ptr<Scan::Part>> parts;  ///< with bytes that are in no chunk
    std::size_t pushed = 0;                         ///< of `parts`, to the chunker
    std::uint64_t done = 0;                         ///< in chunks, from `begin`
    std::uint64_t parts_begin = 0;                  ///< of the first part, from `begin`
    bool ending = false;
  };
  /// By the file offset where it goes on.
  using Runs = std::multimap<std::uint64_t, Run>;

  Runs::iterator find_open(std::uint64_t file_offset);
  Runs::iterator advance(Runs::iterator run);
  void make_chunk(Run& run, std::uint64_t end);

  Window& window_;
  const ChunkSizes sizes_;
  const MakeChunk make_;
  Runs runs_;
};

}  // namespace stdchk::client
