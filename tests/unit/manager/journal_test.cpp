#include <fcntl.h>
#include <fmt/core.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <tuple>

#include "core/base/limits.h"
#include "core/chunk/naming.h"
#include "core/files/drain_directory.h"
#include "manager/drain/import.h"
#include "manager/drain/manifest_reader.h"
#include "manager/journal/journal_codec.h"
#include "manager/journal/metadata_log.h"
#include "manager/journal/sqlite_journal.h"
#include "manager/state/state.h"
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

AddDirectory folder(int number) {
  return {{static_cast<std::uint64_t>(100 + number)}, kRootFile, "folder" + std::to_string(number)};
}

/// Folders 2 to 9, as the records of those numbers.
void write_journal(Reactor& reactor, const std::string& directory) {
  auto journal = SqliteJournal::open(directory);
  REQUIRE(journal);
  REQUIRE((*journal)->load(reactor, [](const Command&) -> Status { return {}; }));
  (*journal)->append(BeginEpoch{{1}}, {});
  for (int i = 2; i < 10; ++i) (*journal)->append(folder(i), {});
  (*journal)->stop();
}

struct Loaded {
  Status status;
  std::vector<Command> commands;
  std::string damage;
};
Loaded load(Reactor& reactor, const std::string& directory) {
  Loaded out;
  auto journal = SqliteJournal::open(directory);
  if (!journal) return {fail(journal.error()), {}, {}};
  out.status = (*journal)->load(reactor, [&](const Command& command) -> Status {
    out.commands.push_back(command);
    return {};
  });
  out.damage = (*journal)->damage();
  return out;
}

void change(const std::string& directory, const std::string& sql) {
  sqlite3* database = nullptr;
  REQUIRE(sqlite3_open((directory + "/journal.db").c_str(), &database) == SQLITE_OK);
  CHECK(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(database);
}

/// Flips a bit of the journal file at the characters `place`.
void flip_bit(const std::string& directory, const std::string& place) {
  const std::string path = directory + "/journal.db";
  std::ifstream from(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(from), {}};
  const std::size_t at = bytes.find(place);
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

/// A log of epoch 3: the first commands as the snapshot `number` up to record 100, then the others.
std::string log_of(const LogKeys& keys, const std::vector<Command>& commands,
                   std::size_t in_snapshot, std::uint64_t number) {
  std::string log;
  LogSnapshot snapshot(keys, Epoch{3}, 100, number, log);
  for (std::size_t i = 0; i < in_snapshot; ++i) REQUIRE(snapshot.append(commands[i], log));
  snapshot.finish(log);
  for (std::size_t i = in_snapshot; i < commands.size(); ++i) {
    REQUIRE(append_record(keys, Epoch{3}, 101 + i - in_snapshot, commands[i], log));
  }
  return log;
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

TEST_CASE("a place that no arena has is never journalled, also as the end of a move") {
  const std::uint64_t behind = std::uint64_t{limits::kExtentAlignment} << 40;
  std::vector<std::byte> bytes;
  REQUIRE(encode_command(MoveChunks{{1}, {{64, behind - limits::kExtentAlignment}}}, bytes));
  CHECK(decode_command(bytes));
  CHECK_FALSE(encode_command(MoveChunks{{1}, {{64, behind}}}, bytes));
}

TEST_CASE("a number of a commit that no pool reaches is never journalled") {
  constexpr std::uint64_t kTooLarge = std::uint64_t{1} << 62;
  RestoreFile file;
  file.attributes.type = FileType::kRegular;
  file.sequence = kTooLarge;
  const Command all[] = {file,
                         RestoreCounters{{1}, kTooLarge, 0, {}},
                         RestoreCounters{{1}, 0, kTooLarge, {}},
                         RestoreCounters{{1}, 0, 0, {}, {{{1}, kTooLarge}}},
                         BeginGeneration{kRootFile, "a", 0, kTooLarge, {}},
                         BeginGeneration{kRootFile, "a", 0, 0, {{1, 0, kTooLarge}}}};
  std::vector<std::byte> bytes;
  for (const Command& command : all) CHECK_FALSE(encode_command(command, bytes));
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

TEST_CASE("a bit of the journal that is not as it was written is found, and the record named") {
  TemporaryDirectory directory;
  SystemClock clock;
  Reactor reactor(clock);
  const std::string state = directory.path + "/state";
  write_journal(reactor, state);
  REQUIRE(load(reactor, state).commands.size() == 9);
  SECTION("in a body") {
    flip_bit(state, "folder6");
    const Loaded loaded = load(reactor, state);
    CHECK(loaded.status.error().code == Code::kCorrupt);
    CHECK(loaded.damage == "record 6 does not match its checksum");
    CHECK(loaded.commands.size() == 5);
  }
  SECTION("a checksum") {
    change(state, "UPDATE record SET crc = crc + 1 WHERE sequence = 3");
    CHECK(load(reactor, state).damage == "record 3 does not match its checksum");
  }
  SECTION("a record that is another one") {
    change(state,
           "UPDATE record SET (body, crc) = (SELECT body, crc FROM record WHERE sequence = 4)"
           " WHERE sequence = 7");
    CHECK(load(reactor, state).damage == "record 7 does not match its checksum");
  }
  SECTION("a record that is gone") {
    change(state, "DELETE FROM record WHERE sequence = 4");
    CHECK(load(reactor, state).damage == "record 4 is missing");
  }
  SECTION("the first ones") {
    change(state, "DELETE FROM record WHERE sequence < 3");
    CHECK(load(reactor, state).damage == "record 1 is missing");
  }
  SECTION("of the database itself") {
    flip_bit(state, "SQLite format 3");
    CHECK(load(reactor, state).status.error().code == Code::kCorrupt);
  }
  SECTION("its format, which makes no new journal of it") {
    change(state, "PRAGMA user_version=0");
    CHECK_FALSE(load(reactor, state).status);
    change(state, "PRAGMA user_version=3");
    CHECK(load(reactor, state).status.error().code == Code::kUnsupported);
    change(state, "PRAGMA user_version=2");
    CHECK(load(reactor, state).commands.size() == 9);
  }
}

TEST_CASE("a journal of before there were checksums is read, and has them then") {
  TemporaryDirectory directory;
  SystemClock clock;
  Reactor reactor(clock);
  const std::string& state = directory.path;
  std::string sql =
      "CREATE TABLE record(sequence INTEGER PRIMARY KEY, body BLOB NOT NULL);"
      "PRAGMA user_version=1;";
  const std::vector<Command> commands = one_of_each();
  std::vector<std::byte> bytes;
  for (const Command& command : commands) {
    REQUIRE(encode_command(command, bytes));
    sql += "INSERT INTO record(body) VALUES(x'" + hex(bytes) + "');";
  }
  change(state, sql);
  for (int i = 0; i < 2; ++i) {
    const Loaded loaded = load(reactor, state);
    REQUIRE(loaded.status);
    CHECK(loaded.commands == commands);
  }
  change(state,
         "UPDATE record SET body = (SELECT body FROM record WHERE sequence = 1)"
         " WHERE sequence = 2");
  CHECK(load(reactor, state).damage == "record 2 does not match its checksum");
}

TEST_CASE("a metadata log gives back its commands, and not with a wrong bit, wherever that is") {
  const std::vector<Command> commands = one_of_each();
  const LogKeys keys(Secret{});
  const std::string log = log_of(keys, commands, commands.size() / 2, 7);
  const auto back = decode_log(log, &keys);
  REQUIRE(back);
  CHECK(back->commands == commands);
  CHECK(back->epoch == Epoch{3});
  CHECK(back->sequence == 100 + commands.size() - commands.size() / 2);
  std::size_t believed = 0;
  for (std::size_t i = 0; i < 8 * log.size(); ++i) {
    std::string wrong = log;
    wrong[i / 8] = static_cast<char>(wrong[i / 8] ^ 1 << i % 8);
    believed += decode_log(wrong, &keys) ? 1 : 0;
  }
  CHECK(believed == 0);
  CHECK_FALSE(decode_log(""));
  CHECK_FALSE(decode_log(std::string_view(log).substr(0, 4)));
  CHECK_FALSE(decode_log(std::string_view(log).substr(0, log.size() - 8)));
}

TEST_CASE("a benefactor that stores a log can only cut off its newest records") {
  const std::vector<Command> commands = one_of_each();
  const LogKeys keys(Secret{{std::byte{1}}});
  const auto record = [&](std::uint64_t sequence, std::size_t index) {
    std::string bytes;
    REQUIRE(append_record(keys, Epoch{3}, sequence, commands[index], bytes));
    return bytes;
  };
  const std::string first = log_of(keys, {commands[0], commands[1]}, 2, 7);
  const std::string whole = first + record(101, 2) + record(102, 3);
  REQUIRE(decode_log(whole, &keys));
  const auto cut = decode_log(first + record(101, 2), &keys);
  REQUIRE(cut);
  CHECK(cut->sequence == 101);
  CHECK_FALSE(decode_log(first + record(102, 3), &keys));                   // left out
  CHECK_FALSE(decode_log(first + record(102, 3) + record(101, 2), &keys));  // in another order
  CHECK_FALSE(decode_log(first + record(101, 2) + record(101, 2), &keys));  // twice
  // The snapshot lacks its end, or mixes two snapshots of the same moment.
  const std::string other = log_of(keys, {commands[1], commands[0]}, 2, 8);
  std::string no_end;
  LogSnapshot begun(keys, Epoch{3}, 100, 7, no_end);
  REQUIRE(begun.append(commands[0], no_end));
  CHECK_FALSE(decode_log(no_end, &keys));
  CHECK_FALSE(decode_log(no_end + record(101, 2), &keys));
  CHECK_FALSE(decode_log(no_end + other.substr(no_end.size()), &keys));
  // Another pool's log, another epoch's record, and a log without MACs.
  const LogKeys others(Secret{{std::byte{2}}});
  CHECK_FALSE(decode_log(log_of(others, commands, 2, 7), &keys));
  std::string later;
  REQUIRE(append_record(keys, Epoch{4}, 101, commands[2], later));
  CHECK_FALSE(decode_log(first + later, &keys));
  std::vector<std::byte> body;
  REQUIRE(encode_command(commands[0], body));
  std::string old{static_cast<char>(body.size()), 0, 0, 0};
  old.append(reinterpret_cast<const char*>(body.data()), body.size());
  CHECK(decode_log(old));
  CHECK_FALSE(decode_log(old, &keys));
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
  CHECK(state.files().size() == 6);
  CHECK(find(kRootFile, "empty")->mode == 0640);
  CHECK(find(kRootFile, "link")->target == "heat/deep");
  const File* image = find(find(find(kRootFile, "heat")->id, "deep")->id, "heat.N1.T2");
  const Attributes attributes = state.files().attributes(*image);
  CHECK(attributes.size_bytes == 1000);
  CHECK(attributes.drain == DrainState::kDrained);
  CHECK(state.contents().map_page(image->newest, 0, 9).chunks.at(0).copies.empty());
  CHECK_FALSE(std::filesystem::exists(root + "/.stdchk-drain/9.1"));
}

TEST_CASE("links and FIFOs in a drain directory lead a new pool nowhere and do not stop it") {
  TemporaryDirectory directory;
  TemporaryDirectory elsewhere;
  const std::string& root = directory.path;
  std::ofstream(elsewhere.path + "/keep") << "kept";
  // The folder of temporary files, whose content is removed, is a link to a folder elsewhere.
  std::filesystem::create_directory_symlink(elsewhere.path, root + "/.stdchk-drain");
  std::filesystem::create_directories(root + "/a/folder");
  std::filesystem::create_directories(root + "/b/.stdchk-manifest");
  std::filesystem::create_directories(root + "/c");
  for (const char* folder : {"a", "b", "c"}) std::ofstream(root + "/" + folder + "/file") << "text";
  REQUIRE(::mkfifo((root + "/.stdchk-manifest").c_str(), 0600) == 0);
  std::filesystem::create_symlink("/dev/zero", root + "/a/.stdchk-manifest");
  // The parser would keep an endless name in memory.
  std::ofstream(root + "/c/.stdchk-manifest") << R"({"files":{")" << std::string(1 << 20, 'x');
  REQUIRE(::mkfifo((root + "/c/fifo").c_str(), 0600) == 0);
  State state;
  REQUIRE(import_drained(root, [&](Command command) { REQUIRE(state.apply(command)); }));
  CHECK(std::filesystem::exists(elsewhere.path + "/keep"));
  CHECK(state.files().size() == 9);  // a, b, c, their files, a/folder, c/fifo, and the root
  const auto fifo = state.lookup((*state.lookup(kRootFile, "c", {}))->id, "fifo", {});
  REQUIRE(fifo);
  CHECK((*fifo)->type == FileType::kFifo);
  for (const char* folder : {"a", "b", "c"}) {
    const auto found = state.lookup(kRootFile, folder, {});
    REQUIRE(found);
    const auto file = state.lookup((*found)->id, "file", {});
    REQUIRE(file);
    CHECK((*file)->newest.size_bytes == 4);
  }
}

TEST_CASE("a manifest of a user who owns neither folder nor pool says nothing") {
  if (::geteuid() != 0) {
    WARN("only root makes files of another user");
    return;
  }
  TemporaryDirectory directory;
  const std::string manifest = directory.path + "/.stdchk-manifest";
  const auto entries = [&] {
    auto root = DrainDirectory(directory.path).open();
    REQUIRE(root);
    return ManifestReader(ManifestReader::Clock::time_point::max()).read(*root, directory.path);
  };
  std::ofstream(manifest) << R"({"files":{"a":{"mtime":1,"pieces":[],"size":4}}})";
  CHECK(entries().size() == 1);
  REQUIRE(::chown(manifest.c_str(), 23102, 23102) == 0);
  CHECK(entries().empty());
  REQUIRE(::chown(directory.path.c_str(), 23102, 23102) == 0);
  CHECK(entries().size() == 1);
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
    const ChunkMap map = state.contents().map_page((*file)->newest, 0, 99);
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
  CHECK(late.contents().map_page((*unread)->newest, 0, 9).chunks.size() == 1);
  // Storage may round a time down to seconds. It never makes a time later.
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
