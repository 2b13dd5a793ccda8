#include "core/messages/codec.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/base/limits.h"
#include "tests/support/catch.h"
#include "tests/unit/core/random_message.h"

using namespace stdchk;

namespace {

std::vector<std::byte> encoded(const msg::Envelope& envelope) {
  std::vector<std::byte> bytes;
  REQUIRE(msg::encode(envelope, bytes).has_value());
  return bytes;
}

msg::Envelope request(msg::Request body) { return msg::RequestEnvelope{1, 2, 3, std::move(body)}; }

/// A map of `count` chunks with one copy and one slice each.
ChunkMap long_map(std::uint32_t count) {
  ChunkMap map;
  for (std::uint32_t i = 0; i < count; ++i) {
    map.chunks.push_back(
        {ChunkName{}, 1024, i, {{BenefactorId{1 + i % 7}, std::uint64_t{i} * 2048}}});
    map.slices.push_back({std::uint64_t{i} * 1024, 1024, 0, i});
  }
  return map;
}

}  // namespace

TEST_CASE("every kind of message comes back as it was") {
  Prng prng(7);
  for (std::size_t kind = 0; kind < test::kKinds; ++kind) {
    for (int round = 0; round < 20; ++round) {
      const msg::Envelope sent = test::random_message(prng, kind);
      const auto received = msg::decode(encoded(sent));
      INFO("kind " << kind);
      REQUIRE(received.has_value());
      REQUIRE(*received == sent);
    }
  }
}

TEST_CASE("a message may lie at any address") {
  Prng prng(9);
  const msg::Envelope sent = test::random_message(prng, 20);
  const auto bytes = encoded(sent);
  std::vector<std::byte> shifted(bytes.size() + 8);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + static_cast<std::ptrdiff_t>(shift));
    const auto received = msg::decode(ByteSpan(shifted).subspan(shift, bytes.size()));
    REQUIRE(received.has_value());
    REQUIRE(*received == sent);
  }
}

TEST_CASE("a chunk with one copy and its slice take at most 96 bytes") {
  const auto size = [](std::uint32_t chunks) {
    msg::Commit commit;
    commit.written = long_map(chunks);
    return encoded(request(commit)).size();
  };
  CHECK(size(1000) - size(500) <= 96 * 500);
  // A full page fits in a message, even with three copies of each chunk.
  msg::GetMap::Reply reply;
  reply.page = long_map(limits::kMapPageSlicesMax);
  for (Chunk& chunk : reply.page.chunks) chunk.copies.resize(3, chunk.copies[0]);
  CHECK(encoded(msg::ReplyEnvelope{1, Code{}, 0, 0, "", reply}).size() <= limits::kMessageBytesMax);
}

TEST_CASE("what is above a limit is not encoded") {
  std::vector<std::byte> bytes;
  msg::Lookup lookup;
  lookup.name.assign(limits::kNameBytesMax, 'x');
  CHECK(msg::encode(request(lookup), bytes).has_value());
  lookup.name += 'x';
  CHECK(msg::encode(request(lookup), bytes).error().code == Code::kTooLarge);
  msg::Commit commit;
  commit.written = long_map(limits::kMapPageSlicesMax + 1);
  CHECK(msg::encode(request(commit), bytes).error().code == Code::kTooLarge);
  // each attribute is within its limit, but their sum exceeds the message's
  msg::GetXattrs::Reply xattrs;
  xattrs.attributes.resize(5, {"user.x", std::string(limits::kXattrBytesMax, 'x')});
  CHECK(msg::encode(msg::ReplyEnvelope{1, Code{}, 0, 0, "", xattrs}, bytes).error().code ==
        Code::kTooLarge);
  // The reused buffer keeps nothing of the refused message.
  lookup.name.resize(1);
  const auto received = msg::decode(encoded(request(lookup)));
  REQUIRE(received.has_value());
  CHECK(*received == request(lookup));
}

TEST_CASE("what the receiver would refuse is not encoded") {
  std::vector<std::byte> bytes;
  const auto refused = [&](const msg::Request& body) {
    return msg::encode(request(body), bytes).error().code == Code::kInvalidArgument;
  };
  CHECK(refused(msg::Lookup{ClientId{1}, kRootFile, std::string("a\0b", 3)}));
  msg::Commit commit;
  commit.written = long_map(2);
  commit.written.slices[1].chunk = 2;
  CHECK(refused(commit));
  commit.written = long_map(2);
  commit.written.slices[1].file_offset = 1023;
  CHECK(refused(commit));
  commit.written = long_map(2);
  commit.written.slices[1].chunk_offset = 1;
  CHECK(refused(commit));
  commit.written = long_map(2);
  commit.written.chunks[0].copies[0].benefactor = {};
  CHECK(refused(commit));
}

TEST_CASE("an optional part without an id is none, whatever else it says") {
  constexpr std::uint64_t kId = 0x0123456789abcdef;
  msg::Commit::Reply reply;
  reply.attributes.id = FileId{1};
  reply.directory.id = FileId{kId};
  reply.directory.mode = 0755;
  auto bytes = encoded(msg::ReplyEnvelope{1, {}, 0, {}, {}, reply});
  std::byte id[sizeof kId];
  std::memcpy(id, &kId, sizeof id);
  const auto at = std::search(bytes.begin(), bytes.end(), std::begin(id), std::end(id));
  REQUIRE(at != bytes.end());
  std::fill_n(at, sizeof id, std::byte{0});
  const auto received = msg::decode(bytes);
  REQUIRE(received.has_value());
  const auto& body = std::get<msg::ReplyEnvelope>(*received).body;
  CHECK(std::get<msg::Commit::Reply>(body).directory == Attributes{});
}

TEST_CASE("a shortened or lengthened message is malformed") {
  Prng prng(10);
  const auto bytes = encoded(test::random_message(prng, 20));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CHECK(msg::decode(ByteSpan(bytes).first(length)).error().code == Code::kMalformed);
  }
  auto longer = bytes;
  longer.resize(bytes.size() + 8);
  CHECK_FALSE(msg::decode(longer).has_value());
}

TEST_CASE("twenty thousand damaged messages are decoded without harm") {
  Prng prng(11);
  std::vector<std::vector<std::byte>> corpus;
  for (std::size_t kind = 0; kind < test::kKinds; ++kind) {
    corpus.push_back(encoded(test::random_message(prng, kind)));
  }
  std::size_t malformed = 0;
  std::vector<std::byte> again;
  for (int i = 0; i < 20000; ++i) {
    auto bytes = corpus[prng.below(corpus.size())];
    for (auto changes = 1 + prng.below(8); changes-- > 0;) {
      // Mostly changes bytes after the frame's header, because the header is checked first.
      const std::size_t at =
          prng.chance(1, 20) ? prng.below(bytes.size()) : 8 + prng.below(bytes.size() - 8);
      switch (prng.below(3)) {
        case 0:
          bytes[at] ^= static_cast<std::byte>(1 << prng.below(8));
          break;
        case 1:
          bytes[at] = static_cast<std::byte>(prng.below(256));
          break;
        default:
          bytes[at] = bytes[prng.below(bytes.size())];
          break;
      }
    }
    const auto received = msg::decode(bytes);
    if (!received.has_value()) {
      CHECK(received.error().code == Code::kMalformed);
      ++malformed;
    } else {
      // An accepted message keeps all rules: it can be encoded again, and decodes to the same
      // value.
      CHECK(msg::encode(*received, again).has_value());
      CHECK(*msg::decode(again) == *received);
    }
  }
  CHECK(malformed > 1000);
  CHECK(malformed < 20000);
}
