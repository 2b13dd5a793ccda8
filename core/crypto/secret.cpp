#include "core/crypto/secret.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <string>

#include "core/base/assert.h"

namespace stdchk {

bool equal(ByteSpan a, ByteSpan b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

namespace {

/// A Hmac is a context of HMAC-SHA-256. To make one takes three times as long as to use it.
///
/// Threads: one. Errors: none; a library without SHA-256 is a broken installation.
class Hmac {
 public:
  Hmac() {
    EVP_MAC* const mac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    context_ = EVP_MAC_CTX_new(mac);
    EVP_MAC_free(mac);
    std::string digest = "SHA256";
    const std::array parameters{
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest.data(), 0),
        OSSL_PARAM_construct_end()};
    STDCHK_ASSERT(context_ != nullptr && EVP_MAC_CTX_set_params(context_, parameters.data()) == 1);
  }
  ~Hmac() { EVP_MAC_CTX_free(context_); }
  Hmac(const Hmac&) = delete;
  Hmac& operator=(const Hmac&) = delete;

  Digest of(const Secret& key, std::initializer_list<ByteSpan> parts) {
    bool good = EVP_MAC_init(context_, bytes_at(key.bytes), key.bytes.size(), nullptr) == 1;
    for (const ByteSpan part : parts) {
      good &= part.empty() || EVP_MAC_update(context_, bytes_at(part), part.size()) == 1;
    }
    Digest digest;
    std::size_t length = 0;
    good &= EVP_MAC_final(context_, reinterpret_cast<unsigned char*>(digest.data()), &length,
                          digest.size()) == 1;
    STDCHK_ASSERT(good && length == digest.size());
    return digest;
  }

 private:
  static const unsigned char* bytes_at(ByteSpan bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  }
  EVP_MAC_CTX* context_ = nullptr;
};

}  // namespace

Digest keyed_digest(const Secret& key, std::initializer_list<ByteSpan> parts) {
  thread_local Hmac hmac;
  return hmac.of(key, parts);
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
