#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/lifetime.h"
#include "core/base/mutex.h"
#include "manager/journal/journal.h"

struct sqlite3;
struct sqlite3_stmt;

namespace stdchk::manager {

/// A SqliteJournal stores commands in an SQLite database, "journal.db" in the state directory. Its
/// thread writes all queued commands as one transaction, with one fdatasync. Each record has a
/// checksum. A journal from before checksums gets them when it is opened.
///
/// Owns: the database, locked against a second manager, and the thread.
/// Threads: the reactor's, as every Journal; the writing thread shares only the queue.
class SqliteJournal final : public Journal {
 public:
  /// Creates the directory if necessary. kBusy: another manager has the journal open. kCorrupt: it
  /// is no valid database. kUnsupported: a later version has written it.
  static Result<std::unique_ptr<SqliteJournal>> open(const std::string& directory);
  ~SqliteJournal() override;

  /// Fails with kCorrupt when a record is invalid; damage() then says which.
  Status load(Reactor& reactor, const Apply& apply) override;
  /// Describes the damage that load() found; empty: none.
  const std::string& damage() const { return damage_; }
  void append(const Command& command, Durable durable) override;
  bool wants_snapshot() const override;
  void write_snapshot(std::vector<Command> commands) override;
  void stop() override;
  Figures figures() const override;

 private:
  struct Entry {
    std::vector<std::byte> record;
    Durable durable;
    std::vector<Command> snapshot;  ///< replaces everything before it
    bool is_snapshot = false;
    Status encoded;
  };

  struct Finalizer {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, Finalizer>;

  explicit SqliteJournal(sqlite3* database) : database_(database) {}
  static Result<Statement> prepare(sqlite3* database, const char* sql);
  Status upgrade();
  Result<Command> read(sqlite3_stmt* row);
  void run();
  void count(std::size_t records, Duration took);
  Status write(std::vector<Entry>& batch);
  Status write_one(Entry& entry);
  Status insert(ByteSpan record);
  Status execute(const char* sql);
  Status run_once(sqlite3_stmt* statement, const char* where);
  void answer(std::vector<Entry> batch, Status status);

  sqlite3* database_;
  // Prepared once: each transaction uses them, most transactions for a single record.
  Statement begin_;
  Statement insert_;
  Statement commit_;
  Reactor* reactor_ = nullptr;
  Lifetime lifetime_;  ///< lives from load() to stop()
  std::string damage_;
  std::thread thread_;
  std::uint64_t sequence_ = 0;  ///< of the newest record; belongs to the thread while that runs
  std::uint64_t since_snapshot_ = 0;
  std::uint64_t snapshot_records_ = 0;  ///< records of the newest snapshot

  Mutex mutex_;
  CondVar wake_;
  std::vector<Entry> queue_ STDCHK_GUARDED_BY(mutex_);
  bool stopping_ STDCHK_GUARDED_BY(mutex_) = false;
  Status failed_;  ///< the first failure; belongs to the thread

  std::atomic<std::uint64_t> records_{0};           ///< durable records
  metrics::Histogram syncs_{metrics::kTimeBounds};  ///< nanoseconds of each transaction
};

}  // namespace stdchk::manager
