#pragma once

#include <cstdint>
#include <utility>

#include "client/filesystem.h"
#include "core/result.h"
#include "core/types.h"

namespace stdchk::client {

class Engine;
struct CachedChunk;

/// A ReadView is a run of a file's bytes where they lie in the cache, so that a caller who hands
/// them on needs no copy. They are checked, and do not change.
///
/// Owns: a pin on the chunk. Must not outlive its Filesystem.
/// Limits: a cache buffer is in use as long as this lives: hand the bytes on, and let go.
class ReadView {
 public:
  ReadView() = default;
  ReadView(Engine& engine, CachedChunk& chunk, ByteSpan bytes)
      : engine_(&engine), chunk_(&chunk), bytes_(bytes) {}
  ReadView(ReadView&& other) noexcept { *this = std::move(other); }
  ReadView& operator=(ReadView&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(chunk_, other.chunk_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ReadView();

  explicit operator bool() const { return chunk_ != nullptr; }
  ByteSpan bytes() const { return bytes_; }

 private:
  Engine* engine_ = nullptr;
  CachedChunk* chunk_ = nullptr;
  ByteSpan bytes_;
};

/// The `bytes` at `offset`; fewer only at the end of the file. Empty when they are not in one chunk
/// (holes, more than one chunk, bytes not yet stored): read() them.
Result<ReadView> view(File& file, std::uint64_t offset, std::size_t bytes);

}  // namespace stdchk::client
