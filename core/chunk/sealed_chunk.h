#pragma once

#include <array>
#include <cstdint>

#include "core/base/result.h"
#include "core/crypto/secret.h"
#include "core/values/types.h"

/// Sealed chunks: clients encrypt them, so benefactors cannot read them. The key of a chunk follows
/// from the pool's key and the chunk's name (docs/decisions/0016).
namespace stdchk {

/// The source of a chunk's name.
enum class ChunkNaming : std::uint8_t {
  kPlain,            ///< a chunk in clear: the hash of its bytes, or no name
  kSealedByContent,  ///< a sealed chunk, by its content: equal chunks have equal names
  kSealedAtRandom,   ///< a sealed chunk, by a random number: equal chunks have different names
};
ChunkNaming naming_of(const ChunkName& name);
inline bool is_sealed(const ChunkName& name) { return naming_of(name) != ChunkNaming::kPlain; }
/// Returns true when every chunk with equal content gets an equal name.
inline bool follows_from_content(const ChunkName& name) {
  return name.is_named() && naming_of(name) != ChunkNaming::kSealedAtRandom;
}

/// A ChunkSealer seals and opens chunks with the pool's key.
///
/// A sealed chunk is the AES-256-GCM ciphertext of its content, of the same length, under a key of
/// its own. Its name is the key's number (12 bytes), the first 12 bytes of the tag, and 8 bytes
/// that say how the number was made. By content, the number is an HMAC of the content's name under
/// the pool's key: equal chunks of a pool are stored once. Otherwise the number is random.
///
/// Threads: any.
/// Errors: open() fails with kCorrupt when the chunk was changed or sealed with another key; the
/// bytes then have no meaning.
class ChunkSealer {
 public:
  explicit ChunkSealer(const Secret& pool_key);
  /// Seals bytes in place; they continue in the second piece. `content_name` is the name of their
  /// content; if it is not named, the number is random. Returns the sealed chunk's name.
  ChunkName seal(const std::array<MutableByteSpan, 2>& bytes, const ChunkName& content_name) const;
  /// Opens bytes in place. `name` must be that of a sealed chunk.
  Status open(const ChunkName& name, MutableByteSpan bytes) const;

 private:
  const Secret numbers_;  ///< the key from which numbers are made
  const Secret keys_;     ///< the key from which keys of chunks are derived
};

}  // namespace stdchk
