#include "tools/drained/object_source.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/chunk/naming.h"
#include "core/files/drain_manifest.h"
#include "core/objects/object_attributes.h"
#include "tests/support/catch.h"
#include "tests/support/memory_object_store.h"

namespace stdchk::tools {
namespace {

constexpr std::uint64_t kRange = ObjectAttributes::kRangeBytesMin;

/// A clock that goes on by a request's whole time when the store does not answer.
class TestClock final : public Clock {
 public:
  Time now() const override { return Time(std::chrono::seconds(seconds.load())); }
  std::int64_t wall_ns() const override { return 0; }
  mutable std::atomic<int> seconds{0};
};

/// The store of one test, with the objects of a pool below "p".
struct Place {
  std::shared_ptr<TestClock> clock = std::make_shared<TestClock>();
  std::shared_ptr<MemoryObjectStore> store = std::make_shared<MemoryObjectStore>();

  void put(const std::string& path, ByteSpan bytes, const ObjectMetadata& metadata) const {
    REQUIRE(store->put("p/" + path, bytes, metadata, {}, Time::max()));
  }
  void put_text(const std::string& path, const std::string& text, ObjectAttributes of) const {
    put(path, std::as_bytes(std::span(text)), of.metadata());
  }
  Outcome<std::unique_ptr<DrainedSource>> open(const std::string& prefix = "p") const {
    ObjectPlace place;
    place.bucket = "bucket";
    place.prefix = prefix;
    return open_object_source(place, store, clock, 4);
  }
};

ObjectAttributes attributes_of(ObjectKind kind) {
  ObjectAttributes out;
  out.kind = kind;
  out.mode = 0640;
  out.uid = 12;
  out.gid = 34;
  out.mtime_ns = -1;  // before 1970
  return out;
}

std::vector<std::byte> some_bytes(std::size_t length) {
  std::vector<std::byte> out(length);
  for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>(i * 7 + i / 251);
  return out;
}

ObjectAttributes attributes_with_checksums(ByteSpan bytes) {
  ObjectAttributes out = attributes_of(ObjectKind::kFile);
  for (std::size_t at = 0; at < bytes.size(); at += kRange) {
    out.crcs.push_back(crc32c(0, bytes.subspan(at, std::min(kRange, bytes.size() - at))));
  }
  return out;
}

}  // namespace

TEST_CASE("an object store shows files with their checksums, links and folders") {
  const Place place;
  const auto bytes = some_bytes(kRange + 5);
  place.put("run/", {}, attributes_of(ObjectKind::kDirectory).metadata());
  place.put("run/app.N0.T1", bytes, attributes_with_checksums(bytes).metadata());
  place.put("run/deep/er/plain", std::span(bytes).first(10), {});
  place.put_text("run/first", "app.N0.T1", attributes_of(ObjectKind::kSymlink));
  place.put("run/pipe", {}, attributes_of(ObjectKind::kFifo).metadata());
  place.put(".stdchk-drain/1/0", bytes, {});
  place.put(".stdchk-lease", bytes, {});
  place.put("run/../escape", bytes, {});
  place.put("run/deep", bytes, {});  // a folder has this name
  const auto source = place.open();
  REQUIRE(source);
  const auto tree = (*source)->tree();
  REQUIRE(tree);
  REQUIRE(tree->files.size() == 2);
  const ManifestFile& image = tree->files[0];
  CHECK(image.path == "s3://bucket/p/run/app.N0.T1");
  CHECK(image.below == "run/app.N0.T1");
  CHECK_FALSE(image.unlisted);
  CHECK_FALSE(image.damaged);
  REQUIRE(image.pieces.size() == 2);
  CHECK(image.pieces[1].offset == kRange);
  CHECK(image.pieces[1].length == 5);
  CHECK(tree->files[1].below == "run/deep/er/plain");
  CHECK(tree->files[1].unlisted);
  CHECK(tree->links == std::vector<std::string>{"run/first"});
  CHECK(tree->folders == std::vector<std::string>{"run", "run/deep", "run/deep/er"});

  const auto status = (*source)->status("run/app.N0.T1");
  REQUIRE(status);
  CHECK(status->st_mode == (S_IFREG | 0640));
  CHECK(status->st_uid == 12);
  CHECK(to_ns(status->st_mtim) == -1);
  REQUIRE((*source)->status("run"));
  CHECK(S_ISDIR((*source)->status("run")->st_mode));
  const auto link = (*source)->link("run/first");
  REQUIRE(link);
  CHECK(link->target == "app.N0.T1");
  CHECK_FALSE((*source)->link("run/app.N0.T1"));
  CHECK_FALSE((*source)->open("run/first"));

  const auto file = (*source)->open("run/app.N0.T1");
  REQUIRE(file);
  const auto read = (*file)->read(1, bytes.size());
  REQUIRE(read);
  CHECK(std::ranges::equal(*read, std::span(bytes).subspan(1)));
}

TEST_CASE("damaged metadata make a damaged file, not one without checksums") {
  const Place place;
  const auto bytes = some_bytes(100);
  const ObjectMetadata right = attributes_with_checksums(bytes).metadata();
  const auto put = [&](const std::string& path, const std::string& name, const std::string& value) {
    ObjectMetadata metadata = right;
    metadata[name] = value;
    place.put(path, bytes, metadata);
  };
  put("crcs", "stdchk-crc32c", "16777216:0000000");
  put("count", "stdchk-crc32c", "16777216:0000000000000000");
  put("mode", "stdchk-mode", "rw");
  put("kind", "stdchk-kind", "door");
  place.put("short", std::span(bytes).first(0), right);
  const auto source = place.open();
  REQUIRE(source);
  const auto tree = (*source)->tree();
  REQUIRE(tree);
  REQUIRE(tree->files.size() == 5);
  for (const ManifestFile& file : tree->files) CHECK(file.damaged);
}

TEST_CASE("a time that no clock shows is a time nevertheless") {
  const Place place;
  ObjectAttributes attributes = attributes_of(ObjectKind::kFile);
  attributes.mtime_ns = std::numeric_limits<std::int64_t>::min();
  place.put("x", {}, attributes.metadata());
  const auto source = place.open();
  REQUIRE(source);
  const auto status = (*source)->status("x");
  REQUIRE(status);
  CHECK(to_ns(status->st_mtim) == to_ns({std::numeric_limits<std::time_t>::min(), 0}));
}

TEST_CASE("an object that was replaced is not read as the one that was looked at") {
  const Place place;
  const auto bytes = some_bytes(100);
  place.put("x", bytes, attributes_with_checksums(bytes).metadata());
  const auto source = place.open();
  REQUIRE(source);
  const auto file = (*source)->open("x");
  REQUIRE(file);
  CHECK((*file)->is_unchanged() == true);
  place.put("x", bytes, attributes_with_checksums(bytes).metadata());
  const auto read = (*file)->read(0, 100);
  REQUIRE_FALSE(read);
  CHECK(read.error().error.os_errno == ESTALE);
  CHECK((*file)->is_unchanged() == false);
  REQUIRE(place.store->remove("p/x", Time::max()));
  CHECK((*file)->is_unchanged() == false);
}

TEST_CASE("a link whose target cannot be read is refused alone") {
  const Place place;
  place.put_text("long", std::string(limits::kSymlinkBytesMax + 1, 'x'),
                 attributes_of(ObjectKind::kSymlink));
  place.put_text("good", "x", attributes_of(ObjectKind::kSymlink));
  const auto source = place.open();
  REQUIRE(source);
  CHECK((*source)->link("good"));
  const auto refused = (*source)->link("long");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().error.os_errno == EFBIG);
}

TEST_CASE("a store that stops is asked no more after one request has waited its whole time") {
  const Place place;
  const auto bytes = some_bytes(100);
  for (const char* path : {"a", "b"}) {
    place.put(path, bytes, attributes_with_checksums(bytes).metadata());
  }
  const auto source = place.open();
  REQUIRE(source);
  const auto a = (*source)->open("a");
  const auto b = (*source)->open("b");
  REQUIRE(a);
  REQUIRE(b);
  place.clock->seconds = 1;
  std::atomic<int> asked = 0;
  place.store->fail = [&](const std::string&, const std::string&) {
    ++asked;
    place.clock->seconds += 60;
    return MemoryObjectStore::Fault{ETIMEDOUT, false, Code::kDeadline};
  };
  CHECK_FALSE((*a)->read(0, 100));
  CHECK_FALSE((*b)->read(0, 100));
  CHECK_FALSE((*b)->is_unchanged());  // not "changed": nobody knows
  CHECK(asked == 1);
}

TEST_CASE("a store that answers other requests is asked again after one that waited in vain") {
  const Place place;
  const auto bytes = some_bytes(100);
  for (const char* path : {"a", "b"}) {
    place.put(path, bytes, attributes_with_checksums(bytes).metadata());
  }
  const auto source = place.open();
  REQUIRE(source);
  const auto a = (*source)->open("a");
  const auto b = (*source)->open("b");
  REQUIRE(a);
  REQUIRE(b);
  place.store->fail = [&](const std::string&, const std::string& key) {
    if (key != "p/a") return MemoryObjectStore::Fault{};
    place.clock->seconds += 30;
    CHECK((*b)->read(0, 100));
    place.clock->seconds += 30;
    return MemoryObjectStore::Fault{ETIMEDOUT, false, Code::kDeadline};
  };
  CHECK_FALSE((*a)->read(0, 100));
  CHECK((*b)->read(0, 100));
}

TEST_CASE("a folder of a pool's prefix knows its place and the policies above it") {
  const Place place;
  const auto bytes = some_bytes(100);
  place.put_text(kPolicyLinkName, "outer", attributes_of(ObjectKind::kSymlink));
  place.put_text(std::string("run/") + kPolicyLinkName, "inner",
                 attributes_of(ObjectKind::kSymlink));
  place.put("run/x", bytes, {});
  const auto source = place.open("p/run");
  REQUIRE(source);
  CHECK((*source)->policies_above() == std::vector<std::string>{"outer"});
  CHECK((*source)->policy_text("") == "inner");
  CHECK((*source)->place_in("s3://bucket/p") == "run");
  CHECK((*source)->place_in("s3://bucket/p/run").empty());
  CHECK((*source)->place_in("s3://other/p").empty());
  CHECK((*source)->place_in("/pfs/p").empty());
  CHECK((*source)->is_drained_as("x", "s3://bucket/p", "run/x"));
  CHECK_FALSE((*source)->is_drained_as("x", "s3://bucket/p", "x"));
  CHECK_FALSE((*source)->is_drained_as("x", "s3://bucket/p?endpoint=http://h", "run/x"));
}

}  // namespace stdchk::tools
