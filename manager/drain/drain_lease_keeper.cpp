#include "manager/drain/drain_lease_keeper.h"

#include <fmt/core.h>

#include <utility>

#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/objects/object_lease.h"
#include "core/objects/object_place.h"
#include "core/objects/s3_store.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;

/// Storage that does not answer for this time does not delay the start or the end of a manager.
constexpr auto kStoragePatience = 2s;

std::string in_use(const LeaseSteps& lease) {
  const LeaseHolder& holder = lease.holder();
  const std::string& directory = lease.place();
  const auto free_after = std::chrono::duration_cast<std::chrono::seconds>(DrainLease::kStaleAfter);
  if (holder.manager.empty()) {
    return fmt::format(
        "{}/{} is no lease of a pool; remove that file if no other pool drains there", directory,
        kLeaseName);
  }
  return fmt::format(
      "the drain directory {} is in use by another pool, whose manager runs on host {}; end that "
      "pool, or give this one another directory. The lease of a lost pool ends {} s after it",
      directory, holder.host, free_after.count());
}

}  // namespace

struct DrainLeaseKeeper::Shared {
  explicit Shared(std::unique_ptr<LeaseSteps> steps) : lease(std::move(steps)) {}

  const std::unique_ptr<LeaseSteps> lease;  ///< of the thread alone
  mutable Mutex mutex;
  mutable CondVar changed;
  bool stop STDCHK_GUARDED_BY(mutex) = false;
  bool ended STDCHK_GUARDED_BY(mutex) = false;
  bool looked STDCHK_GUARDED_BY(mutex) = false;
  std::optional<std::string> in_use STDCHK_GUARDED_BY(mutex);  ///< what wait() returns
};

std::unique_ptr<LeaseSteps> make_lease(const std::string& drain, LeaseHolder own, bool inherits) {
  if (!is_object_store(drain)) {
    return std::make_unique<DrainLease>(drain, std::move(own), inherits);
  }
  static const SystemClock clock;
  const auto place = ObjectPlace::parse(drain);
  const auto open = [place]() -> Outcome<std::unique_ptr<ObjectStore>> {
    if (!place) return problem(place.error());
    return open_object_store(*place, clock);
  };
  return std::make_unique<ObjectLease>(open, place ? place->name() : drain,
                                       place ? place->key_of(kLeaseName) : kLeaseName,
                                       std::move(own), inherits, clock);
}

DrainLeaseKeeper::DrainLeaseKeeper(std::unique_ptr<LeaseSteps> lease)
    : shared_(std::make_shared<Shared>(std::move(lease))),
      thread_(start_without_signals([shared = shared_] { run(*shared); })) {}

DrainLeaseKeeper::~DrainLeaseKeeper() {
  bool ended = false;
  {
    MutexLock lock(shared_->mutex);
    shared_->stop = true;
    shared_->changed.notify_all();
    ended = shared_->changed.wait_for(
        lock, 1s, [this]() STDCHK_REQUIRES(shared_->mutex) { return shared_->ended; });
  }
  ended ? thread_.join() : thread_.detach();
}

bool DrainLeaseKeeper::may_drain() const {
  const MutexLock lock(shared_->mutex);
  return !shared_->in_use;
}

std::optional<std::string> DrainLeaseKeeper::wait(Duration patience) const {
  MutexLock lock(shared_->mutex);
  shared_->changed.wait_for(lock, kStoragePatience,
                            [this]() STDCHK_REQUIRES(shared_->mutex) { return shared_->looked; });
  shared_->changed.wait_for(lock, patience,
                            [this]() STDCHK_REQUIRES(shared_->mutex) { return !shared_->in_use; });
  return shared_->in_use;
}

void DrainLeaseKeeper::run(Shared& shared) {
  LeaseSteps& lease = *shared.lease;
  const SystemClock clock;
  bool was_unknown = false;
  for (;;) {
    const auto state = lease.step(clock.now());
    const bool others = state == LeaseSteps::State::kOthers;
    const bool is_unknown = state == LeaseSteps::State::kUnknown;
    if (is_unknown && !was_unknown) {
      log::warning("nothing keeps other pools from draining to {}: {}", lease.place(),
                   lease.reason());
    }
    was_unknown = is_unknown;
    MutexLock lock(shared.mutex);
    if (others != shared.in_use.has_value()) {
      if (others) log::error("drains nothing: {}", in_use(lease));
      if (!others) log::info("drains to {} again", lease.place());
      shared.in_use = others ? std::optional(in_use(lease)) : std::nullopt;
    }
    shared.looked = true;
    shared.changed.notify_all();
    // Another pool's lease is looked at often, so that its end is seen soon.
    const Duration pause = others ? Duration(500ms) : DrainLease::kRenewEvery;
    shared.changed.wait_for(lock, pause,
                            [&]() STDCHK_REQUIRES(shared.mutex) { return shared.stop; });
    if (shared.stop) break;
  }
  lease.release();
  const MutexLock lock(shared.mutex);
  shared.ended = true;
  shared.changed.notify_all();
}

}  // namespace stdchk::manager
