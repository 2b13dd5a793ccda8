#include "core/chunk/content_tag.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/catch.h"

using namespace stdchk;

namespace {

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((7 * i + 3) & 0xFF);
  return bytes;
}

const ContentTagger& one_of_both() {
  static const ContentTagger fast;
  static const ContentTagger openssl = ContentTagger::with_openssl();
  return GENERATE(false, true) ? openssl : fast;
}

}  // namespace

TEST_CASE("a tag is the same wherever its content is divided") {
  const ContentTagger& tagger = one_of_both();
  for (const std::size_t size : {0U, 1U, 15U, 16U, 17U, 31U, 32U, 33U, 100U, 1000U}) {
    const auto bytes = pattern(size);
    const ByteSpan whole(bytes);
    const ContentTag tag = tagger.tag({whole, ByteSpan()});
    for (std::size_t at = 0; at <= size; ++at) {
      INFO(size << " bytes, divided at " << at);
      CHECK(tagger.tag({whole.first(at), whole.subspan(at)}) == tag);
    }
  }
}

TEST_CASE("a tag tells of every bit, and of the length") {
  const ContentTagger& tagger = one_of_both();
  auto bytes = pattern(100);
  std::set<ContentTag> tags{tagger.tag({bytes, ByteSpan()})};
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const std::byte mask{static_cast<unsigned char>(1U << bit % 8)};
    bytes[bit / 8] ^= mask;
    tags.insert(tagger.tag({bytes, ByteSpan()}));
    bytes[bit / 8] ^= mask;
  }
  CHECK(tags.size() == 801);
  // GHASH pads blocks with zeros, and ignores leading zeros, so tags of zeros must include the
  // length.
  const std::vector<std::byte> zeros(200);
  for (std::size_t length = 0; length <= zeros.size(); ++length) {
    tags.insert(tagger.tag({ByteSpan(zeros).first(length), ByteSpan()}));
  }
  CHECK(tags.size() == 801 + 201);
  std::rotate(bytes.begin(), bytes.begin() + 16, bytes.end());  // the same blocks in another order
  CHECK(tags.insert(tagger.tag({bytes, ByteSpan()})).second);
}

TEST_CASE("each tagger has a key of its own") {
  const ContentTagger one;
  const ContentTagger two;
  const auto bytes = pattern(100);
  CHECK(one.tag({bytes, ByteSpan()}) != two.tag({bytes, ByteSpan()}));
}
