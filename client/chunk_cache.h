#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/result.h"
#include "core/types.h"

namespace stdchk::client {

/// A CacheKey names bytes that do not change: an extent with the length and CRC of its content, or
/// a part of a drained version.
struct CacheKey {
  std::uint64_t place = 0;    ///< benefactor, or file with the highest bit set
  std::uint64_t offset = 0;   ///< in the arena, or in the file
  std::uint64_t version = 0;  ///< of the file; 0 for extents
  std::uint32_t length = 0;
  std::uint32_t crc = 0;
  auto operator<=>(const CacheKey&) const = default;
};

/// Who may touch a buffer's bytes:
///
/// | state     | may write              | may read                      |
/// |-----------|------------------------|-------------------------------|
/// | free      | nobody                 | nobody                        |
/// | fetching  | transport, drain reader| the thread that has moved them|
/// | fetched   | nobody                 | the one who checks it next    |
/// | checking  | the one who checks it  | the one who checks it         |
/// | ready     | nobody                 | callers that hold a pin       |
/// | failed    | nobody                 | nobody                        |
enum class CacheState : std::uint8_t { kFetching, kFetched, kChecking, kReady, kFailed };

/// A CachedChunk is the content of one chunk, or what becomes it.
struct CachedChunk {
  CacheKey key;
  std::byte* data = nullptr;
  std::size_t first_buffer = 0;
  std::size_t buffers = 0;
  CacheState state = CacheState::kFetching;
  std::uint32_t pins = 0;        ///< nobody may throw it out
  std::uint32_t valid_from = 0;  ///< of the chunk's content
  std::uint32_t valid_to = 0;
  std::uint32_t unread = 0;          ///< bytes that no reader has had; images are read once
  std::uint32_t fresh = 0;           ///< the same, without a second time
  bool from_drain = false;           ///< where it came from
  Error error;                       ///< when failed
  const void* failed_for = nullptr;  ///< whose reading has failed; others try for themselves
  std::list<CachedChunk*>::iterator recent;
};

/// A ChunkCache keeps chunks that were read lately or ahead in a fixed number of buffers. The one
/// that was read to its end last goes first: its buffer is the one that processors' caches hold;
/// then the one not used for longest. A chunk longer than a buffer takes several that lie side by
/// side.
///
/// Owns: the book-keeping, not the memory.
/// Threads: one at a time (the engine's lock). The bytes follow the table above.
/// Limits: the memory it was given, and nothing more.
class ChunkCache {
 public:
  /// `erased` is told of each chunk that is thrown out.
  ChunkCache(MutableByteSpan memory, std::size_t buffer_bytes,
             std::function<void(const CacheKey&)> erased);

  CachedChunk* find(const CacheKey& key);
  /// Room for `key.length` bytes in state fetching, with one pin. nullptr: all buffers are pinned
  /// now.
  CachedChunk* add(const CacheKey& key);
  void touch(CachedChunk& chunk);
  void unpin(CachedChunk& chunk);
  /// A reader has had so many bytes of it.
  void count_read(CachedChunk& chunk, std::size_t bytes);
  /// Throws it out; must not be pinned.
  void erase(CachedChunk& chunk);
  std::size_t buffer_count() const { return owner_.size(); }
  std::size_t buffer_bytes() const { return buffer_bytes_; }
  /// The longest chunk that could ever be kept.
  std::size_t bytes_max() const { return buffer_bytes_ * owner_.size(); }

 private:
  std::optional<std::size_t> find_room(std::size_t buffers);

  MutableByteSpan memory_;
  std::size_t buffer_bytes_;
  std::function<void(const CacheKey&)> erased_;
  std::vector<CachedChunk*> owner_;  ///< of each buffer; nullptr: free
  std::map<CacheKey, std::unique_ptr<CachedChunk>> chunks_;
  std::list<CachedChunk*> recent_;  ///< the last used first
};

}  // namespace stdchk::client
