#include "manager/journal/sqlite_journal.h"

#include <fmt/core.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/files/durable.h"
#include "manager/journal/journal_codec.h"

namespace stdchk::manager {
namespace {

constexpr int kFormat = 2;
constexpr int kFormatWithoutChecksums = 1;
constexpr std::uint64_t kSnapshotEvery = 20000;

/// Returns the errno of the last failure. For a full disk SQLite keeps none.
int errno_of(sqlite3* database) {
  const bool full = (sqlite3_errcode(database) & 0xff) == SQLITE_FULL;
  return full ? ENOSPC : sqlite3_system_errno(database);
}

Code code_of(sqlite3* database) {
  switch (sqlite3_errcode(database) & 0xff) {
    case SQLITE_BUSY:
      return Code::kBusy;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kCorrupt;
    default:
      return Code::kSystem;
  }
}

/// Fails if another user has made the directory, or has put a link in place of the database.
Status check_owners(const std::string& directory) {
  for (const char* const name : {"", "/journal.db", "/journal.db-wal"}) {
    const bool is_directory = *name == '\0';
    const std::string path = directory + name;
    struct stat facts {};
    // The person who starts the manager chooses the directory, perhaps by a link.
    const int found = is_directory ? ::stat(path.c_str(), &facts) : ::lstat(path.c_str(), &facts);
    if (found != 0 && errno == ENOENT) continue;
    if (found != 0) return fail_errno("journal.open");
    const bool is_own = facts.st_uid == ::geteuid() || facts.st_uid == 0;
    const bool is_right = is_directory ? S_ISDIR(facts.st_mode) : S_ISREG(facts.st_mode);
    if (!is_own || !is_right) return fail(Code::kPermission, "journal.open", EPERM);
  }
  return {};
}

/// An SQL function of a record's sequence and body.
void crc_function(sqlite3_context* context, int, sqlite3_value** values) {
  const auto sequence = static_cast<std::uint64_t>(sqlite3_value_int64(values[0]));
  const auto* const body = static_cast<const std::byte*>(sqlite3_value_blob(values[1]));
  const auto bytes = static_cast<std::size_t>(sqlite3_value_bytes(values[1]));
  sqlite3_result_int64(context, record_crc(sequence, {body, bytes}));
}

/// Returns the SQL that upgrades a journal of `format` to the present one; null: impossible. A new
/// database has format 0.
const char* upgrade_from(int format) {
  switch (format) {
    case 0:
      // Fails if the table exists: then the format number is wrong.
      return "CREATE TABLE record(sequence INTEGER PRIMARY KEY, body BLOB NOT NULL,"
             " crc INTEGER NOT NULL);"
             "PRAGMA user_version=2;";
    case kFormatWithoutChecksums:
      return "ALTER TABLE record ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;"
             "UPDATE record SET crc = record_crc(sequence, body);"
             "PRAGMA user_version=2;";
    case kFormat:
      return "";
    default:
      return nullptr;
  }
}

}  // namespace

void SqliteJournal::Finalizer::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

Result<SqliteJournal::Statement> SqliteJournal::prepare(sqlite3* database, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database, sql, -1, &statement, nullptr) != SQLITE_OK) {
    return fail(code_of(database), "journal.prepare", errno_of(database));
  }
  return Statement(statement);
}

Result<std::unique_ptr<SqliteJournal>> SqliteJournal::open(const std::string& directory) {
  STDCHK_TRY(make_durable_directory(directory, 0700));
  STDCHK_TRY(check_owners(directory));
  sqlite3* database = nullptr;
  const int opened =
      sqlite3_open_v2((directory + "/journal.db").c_str(), &database,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<SqliteJournal> journal(new SqliteJournal(database));
  if (opened != SQLITE_OK) {
    return fail(Code::kSystem, "journal.open", errno_of(database));
  }
  // Exclusive: a second manager must not start on the same state, and
  // SQLite needs no shared memory.
  const char* const setup =
      "PRAGMA locking_mode=EXCLUSIVE;"
      "PRAGMA journal_mode=WAL;"
      "PRAGMA synchronous=FULL;"
      "BEGIN EXCLUSIVE;";
  if (sqlite3_exec(database, setup, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return fail(code_of(database), "journal.open", errno_of(database));
  }
  STDCHK_TRY(journal->upgrade());
  STDCHK_TRY(journal->execute("COMMIT"));
  STDCHK_ASSIGN(journal->begin_, prepare(database, "BEGIN"));
  STDCHK_ASSIGN(journal->insert_,
                prepare(database, "INSERT INTO record(sequence, body, crc) VALUES(?, ?, ?)"));
  STDCHK_ASSIGN(journal->commit_, prepare(database, "COMMIT"));
  return journal;
}

SqliteJournal::~SqliteJournal() {
  stop();
  begin_.reset();
  insert_.reset();
  commit_.reset();
  sqlite3_close(database_);
}

Status SqliteJournal::upgrade() {
  int format = 0;
  {
    STDCHK_ASSIGN(const Statement version, prepare(database_, "PRAGMA user_version"));
    if (sqlite3_step(version.get()) != SQLITE_ROW) {
      return fail(code_of(database_), "journal.format", errno_of(database_));
    }
    format = sqlite3_column_int(version.get(), 0);
  }
  const char* const sql = upgrade_from(format);
  if (sql == nullptr) return fail(Code::kUnsupported, "journal.format");
  constexpr int kWhat = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
  if (sqlite3_create_function(database_, "record_crc", 2, kWhat, nullptr, crc_function, nullptr,
                              nullptr) != SQLITE_OK) {
    return fail(code_of(database_), "journal.format", errno_of(database_));
  }
  return execute(sql);
}

Status SqliteJournal::execute(const char* sql) {
  if (sqlite3_exec(database_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  log::error("journal: {} failed: {}", sql, sqlite3_errmsg(database_));
  return fail(code_of(database_), "journal.execute", errno_of(database_));
}

Status SqliteJournal::load(Reactor& reactor, const Apply& apply) {
  reactor_ = &reactor;
  lifetime_.renew();
  sequence_ = 0;
  STDCHK_ASSIGN(const Statement select,
                prepare(database_, "SELECT sequence, body, crc FROM record ORDER BY sequence"));
  for (;;) {
    const int step = sqlite3_step(select.get());
    if (step == SQLITE_DONE) break;
    if (step != SQLITE_ROW) {
      damage_ = fmt::format("behind record {}: {}", sequence_, sqlite3_errmsg(database_));
      return fail(code_of(database_), "journal.load", errno_of(database_));
    }
    STDCHK_ASSIGN(const Command command, read(select.get()));
    STDCHK_TRY(apply(command));
    ++since_snapshot_;
  }
  {
    const MutexLock lock(mutex_);
    stopping_ = false;
  }
  thread_ = std::thread([this] { run(); });
  return {};
}

/// Decodes a row of (sequence, body, crc), which must hold the next record.
Result<Command> SqliteJournal::read(sqlite3_stmt* row) {
  constexpr const char* kWhere = "journal.load";
  const std::uint64_t next = ++sequence_;
  const auto sequence = static_cast<std::uint64_t>(sqlite3_column_int64(row, 0));
  if (sequence != next) {
    damage_ = fmt::format("record {} is missing", next);
    return fail(Code::kCorrupt, kWhere);
  }
  const auto* const bytes = static_cast<const std::byte*>(sqlite3_column_blob(row, 1));
  const ByteSpan body(bytes, static_cast<std::size_t>(sqlite3_column_bytes(row, 1)));
  if (sqlite3_column_int64(row, 2) != record_crc(sequence, body)) {
    damage_ = fmt::format("record {} does not match its checksum", sequence);
    return fail(Code::kCorrupt, kWhere);
  }
  auto command = decode_command(body);
  if (!command) {
    damage_ = fmt::format("record {} is unknown to this version of stdchk", sequence);
  }
  return command;
}

void SqliteJournal::append(const Command& command, Durable durable) {
  Entry entry;
  entry.encoded = encode_command(command, entry.record);
  entry.durable = std::move(durable);
  ++since_snapshot_;
  const MutexLock lock(mutex_);
  queue_.push_back(std::move(entry));
  wake_.notify_one();
}

bool SqliteJournal::wants_snapshot() const {
  // A large state is written less often, so that snapshots cost no more than the journal itself.
  return since_snapshot_ >= std::max(kSnapshotEvery, 2 * snapshot_records_);
}

void SqliteJournal::write_snapshot(std::vector<Command> commands) {
  since_snapshot_ = 0;
  snapshot_records_ = commands.size();
  Entry entry;
  entry.snapshot = std::move(commands);
  entry.is_snapshot = true;
  const MutexLock lock(mutex_);
  queue_.push_back(std::move(entry));
  wake_.notify_one();
}

void SqliteJournal::stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
  lifetime_.end();
}

void SqliteJournal::run() {
  for (;;) {
    std::vector<Entry> batch;
    {
      MutexLock lock(mutex_);
      wake_.wait(lock, [this]() STDCHK_REQUIRES(mutex_) { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      batch.swap(queue_);
    }
    const auto began = std::chrono::steady_clock::now();
    if (failed_) failed_ = write(batch);
    if (failed_) count(batch.size(), std::chrono::steady_clock::now() - began);
    answer(std::move(batch), failed_);
  }
}

void SqliteJournal::count(std::size_t records, Duration took) {
  records_.fetch_add(records, std::memory_order_relaxed);
  syncs_.count(static_cast<std::uint64_t>(took.count()));
}

Journal::Figures SqliteJournal::figures() const {
  return {records_.load(std::memory_order_relaxed), syncs_.snapshot(1e9)};
}

/// Runs a statement that returns no rows, and resets it for the next use.
Status SqliteJournal::run_once(sqlite3_stmt* statement, const char* where) {
  const bool done = sqlite3_step(statement) == SQLITE_DONE;
  Status status;
  if (!done) {
    log::error("{} failed: {}", where, sqlite3_errmsg(database_));
    status = fail(Code::kSystem, where, errno_of(database_));
  }
  sqlite3_reset(statement);
  return status;
}

Status SqliteJournal::write(std::vector<Entry>& batch) {
  STDCHK_TRY(run_once(begin_.get(), "journal.begin"));
  for (Entry& entry : batch) {
    if (const Status written = write_one(entry); !written) {
      // Returns the first failure, and writes nothing further.
      sqlite3_exec(database_, "ROLLBACK", nullptr, nullptr, nullptr);
      return written;
    }
  }
  return run_once(commit_.get(), "journal.commit");
}

Status SqliteJournal::write_one(Entry& entry) {
  if (!entry.is_snapshot) {
    STDCHK_TRY(entry.encoded);
    return insert(entry.record);
  }
  STDCHK_TRY(execute("DELETE FROM record"));
  sequence_ = 0;
  std::vector<std::byte> record;
  for (const Command& command : entry.snapshot) {
    STDCHK_TRY(encode_command(command, record));
    STDCHK_TRY(insert(record));
  }
  entry.snapshot.clear();
  return {};
}

Status SqliteJournal::insert(ByteSpan record) {
  ++sequence_;
  sqlite3_bind_int64(insert_.get(), 1, static_cast<sqlite3_int64>(sequence_));
  sqlite3_bind_blob64(insert_.get(), 2, record.data(), record.size(), SQLITE_STATIC);
  sqlite3_bind_int64(insert_.get(), 3, record_crc(sequence_, record));
  return run_once(insert_.get(), "journal.insert");
}

/// Calls the callbacks on the reactor's thread. Batches are posted in the order of their writes.
void SqliteJournal::answer(std::vector<Entry> batch, Status status) {
  auto shared = std::make_shared<std::vector<Entry>>(std::move(batch));
  const auto call = [shared, status, alive = lifetime_.watch()] {
    for (Entry& entry : *shared) {
      if (alive.expired()) return;
      if (entry.durable) entry.durable(status);
    }
  };
  // A full queue of posts empties soon: the reactor waits for this thread only in stop().
  for (;;) {
    if (reactor_->post(call)) return;
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace stdchk::manager
