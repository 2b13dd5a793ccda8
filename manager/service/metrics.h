#pragma once

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/journal/journal.h"
#include "manager/service/service.h"
#include "metrics/exposition.h"

namespace stdchk::manager {

/// A ServiceMetrics exposes what a manager knows of its pool and of itself.
///
/// Some figures need a walk over all files and chunks. ServiceMetrics repeats this walk only so
/// often that it takes at most a hundredth of the reactor's time. Meanwhile it shows the last
/// walk's figures.
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
