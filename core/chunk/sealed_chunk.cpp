#include "core/chunk/sealed_chunk.h"

#include <algorithm>
#include <string_view>

#include "core/base/assert.h"
#include "core/crypto/sealer.h"

namespace stdchk {
namespace {

constexpr std::size_t kNumberBytes = 12;
constexpr std::size_t kTagBytes = Sealer::kTagBytesMin;
constexpr std::size_t kMarkBytes = 8;
static_assert(kNumberBytes + kTagBytes + kMarkBytes == sizeof(ChunkName::bytes));

// A hash of content ends with one of these marks with a probability of 2^-63.
constexpr std::string_view kByContent = "sealed.C";
constexpr std::string_view kAtRandom = "sealed.R";
static_assert(kByContent.size() == kMarkBytes && kAtRandom.size() == kMarkBytes);

/// Each key encrypts a single text, so a single nonce suffices.
constexpr std::uint64_t kOnly = 0;

ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

void set_key(Sealer& sealer, const Secret& keys, ByteSpan number) {
  sealer.set_key(derive(keys, "chunk", number));
}

}  // namespace

ChunkNaming naming_of(const ChunkName& name) {
  const ByteSpan mark = ByteSpan(name.bytes).last(kMarkBytes);
  if (std::ranges::equal(mark, bytes_of(kByContent))) return ChunkNaming::kSealedByContent;
  if (std::ranges::equal(mark, bytes_of(kAtRandom))) return ChunkNaming::kSealedAtRandom;
  return ChunkNaming::kPlain;
}

ChunkSealer::ChunkSealer(const Secret& pool_key)
    : numbers_(derive(pool_key, "numbers of chunks", {})),
      keys_(derive(pool_key, "keys of chunks", {})) {}

ChunkName ChunkSealer::seal(const std::array<MutableByteSpan, 2>& bytes,
                            const ChunkName& content_name) const {
  ChunkName name;
  const MutableByteSpan number = MutableByteSpan(name.bytes).first(kNumberBytes);
  if (content_name.is_named()) {
    const Digest keyed = keyed_digest(numbers_, {content_name.bytes});
    std::copy_n(keyed.begin(), kNumberBytes, number.begin());
  } else {
    fill_random(number);
  }
  Sealer sealer;
  set_key(sealer, keys_, number);
  sealer.begin_seal(kOnly);
  for (const MutableByteSpan piece : bytes) sealer.add(piece, piece);
  const Sealer::Tag tag = sealer.end_seal();
  std::copy_n(tag.begin(), kTagBytes, name.bytes.begin() + kNumberBytes);
  std::ranges::copy(bytes_of(content_name.is_named() ? kByContent : kAtRandom),
                    name.bytes.begin() + kNumberBytes + kTagBytes);
  return name;
}

Status ChunkSealer::open(const ChunkName& name, MutableByteSpan bytes) const {
  STDCHK_ASSERT(is_sealed(name));
  const ByteSpan all(name.bytes);
  Sealer sealer;
  set_key(sealer, keys_, all.first(kNumberBytes));
  return sealer.open(kOnly, bytes, all.subspan(kNumberBytes, kTagBytes), bytes);
}

}  // namespace stdchk
