#include "core/chunk/content_tag.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "core/base/assert.h"
#include "core/crypto/secret.h"

#if STDCHK_HAVE_IPSEC_MB
#include <intel-ipsec-mb.h>
#endif

namespace stdchk {

struct ContentTagger::Engine {
  virtual ~Engine() = default;
  virtual ContentTag tag(const ChunkPieces& content) const = 0;
};

/// Computes the tag of AES-128-GCM with the content as additional data and a single nonce: GHASH
/// plus a constant.
struct ContentTagger::Openssl final : Engine {
  Openssl() { fill_random(key); }

  ContentTag tag(const ChunkPieces& content) const override {
    struct Free {
      void operator()(EVP_CIPHER_CTX* each) const { EVP_CIPHER_CTX_free(each); }
    };
    const std::unique_ptr<EVP_CIPHER_CTX, Free> context(EVP_CIPHER_CTX_new());
    constexpr std::array<unsigned char, 12> kNonce{};
    int length = 0;
    // Fails only when memory is short or the library lacks AES.
    STDCHK_ASSERT(context != nullptr && EVP_EncryptInit_ex(context.get(), EVP_aes_128_gcm(),
                                                           nullptr, in(key), kNonce.data()) == 1);
    for (const ByteSpan piece : content) {
      STDCHK_ASSERT(piece.size() <= INT_MAX);
      STDCHK_ASSERT(piece.empty() || EVP_EncryptUpdate(context.get(), nullptr, &length, in(piece),
                                                       static_cast<int>(piece.size())) == 1);
    }
    unsigned char none = 0;
    ContentTag tag;
    STDCHK_ASSERT(
        EVP_EncryptFinal_ex(context.get(), &none, &length) == 1 &&
        EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, tag.size(), tag.data()) == 1);
    return tag;
  }

  static const unsigned char* in(ByteSpan bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  }

  std::array<std::byte, 16> key{};
};

#if STDCHK_HAVE_IPSEC_MB

/// The library chooses the widest vectors that the processor supports.
struct ContentTagger::Multibuffer final : Engine {
  Multibuffer() : manager(alloc_mb_mgr(0)) {
    STDCHK_ASSERT(manager != nullptr);
    IMB_ARCH arch = IMB_ARCH_NONE;
    init_mb_mgr_auto(manager.get(), &arch);
    std::array<std::byte, 16> random{};
    fill_random(random);
    IMB_GHASH_PRE(manager.get(), random.data(), &powers);
  }

  /// The library pads its input with zeros to a whole block. So every input before the last one
  /// must consist of whole blocks.
  ContentTag tag(const ChunkPieces& content) const override {
    constexpr std::size_t kBlock = sizeof(ContentTag);
    ContentTag tag{};
    auto [first, second] = content;
    const std::uint64_t length = first.size() + second.size();
    const std::size_t whole = first.size() / kBlock * kBlock;
    add(tag, first.first(whole));
    first = first.subspan(whole);
    if (!first.empty()) {
      std::array<std::byte, kBlock> seam{};
      const ByteSpan rest = second.first(std::min(second.size(), kBlock - first.size()));
      std::ranges::copy(rest, std::ranges::copy(first, seam.begin()).out);
      add(tag, seam);
      second = second.subspan(rest.size());
    }
    add(tag, second);
    std::array<std::byte, kBlock> last{};
    for (std::size_t i = 0; i < sizeof(length); ++i) {
      last[i] = static_cast<std::byte>(length >> (8 * i) & 0xFF);
    }
    add(tag, last);
    return tag;
  }

  void add(ContentTag& tag, ByteSpan bytes) const {
    if (bytes.empty()) return;
    IMB_GHASH(manager.get(), &powers, bytes.data(), bytes.size(), tag.data(), tag.size());
  }

  struct Free {
    void operator()(IMB_MGR* each) const { free_mb_mgr(each); }
  };
  std::unique_ptr<IMB_MGR, Free> manager;
  alignas(64) gcm_key_data powers{};
};

ContentTagger::ContentTagger() : ContentTagger(std::make_unique<const Multibuffer>()) {}

#else

ContentTagger::ContentTagger() : ContentTagger(std::make_unique<const Openssl>()) {}

#endif

ContentTagger::ContentTagger(std::unique_ptr<const Engine> engine) : engine_(std::move(engine)) {}
ContentTagger::~ContentTagger() = default;

ContentTagger ContentTagger::with_openssl() {
  return ContentTagger(std::make_unique<const Openssl>());
}

ContentTag ContentTagger::tag(const ChunkPieces& content) const { return engine_->tag(content); }

}  // namespace stdchk
