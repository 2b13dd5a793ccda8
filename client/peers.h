#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/memory.h"
#include "core/messages/messages.h"
#include "core/reactor.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::client {

/// A Transfer is one one-sided write to or read from a benefactor's arena, embedded in its owner.
///
/// Its pieces lie in one Memory. finished() is called once for each submit(), on the reactor's
/// thread, never from within submit().
class Transfer : public transport::Operation {
 public:
  bool is_write = false;
  Extent at;               ///< pieces go to, or come from, here and on
  std::uint32_t skip = 0;  ///< added to at.offset (the header, when only content is read)
  const Memory* memory = nullptr;
  std::array<MutableByteSpan, transport::kPiecesMax> pieces;

 protected:
  virtual void finished(Status status) = 0;

 private:
  friend class BenefactorLink;
  friend class Peers;
  void complete(Status status) final;
  class BenefactorLink* link_ = nullptr;
};

/// A BenefactorLink is the way to one benefactor: opened when first needed, attached, then ready.
///
/// | state      | leaves when                                                    |
/// |------------|----------------------------------------------------------------|
/// | idle       | a transfer is submitted -> connecting                          |
/// | connecting | attached -> ready; every address failed -> parked              |
/// | ready      | the link is lost -> parked                                     |
/// | parked     | its time is over and a transfer is submitted -> connecting     |
/// Writes to a parked benefactor fail at once; reads try it again.
class BenefactorLink final : public rpc::PeerHandler {
 public:
  BenefactorLink(class Peers& peers, msg::BenefactorInfo info);
  ~BenefactorLink() override;

  void update(msg::BenefactorInfo info);
  const msg::BenefactorInfo& info() const { return info_; }
  void submit(Transfer& transfer);
  bool ready() const { return state_ == State::kReady; }
  /// A transfer on this link has ended: there may be room for the next one.
  void start_waiting();

  // rpc::PeerHandler
  void on_connected(rpc::Peer& peer) override;
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
  enum class State { kIdle, kConnecting, kReady, kParked };
  void connect_next();
  void try_next_address();
  void on_attached(rpc::Answer answer);
  void park(Error why);
  void fail_waiting(Error why);
  Status start(Transfer& transfer);

  class Peers& peers_;
  msg::BenefactorInfo info_;
  State state_ = State::kIdle;
  std::unique_ptr<rpc::Peer> peer_;
  transport::Endpoint* endpoint_ = nullptr;
  transport::RemoteKey key_;
  std::size_t next_address_ = 0;
  Error why_;  ///< the last address that was tried failed
  std::deque<Transfer*> waiting_;
  Time parked_until_{};
  Duration back_off_{};
  TimerId retry_;
  bool told_fallback_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< for calls that come later
};

/// Peers are the links to all benefactors of the pool.
///
/// Owns: the links. Threads: the reactor's.
class Peers {
 public:
  struct Config {
    msg::Secret secret;
    std::string host_token;
  };
  Peers(Reactor& reactor, std::vector<transport::Endpoint*> endpoints, Config config);
  ~Peers();

  /// Another number than before: the links go, because the benefactors know them, and fence them,
  /// under the old one.
  void set_client(ClientId client) {
    if (client_ && client_ != client) close();
    client_ = client;
  }
  /// Takes the manager's list: new ones are known from now on, lost ones are forgotten.
  void update(const std::vector<msg::BenefactorInfo>& benefactors);
  /// Starts a transfer; its end is told by Transfer::finished, soon.
  void submit(Transfer& transfer);
  /// Closes all links; every transfer ends with kCancelled or what the link says.
  void close();
  bool knows(BenefactorId benefactor) const { return links_.contains(benefactor); }

 private:
  friend class BenefactorLink;
  void fail_later(Transfer& transfer, Error why);

  Reactor& reactor_;
  std::vector<transport::Endpoint*> endpoints_;
  Config config_;
  ClientId client_;
  std::map<BenefactorId, std::unique_ptr<BenefactorLink>> links_;
};

}  // namespace stdchk::client
