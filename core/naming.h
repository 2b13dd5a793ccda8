#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/types.h"

namespace stdchk {

/// The name of a chunk: a two-level tree of SHA-256 (FIPS 180-4).
///   leaf i = SHA-256(bytes [i * 16 KiB, min((i + 1) * 16 KiB, length)))
/// (no content: no leaves)
///   name   = SHA-256("stdchk.chunk.v1\0" (16 bytes) || length (8 bytes, little endian) || leaf 0
///   || leaf 1 ...)
/// The same on every engine; see docs/decisions for the choice. Threads: any.
ChunkName name_chunk(ByteSpan content);

/// The content of a chunk in two pieces, the second behind the first; either may be empty.
using ChunkPieces = std::array<ByteSpan, 2>;

/// Short chunks are named together up to so many bytes: their leaves fill the lanes of the widest
/// vectors several times.
inline constexpr std::size_t kNamedTogetherBytes = 1 << 20;

/// A Namer computes names with buffers of its own, several leaves at once where the processor can.
///
/// Threads: one at a time for each Namer.
class Namer {
 public:
  Namer();
  ~Namer();
  Namer(const Namer&) = delete;
  Namer& operator=(const Namer&) = delete;
  ChunkName name(ByteSpan content);
  /// Name i is that of chunk i. The leaves of all of them are hashed side by side, so several short
  /// chunks cost no more than a long one.
  void name(std::span<const ChunkPieces> chunks, std::span<ChunkName> names);
  /// "sha256-mb avx512" or "sha256 openssl": what does the work here.
  std::string_view engine() const;

 private:
  struct Engine;
  Engine* engine_;
};

/// CRC32C (Castagnoli, RFC 3720 B.4) of `bytes` appended to what `crc` covers; start with 0.
std::uint32_t crc32c(std::uint32_t crc, ByteSpan bytes);

/// 64 hexadecimal digits.
std::string to_hex(const ChunkName& name);

}  // namespace stdchk
