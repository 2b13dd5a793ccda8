#include "core/crypto/sealer.h"

#include <openssl/evp.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "core/base/assert.h"

namespace stdchk {
namespace {

const unsigned char* in(ByteSpan bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* out(MutableByteSpan bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

}  // namespace

// OpenSSL fails only when memory is short or the library lacks AES: nothing can continue then.

void Sealer::Free::operator()(evp_cipher_ctx_st* context) const { EVP_CIPHER_CTX_free(context); }

Sealer::Sealer() : context_(EVP_CIPHER_CTX_new()) { STDCHK_ASSERT(context_ != nullptr); }
Sealer::~Sealer() = default;

void Sealer::set_key(const Secret& key) {
  STDCHK_ASSERT(EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, in(key.bytes),
                                  nullptr, 1) == 1);
}

/// The 96-bit nonce is four zero bytes, then the number, least significant byte first.
void Sealer::begin(std::uint64_t number, bool encrypts) {
  std::array<unsigned char, 12> nonce{};
  for (std::size_t i = 0; i < sizeof(number); ++i) {
    nonce[4 + i] = static_cast<unsigned char>(number >> (8 * i));
  }
  STDCHK_ASSERT(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(),
                                  encrypts ? 1 : 0) == 1);
}

Sealer::Tag Sealer::seal(std::uint64_t number, ByteSpan plain, MutableByteSpan sealed) {
  begin_seal(number);
  add(plain, sealed);
  return end_seal();
}

void Sealer::add(ByteSpan plain, MutableByteSpan sealed) {
  STDCHK_ASSERT(plain.size() == sealed.size() && plain.size() <= INT_MAX);
  if (plain.empty()) return;
  int length = 0;
  STDCHK_ASSERT(EVP_EncryptUpdate(context_.get(), out(sealed), &length, in(plain),
                                  static_cast<int>(plain.size())) == 1);
}

Sealer::Tag Sealer::end_seal() {
  int length = 0;
  Tag tag;
  unsigned char none = 0;
  STDCHK_ASSERT(EVP_EncryptFinal_ex(context_.get(), &none, &length) == 1);
  STDCHK_ASSERT(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, tag.size(), tag.data()) ==
                1);
  return tag;
}

Status Sealer::open(std::uint64_t number, ByteSpan sealed, ByteSpan tag, MutableByteSpan plain) {
  STDCHK_ASSERT(plain.size() == sealed.size() && plain.size() <= INT_MAX);
  STDCHK_ASSERT(tag.size() >= kTagBytesMin && tag.size() <= kTagBytes);
  begin(number, false);
  int length = 0;
  if (!sealed.empty()) {
    STDCHK_ASSERT(EVP_DecryptUpdate(context_.get(), out(plain), &length, in(sealed),
                                    static_cast<int>(sealed.size())) == 1);
  }
  Tag expected{};
  std::ranges::copy(tag, expected.begin());
  STDCHK_ASSERT(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG,
                                    static_cast<int>(tag.size()), expected.data()) == 1);
  unsigned char none = 0;
  if (EVP_DecryptFinal_ex(context_.get(), &none, &length) != 1) {
    return fail(Code::kCorrupt, "sealer.open");
  }
  return {};
}

}  // namespace stdchk
