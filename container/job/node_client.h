#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "container/job/coordinator.h"
#include "transport/rpc.h"

namespace stdchk::container {

/// A Coordinator::Node is the link to one node's daemon.
class Coordinator::Node final : public rpc::PeerHandler {
 public:
  using Lost = std::function<void(const std::string& why)>;
  Node(Reactor& reactor, std::string address, transport::secure::Ticket ticket, Lost lost)
      : reactor_(reactor),
        address_(std::move(address)),
        ticket_(std::move(ticket)),
        lost_(std::move(lost)) {}

  Status connect(transport::Endpoint& endpoint, Duration deadline) {
    STDCHK_ASSIGN(peer_,
                  rpc::Peer::connect(reactor_, endpoint, address_, *this, deadline, &ticket_));
    return {};
  }
  void call(msg::Request request, Duration deadline, rpc::Peer::Callback done) {
    peer_->call(std::move(request), deadline, std::move(done));
  }

  void on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder respond) override {
    respond(tl::unexpected(rpc::Failure{
        {Code::kRefused, 0, "coordinator.request"}, "A coordinator answers nobody.", {}}));
  }
  void on_closed(rpc::Peer&, Error why) override { lost_(describe(why)); }

  bool asking = false;                   ///< a request for the state is under way
  bool excused = false;                  ///< if no answer comes to it, the node is not lost
  std::uint32_t network_of_restart = 0;  ///< the newest network that the node was given

 private:
  Reactor& reactor_;
  const std::string address_;
  const transport::secure::Ticket ticket_;
  const Lost lost_;
  std::unique_ptr<rpc::Peer> peer_;
};

}  // namespace stdchk::container
