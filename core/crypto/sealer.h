#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/base/result.h"
#include "core/crypto/secret.h"
#include "core/values/types.h"

struct evp_cipher_ctx_st;

namespace stdchk {

/// A Sealer encrypts and authenticates bytes under one key: AES-256-GCM (NIST SP 800-38D).
///
/// Owns: the key's schedule. Threads: one at a time.
/// Errors: open() fails with kCorrupt when the bytes were not sealed under this key and number. The
/// content of `plain` then has no meaning.
/// Limits: under one key, a number must not be used for two different texts.
class Sealer {
 public:
  static constexpr std::size_t kTagBytes = 16;
  static constexpr std::size_t kTagBytesMin = 12;
  using Tag = std::array<std::byte, kTagBytes>;

  Sealer();
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  void set_key(const Secret& key);
  /// Encrypts `plain` into `sealed`. Requires equal lengths; the memory may be the same.
  Tag seal(std::uint64_t number, ByteSpan plain, MutableByteSpan sealed);
  /// The same for a text in several parts: add() each part once, in order.
  void begin_seal(std::uint64_t number) { begin(number, true); }
  void add(ByteSpan plain, MutableByteSpan sealed);
  Tag end_seal();
  /// Decrypts. `tag` is what seal() returned, or its first kTagBytesMin bytes or more.
  Status open(std::uint64_t number, ByteSpan sealed, ByteSpan tag, MutableByteSpan plain);

 private:
  void begin(std::uint64_t number, bool encrypts);
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

}  // namespace stdchk
