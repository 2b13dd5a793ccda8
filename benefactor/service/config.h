#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "benefactor/drain/drainer.h"
#include "core/base/clock.h"
#include "core/base/executor.h"
#include "core/messages/messages.h"
#include "transport/secure/keyring.h"

namespace stdchk::benefactor {

/// Identifies one life of an arena. `high` is random, and `low` belongs to the member: it is
/// Keyring::mark of `high`.
struct Life {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
};

/// Makes a Drainer for a drain directory. `rate` is in bytes per second; 0:
/// unlimited. Must not block.
using DrainerFactory =
    std::function<std::unique_ptr<Drainer>(const std::string& directory, std::uint64_t rate)>;

struct Config {
  std::string manager_address;  ///< several, separated by commas, are tried in turn
  /// The member that the endpoints of this benefactor prove.
  std::shared_ptr<transport::secure::Keyring> keyring;
  /// The service trusts links without a proof of membership. Only for programs that hold all ends.
  bool trusts_unproven_links = false;
  Life life;
  std::string host_token;
  std::string host_name;
  std::int64_t pid = 0;
  std::uint64_t log_bytes = 0;      ///< for the metadata log, taken at once; 0: none
  std::uint64_t log_bytes_max = 0;  ///< limit of its growth; both 0: no metadata log
  std::function<bool(std::uint64_t more_bytes)> log_may_grow;  ///< as in LogRoom
  /// Runs drain jobs and moves. Must have run all of them before the service ends. nullptr: the
  /// service starts threads of its own.
  Executor* executor = nullptr;
  /// nullptr: drains into files of the directory (benefactor/drain/file_drainer.h).
  DrainerFactory make_drainer;
  /// Called instead of sleeping when a job waits for its rate; null: sleeps.
  std::function<void(Duration)> pause;
  /// Called after each registration with a manager.
  std::function<void(const msg::RegisterBenefactor::Reply&)> on_registered;
  /// Called when the manager refused this benefactor for good. The argument is
  /// a sentence that says why.
  std::function<void(const std::string&)> on_refused;
};

/// A Membership is this benefactor's present place in its pool. The Registration writes it.
struct Membership {
  BenefactorId id;  ///< none: no manager has registered the benefactor yet
  Epoch epoch;      ///< the highest epoch of a manager that was seen
  bool registered = false;
};

}  // namespace stdchk::benefactor
