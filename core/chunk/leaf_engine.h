#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "core/values/types.h"

namespace stdchk {

using Sha256Digest = std::array<std::byte, 32>;

/// A LeafEngine computes the SHA-256 digests of the leaves of chunk names (core/chunk/naming.h).
///
/// Threads: one at a time for each engine.
class LeafEngine {
 public:
  virtual ~LeafEngine() = default;
  virtual std::string_view name() const = 0;
  /// Writes the digest of leaf i to digests[i]; both spans have the same length.
  virtual void digest(std::span<const ByteSpan> leaves, std::span<Sha256Digest> digests) = 0;
};

/// Hashes one leaf after the other with OpenSSL. Available everywhere.
std::unique_ptr<LeafEngine> make_openssl_engine();
/// Hashes several leaves at once in the lanes of vector registers. Returns nullptr when this build
/// or this processor cannot.
std::unique_ptr<LeafEngine> make_multibuffer_engine();

}  // namespace stdchk
