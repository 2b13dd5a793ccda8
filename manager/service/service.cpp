#include "manager/service/service.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {

using namespace std::chrono_literals;

Service::Service(Reactor& reactor, Journal& journal, Config config)
    : pool_(reactor, journal, std::move(config), [this] { services_.writing.placement.retry(); }),
      notices_(pool_, clients_, [this](FileId folder) { planners_.sets.folder_changed(folder); }),
      fences_(pool_, sessions_,
              [this] {
                services_.writing.placement.retry();
                planners_.extent_checks.run();
              }),
      planners_(pool_, sessions_, notices_, fences_,
                {.on_name_given = [this] { services_.files.reads.retry(); },
                 .on_replica = [this] { admissions_.admit_waiting_clients(); }}),
      admissions_(pool_, sessions_, planners_.logs),
      connections_(pool_, {.on_request =
                               [this](Connection& connection, msg::RequestEnvelope request,
                                      Time deadline, rpc::Responder respond) {
                                 services_.router.serve(connection, std::move(request), deadline,
                                                        std::move(respond));
                               },
                           .on_closed =
                               [this](Connection& connection) {
                                 services_.members.clients.closed(connection);
                                 services_.members.benefactors.closed(connection);
                               }}),
      services_(pool_, {.clients = clients_,
                        .sessions = sessions_,
                        .notices = notices_,
                        .fences = fences_,
                        .planners = planners_,
                        .admissions = admissions_,
                        .connections = connections_}) {}

Service::~Service() { stop(); }

void Service::stop() {
  if (!pool_.end_callbacks()) return;
  pool_.reactor().cancel(ticker_);
  connections_.close();
  pool_.journal().stop();
}

Status Service::start() {
  STDCHK_TRY(pool_.load());
  const State& state = pool_.state();
  const Epoch next{state.epoch().value + 1};
  // A rebuilt journal is not compared with what peers know of the lost one.
  admissions_.start(same_block(next, state.epoch()));
  // The epoch comes last. If a crash interrupts the take-over of the drain directory, the next
  // start repeats it with the same numbers.
  STDCHK_TRY(planners_.drain.start(state.epoch().value == 0));
  pool_.execute(BeginEpoch{next}, [this](const Result<Affected>& outcome) {
    if (outcome) admissions_.epoch_is_durable();
  });
  services_.writing.leases.start();
  ticked_ = pool_.now();
  ticker_ = pool_.reactor().schedule_after(kTick, [this] { tick(); });
  log::info("epoch {} with {} files and {} chunks", state.epoch().value, state.files().size() - 1,
            state.chunks().chunk_count());
  return {};
}

void Service::tick() {
  discount_own_pause();
  admissions_.run();
  services_.members.clients.check_leases();
  services_.members.benefactors.check_leases();
  fences_.run();
  end_resuming();
  planners_.extent_checks.run();
  notices_.forget_old_watches();
  planners_.run();
  admissions_.admit_waiting_clients();
  services_.writing.replaced.expire();
  services_.writing.placement.retry();
  services_.writing.commits.retry();
  services_.writing.leases.tick();
  services_.files.reads.retry();
  services_.files.locks.tick();
  services_.writing.totals.sample();
  pool_.journal().run();
  ticker_ = pool_.reactor().schedule_after(kTick, [this] { tick(); });
}

/// While this process was stopped or starved, it could receive nothing. That time counts neither as
/// silence of peers nor as part of the grace periods.
void Service::discount_own_pause() {
  const Time before = std::exchange(ticked_, pool_.now());
  const Duration pause = pool_.now() - before - kTick;
  if (pause < limits::kHeartbeatInterval) return;
  log::warning("this manager did not run for {} ms", pause / 1ms);
  services_.members.clients.discount(pause);
  services_.writing.leases.discount(pause);
  services_.members.benefactors.discount(pause);
  admissions_.discount(pause, before);
}

/// Space that no client of earlier epochs has claimed in time is free from now on.
void Service::end_resuming() {
  if (!sessions_.resuming() || pool_.now() < sessions_.resume_until()) return;
  sessions_.end_resuming();
  for (const BenefactorId benefactor : fences_.fenced()) pool_.space().set_usable(benefactor);
}

}  // namespace stdchk::manager
