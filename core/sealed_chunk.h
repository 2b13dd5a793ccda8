#pragma once

#include <array>
#include <cstdint>

#include "core/result.h"
#include "core/secret.h"
#include "core/types.h"

/// Chunks that benefactors cannot read. Their names say how they are opened, by who has the pool's
/// key: docs/decisions/0016.
namespace stdchk {

/// How the name of a chunk came about.
enum class ChunkNaming : std::uint8_t {
  kPlain,            ///< the hash of what is stored, or none
  kSealedByContent,  ///< sealed; equal chunks have equal names
  kSealedAtRandom,   ///< sealed; no two chunks have one name
};
ChunkNaming naming_of(const ChunkName& name);
inline bool is_sealed(const ChunkName& name) { return naming_of(name) != ChunkNaming::kPlain; }
/// Equal chunks have this name, too.
inline bool follows_from_content(const ChunkName& name) {
  return name.is_named() && naming_of(name) != ChunkNaming::kSealedAtRandom;
}

/// A ChunkSealer seals and opens chunks with the pool's key.
///
/// A sealed chunk is AES-256-GCM of its content, as long as that, under a key of its own. The name
/// is the key's number (12 bytes), the tag's first 12 bytes, and 8 bytes that say how the number
/// was made: by HMAC of the content's name under the pool's key, so that equal chunks of a pool are
/// stored once, or at random.
///
/// Threads: any. Errors: kCorrupt from open(): it is not what was sealed, or by another key; the
///   bytes mean nothing then.
class ChunkSealer {
 public:
  explicit ChunkSealer(const Secret& pool_key);
  /// In place, bytes that go on in the second piece. `content_name`: their name; not named: at
  /// random. Answers the sealed chunk's name.
  ChunkName seal(const std::array<MutableByteSpan, 2>& bytes, const ChunkName& content_name) const;
  /// In place. `name` is that of a sealed chunk.
  Status open(const ChunkName& name, MutableByteSpan bytes) const;

 private:
  const Secret numbers_;  ///< the key that numbers are made with
  const Secret keys_;     ///< keys of chunks are derived of
};

}  // namespace stdchk
