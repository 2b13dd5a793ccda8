#pragma once

#include <cstdint>
#include <utility>

#include "client/api/filesystem.h"
#include "core/base/result.h"
#include "core/values/types.h"

namespace stdchk::client {

class Engine;
struct CachedChunk;

/// A ReadView shows a range of a file's bytes inside the cache. A caller can pass the bytes on
/// without a copy. The bytes are checked and do not change.
///
/// Owns: a pin on the chunk. Must not outlive its Filesystem.
/// Limits: holds a cache buffer while it lives; release it soon after use.
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

/// Returns the `bytes` at `offset`, or fewer at the end of the file. The view is empty when the
/// bytes are not in one stored chunk: a hole, several chunks, bytes not stored yet. It is also
/// empty for a short range far from the last range, because only read() reads parts of a chunk. Use
/// read() then.
Result<ReadView> view(File& file, std::uint64_t offset, std::size_t bytes);

}  // namespace stdchk::client
