#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <tuple>

#include "core/limits.h"
#include "core/naming.h"
#include "manager/import.h"
#include "manager/journal_codec.h"
#include "manager/sqlite_journal.h"
#include "manager/state.h"
#include "tests/support/catch.h"
#include "tests/unit/manager/some_commands.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using stdchk::manager::test::one_of_each;

struct TemporaryDirectory {
  TemporaryDirectory() {
    std::string name = "/tmp/stdchk-journal-XXXXXX";
    path = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  std::string path;
};

std::vector<Command> snapshot_of(const State& state) {
  std::vector<Command> out;
  state.snapshot([&](Command command) { out.push_back(std::move(command)); });
  return out;
}

}  // namespace

TEST_CASE("every command is read back as it was written") {
  const std::vector<Command> commands = one_of_each();
  CHECK(commands.size() == std::variant_size_v<AnyCommand>);
  for (const Command& command : commands) {
    std::vector<std::byte> bytes;
    REQUIRE(encode_command(command, bytes));
    const auto back = decode_command(bytes);
    REQUIRE(back);
    CHECK(back->index() == command.index());
    CHECK(*back == command);
  }
}

TEST_CASE("bytes that are no command are corrupt, whatever they are") {
  std::vector<std::byte> bytes;
  REQUIRE(encode_command(one_of_each()[2], bytes));
  CHECK_FALSE(decode_command({}));
  CHECK(decode_command(ByteSpan(bytes).first(16)).error().code == Code::kCorrupt);
  Prng prng(5);
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::byte> bad = bytes;
    for (int k = 0; k < 3; ++k) {
      bad[prng.below(bad.size())] = static_cast<std::byte>(prng.next());
    }
    const auto decoded = decode_command(bad);  // an answer, or kCorrupt; never anything else
    if (!decoded) REQUIRE(decoded.error().code == Code::kCorrupt);
  }
}

TEST_CASE("a place that no arena has is corrupt, also as the end of a move") {
  const std::uint64_t behind = std::uint64_t{limits::kExtentAlignment} << 40;
  std::vector<std::byte> bytes;
  REQUIRE(encode_command(MoveChunks{{1}, {{64, behind - limits::kExtentAlignment}}}, bytes));
  CHECK(decode_command(bytes));
  REQUIRE(encode_command(MoveChunks{{1}, {{64, behind}}}, bytes));
  CHECK(decode_command(bytes).error().code == Code::kCorrupt);
}

TEST_CASE("a number of a commit that no pool reaches is corrupt") {
  constexpr std::uint64_t kTooLarge = std::uint64_t{1} << 62;
  RestoreFile file;
  file.attributes.type = FileType::kRegular;
  file.sequence = kTooLarge;
  const Command all[] = {file, RestoreCounters{{1}, kTooLarge, 0, {}},
                         RestoreCounters{{1}, 0, kTooLarge, {}},
                         BeginGeneration{kRootFile, "a", 0, kTooLarge, {}},
                         BeginGeneration{kRootFile, "a", 0, 0, {{1, 0, kTooLarge}}}};
  std::vector<std::byte> bytes;
  for (const Command& command : all) {
    REQUIRE(encode_command(command, bytes));
    CHECK(decode_command(bytes).error().code == Code::kCorrupt);
  }
}

TEST_CASE("a database gives back what was durable, also after a snapshot, and is locked") {
  TemporaryDirectory directory;
  SystemClock clock;
  Reactor reactor(clock);
  State state;
  std::vector<int> order;
  {
    auto journal = SqliteJournal::open(directory.path + "/state");
    REQUIRE(journal);
    CHECK(SqliteJournal::open(directory.path + "/state").error().code == Code::kBusy);
    REQUIRE((*journal)->load(reactor, [](const Command&) -> Status { return {}; }));
    const auto run = [&](const Command& command, int number) {
      REQUIRE(state.apply(command));
      (*journal)->append(command, [&order, number](const Status& status) {
        REQUIRE(status);
        order.push_back(number);
      });
    };
    run(BeginEpoch{{1}}, 0);
    for (int i = 1; i < 500; ++i) {
      run(AddDirectory{{static_cast<std::uint64_t>(100 + i)}, kRootFile, "d" + std::to_string(i)},
          i);
    }
    (*journal)->write_snapshot(snapshot_of(state));
    run(RemoveName{kRootFile, "d7", true}, 500);
    for (int i = 0; i < 1000 && order.size() < 501; ++i) {
      reactor.run_once(std::chrono::milliseconds(10));
    }
    REQUIRE(order.size() == 501);
    for (int i = 0; i <= 500; ++i) REQUIRE(order[static_cast<std::size_t>(i)] == i);
    (*journal)->stop();
  }
  auto again = SqliteJournal::open(directory.path + "/state");
  REQUIRE(again);
  State loaded;
  std::size_t commands = 0;
  REQUIRE((*again)->load(reactor, [&](const Command& command) -> Status {
    ++commands;
    if (const auto outcome = loaded.apply(command); !outcome) return fail(outcome.error());
    return {};
  }));
  CHECK(commands == 1 + 1 + 499 + 1);  // counters, root, directories; and the removal after it
  CHECK(snapshot_of(loaded) == snapshot_of(state));
}

TEST_CASE("a drain directory is shown as drained files that are nowhere in memory") {
  TemporaryDirectory directory;
  const std::string& root = directory.path;
  std::filesystem::create_directories(root + "/heat/deep");
  std::filesystem::create_directories(root + "/.stdchk-drain");
  std::ofstream(root + "/.stdchk-drain/9.1") << "left over";
  std::ofstream(root + "/heat/deep/heat.N1.T2") << std::string(1000, 'x');
  std::ofstream empty(root + "/empty");
  std::filesystem::create_symlink("heat/deep", root + "/link");
  ::chmod((root + "/empty").c_str(), 0640);
  State state;
  REQUIRE(import_drained(root, [&](Command command) { REQUIRE(state.apply(command)); }));
  const auto find = [&](FileId parent, const char* name) {
    const auto found = state.lookup(parent, name, {});
    REQUIRE(found);
    return *found;
  };
  CHECK(state.file_count() == 6);
  CHECK(find(kRootFile, "empty")->mode == 0640);
  CHECK(find(kRootFile, "link")->target == "heat/deep");
  const File* image = find(find(find(kRootFile, "heat")->id, "deep")->id, "heat.N1.T2");
  const Attributes attributes = state.attributes(*image);
  CHECK(attributes.size_bytes == 1000);
  CHECK(attributes.drain == DrainState::kDrained);
  CHECK(state.map_page(image->newest, 0, 9).chunks.at(0).copies.empty());
  CHECK_FALSE(std::filesystem::exists(root + "/.stdchk-drain/9.1"));
}

TEST_CASE("what a manifest says of the drained file beside it is known of its chunks") {
  TemporaryDirectory directory;
  const std::string& root = directory.path;
  const std::string path = root + "/a";
  const std::string content = std::string(1000, 'x') + std::string(500, 'y') + "tail";
  std::ofstream(path) << content;
  const timespec times[2] = {{0, UTIME_OMIT}, {1234, 500}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  const auto crc = [&](std::size_t from, std::size_t bytes) {
    return crc32c(0, std::as_bytes(std::span(content)).subspan(from, bytes));
  };
  const auto piece = [](std::int64_t offset, std::int64_t length, std::uint32_t crc32c) {
    return fmt::format(R"({{"crc32c":{},"length":{},"name":"00","offset":{}}})", crc32c, length,
                       offset);
  };
  const std::string pieces =
      "[" + piece(1000, 500, crc(1000, 500)) + "," + piece(100, 900, crc(100, 900)) + "]";
  /// Offset, length and checksum of each chunk.
  using Found = std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>>;
  const auto import_with = [&](const std::string& files) {
    std::ofstream(root + "/.stdchk-manifest") << R"({"files":)" << files << R"(,"format":1})";
    State state;
    REQUIRE(import_drained(root, [&](Command command) { REQUIRE(state.apply(command)); }));
    const auto file = state.lookup(kRootFile, "a", {});
    REQUIRE(file);
    const ChunkMap map = state.map_page((*file)->newest, 0, 99);
    Found found;
    for (const Slice& slice : map.slices) {
      found.emplace_back(slice.file_offset, slice.length, map.chunks[slice.chunk].crc);
    }
    return found;
  };
  const auto entry = [&](const std::string& time, const std::string& size,
                         const std::string& of_pieces) {
    return R"({"a":{"mtime":)" + time + R"(,"pieces":)" + of_pieces + R"(,"size":)" + size + "}}";
  };
  const Found unknown{{0, 1504, 0}};
  // Pieces side by side are one chunk; of what lies between them nothing is known.
  const Found known{{0, 100, 0}, {100, 1400, crc(100, 1400)}, {1500, 4, 0}};
  CHECK(import_with(entry("1234000000500", "1504", pieces)) == known);
  // A manager that starts is waited for.
  State late;
  const auto apply = [&](Command command) { REQUIRE(late.apply(command)); };
  REQUIRE(import_drained(root, apply, Duration{}));
  const auto unread = late.lookup(kRootFile, "a", {});
  REQUIRE(unread);
  CHECK(late.map_page((*unread)->newest, 0, 9).chunks.size() == 1);
  // The storage may keep no more than seconds of a time; but it is never a later one.
  CHECK(import_with(entry("1235000000000", "1504", pieces)) == known);
  CHECK(import_with(entry("1234000000499", "1504", pieces)) == unknown);
  CHECK(import_with(entry("1236000000500", "1504", pieces)) == unknown);
  CHECK(import_with(entry("1234000000500", "1505", pieces)) == unknown);
  CHECK(import_with(R"({"a":{"size":1504,"pieces":)" + pieces + "}}") == unknown);  // of before
  CHECK(import_with(R"({"b":{"mtime":1234000000500,"size":1504,"pieces":)" + pieces + "}}") ==
        unknown);
  for (const std::string& wrong :
       {"[" + piece(0, 1001, 7) + "," + piece(1000, 9, 7) + "]", "[" + piece(1500, 5, 7) + "]",
        "[" + piece(-1, 5, 7) + "]", "[" + piece(0, 0, 7) + "]", std::string("[{}]"),
        std::string(R"([{"offset":0,"length":5}])"), "[" + piece(0, (16 << 20) + 1, 7) + "]",
        std::string(R"([{"offset":0,"length":5,"crc32c":4294967296}])")}) {
    INFO(wrong);
    CHECK(import_with(entry("1234000000500", "1504", wrong)) == unknown);
  }
  for (const std::string& damaged :
       {std::string("{"), std::string(100'000, '['), std::string("[[[3]]]"),
        "[[[" + piece(0, 5, 7) + "]]]", std::string(R"({"a":3})")}) {
    CHECK(import_with(damaged) == unknown);
  }
}
