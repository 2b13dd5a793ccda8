#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "client/write/window.h"
#include "core/chunk/chunker.h"

namespace stdchk::client {

/// A Segment is a part of a slot.
struct Segment {
  Slot* slot = nullptr;
  std::uint32_t offset = 0;
  std::uint32_t length = 0;

  ByteSpan bytes() const { return {slot->data + offset, length}; }
};
/// Segments say where a chunk's bytes are in the window: in one slot, or at the end of one slot and
/// the beginning of another.
using Segments = std::array<Segment, 2>;

/// A Scan is the written bytes of one slot, in which a hash thread looks for boundaries. Only that
/// thread may touch `boundaries` until the scan is passed to ContentCutter::scanned().
struct Scan {
  struct Part {
    Segment segment;
    std::vector<std::uint32_t> boundaries;  ///< offsets within the segment
    bool done = false;                      ///< `boundaries` is complete; guarded by the lock
  };
  std::vector<std::shared_ptr<Part>> parts;

  void find(const BoundaryFinder& finder);
};
using ScanPtr = std::shared_ptr<Scan>;

/// A ContentCutter cuts the bytes that a session writes into content-defined chunks
/// (core/chunk/chunker.h). Written bytes that are adjacent in the file form a run, whatever slots
/// they are in. A run is cut as one stream, and the chunk at its end stays open for the bytes that
/// follow.
///
/// A run ends where its bytes do not reach the end of their slot. It also ends when something needs
/// its bytes: fsync, commit, a window without free slots. There a chunk ends whatever its content
/// is. An image that is written from beginning to end is cut exactly as
/// core/chunk/chunker.h says. Scattered writes are cut range by range.
///
/// Owns: the runs, and a hold on each slot with bytes that are in no chunk yet.
/// Threads: any, with the engine's lock held.
class ContentCutter {
 public:
  /// Makes a chunk of the bytes in `segments`, which begin at `file_offset`.
  using MakeChunk = std::function<void(std::uint64_t file_offset, const Segments& segments)>;
  /// `sizes.max` must not exceed the length of a slot.
  ContentCutter(Window& window, ChunkSizes sizes, MakeChunk make);

  /// Takes the written ranges of a settled slot; the slot begins at file offset `base`. The slot
  /// stays in state hashing until the boundaries in it, and in the earlier parts of its runs, are
  /// known.
  ScanPtr take(Slot& slot, std::uint64_t base);
  /// True when a run continues at this offset.
  bool continues_at(std::uint64_t file_offset) const;
  /// Marks the boundaries of `scan` as known, and cuts all chunks that are complete by now.
  void scanned(const Scan& scan);
  /// Ends every run where its bytes end, as soon as their boundaries are known.
  void end_all();
  /// Ends the runs that hold bytes of the slot. Returns false if they all were ending already.
  bool end_runs_in(const Slot& slot);
  /// True when no bytes wait to be cut.
  bool empty() const { return runs_.empty(); }

 private:
  struct Run {
    Run(std::uint64_t first, ChunkSizes sizes) : begin(first), chunker(sizes) {}
    std::uint64_t begin;  ///< offset in the file
    Chunker chunker;
    std::deque<std::shared_ptr<Scan::Part>> parts;  ///< parts whose bytes are not all in chunks
    std::size_t pushed = 0;                         ///< how many of `parts` the chunker has seen
    std::uint64_t done = 0;                         ///< bytes in chunks, from `begin`
    std::uint64_t parts_begin = 0;                  ///< where the first part begins, from `begin`
    bool ending = false;
  };
  /// Keyed by the file offset where the run continues.
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
