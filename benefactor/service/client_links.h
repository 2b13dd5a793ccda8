#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benefactor/copies/source.h"
#include "benefactor/service/client_fence.h"
#include "benefactor/service/config.h"
#include "benefactor/service/write_grants.h"
#include "core/runtime/reactor.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::benefactor {

/// A ClientLinks lets clients attach to the arena, and fences them. While clients write and read it
/// does nothing.
///
/// Owns: the registrations of the arena, the clients' links, the grants. The caller owns the arena
/// and the endpoints, which must outlive it.
/// Threads: the reactor's. Limits: kLinksMax links; more links are closed.
class ClientLinks final : public rpc::PeerHandler {
 public:
  static constexpr std::size_t kLinksMax = 32768;
  static constexpr std::size_t kFencedRememberedMax = 65536;

  ClientLinks(Reactor& reactor, const Config& config, const Membership& membership,
              MutableByteSpan arena, const std::vector<transport::Endpoint*>& endpoints);
  ~ClientLinks() override;
  ClientLinks(const ClientLinks&) = delete;
  ClientLinks& operator=(const ClientLinks&) = delete;

  /// Registers the arena and listens. Warns of an endpoint that fails, and continues without it.
  /// Returns an error when none is left.
  Status start();
  /// Returns the ways to other benefactors, with the arena registered. Only after start().
  SourceAccess access() const;
  std::vector<std::string> addresses() const;

  /// Fences a client, or also all older clients. Answers whether all links of these clients are
  /// fenced.
  rpc::Answer fence_client(const msg::FenceClient& request);
  /// Fences every client with a link, because the manager was restarted.
  void fence_all();
  /// Fences every client below `first`: such clients belong to an earlier epoch.
  void fence_below(ClientId first) { fence_.fence_below(first); }
  WriteGrants& grants() { return grants_; }

  std::size_t attached_count() const;
  bool is_attached(ClientId client) const;
  /// The number of links whose peer may still write although it was fenced or has gone.
  std::size_t unfenced_count() const { return unfenced_.size(); }
  /// The number of links by transport, including links that have not attached yet.
  std::map<std::string, std::size_t> count_by_transport() const;

  // rpc::PeerHandler
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
  /// A Listener accepts links of clients on one endpoint.
  struct Listener final : transport::AcceptHandler {
    Listener(ClientLinks& to, transport::Endpoint& through) : owner(to), endpoint(through) {}
    void on_accept(std::unique_ptr<transport::Link> link) override;
    ClientLinks& owner;
    transport::Endpoint& endpoint;
    std::unique_ptr<transport::MemoryRegion> region;
  };
  struct ClientLink {
    std::unique_ptr<rpc::Peer> peer;
    Listener* listener = nullptr;
    ClientId client;  ///< none: has not attached yet
    Time accepted{};
    std::shared_ptr<transport::WriteCheck> check;  ///< of its writes; null: it only reads
  };

  void accept(Listener& listener, std::unique_ptr<transport::Link> link);
  rpc::Answer attach(rpc::Peer& peer, const msg::Attach& request);
  std::vector<ClientLink>::iterator link_of(const rpc::Peer& peer);
  transport::RemoteKey share(ClientLink& link);
  Secret grant_key() const;
  void fence_links(const std::function<bool(const ClientLink&)>& meant);
  void fence_link(ClientLink link);
  void schedule_sweep();
  void sweep();

  Reactor& reactor_;
  const Config& config_;
  const Membership& membership_;
  const MutableByteSpan arena_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  WriteGrants grants_;
  std::vector<ClientLink> links_;  ///< in the order of their arrival
  std::vector<ClientLink> unfenced_;
  ClientFence fence_{kFencedRememberedMax};
  TimerId sweep_timer_;
};

}  // namespace stdchk::benefactor
