#include "client/read/chunk_cache.h"

#include <algorithm>

#include "core/base/assert.h"

namespace stdchk::client {

ChunkCache::ChunkCache(MutableByteSpan memory, std::size_t buffer_bytes,
                       std::function<void(const CacheKey&)> erased)
    : memory_(memory),
      buffer_bytes_(buffer_bytes),
      erased_(std::move(erased)),
      owner_(memory.size() / buffer_bytes, nullptr) {}

CachedChunk* ChunkCache::find(const CacheKey& key) {
  const auto found = chunks_.find(key);
  return found == chunks_.end() ? nullptr : found->second.get();
}

/// Returns the first of `buffers` adjacent buffers that are free or can be freed. For one buffer,
/// evicts the first unpinned chunk from the end of `recent_`. For several, evicts all chunks in the
/// first stretch of buffers without a pin.
std::optional<std::size_t> ChunkCache::find_room(std::size_t buffers) {
  if (buffers == 1) {
    if (const auto free = std::find(owner_.begin(), owner_.end(), nullptr); free != owner_.end()) {
      return static_cast<std::size_t>(free - owner_.begin());
    }
    const auto oldest = std::find_if(recent_.rbegin(), recent_.rend(),
                                     [](const CachedChunk* chunk) { return chunk->pins == 0; });
    if (oldest == recent_.rend()) return std::nullopt;
    const std::size_t first = (*oldest)->first_buffer;
    erase(**oldest);
    return first;
  }
  std::size_t run = 0;
  for (std::size_t i = 0; i < owner_.size(); ++i) {
    run = owner_[i] != nullptr && owner_[i]->pins > 0 ? 0 : run + 1;
    if (run < buffers) continue;
    const std::size_t first = i + 1 - buffers;
    for (std::size_t j = first; j <= i; ++j) {
      if (owner_[j] != nullptr) erase(*owner_[j]);
    }
    return first;
  }
  return std::nullopt;
}

CachedChunk* ChunkCache::add(const CacheKey& key) {
  const std::size_t buffers = (key.length + buffer_bytes_ - 1) / buffer_bytes_;
  const auto first = find_room(buffers);
  if (!first.has_value()) return nullptr;
  auto chunk = std::make_unique<CachedChunk>();
  chunk->key = key;
  chunk->data = memory_.data() + *first * buffer_bytes_;
  chunk->first_buffer = *first;
  chunk->buffers = buffers;
  chunk->pins = 1;
  chunk->unread = key.length;
  recent_.push_front(chunk.get());
  chunk->recent = recent_.begin();
  for (std::size_t i = 0; i < buffers; ++i) owner_[*first + i] = chunk.get();
  const auto [at, is_new] = chunks_.emplace(key, std::move(chunk));
  STDCHK_ASSERT(is_new);
  return at->second.get();
}

void ChunkCache::touch(CachedChunk& chunk) {
  recent_.splice(recent_.begin(), recent_, chunk.recent);
}

void ChunkCache::unpin(CachedChunk& chunk) {
  STDCHK_ASSERT(chunk.pins > 0);
  --chunk.pins;
}

void ChunkCache::count_read(CachedChunk& chunk, std::size_t bytes) {
  if (bytes < chunk.unread) {
    chunk.unread -= static_cast<std::uint32_t>(bytes);
    return;
  }
  chunk.unread = chunk.key.length;  // counted anew for the next reader
  recent_.splice(recent_.end(), recent_, chunk.recent);
}

void ChunkCache::erase(CachedChunk& chunk) {
  STDCHK_ASSERT(chunk.pins == 0);
  for (std::size_t i = 0; i < chunk.buffers; ++i) owner_[chunk.first_buffer + i] = nullptr;
  recent_.erase(chunk.recent);
  const CacheKey key = chunk.key;
  chunks_.erase(key);
  erased_(key);
}

}  // namespace stdchk::client
