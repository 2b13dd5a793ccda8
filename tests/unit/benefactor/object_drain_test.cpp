#include <atomic>
#include <cerrno>
#include <string>

#include "benefactor/drain/object_drainer.h"
#include "tests/support/catch.h"
#include "tests/support/memory_object_store.h"
#include "tests/unit/benefactor/support.h"

namespace stdchk::benefactor {
namespace {

constexpr FileId kFile{7};
constexpr std::uint64_t kAttempt = (std::uint64_t{1} << 40) + 3;  // in the first epoch
constexpr std::uint64_t kMiB = limits::kMiB;

/// An arena in a vector, an object store in memory, and a drainer between them. The store outlives
/// the drainer, as a real store does.
struct Fixture {
  explicit Fixture(std::string prefix = "run/a", std::size_t arena_bytes = 4 * kMiB)
      : arena(arena_bytes), stop([](Duration) {}), store(std::make_shared<MemoryObjectStore>()) {
    drainer = make(std::move(prefix));
  }

  struct Borrowed;
  std::unique_ptr<ObjectDrainer> make(std::string prefix, std::uint64_t copied_at_once = 1 << 28);

  msg::DrainPiece place(std::uint64_t at, const std::vector<std::byte>& content,
                        std::uint64_t file_offset) {
    const PlacedChunk chunk = place_chunk(arena, at, content);
    return {file_offset, chunk.length, 0, chunk.extent_offset, chunk.length, chunk.crc, chunk.name};
  }
  Outcome<msg::DrainPieces::Reply> write(std::vector<msg::DrainPiece> pieces) {
    return drainer->write_pieces({kFile, kAttempt, "", std::move(pieces)}, Time::max());
  }
  static msg::DrainFinish finish_of(const std::string& path, std::uint64_t size) {
    return {kFile, kAttempt, path, size, 0640, 1001, 1002, 1'700'000'000'123'456'789};
  }
  Outcome<msg::DrainFinish::Reply> finish(const std::string& path, std::uint64_t size) {
    return drainer->finish(finish_of(path, size), Time::max());
  }
  Outcome<msg::MirrorChange::Reply> mirror(msg::MirrorKind kind, const std::string& path,
                                           const std::string& other = "") {
    msg::MirrorChange change;
    change.kind = kind;
    change.path = path;
    change.other_path = other;
    change.file = kFile;
    change.number = 50;
    change.mode = 0751;
    change.uid = 9;
    change.gid = 8;
    change.mtime_ns = 77;
    return drainer->mirror(change, Time::max());
  }
  bool finds(const std::string& path, std::uint64_t size,
             std::int64_t mtime_ns = 1'700'000'000'123'456'789) {
    const auto reply = drainer->find({{{path, size, mtime_ns, 1001}}}, Time::max());
    REQUIRE(reply);
    return reply->missing.empty();
  }
  std::vector<std::string> keys() const {
    std::vector<std::string> out;
    for (const auto& [key, object] : store->objects()) out.push_back(key);
    return out;
  }
  MemoryObjectStore::Object object(const std::string& key) const {
    const auto all = store->objects();
    REQUIRE(all.contains(key));
    return all.at(key);
  }

  ManualClock clock;
  std::vector<std::byte> arena;
  Stop stop;
  std::shared_ptr<MemoryObjectStore> store;
  std::unique_ptr<ObjectDrainer> drainer;
};

/// Forwards to a store that others hold, too.
struct Fixture::Borrowed final : ObjectStore {
  explicit Borrowed(std::shared_ptr<MemoryObjectStore> of) : to(std::move(of)) {}
  Outcome<std::string> put(const std::string& key, ByteSpan bytes, const ObjectMetadata& metadata,
                           const Condition& condition, Time deadline) override {
    return to->put(key, bytes, metadata, condition, deadline);
  }
  Outcome<void> get(const std::string& key, const Range& range, Time deadline) override {
    return to->get(key, range, deadline);
  }
  Outcome<Found> find(const std::string& key, Time deadline) override {
    return to->find(key, deadline);
  }
  Outcome<void> remove(const std::string& key, Time deadline) override {
    return to->remove(key, deadline);
  }
  Outcome<Page> list(const std::string& prefix, const std::string& from, Time deadline) override {
    return to->list(prefix, from, deadline);
  }
  Outcome<void> copy(const std::string& from, const std::string& key,
                     const std::optional<ObjectMetadata>& metadata, Time deadline) override {
    return to->copy(from, key, metadata, deadline);
  }
  Outcome<std::string> begin_upload(const std::string& key, const ObjectMetadata& metadata,
                                    Time deadline) override {
    return to->begin_upload(key, metadata, deadline);
  }
  Outcome<Part> upload_part(const Upload& upload, std::uint32_t number, ByteSpan bytes,
                            Time deadline) override {
    return to->upload_part(upload, number, bytes, deadline);
  }
  Outcome<void> complete_upload(const Upload& upload, const std::vector<Part>& parts,
                                Time deadline) override {
    return to->complete_upload(upload, parts, deadline);
  }
  Outcome<void> abort_upload(const Upload& upload, Time deadline) override {
    return to->abort_upload(upload, deadline);
  }
  Outcome<std::vector<Upload>> uploads(const std::string& prefix, Time deadline) override {
    return to->uploads(prefix, deadline);
  }
  Outcome<std::vector<Part>> parts(const Upload& upload, Time deadline) override {
    return to->parts(upload, deadline);
  }
  const std::shared_ptr<MemoryObjectStore> to;
};

std::unique_ptr<ObjectDrainer> Fixture::make(std::string prefix, std::uint64_t copied_at_once) {
  return std::make_unique<ObjectDrainer>(
      arena,
      [of = store]() -> Outcome<std::unique_ptr<ObjectStore>> {
        return std::make_unique<Borrowed>(of);
      },
      ObjectDrainer::Config{std::move(prefix), 0, 2, copied_at_once}, clock, stop);
}

ObjectAttributes attributes_of(const MemoryObjectStore::Object& object) {
  const auto parsed = ObjectAttributes::parse(object.metadata);
  REQUIRE(parsed);
  return *parsed;
}

std::vector<std::byte> joined(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  std::vector<std::byte> out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

/// A file of 20 MiB: an upload of three parts. Chunks of 4 MiB come in two requests, as from two
/// benefactors, every second chunk in each.
struct LongFile {
  explicit LongFile(Fixture& f) {
    std::vector<std::vector<msg::DrainPiece>> requests(2);
    for (unsigned i = 0; i < 5; ++i) {
      const auto chunk = content_of(4 * kMiB, i + 1);
      requests[i % 2].push_back(f.place(i * 5 * kMiB, chunk, i * 4 * kMiB));
      content = joined(content, chunk);
    }
    for (const auto& request : requests) REQUIRE(f.write(request));
  }
  std::vector<std::byte> content;
};

}  // namespace

TEST_CASE("M6: an object appears whole under its name, with its attributes and checksums") {
  Fixture f;
  const auto a = content_of(100'000, 1), b = content_of(70'001, 2);
  REQUIRE(f.write({f.place(0, a, 0)}));
  REQUIRE(f.write({f.place(2 * kMiB, b, a.size())}));
  CHECK_FALSE(f.store->objects().contains("run/a/deep/heat.N1.T2"));
  REQUIRE(f.finish("deep/heat.N1.T2", 170'001));

  CHECK(f.keys() == std::vector<std::string>{"run/a/deep/heat.N1.T2"});
  const auto object = f.object("run/a/deep/heat.N1.T2");
  CHECK(object.bytes == joined(a, b));
  const ObjectAttributes attributes = attributes_of(object);
  CHECK(attributes.mode == 0640);
  CHECK(attributes.uid == 1001);
  CHECK(attributes.gid == 1002);
  CHECK(attributes.mtime_ns == 1'700'000'000'123'456'789);
  CHECK(attributes.crcs == std::vector<std::uint32_t>{crc32c(0, object.bytes)});
  CHECK(f.finds("deep/heat.N1.T2", 170'001));
  CHECK_FALSE(f.finds("deep/heat.N1.T2", 170'002));
  CHECK_FALSE(f.finds("deep/heat.N1.T2", 170'001, 5));
  CHECK_FALSE(f.finds("deep/heat.N1.T3", 170'001));
}

TEST_CASE("a long file becomes an upload of parts, and its ranges have their checksums") {
  Fixture f("", 32 * kMiB);
  const LongFile file(f);
  REQUIRE(f.finish("big", file.content.size()));
  CHECK(f.keys() == std::vector<std::string>{"big"});
  CHECK(f.store->upload_count() == 0);
  const auto object = f.object("big");
  CHECK(object.bytes == file.content);
  const ByteSpan bytes(object.bytes);
  CHECK(attributes_of(object).range_bytes == 16 * kMiB);
  CHECK(attributes_of(object).crcs ==
        std::vector<std::uint32_t>{crc32c(0, bytes.first(16 * kMiB)),
                                   crc32c(0, bytes.subspan(16 * kMiB))});
}

TEST_CASE("holes of a file are zeros, and count in its checksums") {
  Fixture f("p", 8 * kMiB);
  const auto chunk = content_of(kMiB, 4);
  // The chunk crosses the end of the first range, and lies in two parts.
  const std::uint64_t at = 16 * kMiB - 1000;
  REQUIRE(f.write({f.place(0, chunk, at)}));
  const std::uint64_t size = 40 * kMiB + 5;
  REQUIRE(f.finish("sparse", size));
  std::vector<std::byte> wanted(size);
  std::ranges::copy(chunk, wanted.begin() + static_cast<std::ptrdiff_t>(at));
  const auto object = f.object("p/sparse");
  CHECK(object.bytes == wanted);
  const ByteSpan bytes(wanted);
  CHECK(attributes_of(object).crcs ==
        std::vector<std::uint32_t>{crc32c(0, bytes.first(16 * kMiB)),
                                   crc32c(0, bytes.subspan(16 * kMiB, 16 * kMiB)),
                                   crc32c(0, bytes.subspan(32 * kMiB))});
}

TEST_CASE("an empty file becomes an empty object") {
  Fixture f;
  REQUIRE(f.write({}));
  REQUIRE(f.finish("empty", 0));
  CHECK(f.object("run/a/empty").bytes.empty());
  CHECK(f.finds("empty", 0));
}

TEST_CASE("a corrupt chunk is reported and not staged") {
  Fixture f;
  auto piece = f.place(0, content_of(5000, 1), 0);
  f.arena[200] ^= std::byte{1};
  const auto reply = f.write({piece});
  REQUIRE(reply);
  CHECK(reply->corrupt == std::vector<std::uint32_t>{0});
}

TEST_CASE("a finish without staged pieces succeeds only for an attempt that was finished") {
  Fixture f;
  CHECK_FALSE(f.finish("x", 5000));
  REQUIRE(f.write({f.place(0, content_of(5000, 1), 0)}));
  REQUIRE(f.finish("x", 5000));
  CHECK(f.finish("x", 5000));
  auto other = Fixture::finish_of("x", 5000);
  other.number = kAttempt + 1;
  CHECK_FALSE(f.drainer->finish(other, Time::max()));
  // Another process cannot know whose object this is.
  CHECK_FALSE(f.make("run/a")->finish(Fixture::finish_of("x", 5000), Time::max()));
}

TEST_CASE("an object of an earlier pool with the same numbers does not count as this attempt's") {
  Fixture f;
  REQUIRE(f.write({f.place(0, content_of(5000, 1), 0)}));
  REQUIRE(f.finish("x", 5000));
  // A new pool, whose files and attempts have the same numbers. It sets the time of the file before
  // it drains the file's new content.
  f.drainer = f.make("run/a");
  REQUIRE(f.mirror(msg::MirrorKind::kAttributes, "x"));
  REQUIRE(f.write({f.place(2 * kMiB, content_of(5000, 2), 0)}));
  auto finish = Fixture::finish_of("x", 5000);
  finish.mtime_ns = 77;
  REQUIRE(f.drainer->finish(finish, Time::max()));
  CHECK(f.object("run/a/x").bytes == content_of(5000, 2));
}

TEST_CASE("staged objects that are missing are no holes") {
  Fixture f("", 32 * kMiB);
  const LongFile file(f);
  f.store->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    if (call != "part") return {};
    return {EIO, false, Code::kPeerLost};
  };
  CHECK_FALSE(f.finish("big", file.content.size()));
  f.store->fail = {};
  REQUIRE(f.store->remove(f.keys().front(), Time::max()));
  const auto finished =
      f.make("")->finish(Fixture::finish_of("big", file.content.size()), Time::max());
  REQUIRE_FALSE(finished);
  CHECK(finished.error().error.os_errno == EIO);
  CHECK_FALSE(f.store->objects().contains("big"));
}

TEST_CASE("a finish whose clean-up was cut off does not make a file of the rest") {
  Fixture f("", 32 * kMiB);
  const LongFile file(f);
  std::atomic<int> removed = 0;  // several threads upload and remove
  f.store->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    if (call != "remove" || ++removed == 1) return {};
    return {EIO, false, Code::kPeerLost};
  };
  REQUIRE(f.finish("big", file.content.size()));
  REQUIRE(f.keys().size() > 1);
  f.store->fail = {};
  REQUIRE(f.make("")->finish(Fixture::finish_of("big", file.content.size()), Time::max()));
  CHECK(f.object("big").bytes == file.content);
  CHECK(f.keys() == std::vector<std::string>{"big"});
}

TEST_CASE("another benefactor goes on with the upload of a lost one") {
  Fixture f("", 32 * kMiB);
  const LongFile file(f);
  std::atomic<int> parts = 0;
  f.store->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    if (call != "part" || ++parts < 3) return {};
    return {EIO, false, Code::kPeerLost};
  };
  CHECK_FALSE(f.finish("big", file.content.size()));
  CHECK(f.store->upload_count() == 1);
  CHECK_FALSE(f.store->objects().contains("big"));
  std::atomic<int> more = 0;
  f.store->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    more += call == "part" ? 1 : 0;
    return {};
  };
  REQUIRE(f.make("")->finish(Fixture::finish_of("big", file.content.size()), Time::max()));
  CHECK(more == 1);
  CHECK(f.object("big").bytes == file.content);
  CHECK(f.store->upload_count() == 0);
}

TEST_CASE("an upload whose begin was answered too late is ended") {
  Fixture f("", 32 * kMiB);
  const LongFile file(f);
  std::atomic<int> begun = 0;
  f.store->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    if (call != "begin" || ++begun > 1) return {};
    return {EIO, true, Code::kDeadline};
  };
  CHECK_FALSE(f.finish("big", file.content.size()));
  REQUIRE(f.finish("big", file.content.size()));
  CHECK(begun == 2);
  CHECK(f.object("big").bytes == file.content);
  CHECK(f.store->upload_count() == 0);
}

TEST_CASE("a completion whose answer was lost counts") {
  Fixture f("", 32 * kMiB);
  const LongFile file(f);
  f.store->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    if (call != "complete") return {};
    return {EIO, true, Code::kDeadline};
  };
  CHECK_FALSE(f.finish("big", file.content.size()));
  REQUIRE(f.finish("big", file.content.size()));
  CHECK(f.object("big").bytes == file.content);
}

TEST_CASE("dropping an attempt ends its upload and removes its pieces") {
  Fixture f("", 32 * kMiB);
  const LongFile file(f);
  f.store->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    if (call != "complete") return {};
    return {EIO, false, Code::kPeerLost};
  };
  CHECK_FALSE(f.finish("big", file.content.size()));
  f.store->fail = {};
  msg::MirrorChange drop;
  drop.kind = msg::MirrorKind::kDropTemporary;
  drop.file = kFile;
  drop.number = kAttempt;
  REQUIRE(f.drainer->mirror(drop, Time::max()));
  CHECK(f.keys().empty());
  CHECK(f.store->upload_count() == 0);
}

TEST_CASE("a new manager's sweep ends uploads that a crash has left, and keeps present ones") {
  Fixture f("p", 32 * kMiB);
  constexpr std::uint64_t kEpoch = std::uint64_t{1} << 40;
  const auto put = [&](const std::string& key) {
    REQUIRE(f.store->put(key, {}, {}, {}, Time::max()));
  };
  // An upload without a note, of a benefactor that was killed; and an upload of another prefix.
  REQUIRE(f.store->begin_upload("p/lost", {}, Time::max()));
  REQUIRE(f.store->begin_upload("other/x", {}, Time::max()));
  // An upload of the present epoch, with its note.
  const auto present = f.store->begin_upload("p/now", {}, Time::max());
  const std::string note = *present + "\np/now";
  const std::string now_folder = "p/.stdchk-drain/8." + std::to_string(3 * kEpoch + 1);
  REQUIRE(
      f.store->put(now_folder + "/upload", std::as_bytes(std::span(note)), {}, {}, Time::max()));
  put(now_folder + "/0-0-0");
  put("p/.stdchk-drain/9." + std::to_string(2 * kEpoch + 1) + "/0-0-0");
  put("p/.stdchk-drain/9." + std::to_string(2 * kEpoch + 7));
  put("p/file");
  msg::MirrorChange drop;
  drop.kind = msg::MirrorKind::kDropTemporary;
  drop.number = 3 * kEpoch;
  REQUIRE(f.drainer->mirror(drop, Time::max()));
  CHECK(f.keys() ==
        std::vector<std::string>{now_folder + "/0-0-0", now_folder + "/upload", "p/file"});
  const auto left = f.store->uploads("", Time::max());
  REQUIRE(left);
  std::vector<std::string> of;
  for (const auto& upload : *left) of.push_back(upload.key);
  std::ranges::sort(of);
  CHECK(of == std::vector<std::string>{"other/x", "p/now"});
}

TEST_CASE("an object that was kept under the number of a change gets its name by a finish") {
  Fixture f("p");
  REQUIRE(f.write({f.place(0, content_of(5000, 1), 0)}));
  REQUIRE(f.finish("latest.new", 5000));
  const auto bytes = f.object("p/latest.new").bytes;
  REQUIRE(f.mirror(msg::MirrorKind::kRename, "latest.new"));
  CHECK_FALSE(f.finds("latest.new", 5000));
  msg::DrainFinish finish = Fixture::finish_of("latest", 5000);
  finish.number = 50;
  finish.mode = 0600;
  REQUIRE(f.drainer->finish(finish, Time::max()));
  CHECK(f.keys() == std::vector<std::string>{"p/latest"});
  CHECK(f.object("p/latest").bytes == bytes);
  CHECK(attributes_of(f.object("p/latest")).mode == 0600);
  REQUIRE(f.drainer->finish(finish, Time::max()));  // repeated
  finish.number = 51;
  finish.size_bytes = 6000;
  CHECK(f.drainer->finish(finish, Time::max()).error().error.os_errno == ENOENT);
}

TEST_CASE("changes of names reach the object store") {
  using msg::MirrorKind;
  Fixture f("p");
  REQUIRE(f.write({f.place(0, content_of(5000, 1), 0)}));
  REQUIRE(f.finish("d/x", 5000));
  REQUIRE(f.mirror(MirrorKind::kMakeDirectory, "d"));
  CHECK(attributes_of(f.object("p/d/")).kind == ObjectKind::kDirectory);
  REQUIRE(f.mirror(MirrorKind::kSymlink, "latest", "d/x"));
  CHECK(attributes_of(f.object("p/latest")).kind == ObjectKind::kSymlink);
  CHECK(f.object("p/latest").bytes.size() == 3);
  CHECK_FALSE(f.finds("latest", 3, 77));

  REQUIRE(f.mirror(MirrorKind::kRename, "d", "e"));
  CHECK(f.keys() == std::vector<std::string>{"p/e/", "p/e/x", "p/latest"});
  CHECK(f.finds("e/x", 5000));
  REQUIRE(f.mirror(MirrorKind::kRename, "d", "e"));  // repeated
  REQUIRE(f.mirror(MirrorKind::kRename, "e/x", "e/y"));
  CHECK(f.finds("e/y", 5000));
  REQUIRE(f.mirror(MirrorKind::kLink, "e/y", "e/z"));
  CHECK(f.object("p/e/y").bytes == f.object("p/e/z").bytes);
  REQUIRE(f.mirror(MirrorKind::kAttributes, "e/y"));
  CHECK(attributes_of(f.object("p/e/y")).mode == 0751);
  CHECK(f.finds("e/y", 5000, 77));
  REQUIRE(f.mirror(MirrorKind::kSetAside, "e/y"));
  REQUIRE(f.mirror(MirrorKind::kUnlink, "e/y"));
  CHECK(f.object("p/.stdchk-drain/7.50").bytes == f.object("p/e/z").bytes);
  REQUIRE(f.mirror(MirrorKind::kUnlink, "e/z"));
  REQUIRE(f.mirror(MirrorKind::kSymlink, "e/.stdchk-policy", "keep=2"));
  REQUIRE(f.mirror(MirrorKind::kRemoveDirectory, "e"));
  CHECK(f.keys() == std::vector<std::string>{"p/.stdchk-drain/7.50", "p/latest"});
  CHECK_FALSE(f.mirror(MirrorKind::kUnlink, "../other"));
  CHECK_FALSE(f.mirror(MirrorKind::kUnlink, ".stdchk-drain/7.50"));
}

TEST_CASE("the move of a folder that was cut off goes on") {
  Fixture f("p");
  for (const char* key : {"p/d/", "p/d/a", "p/d/b", "p/d/c", "p/d/s/t"}) {
    REQUIRE(f.store->put(key, {}, ObjectAttributes{}.metadata(), {}, Time::max()));
  }
  std::atomic<int> copies = 0;
  f.store->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    if (call != "copy" || ++copies != 3) return {};
    return {EIO, true, Code::kPeerLost};
  };
  CHECK_FALSE(f.mirror(msg::MirrorKind::kRename, "d", "e"));
  CHECK_FALSE(f.store->objects().contains("p/e/"));  // the folder's own object comes last
  REQUIRE(f.mirror(msg::MirrorKind::kRename, "d", "e"));
  CHECK(f.keys() == std::vector<std::string>{"p/e/", "p/e/a", "p/e/b", "p/e/c", "p/e/s/t"});
}

TEST_CASE("large objects are moved in parts, and a move that was cut off goes on") {
  Fixture f("p");
  f.drainer = f.make("p", kMiB);
  const auto a = content_of(20 * kMiB, 1), b = content_of(20 * kMiB, 2);
  ObjectAttributes attributes;
  attributes.mode = 0640;
  REQUIRE(f.store->put("p/d/a", a, attributes.metadata(), {}, Time::max()));
  REQUIRE(f.store->put("p/d/b", b, ObjectMetadata{{"of", "nobody"}}, {}, Time::max()));
  std::atomic<int> parts = 0;
  std::atomic<int> copies = 0;
  f.store->fail = [&](const std::string& call, const std::string&) -> MemoryObjectStore::Fault {
    if (call == "copy") ++copies;
    if (call != "part" || ++parts != 3) return {};
    return {ETIMEDOUT, false, Code::kDeadline};
  };
  const auto cut = f.mirror(msg::MirrorKind::kRename, "d", "e");
  REQUIRE_FALSE(cut);
  CHECK(cut.error().error.code == Code::kDeadline);
  CHECK_FALSE(f.store->objects().contains("p/e/a"));
  const auto moved = f.mirror(msg::MirrorKind::kRename, "d", "e");
  INFO((moved ? std::string() : moved.error().text));
  REQUIRE(moved);
  CHECK(parts == 7);  // 3 for each object, and the lost one
  CHECK(copies == 0);
  CHECK(f.keys() == std::vector<std::string>{"p/e/a", "p/e/b"});
  CHECK(f.object("p/e/a").bytes == a);
  CHECK(f.object("p/e/b").bytes == b);
  CHECK(attributes_of(f.object("p/e/a")).mode == 0640);
  CHECK_FALSE(ObjectAttributes::parse(f.object("p/e/b").metadata));
  CHECK(f.store->upload_count() == 0);
}

TEST_CASE("bytes that the store changes are found before the object gets its name") {
  Fixture f;
  REQUIRE(f.write({f.place(0, content_of(5000, 1), 0)}));
  const std::string key = f.keys().front();
  auto object = f.object(key);
  object.bytes[10] ^= std::byte{1};
  REQUIRE(f.store->put(key, object.bytes, {}, {}, Time::max()));
  const auto finished = f.finish("x", 5000);
  REQUIRE_FALSE(finished);
  CHECK(finished.error().error.os_errno == EILSEQ);
  CHECK_FALSE(f.store->objects().contains("run/a/x"));
}

TEST_CASE("a comparison of number 0 names the changed chunks of an object") {
  Fixture f;
  const auto a = content_of(4000, 1), b = content_of(3000, 2);
  const auto first = f.place(0, a, 0), second = f.place(2 * kMiB, b, 4000);
  REQUIRE(f.write({first, second}));
  REQUIRE(f.finish("x", 7000));
  auto object = f.object("run/a/x");
  object.bytes[5000] ^= std::byte{1};
  REQUIRE(f.store->put("run/a/x", object.bytes, object.metadata, {}, Time::max()));
  msg::DrainPieces compare{kFile, 0, "x", {first, second}};
  for (auto& piece : compare.pieces) piece.extent_offset = msg::kNoExtent;
  const auto reply = f.drainer->write_pieces(compare, Time::max());
  REQUIRE(reply);
  CHECK(reply->corrupt == std::vector<std::uint32_t>{1});
}

TEST_CASE("a store that cannot be opened fails each request, until it can") {
  Fixture f;
  bool works = false;
  ObjectDrainer drainer(
      f.arena,
      [&]() -> Outcome<std::unique_ptr<ObjectStore>> {
        if (works) return std::make_unique<Fixture::Borrowed>(f.store);
        return problem(Code::kConfig, "test", EACCES, "no credentials");
      },
      {}, f.clock, f.stop);
  const auto failed = drainer.finish(Fixture::finish_of("x", 0), Time::max());
  REQUIRE_FALSE(failed);
  CHECK(failed.error().error.code == Code::kDrainFailed);
  CHECK(failed.error().text.find("no credentials") != std::string::npos);
  works = true;
  CHECK(drainer.write_pieces({kFile, kAttempt, "", {}}, Time::max()));
}

}  // namespace stdchk::benefactor
