#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/messages/messages.h"

namespace stdchk::client {

/// What went to and from benefactors by one transport.
struct TransportFigures {
  std::uint64_t written_bytes = 0;  ///< headers included
  std::uint64_t read_bytes = 0;
  std::uint64_t failed = 0;  ///< transfers
  std::size_t ready = 0;     ///< rails that can be used now
  std::size_t parked = 0;    ///< that were lost, and wait to be tried again
  std::size_t other = 0;     ///< that were not needed yet, or connect now
};

/// What a client has done since it began, and what it is at. Counts only grow.
struct Figures {
  msg::WriterTotals totals;
  std::uint64_t recognised_bytes = 0;  ///< of those named, what was not hashed: it was before
  msg::ReaderTotals reads;
  bool manager_up = false;
  std::size_t sessions = 0;        ///< files that are written now
  std::uint64_t reader_count = 0;  ///< files that are open for reading, each as often as it is
  std::uint32_t chunk_bytes = 0;
  std::size_t window_slots = 0;
  std::size_t window_free = 0;
  std::size_t window_filling = 0;  ///< that wait for more bytes
  std::size_t window_busy = 0;     ///< on their way to the pool
  std::uint64_t window_waits = 0;  ///< writes that found no free slot
  std::uint64_t window_wait_ns = 0;
  std::uint64_t cache_reads = 0;    ///< times that a chunk was read from the cache
  std::uint64_t cache_fetches = 0;  ///< chunks that a reader had to wait for, not read ahead
  std::uint64_t cache_ahead = 0;    ///< chunks that were read ahead
  std::map<std::string, TransportFigures> transports;
};

}  // namespace stdchk::client
