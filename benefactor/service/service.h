#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "benefactor/memory/arena.h"
#include "benefactor/memory/metadata_log.h"
#include "benefactor/service/client_links.h"
#include "benefactor/service/config.h"
#include "benefactor/service/manager_requests.h"
#include "benefactor/service/registration.h"

namespace stdchk::benefactor {

/// A Service lends an arena. Its parts register with the manager (Registration), let clients attach
/// and fence them (ClientLinks), and carry out the manager's requests (ManagerRequests).
///
/// Owns: its parts. The caller owns the arena and the endpoints, which must outlive the service,
/// and adds the endpoints to the reactor. Threads: the reactor's, and the workers of Jobs.
class Service {
 public:
  Service(Reactor& reactor, Config config, Arena& arena, transport::Endpoint& control,
          const std::vector<transport::Endpoint*>& data);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Registers the arena, listens, and begins to register with the manager. Warns of an endpoint
  /// that fails, and continues without it. Returns an error when none is left.
  Status start();
  /// As Registration::leave().
  void leave(std::function<void(bool done)> may_go) { registration_.leave(std::move(may_go)); }

  bool registered() const { return membership_.registered; }
  BenefactorId id() const { return membership_.id; }
  Epoch epoch() const { return membership_.epoch; }
  std::uint64_t newest_sequence() const { return registration_.newest_sequence(); }
  std::vector<std::string> addresses() const { return clients_.addresses(); }
  std::size_t attached_count() const { return clients_.attached_count(); }
  bool is_attached(ClientId client) const { return clients_.is_attached(client); }
  std::size_t unfenced_count() const { return clients_.unfenced_count(); }
  std::map<std::string, std::size_t> links_by_transport() const {
    return clients_.count_by_transport();
  }
  std::size_t job_count() const { return requests_.job_count(); }
  const JobCounts& job_counts() const { return requests_.counts(); }
  const MetadataLog& metadata_log() const { return log_; }
  std::uint64_t arena_bytes() const { return arena_.bytes().size(); }

 private:
  const Config config_;
  Arena& arena_;
  Membership membership_;
  MetadataLog log_;
  ClientLinks clients_;
  Registration registration_;  ///< before the jobs, whose answers its link carries to the end
  ManagerRequests requests_;
};

}  // namespace stdchk::benefactor
