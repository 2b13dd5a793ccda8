#pragma once

#include "core/clock.h"
#include "core/messages/messages.h"
#include "manager/journal.h"
#include "manager/service.h"
#include "metrics/exposition.h"

namespace stdchk::manager {

/// A ServiceMetrics tells what a manager knows of its pool and of itself.
///
/// What needs a walk over what is to be drained, copied and protected is at most so often walked
/// for that it takes a hundredth of the reactor's time; until then the last walk's figures are
/// told.
///
/// Owns: the last figures; not the service and the journal. Threads: the reactor's.
class ServiceMetrics {
 public:
  ServiceMetrics(Service& service, const Journal& journal) : service_(service), journal_(journal) {}

  void collect(metrics::Exposition& to);

 private:
  const msg::StatPool::Reply& statistics();

  Service& service_;
  const Journal& journal_;
  msg::StatPool::Reply last_;
  Time next_walk_{};
};

}  // namespace stdchk::manager
