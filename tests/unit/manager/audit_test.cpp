#include "manager/arenas/audit.h"

#include <functional>

#include "tests/unit/manager/hosts_pool.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 16 * limits::kMiB;
constexpr std::uint32_t kChunk = 1000;
constexpr ChunkIndex kNowhere = 5000;  // an index without a chunk
const FileId kNobody{12345};

/// Makes a table of the service writable, so that tests can break it by hand.
template <class T>
T& writable(const T& table) {
  return const_cast<T&>(table);
}

/// An image `a` of one chunk in a folder `d`. With parity, also an image `b` of four chunks without
/// names in their own stripe.
struct Tables : HostsPool {
  explicit Tables(const std::string& redundancy)
      : HostsPool(parse_redundancy(redundancy)->number(), {"u", "v", "w", "x", "y", "z"}, kArena) {
    REQUIRE(client->call(msg::MakeDirectory{client->id, kRootFile, "d", 0755, 0, 0}));
    const auto made = client->write("a", kChunk, 7);
    REQUIRE(made);
    image = *made;
    REQUIRE(client->call(msg::Rename{client->id, kRootFile, "a", client->lookup("d")->id, "a"}));
    live(3s);
    if (parse_redundancy(redundancy)->has_parity()) write_stripe();
    REQUIRE(broken().empty());
  }
  void write_stripe() {
    const auto opened = client->create("b");
    REQUIRE(opened);
    const std::uint64_t bytes = extent_bytes(kChunk);
    msg::Place place{opened->session, {}, 6 * bytes, {}, {}};
    place.unit_bytes = static_cast<std::uint32_t>(bytes);
    const auto placed = client->call(place);
    REQUIRE(placed);
    REQUIRE(placed->grants.size() >= 4);
    msg::Commit commit;
    commit.session = opened->session;
    for (std::uint32_t i = 0; i < 4; ++i) {
      const Grant& grant = placed->grants[i];
      commit.written.chunks.push_back({{}, kChunk - i, 0, {{grant.benefactor, grant.offset}}});
      commit.written.slices.push_back({std::uint64_t{i} * kChunk, kChunk - i, 0, i});
    }
    commit.end = true;
    REQUIRE(client->call(commit));
    striped = opened->attributes.id;
    live(3s);
    REQUIRE(state().stripes().of(chunk_of(striped)) != nullptr);
  }

  State& state() const { return writable(service->state()); }
  ChunkTable& chunks() const { return writable(state().chunks()); }
  File& file() const { return writable(*state().file(image)); }
  File& folder() const { return writable(*state().file(file().parent)); }
  VersionData& version() const { return file().newest; }
  PackedSlice& slice() const { return version().slices.at(0); }
  ChunkIndex chunk() const { return slice().chunk; }
  Stripe& stripe() const { return writable(*state().stripes().of(chunk_of(striped))); }
  void move(ChunkIndex index, const std::vector<Extent>& copies) const {
    std::vector<FreedExtent> freed;
    chunks().set_copies(index, copies, freed);
  }
  Extent copy() const { return chunks().get(chunk()).copies.at(0); }

  FileId image;
  FileId striped;
};

struct Rule {
  const char* sentence;  ///< expected part of the audit's report
  std::function<void(Tables&)> break_it;
};

const std::vector<Rule> kRules = {
    {"its slices overlap or do not ascend",
     [](Tables& t) { t.version().slices.push_back(t.slice()); }},
    {"a slice names no chunk", [](Tables& t) { t.slice().chunk = kNowhere; }},
    {"a slice goes beyond its chunk", [](Tables& t) { t.slice().chunk_offset = 1; }},
    {"its stored bytes are miscounted", [](Tables& t) { ++t.version().stored_bytes; }},
    {"a slice goes beyond its end", [](Tables& t) { --t.version().size_bytes; }},
    {"its directory is gone", [](Tables& t) { t.file().parent = kNobody; }},
    {"its directory does not have it", [](Tables& t) { t.folder().as_directory.children.clear(); }},
    {"it has no name, and no session has it open", [](Tables& t) { t.file().parent = {}; }},
    {"its entry ghost is no file",
     [](Tables& t) { t.folder().as_directory.children["ghost"] = kNobody; }},
    {"its entry other is another file's",
     [](Tables& t) { t.folder().as_directory.children["other"] = t.image; }},
    {"its new entry n is no file",
     [](Tables& t) { t.folder().as_directory.pending_children["n"] = t.image; }},
    {"its directories are miscounted", [](Tables& t) { ++t.folder().as_directory.subdirectories; }},
    {"the drain's list is wrong about it",
     [](Tables& t) { writable(t.state().commits().undrained()).clear(); }},
    {"the list of evictable files is wrong about it",
     [](Tables& t) {
       writable(t.state().commits().evictable()).emplace(t.version().sequence, t.image);
     }},
    {"an older version is kept for nobody", [](Tables& t) { t.file().older[5].version = 5; }},
    {"an older version has another's number",
     [](Tables& t) {
       t.file().older[5].version = 6;
       t.file().older[5].pins = 1;
     }},
    {"its session was opened after its commit",
     [](Tables& t) { t.version().opened = t.version().sequence; }},
    {"the files have 1001 bytes, 1000 are counted", [](Tables& t) { ++t.version().size_bytes; }},
    {"0 files with one copy and 1 with more are not drained, 1 and 0 are counted",
     [](Tables& t) { t.version().copies = 2; }},
    {"it has 1 references, 2 are counted", [](Tables& t) { t.chunks().refer(t.chunk(), false); }},
    {"it has 1 references by what is not drained, 0 are counted",
     [](Tables& t) { t.chunks().mark_drained(t.chunk()); }},
    {"its name does not lead to it",
     [](Tables& t) { t.chunks().refer(t.chunks().add(t.chunks().get(t.chunk())), false); }},
    {"a copy is on benefactor 999, which is not known",
     [](Tables& t) {
       t.move(t.chunk(), {t.copy(), {BenefactorId{999}, 0}});
     }},
    {"one of its chunks is neither in memory nor in the drain directory",
     [](Tables& t) { t.move(t.chunk(), {}); }},
    {"two copies are on benefactor",
     [](Tables& t) {
       t.move(t.chunk(), {t.copy(), {t.copy().benefactor, kArena / 2}});
     }},
    // Adds a chunk that no file refers to.
    {"the chunks take 1088 bytes, 2176 are counted",
     [](Tables& t) {
       (void)t.chunks().add({{}, kChunk, 0, {{t.copy().benefactor, kArena / 2}}});
     }},
    {"are claimed twice: free and used",
     [](Tables& t) {
       t.service->pool().space().release(t.copy().benefactor,
                                         {t.copy().offset, limits::kExtentAlignment});
     }},
    {"something is beyond its end",
     [](Tables& t) {
       t.move(t.chunk(), {{t.copy().benefactor, kArena}});
     }},
    {"4096 bytes at",
     [](Tables& t) { REQUIRE(t.service->pool().space().take(t.copy().benefactor, 4096, 4096)); }},
};

const std::vector<Rule> kStripeRules = {
    {"it has no data, or no parity", [](Tables& t) { t.stripe().data = 6; }},
    {"a block is no chunk", [](Tables& t) { t.stripe().members.back() = kNowhere; }},
    {"a block was given up", [](Tables& t) { t.move(t.stripe().members.front(), {}); }},
    {"a block is in another one, too", [](Tables& t) { t.stripe().members.front() = t.chunk(); }},
    {"parity is not as long as the longest chunk", [](Tables& t) { --t.stripe().data; }},
    {"nothing uses it",
     [](Tables& t) {
       for (std::uint32_t i = 0; i < t.stripe().data; ++i) {
         std::vector<FreedExtent> freed;
         t.chunks().release(t.stripe().members[i], true, freed);
       }
     }},
    {"its place does not lead to it",
     [](Tables& t) {
       const auto& members = t.stripe().members;
       t.move(members.front(), t.chunks().get(members.back()).copies);
     }},
};

void check(const std::vector<Rule>& rules, const std::string& redundancy) {
  for (const Rule& rule : rules) {
    INFO(rule.sentence);
    Tables tables(redundancy);
    rule.break_it(tables);
    const auto reply = tables.service->services().administration.audit().reply();
    const auto tells = [&](const std::string& what) {
      return what.find(rule.sentence) != std::string::npos;
    };
    for (const std::string& what : reply.broken) UNSCOPED_INFO(what);
    CHECK(std::any_of(reply.broken.begin(), reply.broken.end(), tells));
    CHECK(reply.broken_count >= reply.broken.size());
  }
}

}  // namespace

TEST_CASE("the audit sees each rule of names, versions, chunks and space that is broken") {
  check(kRules, "1");
}

TEST_CASE("the audit sees each rule of stripes that is broken") { check(kStripeRules, "ec(4,2)"); }

TEST_CASE("a chunk of a file that was drained and changed in part needs no place") {
  Tables tables("1");
  tables.move(tables.chunk(), {});
  tables.file().in_drain = true;
  const Audit audit = tables.service->services().administration.audit();
  for (const std::string& what : audit.broken()) {
    CHECK(what.find("has no place") == std::string::npos);
  }
}

TEST_CASE("of very many broken rules the first are told, and all are counted") {
  Tables tables("1");
  for (const FileId file : tables.write_images(150, kChunk)) {
    ++writable(*tables.state().file(file)).newest.stored_bytes;
  }
  REQUIRE(tables.service->pool().space().take(tables.copy().benefactor, 4096, 4096));
  const auto reply = tables.service->services().administration.audit().reply();
  CHECK(reply.broken.size() == 100);
  CHECK(reply.broken_count == 151);
}
