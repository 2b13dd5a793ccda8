#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "core/naming.h"
#include "core/types.h"

namespace stdchk {

/// A ContentTag tells contents apart for the process that made it, and nobody else.
using ContentTag = std::array<std::byte, 16>;

/// A ContentTagger computes tags at the speed of memory, several times that of a name: GHASH (NIST
/// SP 800-38D, section 6.4) of the content and its length, under a random key that never leaves it.
///
/// Two contents of at most 2^n bytes that do not depend on the key have the same tag with a
/// probability of at most 2^(n - 4) + 1 in 2^128, whatever they are: GHASH is a polynomial of that
/// degree in the key. Tags say something about the key, so they must not be shown to anybody.
///
/// Threads: any, several at once.
class ContentTagger {
 public:
  /// By the multi-buffer library where this build has it, else by OpenSSL.
  ContentTagger();
  ~ContentTagger();
  ContentTagger(const ContentTagger&) = delete;
  ContentTagger& operator=(const ContentTagger&) = delete;
  /// As where the multi-buffer library is absent.
  static ContentTagger with_openssl();
  /// The same wherever the content is divided into pieces.
  ContentTag tag(const ChunkPieces& content) const;

 private:
  struct Engine;
  struct Openssl;
  struct Multibuffer;
  explicit ContentTagger(std::unique_ptr<const Engine> engine);

  const std::unique_ptr<const Engine> engine_;
};

}  // namespace stdchk
