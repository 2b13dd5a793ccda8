#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "fork/pager/source.h"

namespace stdchk::pager {

/// A PoolConnection connects to the pool at the first use. After a failure it tries again.
///
/// Threads: any.
/// Errors: the errors of Filesystem::connect. For kRetry after an error, get() repeats that error.
class PoolConnection {
 public:
  static constexpr Duration kRetry = std::chrono::seconds(1);

  /// Options with an empty manager address mean that there is no pool.
  PoolConnection(client::Options options, const Clock& clock)
      : options_(std::move(options)), clock_(clock) {}
  Result<client::Filesystem*> get();

 private:
  const client::Options options_;
  const Clock& clock_;
  Mutex mutex_;
  std::unique_ptr<client::Filesystem> filesystem_ STDCHK_GUARDED_BY(mutex_);
  std::optional<Error> failed_ STDCHK_GUARDED_BY(mutex_);
  Time failed_at_ STDCHK_GUARDED_BY(mutex_){};
};

/// A PoolSource supplies the bytes of one version of a file of the pool. The client library checks
/// the bytes: of a short read by the checksums of parts, of a long read by the checksums of whole
/// chunks. If a benefactor is lost, the library reads another copy.
///
/// Owns: the open files, which pin the version. Must not outlive its PoolConnection.
/// Limits: a restarted server can read a version only while it is the newest, otherwise kStale.
class PoolSource final : public Source {
 public:
  /// An Identity names a version of a file for the next server.
  struct Identity {
    std::uint64_t file = 0;
    std::uint64_t version = 0;
    std::uint64_t size_bytes = 0;
  };

  /// Opens the newest version of `path`, which begins at the pool's root.
  static Result<std::shared_ptr<PoolSource>> open(PoolConnection& pool, std::string path);
  /// Opens that version at the first read.
  static std::shared_ptr<PoolSource> reopen(PoolConnection& pool, std::string path,
                                            const Identity& identity);

  std::uint64_t size_bytes() const override { return identity_.size_bytes; }
  const std::string& name() const override { return path_; }
  Status read(std::uint64_t offset, MutableByteSpan out) override;
  bool is_hole(std::uint64_t offset, std::uint64_t bytes) override;
  std::string recorded_order() override;
  void record_order(const std::string& order) override;

  const Identity& identity() const { return identity_; }
  std::string key() const;

 private:
  /// The library reads ahead for each opener of a file that reads in a run, and reads short ranges
  /// for one that jumps. So runs and jumps use different openers. The blocks of a short range use
  /// different openers, too, because in sequence they look like a run.
  static constexpr std::size_t kJumpFiles = 4;
  using Files = std::array<std::shared_ptr<client::File>, kJumpFiles + 1>;

  PoolSource(PoolConnection& pool, std::string path, const Identity& identity, Files files)
      : pool_(pool), path_(std::move(path)), identity_(identity), files_(std::move(files)) {}
  static Result<Files> open_files(client::Filesystem& filesystem, const std::string& path,
                                  Identity& identity);
  Result<client::File*> file(std::size_t index);

  PoolConnection& pool_;
  const std::string path_;
  const Identity identity_;
  Mutex mutex_;
  Files files_ STDCHK_GUARDED_BY(mutex_);  ///< the last file is for runs; nullptr: not open
};

}  // namespace stdchk::pager
