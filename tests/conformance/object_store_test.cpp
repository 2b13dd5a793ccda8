// Cases that every ObjectStore passes. Tests the store in memory, or S3Store where STDCHK_TEST_S3
// names a place. tests/integration/object_store_test.py starts a server for that.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/limits.h"
#include "core/objects/object_attributes.h"
#include "core/objects/object_lease.h"
#include "core/objects/object_place.h"
#include "core/objects/s3_store.h"
#include "tests/support/catch.h"
#include "tests/support/memory_object_store.h"

namespace stdchk {
namespace {

using namespace std::chrono_literals;

const SystemClock& the_clock() {
  static const SystemClock clock;
  return clock;
}
Time soon() { return the_clock().now() + 30s; }

/// A store and a prefix of its keys that no other test uses.
struct Scene {
  Scene() {
    static int made = 0;
    const char* const place = std::getenv("STDCHK_TEST_S3");
    prefix = "case-" + std::to_string(++made) + "/";
    if (place == nullptr) {
      store = std::make_unique<MemoryObjectStore>();
      return;
    }
    const auto parsed = ObjectPlace::parse(place);
    REQUIRE(parsed);
    auto opened = open_object_store(*parsed, the_clock());
    INFO((opened ? std::string() : opened.error().text));
    REQUIRE(opened);
    store = std::move(*opened);
    prefix = parsed->prefix + "/" + prefix;
  }
  std::string put(const std::string& name, ByteSpan bytes, const ObjectMetadata& metadata = {},
                  const ObjectStore::Condition& condition = {}) const {
    const auto put = store->put(prefix + name, bytes, metadata, condition, soon());
    INFO((put ? std::string() : put.error().text));
    REQUIRE(put);
    return *put;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    const auto listed = each_object(*store, prefix, soon(), [&](const auto& object) {
      out.push_back(object.key.substr(prefix.size()));
      return true;
    });
    INFO((listed ? std::string() : listed.error().text));
    REQUIRE(listed);
    return out;
  }
  std::vector<std::byte> read(const std::string& name, std::size_t size) const {
    std::vector<std::byte> out(size);
    const auto got = store->get(prefix + name, {0, out}, soon());
    INFO((got ? std::string() : got.error().text));
    REQUIRE(got);
    return out;
  }

  std::unique_ptr<ObjectStore> store;
  std::string prefix;
};

std::vector<std::byte> bytes_of(std::size_t length, unsigned seed) {
  std::vector<std::byte> out(length);
  std::uint32_t state = seed * 2'654'435'761U + 1;
  for (std::byte& byte : out) {
    state = state * 1'664'525 + 1'013'904'223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return out;
}

/// The requests of a lease, which opens its store itself. Forwards them to the store in memory.
struct Shared final : ObjectStore {
  explicit Shared(std::shared_ptr<MemoryObjectStore> to) : shared(std::move(to)) {}
  Outcome<std::string> put(const std::string& key, ByteSpan bytes, const ObjectMetadata& metadata,
                           const Condition& condition, Time deadline) override {
    return shared->put(key, bytes, metadata, condition, deadline);
  }
  Outcome<void> get(const std::string& key, const Range& range, Time deadline) override {
    return shared->get(key, range, deadline);
  }
  Outcome<Found> find(const std::string& key, Time deadline) override {
    return shared->find(key, deadline);
  }
  Outcome<void> remove(const std::string& key, Time deadline) override {
    return shared->remove(key, deadline);
  }
  static tl::unexpected<Problem> none() {
    return problem(Code::kUnsupported, "test", ENOSYS, "A lease does not do this.");
  }
  Outcome<Page> list(const std::string&, const std::string&, Time) override { return none(); }
  Outcome<void> copy(const std::string&, const std::string&, const std::optional<ObjectMetadata>&,
                     Time) override {
    return none();
  }
  Outcome<std::string> begin_upload(const std::string&, const ObjectMetadata&, Time) override {
    return none();
  }
  Outcome<Part> upload_part(const Upload&, std::uint32_t, ByteSpan, Time) override {
    return none();
  }
  Outcome<void> complete_upload(const Upload&, const std::vector<Part>&, Time) override {
    return none();
  }
  Outcome<void> abort_upload(const Upload&, Time) override { return none(); }
  Outcome<std::vector<Upload>> uploads(const std::string&, Time) override { return none(); }
  Outcome<std::vector<Part>> parts(const Upload&, Time) override { return none(); }
  const std::shared_ptr<MemoryObjectStore> shared;
};

LeaseHolder holder(const std::string& pool, char manager, const std::string& host) {
  return LeaseHolder{pool, std::string(32, manager), host, "another-boot pid:[1] 7 7"};
}

}  // namespace

TEST_CASE("an object has its bytes and its metadata") {
  const Scene scene;
  const auto bytes = bytes_of(100'000, 1);
  const ObjectMetadata metadata{{"stdchk-mode", "644"}, {"stdchk-mtime", "-5"}};
  const std::string etag = scene.put("x", bytes, metadata);
  CHECK_FALSE(etag.empty());
  const auto found = scene.store->find(scene.prefix + "x", soon());
  REQUIRE(found);
  CHECK(found->size_bytes == bytes.size());
  CHECK(found->etag == etag);
  CHECK(found->metadata == metadata);
  CHECK(scene.read("x", bytes.size()) == bytes);
  std::vector<std::byte> middle(1000);
  REQUIRE(scene.store->get(scene.prefix + "x", {5000, middle}, soon()));
  CHECK(std::ranges::equal(middle, ByteSpan(bytes).subspan(5000, 1000)));
  // An object that is too short is an error, not fewer bytes.
  CHECK_FALSE(scene.store->get(scene.prefix + "x", {99'500, middle}, soon()));
  CHECK_FALSE(scene.store->get(scene.prefix + "x", {200'000, middle}, soon()));
}

TEST_CASE("an empty object and a folder's object can be stored") {
  const Scene scene;
  scene.put("empty", {});
  scene.put("folder/", {});
  CHECK(scene.store->find(scene.prefix + "empty", soon())->size_bytes == 0);
  CHECK(scene.names() == std::vector<std::string>{"empty", "folder/"});
}

TEST_CASE("an absent object is ENOENT, and its removal is no error") {
  const Scene scene;
  std::vector<std::byte> some(10);
  CHECK(is_absent(scene.store->find(scene.prefix + "none", soon()).error()));
  CHECK(is_absent(scene.store->get(scene.prefix + "none", {0, some}, soon()).error()));
  CHECK(scene.store->remove(scene.prefix + "none", soon()));
  scene.put("one", some);
  REQUIRE(scene.store->remove(scene.prefix + "one", soon()));
  CHECK(scene.names().empty());
}

TEST_CASE("keys may have any characters that names of files have") {
  const Scene scene;
  std::vector<std::string> names{"a b+c&d=e?f#g",
                                 "per%cent%20",
                                 "quo\"te'<>",
                                 "tilde~(1)!*@:,;$",
                                 "\xC3\xA4\xC3\xB6/\xE2\x82\xAC",
                                 "dots..and.more",
                                 "[x]{y}|\\^`"};
  for (const std::string& name : names) scene.put(name, bytes_of(10, 1));
  std::ranges::sort(names);
  CHECK(scene.names() == names);
  for (const std::string& name : names) {
    INFO(name);
    CHECK(scene.read(name, 10) == bytes_of(10, 1));
    CHECK(scene.store->copy(scene.prefix + name, scene.prefix + "c", {}, soon()));
    CHECK(scene.store->remove(scene.prefix + name, soon()));
  }
  CHECK(scene.names() == std::vector<std::string>{"c"});
}

TEST_CASE("a long listing has all keys once, in order") {
  const Scene scene;
  const std::size_t count = std::getenv("STDCHK_TEST_S3") == nullptr ? 50 : 1005;
  std::vector<std::string> wanted;
  for (std::size_t i = 0; i < count; ++i) {
    wanted.push_back("k/" + std::to_string(10'000 + i));
    scene.put(wanted.back(), {});
  }
  scene.put("l", {});
  std::vector<std::string> found;
  REQUIRE(each_object(*scene.store, scene.prefix + "k/", soon(), [&](const auto& object) {
    found.push_back(object.key.substr(scene.prefix.size()));
    return true;
  }));
  CHECK(found == wanted);
}

TEST_CASE("a condition keeps a write from replacing what somebody else has written") {
  const Scene scene;
  const auto one = bytes_of(10, 1), two = bytes_of(10, 2);
  const std::string first = scene.put("x", one, {}, {true, ""});
  const auto again = scene.store->put(scene.prefix + "x", two, {}, {true, ""}, soon());
  REQUIRE_FALSE(again);
  CHECK(again.error().error.os_errno == EEXIST);
  const std::string second = scene.put("x", two, {}, {false, first});
  CHECK(second != first);
  CHECK(scene.store->put(scene.prefix + "x", one, {}, {false, first}, soon())
            .error()
            .error.os_errno == EEXIST);
  CHECK(scene.read("x", 10) == two);
  std::vector<std::byte> out(10);
  CHECK(scene.store->get(scene.prefix + "x", {0, out, first}, soon()).error().error.os_errno ==
        EEXIST);
  CHECK(scene.store->get(scene.prefix + "x", {0, out, second}, soon()));
}

TEST_CASE("a copy has the bytes and new metadata") {
  const Scene scene;
  const auto bytes = bytes_of(5000, 3);
  scene.put("a", bytes, {{"stdchk-mode", "1"}});
  REQUIRE(scene.store->copy(scene.prefix + "a", scene.prefix + "b",
                            ObjectMetadata{{"stdchk-mode", "2"}}, soon()));
  CHECK(scene.read("b", bytes.size()) == bytes);
  CHECK(scene.store->find(scene.prefix + "b", soon())->metadata ==
        ObjectMetadata{{"stdchk-mode", "2"}});
  REQUIRE(scene.store->copy(scene.prefix + "b", scene.prefix + "d", std::nullopt, soon()));
  CHECK(scene.store->find(scene.prefix + "d", soon())->metadata ==
        ObjectMetadata{{"stdchk-mode", "2"}});
  // Onto itself: a change of the metadata.
  REQUIRE(scene.store->copy(scene.prefix + "a", scene.prefix + "a",
                            ObjectMetadata{{"stdchk-mode", "3"}}, soon()));
  CHECK(scene.store->find(scene.prefix + "a", soon())->metadata ==
        ObjectMetadata{{"stdchk-mode", "3"}});
  CHECK(
      is_absent(scene.store->copy(scene.prefix + "none", scene.prefix + "c", {}, soon()).error()));
}

TEST_CASE("an upload of parts appears whole when it is completed") {
  const Scene scene;
  const std::string key = scene.prefix + "big";
  const ObjectMetadata metadata{{"stdchk-mode", "600"}};
  const auto id = scene.store->begin_upload(key, metadata, soon());
  REQUIRE(id);
  const ObjectStore::Upload upload{key, *id};
  const auto first = bytes_of(ObjectStore::kPartBytesMin, 1), second = bytes_of(1000, 2);
  // Out of order, and one part twice.
  const auto part_2 = scene.store->upload_part(upload, 2, second, soon());
  REQUIRE(part_2);
  REQUIRE(scene.store->upload_part(upload, 1, second, soon()));
  const auto part_1 = scene.store->upload_part(upload, 1, first, soon());
  REQUIRE(part_1);
  CHECK(is_absent(scene.store->find(key, soon()).error()));

  const auto uploads = scene.store->uploads(scene.prefix, soon());
  REQUIRE(uploads);
  REQUIRE(uploads->size() == 1);
  CHECK(uploads->front().key == key);
  CHECK(uploads->front().id == *id);
  const auto parts = scene.store->parts(upload, soon());
  REQUIRE(parts);
  REQUIRE(parts->size() == 2);
  CHECK((*parts)[0].number == 1);
  CHECK((*parts)[0].size_bytes == first.size());
  CHECK((*parts)[0].etag == part_1->etag);

  // Another process would have only the listed parts.
  const auto completed = scene.store->complete_upload(upload, *parts, soon());
  INFO((completed ? std::string() : completed.error().text));
  REQUIRE(completed);
  auto whole = first;
  whole.insert(whole.end(), second.begin(), second.end());
  CHECK(scene.read("big", whole.size()) == whole);
  CHECK(scene.store->find(key, soon())->metadata == metadata);
  CHECK(scene.store->uploads(scene.prefix, soon())->empty());
}

TEST_CASE("an upload that was ended is gone") {
  const Scene scene;
  const std::string key = scene.prefix + "big";
  const auto id = scene.store->begin_upload(key, {}, soon());
  REQUIRE(id);
  const ObjectStore::Upload upload{key, *id};
  REQUIRE(scene.store->upload_part(upload, 1, bytes_of(100, 1), soon()));
  REQUIRE(scene.store->abort_upload(upload, soon()));
  REQUIRE(scene.store->abort_upload(upload, soon()));  // no error
  CHECK(scene.store->upload_part(upload, 2, bytes_of(100, 1), soon()).error().error.os_errno ==
        ESTALE);
  CHECK(scene.store->parts(upload, soon()).error().error.os_errno == ESTALE);
  CHECK(scene.store->complete_upload(upload, {{1, "e", 100, {}}}, soon()).error().error.os_errno ==
        ESTALE);
  CHECK(scene.store->uploads(scene.prefix, soon())->empty());
}

TEST_CASE("the lease of an object store belongs to one pool") {
  const Scene scene;
  const char* const place = std::getenv("STDCHK_TEST_S3");
  const auto shared = std::make_shared<MemoryObjectStore>();
  const auto open = [place, shared]() -> Outcome<std::unique_ptr<ObjectStore>> {
    if (place != nullptr) return open_object_store(*ObjectPlace::parse(place), the_clock());
    return std::make_unique<Shared>(shared);
  };
  using State = LeaseSteps::State;
  const std::string key = scene.prefix + kLeaseName;
  ObjectLease one(open, "s3://x", key, holder("p1", '1', "host1"), false, the_clock());
  ObjectLease two(open, "s3://x", key, holder("p2", '2', "host2"), false, the_clock());
  ObjectLease heir(open, "s3://x", key, holder("p1", '3', "host3"), true, the_clock());
  const Time start = the_clock().now();
  const State first = one.step(start);
  INFO(one.reason());
  REQUIRE(first == State::kOurs);
  CHECK(two.step(start) == State::kOthers);
  CHECK(two.holder().host == "host1");
  CHECK(one.step(start + 3s) == State::kOurs);
  // A renewal is seen, so the lease is not stale.
  CHECK(two.step(start + 3s) == State::kOthers);
  CHECK(two.step(start + 14s) == State::kOthers);
  // Nothing was renewed for 12 s.
  CHECK(two.step(start + 15s) == State::kOurs);
  // The first holder was stopped, and learns now that it has lost the lease.
  CHECK(one.step(start + 16s) == State::kOthers);
  two.release();
  CHECK(one.step(start + 17s) == State::kOurs);
  // A standby manager inherits the lease at once.
  CHECK(heir.step(start + 18s) == State::kOurs);
  CHECK(one.step(start + 18s) == State::kOthers);
  heir.release();
}

TEST_CASE("a lease that is renewed while another pool reads it stays the first pool's") {
  const auto shared = std::make_shared<MemoryObjectStore>();
  const auto open = [shared]() -> Outcome<std::unique_ptr<ObjectStore>> {
    return std::make_unique<Shared>(shared);
  };
  ObjectLease one(open, "s3://x", "lease", holder("p1", '1', "host1"), false, the_clock());
  ObjectLease two(open, "s3://x", "lease", holder("p2", '2', "host2"), false, the_clock());
  const Time start = the_clock().now();
  REQUIRE(one.step(start) == LeaseSteps::State::kOurs);
  bool renewed = false;
  shared->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    if (call != "get" || std::exchange(renewed, true)) return {};
    CHECK(one.step(start + 3s) == LeaseSteps::State::kOurs);
    return {};
  };
  CHECK(two.step(start + 3s) == LeaseSteps::State::kOthers);
  CHECK(renewed);
  CHECK(two.holder().host == "host1");
}

}  // namespace stdchk
