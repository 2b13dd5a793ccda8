#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::client {

/// A CacheKey identifies bytes that never change: an extent with the length and CRC of its content,
/// or a part of a drained version.
struct CacheKey {
  std::uint64_t place = 0;    ///< id of the benefactor, or id of the file with the highest bit set
  std::uint64_t offset = 0;   ///< in the arena, or in the file
  std::uint64_t version = 0;  ///< of the drained file; 0 for extents
  std::uint32_t length = 0;
  std::uint32_t crc = 0;
  auto operator<=>(const CacheKey&) const = default;
};

/// A buffer's bytes may be touched as follows:
///
/// | state     | may write              | may read                      |
/// |-----------|------------------------|-------------------------------|
/// | free      | nobody                 | nobody                        |
/// | fetching  | transport, drain reader| the thread that has moved them|
/// | fetched   | nobody                 | the thread that checks next   |
/// | checking  | the thread that checks | the thread that checks        |
/// | ready     | nobody                 | callers that hold a pin       |
/// | failed    | nobody                 | nobody                        |
enum class CacheState : std::uint8_t { kFetching, kFetched, kChecking, kReady, kFailed };

/// A CachedChunk is the content of one chunk, present or being fetched.
struct CachedChunk {
  CacheKey key;
  std::byte* data = nullptr;
  std::size_t first_buffer = 0;
  std::size_t buffers = 0;
  CacheState state = CacheState::kFetching;
  std::uint32_t pins = 0;        ///< users of the bytes; while there are any, the chunk stays
  std::uint32_t valid_from = 0;  ///< first byte of the chunk's content that is present
  std::uint32_t valid_to = 0;
  std::uint32_t unread = 0;  ///< bytes that the present reader has not read; images are read once
  std::uint32_t fresh = 0;   ///< bytes that no reader has read since they were fetched
  bool from_drain = false;   ///< the bytes came from the drained file
  Error error;               ///< set in state failed
  /// The map whose reader was told of the failure; other readers try again.
  const void* failed_for = nullptr;
  std::list<CachedChunk*>::iterator recent;
};

/// A ChunkCache keeps chunks that were read ahead or read recently, in a fixed number of buffers.
/// It evicts first the chunk that was read to its end most recently, because processor caches still
/// hold its buffer. Then it evicts the least recently used chunk. A chunk longer than a buffer
/// takes several adjacent buffers.
///
/// Owns: the book-keeping, not the memory.
/// Threads: one at a time (the engine's lock). The bytes follow the table above.
/// Limits: uses only the memory given to its constructor.
class ChunkCache {
 public:
  /// `erased` is called for each chunk that is evicted.
  ChunkCache(MutableByteSpan memory, std::size_t buffer_bytes,
             std::function<void(const CacheKey&)> erased);

  CachedChunk* find(const CacheKey& key);
  /// Adds a chunk in state fetching, with room for `key.length` bytes and with one pin. Returns
  /// nullptr when pinned chunks leave no room.
  CachedChunk* add(const CacheKey& key);
  void touch(CachedChunk& chunk);
  void unpin(CachedChunk& chunk);
  /// Counts `bytes` more of the chunk as read.
  void count_read(CachedChunk& chunk, std::size_t bytes);
  /// Evicts the chunk, which must not be pinned.
  void erase(CachedChunk& chunk);
  std::size_t buffer_count() const { return owner_.size(); }
  std::size_t buffer_bytes() const { return buffer_bytes_; }
  /// The longest chunk that the cache can keep.
  std::size_t bytes_max() const { return buffer_bytes_ * owner_.size(); }

 private:
  std::optional<std::size_t> find_room(std::size_t buffers);

  MutableByteSpan memory_;
  std::size_t buffer_bytes_;
  std::function<void(const CacheKey&)> erased_;
  std::vector<CachedChunk*> owner_;  ///< the chunk in each buffer; nullptr: free
  std::map<CacheKey, std::unique_ptr<CachedChunk>> chunks_;
  /// In the order of use, the last used first; evicted from the end.
  std::list<CachedChunk*> recent_;
};

}  // namespace stdchk::client
