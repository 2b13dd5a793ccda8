#include "benefactor/service/service.h"

#include <utility>

namespace stdchk::benefactor {

Service::Service(Reactor& reactor, Config config, Arena& arena, transport::Endpoint& control,
                 const std::vector<transport::Endpoint*>& data)
    : config_(std::move(config)),
      arena_(arena),
      log_(LogRoom{config_.log_bytes, config_.log_bytes_max, config_.log_may_grow}),
      clients_(reactor, config_, membership_, arena.bytes(), data),
      registration_(reactor, {.config = config_,
                              .membership = membership_,
                              .arena_bytes = arena.bytes().size(),
                              .control = control,
                              .log = log_,
                              .clients = clients_,
                              .requests = requests_}),
      requests_(reactor,
                {.config = config_, .arena = arena.bytes(), .clients = clients_, .log = log_}) {}

Status Service::start() {
  STDCHK_TRY(clients_.start());
  requests_.start();
  registration_.connect();
  return {};
}

}  // namespace stdchk::benefactor
