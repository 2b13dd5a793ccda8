#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/files/drain_directory.h"

namespace stdchk {

/// The file in a drain directory that says which pool drains there. It belongs to no user's data.
inline constexpr const char* kLeaseName = ".stdchk-lease";

/// A LeaseHolder names the manager that holds a drain directory.
struct LeaseHolder {
  std::string pool;     ///< 32 hexadecimal digits, equal for all managers that know one secret
  std::string manager;  ///< 32 hexadecimal digits, random, of one state directory
  std::string host;
  std::string process;  ///< boot, name space of process numbers, number and start of the process
  bool operator==(const LeaseHolder&) const = default;

  /// Names this process. `pool` and `manager` are as above.
  static LeaseHolder of_this_process(std::string pool, std::string manager);
  /// Returns false only if the process ran here, in the same name space, and is gone.
  bool may_be_running() const;
};

/// A LeaseSteps is a lease on the place that a pool drains to: DrainLease for a directory, ObjectLease
/// for an object store.
///
/// Threads: one. Calls block while the storage does.
class LeaseSteps {
 public:
  enum class State : std::uint8_t {
    kOurs,
    kOthers,  ///< holder() has it
    /// The lease cannot be read or written; reason() says why. Nothing is known of other pools.
    kUnknown,
  };

  virtual ~LeaseSteps() = default;
  /// The directory or the object store, for messages.
  virtual const std::string& place() const = 0;
  /// Takes the lease if it is free, or renews it. Call this every DrainLease::kRenewEvery, or more
  /// often.
  virtual State step(Time now) = 0;
  /// Removes the lease if it is this process's.
  virtual void release() = 0;
  /// The holder, after kOthers. Its members are empty where the text is no lease.
  virtual const LeaseHolder& holder() const = 0;
  virtual const std::string& reason() const = 0;
};

/// A LeaseWatch judges whether another holder's lease is free, by this process's clock alone.
///
/// Threads: one.
class LeaseWatch {
 public:
  /// Returns true when the lease of `holder` may be taken: its text stayed equal for
  /// DrainLease::kStaleAfter, or its process ended on this host. Call it with each text that was read.
  bool is_free(const std::string& text, const LeaseHolder& holder, Time now);
  /// Forgets the text: this process has the lease.
  void reset() { *this = {}; }

 private:
  std::string text_;
  std::optional<Time> since_;  ///< the time when the text was first read
};

/// A DrainLease keeps two pools from draining into one directory, where one of them would give its
/// temporary files the names of the other's.
///
/// The lease is a file with the holder's name and a count of renewals. The holder renews it every
/// kRenewEvery. Other managers judge by their own clocks: a lease is free when its text stays equal
/// for kStaleAfter. The lease of a process that ended on this host is free at once. No clocks of
/// two hosts are compared. Taking a free lease is a rename: of several pools one succeeds.
///
/// A holder that was stopped for longer than kStaleAfter loses the lease, and learns that at its
/// next step(). Its benefactors may end requests meanwhile that they had before.
///
/// Threads: one. Calls block while the file system does.
class DrainLease final : public LeaseSteps {
 public:
  static constexpr Duration kRenewEvery = std::chrono::seconds(3);
  static constexpr Duration kStaleAfter = std::chrono::seconds(12);

  /// `inherits`: the first step() takes the lease of another manager of the same pool at once.
  DrainLease(std::string directory, LeaseHolder own, bool inherits)
      : directory_(std::move(directory)), own_(std::move(own)), inherits_(inherits) {}

  const std::string& place() const override { return directory_.path(); }
  State step(Time now) override;
  void release() override;
  const LeaseHolder& holder() const override { return seen_; }
  const std::string& reason() const override { return reason_; }

 private:
  State take(const DrainFolder& root);
  State replace(const DrainFolder& root, const std::string& text);
  State unknown(const Problem& problem);
  std::string text() const;

  const DrainDirectory directory_;
  const LeaseHolder own_;
  bool inherits_;
  bool held_ = false;
  std::uint64_t inode_ = 0;  ///< of this process's lease
  std::uint64_t renewals_ = 0;
  LeaseHolder seen_;
  LeaseWatch watch_;
  std::string reason_;
};

}  // namespace stdchk
