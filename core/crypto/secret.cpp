#include "core/crypto/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <vector>

#include "core/base/assert.h"

namespace stdchk {

bool equal(ByteSpan a, ByteSpan b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Digest keyed_digest(const Secret& key, std::initializer_list<ByteSpan> parts) {
  std::vector<std::byte> text;
  for (const ByteSpan part : parts) text.insert(text.end(), part.begin(), part.end());
  Digest digest;
  unsigned length = digest.size();
  const auto* const made = HMAC(EVP_sha256(), key.bytes.data(), static_cast<int>(key.bytes.size()),
                                reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                reinterpret_cast<unsigned char*>(digest.data()), &length);
  // A library without SHA-256 is a broken installation.
  STDCHK_ASSERT(made != nullptr && length == digest.size());
  return digest;
}

Secret derive(const Secret& from, std::string_view use, ByteSpan context) {
  constexpr std::byte kEndOfUse{0};
  constexpr std::byte kFirstBlock{1};
  return {keyed_digest(
      from, {std::as_bytes(std::span(use)), {&kEndOfUse, 1}, context, {&kFirstBlock, 1}})};
}

void fill_random(MutableByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    STDCHK_ASSERT(got > 0 || errno == EINTR);
    if (got > 0) bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace stdchk
