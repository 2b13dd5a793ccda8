#include "core/chunk/extent_header.h"

#include <array>

#include "core/chunk/naming.h"
#include "tests/support/catch.h"

using namespace stdchk;

namespace {

ExtentHeader sample() {
  return {name_chunk(std::as_bytes(std::span("abc", 3))), 3, 0x364B3FB7, FileId{77}, 5};
}

}  // namespace

TEST_CASE("an extent header comes back as it was") {
  std::array<std::byte, limits::kExtentHeaderBytes> bytes;
  bytes.fill(std::byte{0xAA});
  encode_extent_header(sample(), bytes.data());
  const auto read = decode_extent_header(bytes);
  REQUIRE(read.has_value());
  CHECK(*read == sample());
}

TEST_CASE("an extent header with any bit flipped is corrupt") {
  std::array<std::byte, limits::kExtentHeaderBytes> bytes;
  encode_extent_header(sample(), bytes.data());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    CHECK(decode_extent_header(bytes).error().code == Code::kCorrupt);
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  CHECK(decode_extent_header(bytes).has_value());
  CHECK_FALSE(decode_extent_header(ByteSpan(bytes).first(63)).has_value());
  CHECK_FALSE(decode_extent_header(std::array<std::byte, 64>{}).has_value());
}

TEST_CASE("an extent takes header and content in steps of the alignment") {
  CHECK(extent_bytes(0) == 64);
  CHECK(extent_bytes(1) == 128);
  CHECK(extent_bytes(64) == 128);
  CHECK(extent_bytes(65) == 192);
  CHECK(extent_bytes(limits::kChunkBytesMax) == limits::kChunkBytesMax + 64ULL);
}
