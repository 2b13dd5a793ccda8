#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/values/types.h"

namespace stdchk {

/// Returns the name of a chunk: the root of a two-level tree of SHA-256 (FIPS 180-4).
///    leaf i = SHA-256(bytes [i * 16 KiB, min((i + 1) * 16 KiB, length)))
///    name   = SHA-256("stdchk.chunk.v1\0" (16 bytes) || length (8 bytes, little endian)
///                     || leaf 0 || leaf 1 ...)
/// Empty content has no leaves. Every engine computes the same name; docs/decisions has the
/// reasons. Threads: any.
ChunkName name_chunk(ByteSpan content);

/// A chunk's content in two consecutive pieces; either may be empty.
using ChunkPieces = std::array<ByteSpan, 2>;

/// Short chunks are named together, up to this number of bytes: their leaves then fill the widest
/// vectors several times.
inline constexpr std::size_t kNamedTogetherBytes = 1 << 20;

/// A Namer computes names with its own buffers, several leaves at once if the processor can.
///
/// Threads: one at a time for each Namer.
class Namer {
 public:
  Namer();
  ~Namer();
  Namer(const Namer&) = delete;
  Namer& operator=(const Namer&) = delete;
  ChunkName name(ByteSpan content);
  /// Writes the name of chunk i to names[i]. Hashes the leaves of all chunks side by side, so
  /// several short chunks cost no more than one long chunk.
  void name(std::span<const ChunkPieces> chunks, std::span<ChunkName> names);
  /// Returns the implementation in use, such as "sha256-mb avx512" or "sha256 openssl".
  std::string_view engine() const;

 private:
  struct Engine;
  Engine* engine_;
};

/// Returns the CRC32C (Castagnoli, RFC 3720 B.4) of the bytes that `crc` covers, followed by
/// `bytes`. Start with 0.
std::uint32_t crc32c(std::uint32_t crc, ByteSpan bytes);

/// Returns 64 hexadecimal digits.
std::string to_hex(const ChunkName& name);

}  // namespace stdchk
