// Starts a manager on a database of arbitrary records, or arbitrary commands, with valid checksums.
// The manager starts or reports an error. After a start it can walk its state, run, and start
// again.

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/assert.h"
#include "core/base/log.h"
#include "core/runtime/reactor.h"
#include "manager/journal/journal_codec.h"
#include "manager/journal/sqlite_journal.h"
#include "manager/service/service.h"
#include "tests/fuzz/commands.h"
#include "tests/fuzz/temporary_folder.h"

using namespace stdchk;
using namespace stdchk::manager;

namespace {

/// Binds one record: a value of any SQLite type, made of the input's bytes or a command.
void bind(sqlite3_stmt* insert, fuzz::Choices& choices, std::vector<std::byte>& record) {
  const unsigned kind = choices.below(16);
  if (kind == 0) {
    // SQLite reads a number as the text of its digits.
    const auto number = static_cast<sqlite3_int64>(choices.number());
    const std::string digits = std::to_string(number);
    const ByteSpan bytes = std::as_bytes(std::span(digits));
    record.assign(bytes.begin(), bytes.end());
    sqlite3_bind_int64(insert, 1, number);
    return;
  }
  if (kind == 1) {
    record.assign(choices.byte(), std::byte{});
    sqlite3_bind_zeroblob(insert, 1, static_cast<int>(record.size()));
    return;
  }
  if (kind <= 4) {
    const ByteSpan bytes = choices.bytes(choices.byte() * std::size_t{16});
    record.assign(bytes.begin(), bytes.end());
  } else if (!encode_command(fuzz::make_command(choices), record)) {
    record.clear();
  }
  static constexpr std::byte kNone{};  // a null pointer would be NULL, which the table refuses
  const std::byte* const from = record.empty() ? &kNone : record.data();
  if (kind == 2) {
    sqlite3_bind_text(insert, 1, reinterpret_cast<const char*>(from),
                      static_cast<int>(record.size()), SQLITE_TRANSIENT);
  } else {
    sqlite3_bind_blob64(insert, 1, from, record.size(), SQLITE_TRANSIENT);
  }
}

void write_records(const std::string& folder, fuzz::Choices& choices) {
  sqlite3* database = nullptr;
  STDCHK_ASSERT(sqlite3_open((folder + "/journal.db").c_str(), &database) == SQLITE_OK);
  STDCHK_ASSERT(sqlite3_exec(database, "PRAGMA synchronous=OFF; BEGIN; DELETE FROM record", nullptr,
                             nullptr, nullptr) == SQLITE_OK);
  sqlite3_stmt* insert = nullptr;
  STDCHK_ASSERT(sqlite3_prepare_v2(database,
                                   "INSERT INTO record(body, sequence, crc) VALUES(?, ?, ?)", -1,
                                   &insert, nullptr) == SQLITE_OK);
  std::uint64_t sequence = 0;
  for (std::vector<std::byte> record; !choices.empty();) {
    bind(insert, choices, record);
    ++sequence;
    sqlite3_bind_int64(insert, 2, static_cast<sqlite3_int64>(sequence));
    sqlite3_bind_int64(insert, 3, manager::record_crc(sequence, record));
    STDCHK_ASSERT(sqlite3_step(insert) == SQLITE_DONE);
    sqlite3_reset(insert);
  }
  sqlite3_finalize(insert);
  STDCHK_ASSERT(sqlite3_exec(database, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(database);
}

/// False: the manager did not start.
bool start(const std::string& folder) {
  auto journal = SqliteJournal::open(folder);
  STDCHK_ASSERT(journal.has_value());
  ManualClock clock;
  Reactor reactor(clock);
  Config config;
  config.pool.drain_directory = "/drained";
  Service service(reactor, **journal, std::move(config));
  if (!service.start()) return false;
  for (int i = 0; i < 20; ++i) {
    clock.advance(std::chrono::milliseconds(200));
    reactor.run_once(Duration::zero());
  }
  (void)service.services().administration.audit().reply();
  std::vector<Command> commands;
  service.state().snapshot([&](Command command) { commands.push_back(std::move(command)); });
  (*journal)->write_snapshot(std::move(commands));
  service.stop();
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::TemporaryFolder folder;
  static const bool made = [] {
    log::start("fuzz", log::Level::kError);
    return SqliteJournal::open(folder.path()).has_value();
  }();
  STDCHK_ASSERT(made);
  fuzz::Choices choices({reinterpret_cast<const std::byte*>(data), size});
  write_records(folder.path(), choices);
  if (start(folder.path())) STDCHK_ASSERT(start(folder.path()));
  return 0;
}
