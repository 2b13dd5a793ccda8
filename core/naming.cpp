#include "core/naming.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>

#include "core/assert.h"
#include "core/leaf_engine.h"
#include "core/limits.h"

namespace stdchk {
namespace {

/// A Sha256 is OpenSSL's SHA-256 with its state kept, so that a digest allocates nothing.
class Sha256 {
 public:
  // The names of chunks cannot be made without SHA-256: its absence is a broken installation.
  Sha256() : digest_(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context_(EVP_MD_CTX_new()) {
    STDCHK_ASSERT(digest_ != nullptr && context_ != nullptr);
  }
  ~Sha256() {
    EVP_MD_CTX_free(context_);
    EVP_MD_free(digest_);
  }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void start() { STDCHK_ASSERT(EVP_DigestInit_ex2(context_, digest_, nullptr) == 1); }
  void add(ByteSpan bytes) {
    STDCHK_ASSERT(EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1);
  }
  void finish(std::byte* out) {
    STDCHK_ASSERT(EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(out), nullptr) ==
                  1);
  }

 private:
  EVP_MD* digest_;
  EVP_MD_CTX* context_;
};

class OpensslEngine final : public LeafEngine {
 public:
  std::string_view name() const override { return "sha256 openssl"; }
  void digest(ByteSpan content, std::span<Sha256Digest> digests) override {
    for (Sha256Digest& digest : digests) {
      const ByteSpan leaf =
          content.first(std::min<std::size_t>(limits::kNameLeafBytes, content.size()));
      sha_.start();
      sha_.add(leaf);
      sha_.finish(digest.data());
      content = content.subspan(leaf.size());
    }
  }

 private:
  Sha256 sha_;
};

constexpr char kDomain[] = "stdchk.chunk.v1";
static_assert(sizeof(kDomain) == 16);  // with the NUL

constexpr std::size_t kGroupLeaves = 256;  ///< handed to the engine at once

ChunkName name_with(LeafEngine& engine, Sha256& root, ByteSpan content) {
  std::array<std::byte, 8> length;
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(content.size() >> (8 * i) & 0xFF);
  }
  root.start();
  root.add(std::as_bytes(std::span(kDomain)));
  root.add(length);
  std::array<Sha256Digest, kGroupLeaves> digests;
  while (!content.empty()) {
    const auto group =
        content.first(std::min<std::size_t>(kGroupLeaves * limits::kNameLeafBytes, content.size()));
    const std::size_t leaves = (group.size() + limits::kNameLeafBytes - 1) / limits::kNameLeafBytes;
    engine.digest(group, std::span(digests).first(leaves));
    root.add(std::as_bytes(std::span(digests).first(leaves)));
    content = content.subspan(group.size());
  }
  ChunkName name;
  root.finish(name.bytes.data());
  return name;
}

}  // namespace

std::unique_ptr<LeafEngine> make_openssl_engine() { return std::make_unique<OpensslEngine>(); }

struct Namer::Engine {
  Sha256 root;
  std::unique_ptr<LeafEngine> leaves;
};

Namer::Namer() : engine_(new Engine) {
  engine_->leaves = make_multibuffer_engine();
  if (engine_->leaves == nullptr) engine_->leaves = make_openssl_engine();
}
Namer::~Namer() { delete engine_; }

ChunkName Namer::name(ByteSpan content) {
  return name_with(*engine_->leaves, engine_->root, content);
}

std::string_view Namer::engine() const { return engine_->leaves->name(); }

ChunkName name_chunk(ByteSpan content) {
  thread_local Sha256 root;
  thread_local OpensslEngine leaves;
  return name_with(leaves, root, content);
}

std::string to_hex(const ChunkName& name) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * name.bytes.size());
  for (const std::byte byte : name.bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace stdchk
