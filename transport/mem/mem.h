#pragma once

#include <memory>
#include <string>

#include "core/base/clock.h"
#include "transport/transport.h"

/// A transport within one process, complete, for tests and simulation.
namespace stdchk::transport::mem {

struct FabricState;

/// A Fabric is a network in memory. Endpoints of one Fabric reach each other as "mem:NAME".
///
/// Threads: make_endpoint() on any thread. Each endpoint belongs to the thread of its reactor. A
///   lock guards everything that endpoints share.
/// Not: a model of time. An operation runs at the next poll() of its initiator; transport/fault
///   adds delays and failures.
class Fabric {
 public:
  Fabric();
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  /// Makes an endpoint. Its name can be used again when the endpoint is gone.
  std::unique_ptr<Endpoint> make_endpoint(std::string name, Clock& clock);

 private:
  std::shared_ptr<FabricState> state_;
};

}  // namespace stdchk::transport::mem
