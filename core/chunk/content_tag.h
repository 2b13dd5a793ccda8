#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "core/chunk/naming.h"
#include "core/values/types.h"

namespace stdchk {

/// A ContentTag identifies a content, but only within the process that made it.
using ContentTag = std::array<std::byte, 16>;

/// A ContentTagger computes tags at the speed of memory, several times as fast as names. A tag is
/// the GHASH (NIST SP 800-38D, section 6.4) of the content and its length under a random key.
///
/// Take any two contents of at most 2^n bytes, chosen without knowledge of the key. Their tags are
/// equal with a probability of at most (2^(n - 4) + 1) / 2^128. GHASH is a polynomial of that
/// degree in the key. Tags reveal something about the key, so they must stay within the process.
///
/// Threads: any, several at once.
class ContentTagger {
 public:
  /// Uses the multi-buffer library if this build has it, otherwise OpenSSL.
  ContentTagger();
  ~ContentTagger();
  ContentTagger(const ContentTagger&) = delete;
  ContentTagger& operator=(const ContentTagger&) = delete;
  /// Uses OpenSSL, as a build without the multi-buffer library does.
  static ContentTagger with_openssl();
  /// The division of the content into pieces does not change the tag.
  ContentTag tag(const ChunkPieces& content) const;

 private:
  struct Engine;
  struct Openssl;
  struct Multibuffer;
  explicit ContentTagger(std::unique_ptr<const Engine> engine);

  const std::unique_ptr<const Engine> engine_;
};

}  // namespace stdchk
