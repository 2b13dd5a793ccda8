#include "core/chunk/naming.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/chunk/leaf_engine.h"

namespace stdchk {
namespace {

/// A Sha256 keeps the state of OpenSSL's SHA-256, so that a digest allocates nothing.
class Sha256 {
 public:
  // Chunk names need SHA-256: a library without it is a broken installation.
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
  void digest(std::span<const ByteSpan> leaves, std::span<Sha256Digest> digests) override {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      sha_.start();
      sha_.add(leaves[i]);
      sha_.finish(digests[i].data());
    }
  }

 private:
  Sha256 sha_;
};

constexpr char kDomain[] = "stdchk.chunk.v1";
static_assert(sizeof(kDomain) == 16);  // including the NUL

/// A Leaves holds the leaves of several chunks, one after the other, and their digests.
class Leaves {
 public:
  void clear() {
    leaves_.clear();
    seams_.clear();
  }

  /// Copies a leaf that lies in both pieces into one buffer.
  void add(const ChunkPieces& chunk) {
    constexpr std::size_t kLeaf = limits::kNameLeafBytes;
    ByteSpan first = chunk[0];
    ByteSpan second = chunk[1];
    for (; first.size() >= kLeaf; first = first.subspan(kLeaf))
      leaves_.push_back(first.first(kLeaf));
    if (!first.empty()) {
      const ByteSpan rest = second.first(std::min(second.size(), kLeaf - first.size()));
      second = second.subspan(rest.size());
      leaves_.push_back(rest.empty() ? first : joined(first, rest));
    }
    for (; !second.empty(); second = second.subspan(leaves_.back().size())) {
      leaves_.push_back(second.first(std::min(second.size(), kLeaf)));
    }
  }

  std::span<const Sha256Digest> digest(LeafEngine& engine) {
    digests_.resize(leaves_.size());
    engine.digest(leaves_, digests_);
    return digests_;
  }

 private:
  ByteSpan joined(ByteSpan first, ByteSpan second) {
    std::vector<std::byte>& seam = seams_.emplace_back();
    seam.reserve(first.size() + second.size());
    seam.assign(first.begin(), first.end());
    seam.insert(seam.end(), second.begin(), second.end());
    return seam;
  }

  std::vector<ByteSpan> leaves_;
  std::vector<Sha256Digest> digests_;
  std::deque<std::vector<std::byte>> seams_;
};

ChunkName name_of(Sha256& root, const ChunkPieces& chunk, std::span<const Sha256Digest> leaves) {
  const std::size_t size = chunk[0].size() + chunk[1].size();
  std::array<std::byte, 8> length;
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(size >> (8 * i) & 0xFF);
  }
  root.start();
  root.add(std::as_bytes(std::span(kDomain)));
  root.add(length);
  root.add(std::as_bytes(leaves));
  ChunkName name;
  root.finish(name.bytes.data());
  return name;
}

}  // namespace

std::unique_ptr<LeafEngine> make_openssl_engine() { return std::make_unique<OpensslEngine>(); }

struct Namer::Engine {
  explicit Engine(std::unique_ptr<LeafEngine> engine) : leaf_engine(std::move(engine)) {}

  void name(std::span<const ChunkPieces> chunks, std::span<ChunkName> names) {
    leaves.clear();
    for (const ChunkPieces& chunk : chunks) leaves.add(chunk);
    std::span<const Sha256Digest> digests = leaves.digest(*leaf_engine);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const std::size_t size = chunks[i][0].size() + chunks[i][1].size();
      const std::size_t count = (size + limits::kNameLeafBytes - 1) / limits::kNameLeafBytes;
      names[i] = name_of(root, chunks[i], digests.first(count));
      digests = digests.subspan(count);
    }
  }

  Sha256 root;
  std::unique_ptr<LeafEngine> leaf_engine;
  Leaves leaves;
};

Namer::Namer() {
  auto fast = make_multibuffer_engine();
  engine_ = new Engine(fast != nullptr ? std::move(fast) : make_openssl_engine());
}
Namer::~Namer() { delete engine_; }

ChunkName Namer::name(ByteSpan content) {
  const ChunkPieces chunk = {content, ByteSpan()};
  ChunkName name;
  engine_->name({&chunk, 1}, {&name, 1});
  return name;
}

void Namer::name(std::span<const ChunkPieces> chunks, std::span<ChunkName> names) {
  STDCHK_ASSERT(chunks.size() == names.size());
  engine_->name(chunks, names);
}

std::string_view Namer::engine() const { return engine_->leaf_engine->name(); }

ChunkName name_chunk(ByteSpan content) {
  thread_local Sha256 root;
  thread_local OpensslEngine engine;
  thread_local Leaves leaves;
  const ChunkPieces chunk = {content, ByteSpan()};
  leaves.clear();
  leaves.add(chunk);
  return name_of(root, chunk, leaves.digest(engine));
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
