#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/mem/link.h"

namespace stdchk::transport::mem {

/// A MemEndpoint is one endpoint of a mem fabric.
///
/// Owns: its port.
/// Threads: its reactor's.
class MemEndpoint final : public Endpoint {
 public:
  MemEndpoint(std::shared_ptr<FabricState> fabric, std::shared_ptr<Port> port, Clock& clock);
  ~MemEndpoint() override;
  MemEndpoint(const MemEndpoint&) = delete;
  MemEndpoint& operator=(const MemEndpoint&) = delete;

  const Capabilities& capabilities() const override;
  std::string address() const override;
  Status listen(AcceptHandler& handler) override;
  Result<std::unique_ptr<MemoryRegion>> register_memory(MutableByteSpan memory) override;
  void withhold_access() override;

  bool poll() override;
  int fd() const override { return port_->event_fd; }
  bool may_sleep() override;
  Duration sleep_max() const override;

  // For links.
  FabricState& fabric() { return *fabric_; }
  const Clock& clock() const { return clock_; }

 private:
  Result<std::unique_ptr<Link>> start_link(std::string_view address, LinkHandler& handler,
                                           Duration deadline,
                                           const secure::Ticket* ticket) override;
  std::unique_ptr<Link> make_link(std::shared_ptr<Wire> wire, std::size_t side, Time connect_by,
                                  LinkHandler* handler);
  bool accept_waiting();
  void forget_destroyed();

  const std::shared_ptr<FabricState> fabric_;
  const std::shared_ptr<Port> port_;
  Clock& clock_;
  AcceptHandler* accept_handler_ = nullptr;
  std::vector<std::shared_ptr<LinkCore>> links_;
};

}  // namespace stdchk::transport::mem
