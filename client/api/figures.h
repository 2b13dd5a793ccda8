#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/messages/messages.h"

namespace stdchk::client {

/// TransportFigures say what one transport has carried to and from benefactors, and how its rails
/// are.
struct TransportFigures {
  std::uint64_t written_bytes = 0;  ///< headers included
  std::uint64_t read_bytes = 0;
  std::uint64_t failed = 0;  ///< transfers that failed
  std::size_t ready = 0;     ///< rails that are connected
  std::size_t parked = 0;    ///< lost rails that wait for another attempt
  std::size_t other = 0;     ///< connecting rails, and rails not needed so far
};

/// Figures say what a client has done since it began, and its present state. Counts only grow.
struct Figures {
  msg::WriterTotals totals;
  /// Named bytes that were not hashed, because their content tag was known.
  std::uint64_t recognised_bytes = 0;
  msg::ReaderTotals reads;
  bool manager_up = false;
  std::size_t sessions = 0;        ///< files that are being written
  std::uint64_t reader_count = 0;  ///< opens for reading; a file that is open twice counts twice
  std::uint32_t chunk_bytes = 0;
  std::size_t window_slots = 0;
  std::size_t window_free = 0;
  std::size_t window_filling = 0;  ///< slots that wait for more bytes
  std::size_t window_busy = 0;     ///< slots on their way to the pool
  std::uint64_t window_waits = 0;  ///< writes that found no free slot
  std::uint64_t window_wait_ns = 0;
  std::uint64_t cache_reads = 0;  ///< times that a chunk was taken from the cache
  /// Chunks that a reader had to wait for, because they were not read ahead.
  std::uint64_t cache_fetches = 0;
  std::uint64_t cache_ahead = 0;  ///< chunks that were read ahead
  std::map<std::string, TransportFigures> transports;
};

}  // namespace stdchk::client
