#include "core/chunk/sealed_chunk.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/chunk/naming.h"
#include "core/crypto/sealer.h"
#include "tests/support/catch.h"

namespace stdchk {
namespace {

using Bytes = std::vector<std::byte>;

Secret key_of(int seed) {
  Secret key;
  key.bytes.fill(static_cast<std::byte>(seed));
  return key;
}

Bytes text(std::size_t length, int seed) {
  Bytes bytes(length);
  for (std::size_t i = 0; i < length; ++i) {
    bytes[i] = static_cast<std::byte>(static_cast<int>(i * 7) + seed);
  }
  return bytes;
}

struct Sealed {
  ChunkName name;
  Bytes bytes;
};

/// Seals `plain` in two pieces; the first has `first` bytes.
Sealed seal(const ChunkSealer& sealer, const Bytes& plain, std::size_t first,
            const ChunkName& content_name) {
  Sealed sealed{{}, plain};
  const MutableByteSpan all(sealed.bytes);
  sealed.name = sealer.seal({all.first(first), all.subspan(first)}, content_name);
  return sealed;
}

Sealed seal(const ChunkSealer& sealer, const Bytes& plain) {
  return seal(sealer, plain, plain.size() / 3, name_chunk(plain));
}

bool opens(const ChunkSealer& sealer, const ChunkName& name, Bytes bytes, const Bytes& plain) {
  const Status opened = sealer.open(name, bytes);
  if (!opened) CHECK(opened.error().code == Code::kCorrupt);
  return opened.has_value() && bytes == plain;
}

std::string hex(ByteSpan bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte each : bytes) {
    text += kDigits[std::to_integer<unsigned>(each) >> 4];
    text += kDigits[std::to_integer<unsigned>(each) & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("digests and keys are those of RFC 4231 and RFC 5869") {
  // RFC 4231, case 1. HMAC pads the key of 20 bytes with zeros.
  Secret key;
  std::fill_n(key.bytes.begin(), 20, std::byte{0x0b});
  const std::string data = "Hi There";
  CHECK(hex(keyed_digest(key, {std::as_bytes(std::span(data))})) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  // A block of HKDF-Expand is HMAC(key, info || 1). Here info is the use, a zero byte, the context.
  const std::string info("use\0context\1", 12);
  const std::string context = "context";
  CHECK(derive(key, "use", std::as_bytes(std::span(context))).bytes ==
        keyed_digest(key, {std::as_bytes(std::span(info))}));
}

TEST_CASE("AES-256-GCM gives what its authors published, in one part and in two") {
  // McGrew and Viega, The Galois/Counter Mode of Operation, case 14: key, nonce and text are zero.
  Sealer sealer;
  sealer.set_key({});
  Bytes bytes(16);
  CHECK(hex(sealer.seal(0, bytes, bytes)) == "d0d1c8a799996bf0265b98b5d48ab919");
  CHECK(hex(bytes) == "cea7403d4d606b6e074ec5d3baf39d18");
  Bytes parts(16);
  const MutableByteSpan all(parts);
  sealer.begin_seal(0);
  sealer.add(all.first(5), all.first(5));
  sealer.add(all.subspan(5), all.subspan(5));
  const Sealer::Tag tag = sealer.end_seal();
  CHECK(parts == bytes);
  CHECK(hex(tag) == "d0d1c8a799996bf0265b98b5d48ab919");
  CHECK(sealer.open(0, bytes, ByteSpan(tag).first(12), bytes).has_value());
  CHECK(bytes == Bytes(16));
}

TEST_CASE("a chunk is sealed as docs/internals/formats.md says") {
  // Computed from docs/internals/formats.md with another implementation of HMAC and AES-GCM.
  ChunkName content_name;
  for (std::size_t i = 0; i < content_name.bytes.size(); ++i) {
    content_name.bytes[i] = static_cast<std::byte>(i + 1);
  }
  const Sealed sealed = seal(ChunkSealer(key_of(1)), text(100, 3), 33, content_name);
  CHECK(hex(sealed.name.bytes) ==
        "38f11c109c8896736bc53ae1d4584f7e8ea6702bd19c60017365616c65642e43");
  CHECK(hex(sealed.bytes) ==
        "b7d0257db86155d4f94858927318361f51f939b322accca66a5b71056f8599ad9a0bddbf0971a734190ad6aeca"
        "561623046fbf378c57e5b648179fdd3d8ab84457d0dddb2e1ccfa0c78e7cf7dc7ff1ef14180925148ffca064dc"
        "4f6bc4ea4b8e54c964ba");
}

TEST_CASE("a sealed chunk is opened by who has the key, and by nobody else") {
  const ChunkSealer one(key_of(1)), same(key_of(1)), other(key_of(2));
  constexpr std::size_t kLengths[] = {1, 15, 16, 17, 4096, 70001};
  for (const std::size_t length : kLengths) {
    for (const bool by_content : {true, false}) {
      CAPTURE(length, by_content);
      const Bytes plain = text(length, 3);
      const Sealed sealed =
          seal(one, plain, length / 3, by_content ? name_chunk(plain) : ChunkName{});
      CHECK(naming_of(sealed.name) ==
            (by_content ? ChunkNaming::kSealedByContent : ChunkNaming::kSealedAtRandom));
      CHECK(follows_from_content(sealed.name) == by_content);
      // A short chunk may by chance equal its sealed bytes.
      if (by_content || length >= 15) CHECK(sealed.bytes != plain);
      CHECK(opens(same, sealed.name, sealed.bytes, plain));
      CHECK_FALSE(opens(other, sealed.name, sealed.bytes, plain));
    }
  }
}

TEST_CASE("equal chunks of a pool are sealed alike, whatever their pieces; other pools' are not") {
  const ChunkSealer one(key_of(1)), other(key_of(2));
  const Bytes plain = text(50000, 1);
  const Sealed first = seal(one, plain, 0, name_chunk(plain));
  const Sealed second = seal(one, plain, 12345, name_chunk(plain));
  CHECK(first.name == second.name);
  CHECK(first.bytes == second.bytes);
  CHECK(seal(other, plain).name != first.name);
  CHECK(seal(other, plain).bytes != first.bytes);
  CHECK(seal(one, text(50000, 2)).name != first.name);
}

TEST_CASE("without names no two chunks are sealed alike") {
  const ChunkSealer one(key_of(1));
  const Sealed first = seal(one, text(1000, 1), 0, {});
  const Sealed second = seal(one, text(1000, 1), 0, {});
  CHECK(first.name != second.name);
  CHECK(first.bytes != second.bytes);
}

TEST_CASE("no bit of a sealed chunk, or of its number and tag, can be changed") {
  const ChunkSealer one(key_of(1));
  const Bytes plain = text(40, 1);
  const Sealed sealed = seal(one, plain);
  for (std::size_t bit = 0; bit < 8 * sealed.bytes.size(); ++bit) {
    Bytes changed = sealed.bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    REQUIRE_FALSE(one.open(sealed.name, changed).has_value());
  }
  constexpr std::size_t kMarkBytes = 8;
  for (std::size_t bit = 0; bit < 8 * (sealed.name.bytes.size() - kMarkBytes); ++bit) {
    ChunkName changed = sealed.name;
    changed.bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    REQUIRE_FALSE(opens(one, changed, sealed.bytes, plain));
  }
}

TEST_CASE("whatever is changed, cut off or put on, a sealed chunk opens as it was or not at all") {
  const ChunkSealer one(key_of(1));
  Prng prng(7);
  for (int i = 0; i < 3000; ++i) {
    CAPTURE(i);
    const Bytes plain = text(prng.below(200), i);
    const Sealed sealed = seal(one, plain);
    ChunkName name = sealed.name;
    Bytes bytes = sealed.bytes;
    for (std::uint64_t changes = prng.below(4); changes > 0; --changes) {
      const auto value = static_cast<std::byte>(prng.below(256));
      if (const std::uint64_t at = prng.below(name.bytes.size() + bytes.size());
          at < name.bytes.size()) {
        name.bytes[at] = value;
      } else {
        bytes[at - name.bytes.size()] = value;
      }
    }
    bytes.resize(bytes.size() - std::min<std::size_t>(bytes.size(), prng.below(3)));
    bytes.resize(bytes.size() + prng.below(3), std::byte{5});
    if (!is_sealed(name)) continue;
    const bool same = bytes == sealed.bytes && std::equal(name.bytes.begin(), name.bytes.end() - 8,
                                                          sealed.name.bytes.begin());
    REQUIRE(opens(one, name, bytes, plain) == same);
  }
}

TEST_CASE("the name of plain content is not taken for a sealed chunk's") {
  CHECK_FALSE(is_sealed(ChunkName{}));
  CHECK_FALSE(follows_from_content(ChunkName{}));
  for (int seed = 0; seed < 1000; ++seed) {
    const ChunkName name = name_chunk(text(100, seed));
    CHECK_FALSE(is_sealed(name));
    CHECK(follows_from_content(name));
  }
}

}  // namespace stdchk
