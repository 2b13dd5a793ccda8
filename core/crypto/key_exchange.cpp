#include "core/crypto/key_exchange.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>

#include "core/base/assert.h"

namespace stdchk {
namespace {

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, Free>;
using Context = std::unique_ptr<EVP_PKEY_CTX, Free>;

const unsigned char* bytes_of(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

Key private_key(const ExchangeKey& own) {
  Key key(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, bytes_of(own.bytes.data()),
                                       own.bytes.size()));
  // A library without X25519 is a broken installation.
  STDCHK_ASSERT(key != nullptr);
  return key;
}

}  // namespace

ExchangeKey new_exchange_key() {
  ExchangeKey key;
  fill_random(key.bytes);
  return key;
}

ExchangePublic public_of(const ExchangeKey& own) {
  ExchangePublic out;
  std::size_t length = out.size();
  const int made = EVP_PKEY_get_raw_public_key(
      private_key(own).get(), reinterpret_cast<unsigned char*>(out.data()), &length);
  STDCHK_ASSERT(made == 1 && length == out.size());
  return out;
}

std::optional<Secret> agree(const ExchangeKey& own, const ExchangePublic& peer) {
  const Key mine = private_key(own);
  const Key theirs(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, bytes_of(peer.data()), peer.size()));
  const Context context(EVP_PKEY_CTX_new(mine.get(), nullptr));
  STDCHK_ASSERT(theirs != nullptr && context != nullptr);
  Secret shared;
  std::size_t length = shared.bytes.size();
  const bool agreed =
      EVP_PKEY_derive_init(context.get()) == 1 &&
      EVP_PKEY_derive_set_peer(context.get(), theirs.get()) == 1 &&
      EVP_PKEY_derive(context.get(), reinterpret_cast<unsigned char*>(shared.bytes.data()),
                      &length) == 1 &&
      length == shared.bytes.size();
  // A weak peer key gives a secret of zeros (RFC 7748, 6.1). Not all OpenSSL versions refuse it.
  if (!agreed || shared == Secret{}) return std::nullopt;
  return shared;
}

}  // namespace stdchk
