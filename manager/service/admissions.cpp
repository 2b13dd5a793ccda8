#include "manager/service/admissions.h"

#include <fmt/core.h>

#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
/// The time that a client needs to find a new manager by itself. Its heartbeat finds the old
/// manager gone, and it tries again within a second.
constexpr Duration kResumeGrace = 3s;
/// Longer than the back-off of a benefactor that reconnects.
constexpr Duration kBenefactorsGrace = 2s;
/// The wait for benefactors plus the time for a snapshot. It must end before clients give up
/// (kConnectDeadline).
constexpr Duration kLogStoresGrace = kBenefactorsGrace + 500ms;
static_assert(kLogStoresGrace < limits::kConnectDeadline);

}  // namespace

void Admissions::start(bool compares) {
  const auto& known = pool_.state().benefactors();
  if (known.empty()) return;
  sessions_.let_resume(pool_.now() + kResumeGrace);
  log_stores_until_ = pool_.now() + kLogStoresGrace;
  if (!compares) return;
  for (const auto& [id, record] : known) awaited_.insert(id);
  benefactors_until_ = pool_.now() + kBenefactorsGrace;
}

void Admissions::epoch_is_durable() {
  epoch_durable_ = true;
  const auto waiting = std::exchange(at_epoch_, {});
  for (const auto& retry : waiting) retry();
}

void Admissions::run() {
  if (awaits_benefactors() && pool_.now() >= benefactors_until_) end_benefactors_wait();
}

void Admissions::discount(Duration pause, Time before) {
  for (Time* const until : {&log_stores_until_, &benefactors_until_}) {
    if (*until > before) *until += pause;
  }
  if (sessions_.resume_until() > before) sessions_.let_resume(sessions_.resume_until() + pause);
}

bool Admissions::wait_for_epoch(std::function<void()> retry) {
  if (epoch_durable_) return false;
  at_epoch_.push_back(std::move(retry));
  return true;
}

bool Admissions::wait_for_log_stores(std::function<void()> retry) {
  if (!waits_for_log_stores()) return false;
  at_log_stores_.push_back(std::move(retry));
  return true;
}

bool Admissions::wait_for_benefactors(BenefactorId known, std::function<void()> retry) {
  if (!awaits_benefactors()) return false;
  awaited_.erase(known);
  at_benefactors_.push_back(std::move(retry));
  if (awaited_.empty()) end_benefactors_wait();
  return true;
}

bool Admissions::waits_for_log_stores() const {
  return pool_.now() < log_stores_until_ && logs_.count() == 0 && logs_.is_gaining_replicas();
}

void Admissions::admit_waiting_clients() {
  if (at_log_stores_.empty() || waits_for_log_stores()) return;
  // From now on these clients may report what they have stored.
  if (sessions_.resuming()) sessions_.let_resume(pool_.now() + kResumeGrace);
  const auto waiting = std::exchange(at_log_stores_, {});
  for (const auto& retry : waiting) retry();
}

void Admissions::end_benefactors_wait() {
  benefactors_until_ = {};
  awaited_.clear();
  const auto waiting = std::exchange(at_benefactors_, {});
  for (const auto& retry : waiting) retry();
}

bool Admissions::is_outdated(const Known& known, const Call& call) {
  if (!outdated_.empty()) {
    call.fail(Code::kBusy, "manager.epoch", outdated_);
    return true;
  }
  const Epoch own = pool_.state().epoch();
  const bool superseded = known.epoch > own && !same_block(known.epoch, own);
  const std::string lost = superseded ? std::string() : damage(known);
  if (!superseded && lost.empty()) return false;
  outdated_ = superseded ? "Another manager has taken the pool over."
                         : "The journal of the manager is damaged.";
  call.fail(Code::kBusy, "manager.epoch", outdated_);
  if (!pool_.journal().close()) return true;
  const Config& config = pool_.config();
  if (superseded && config.on_superseded) config.on_superseded(known.epoch);
  if (!superseded && config.on_damaged) config.on_damaged(lost);
  return true;
}

/// Describes what the journal lacks although it was answered to the peer; empty: nothing. A manager
/// tells peers of its epoch only after the journal has it.
std::string Admissions::damage(const Known& known) const {
  const Epoch own = pool_.state().epoch();
  if (known.epoch > own || (known.epoch == own && !known.met)) {
    return fmt::format("its end is missing; epoch {} had begun, and it had no record of that",
                       known.epoch.value);
  }
  if (!pool_.state().lacks(known.epoch, known.sequence)) return {};
  return fmt::format("its end is missing; record {} of epoch {} was answered", known.sequence,
                     known.epoch.value);
}

void Admissions::follow(const msg::FollowManager& request, const Call& call) {
  // The standby knows the epoch from this manager, or from an earlier manager with this journal.
  const bool met = request.newest_epoch < pool_.state().epoch() || standby_heard_;
  if (is_outdated({request.newest_epoch, 0, met}, call)) return;
  // A manager that cannot change anything is not followed: the standby takes over.
  if (pool_.journal().failed()) return call.fail(Code::kReadOnly, "follow");
  if (request.address.empty()) return call.fail(Code::kInvalidArgument, "follow");
  const Config& config = pool_.config();
  if (!config.standby.empty() && config.standby != request.address) {
    return call.fail(Code::kExists, "follow", "Its standby is at " + config.standby + ".");
  }
  if (config.standby.empty()) {
    if (config.remember_standby && !config.remember_standby(request.address)) {
      return call.fail(Code::kReadOnly, "follow");
    }
    pool_.set_standby(request.address);
    log::info("a standby at {} follows this manager", request.address);
  }
  standby_heard_ = pool_.now();
  call.answer(logs_.follow(request));
}

bool Admissions::has_live_standby() const {
  return standby_heard_ && pool_.now() - *standby_heard_ <= limits::kLease;
}

}  // namespace stdchk::manager
