#include "benefactor/memory/metadata_log.h"

#include <utility>

#include "core/base/limits.h"
#include "tests/support/catch.h"

namespace stdchk::benefactor {
namespace {

msg::KeepLog begin(std::uint64_t epoch, std::string bytes, std::uint64_t sequence) {
  return {Epoch{epoch}, true, 0, sequence, std::move(bytes)};
}

msg::KeepLog more(std::uint64_t epoch, std::uint64_t offset, std::string bytes,
                  std::uint64_t sequence) {
  return {Epoch{epoch}, false, offset, sequence, std::move(bytes)};
}

std::string content(const MetadataLog& log) {
  const auto reply = log.read(0);
  return reply ? reply->bytes : "";
}

}  // namespace

TEST_CASE("a metadata log counts from the moment when it is whole, and the one before until then") {
  MetadataLog log(4096);
  CHECK(log.read(0).error().code == Code::kNotFound);
  REQUIRE(log.store(begin(1, "snap", 0)));
  CHECK(log.sequence() == 0);
  CHECK(log.read(0).error().code == Code::kNotFound);
  REQUIRE(log.store(more(1, 4, "shot", 7)));
  CHECK(log.epoch() == Epoch{1});
  CHECK(log.sequence() == 7);
  CHECK(content(log) == "snapshot");
  // An incomplete record is stored, but does not count yet.
  REQUIRE(log.store(more(1, 8, "+half", 0)));
  CHECK(content(log) == "snapshot");
  REQUIRE(log.store(more(1, 13, "+half", 8)));
  CHECK(content(log) == "snapshot+half+half");
  // The next manager begins its log twice; only the second beginning becomes complete.
  REQUIRE(log.store(begin(2, "lost", 0)));
  CHECK(content(log) == "snapshot+half+half");
  REQUIRE(log.store(begin(2, "next", 3)));
  CHECK(content(log) == "next");
  CHECK(log.epoch() == Epoch{2});
  CHECK(log.sequence() == 3);
}

TEST_CASE("a metadata log keeps nothing of an epoch before the promised one") {
  MetadataLog log(4096);
  REQUIRE(log.store(begin(1, "one", 1)));
  log.promise(Epoch{});
  REQUIRE(log.store(more(1, 3, "two", 2)));
  log.promise(Epoch{256});
  CHECK(log.store(more(1, 6, "three", 3)).error().code == Code::kFenced);
  CHECK(log.store(begin(255, "x", 3)).error().code == Code::kFenced);
  CHECK(content(log) == "onetwo");
  REQUIRE(log.store(begin(256, "next", 1)));
  CHECK(content(log) == "next");
}

TEST_CASE("a metadata log takes nothing of an earlier manager, nor what does not follow or fit") {
  MetadataLog log(64);
  CHECK(log.store(more(1, 0, "x", 1)).error().code == Code::kStale);
  CHECK(log.store(begin(0, "x", 1)).error().code == Code::kFenced);
  REQUIRE(log.store(begin(5, "12345678", 1)));
  CHECK(log.store(begin(4, "x", 9)).error().code == Code::kFenced);
  CHECK(log.store(more(4, 8, "x", 9)).error().code == Code::kFenced);
  CHECK(log.store(more(6, 8, "x", 9)).error().code == Code::kStale);
  CHECK(log.store(more(5, 7, "x", 9)).error().code == Code::kStale);
  CHECK(log.store(more(5, 8, std::string(25, 'x'), 9)).error().code == Code::kNoSpace);
  REQUIRE(log.store(more(5, 8, std::string(24, 'x'), 9)));
  CHECK(log.sequence() == 9);
  CHECK(log.read(33).error().code == Code::kInvalidArgument);
  CHECK(log.read(32)->bytes.empty());
  // An earlier manager is refused even while a later manager's log is incomplete.
  REQUIRE(log.store(begin(7, "y", 0)));
  CHECK(log.store(more(5, 32, "", 10)).error().code == Code::kFenced);
  CHECK(log.epoch() == Epoch{5});
}

TEST_CASE("a long metadata log is read in pieces") {
  MetadataLog log(1 << 20);
  const std::string piece(limits::kLogPieceBytesMax, 'a');
  REQUIRE(log.store(begin(1, piece, 0)));
  REQUIRE(log.store(more(1, piece.size(), "end", 2)));
  const auto first = log.read(0);
  REQUIRE(first);
  CHECK(first->more);
  const auto second = log.read(first->bytes.size());
  REQUIRE(second);
  CHECK_FALSE(second->more);
  CHECK(first->bytes + second->bytes == piece + "end");
}

TEST_CASE("a metadata log grows with what it must hold, and gives that back when it is replaced") {
  constexpr std::uint64_t kBase = 64 * limits::kKiB;
  constexpr std::uint64_t kMax = 16 * limits::kMiB;
  std::uint64_t allowed_bytes = kMax;
  MetadataLog log({kBase, kMax, [&](std::uint64_t more_bytes) {
                     const bool may = more_bytes <= allowed_bytes;
                     if (may) allowed_bytes -= more_bytes;
                     return may;
                   }});
  CHECK(log.bytes_max() == kMax);
  CHECK(log.taken_bytes() == kBase);
  const std::string piece(limits::kLogPieceBytesMax, 'a');
  REQUIRE(log.store(begin(1, piece, 1)));
  std::uint64_t offset = piece.size();
  while (log.store(more(1, offset, piece, 2))) offset += piece.size();
  CHECK(offset == kMax / 2);
  CHECK(log.content().size() == kMax / 2);
  CHECK(log.store(more(1, offset, "x", 3)).error().code == Code::kNoSpace);
  CHECK(log.taken_bytes() >= kMax / 2);
  CHECK(log.taken_bytes() <= kMax / 2 + kBase);
  // The host has no memory for a second log beside the first, so the old log stays.
  const std::uint64_t left_bytes = std::exchange(allowed_bytes, 0);
  CHECK(log.store(begin(2, piece, 1)).error().code == Code::kNoSpace);
  CHECK(log.content().size() == kMax / 2);
  CHECK(log.epoch() == Epoch{1});
  allowed_bytes = left_bytes;
  REQUIRE(log.store(begin(2, piece, 1)));
  CHECK(content(log) == piece);
  CHECK(log.taken_bytes() <= 2 * limits::kMiB);
}

}  // namespace stdchk::benefactor
