#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "client/api/figures.h"
#include "client/net/memory.h"
#include "client/net/rail.h"
#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "transport/transport.h"

namespace stdchk::client {

/// A Transfer is one one-sided write to or read from a benefactor's arena, embedded in its owner.
///
/// Its pieces lie in one Memory. finished() is called once for each submit(), on the reactor's
/// thread, never from within submit().
class Transfer : public transport::Operation {
 public:
  bool is_write = false;
  Extent at;               ///< the place of the bytes in the arena
  std::uint32_t skip = 0;  ///< added to at.offset (the header, when only content is read)
  const Memory* memory = nullptr;
  Grant grant;  ///< of a write: the grant that `at` is part of
  std::array<MutableByteSpan, transport::kPiecesMax> pieces;
  /// Waits for a benefactor that a restarted manager expects back. Otherwise the transfer fails at
  /// once.
  bool patient = false;
  /// Set with a failure: the benefactor has another rail that may work, so it need not be avoided.
  bool has_other_rail = false;
  /// Set when it starts: this thread moves the bytes, and this processor's caches have them then.
  bool moved_here = false;
  /// Set when it starts: the benefactor's arena, if any thread can read it directly.
  transport::DirectMemoryPtr direct_memory;

 protected:
  virtual void finished(Status status) = 0;

 private:
  friend class BenefactorLink;
  friend class Peers;
  void complete(Status status) final;
  class BenefactorLink* link_ = nullptr;
  Rail* rail_ = nullptr;
};

/// A BenefactorLink is all ways to one benefactor. Each address that an endpoint of this process
/// reaches is a Rail. Shared memory comes first, then the benefactor's own order.
///
/// Rails of one transport are used together. A transfer goes to the rail that will have finished it
/// first, by the rail's measured rate and its bytes in flight. Rails of the next transport are
/// opened only when all better rails are parked. Parked rails are tried again while other rails
/// carry the bytes. When all rails are parked, writes fail at once and reads try again.
///
/// A benefactor without addresses is expected back: the manager was restarted. The manager takes
/// the benefactor as gone when it does not register within two leases.
///
/// Errors: a transfer under way on a lost rail fails, because its bytes may still land. A waiting
///   transfer goes to another rail.
class BenefactorLink final : public RailOwner {
 public:
  BenefactorLink(class Peers& peers, msg::BenefactorInfo info);
  ~BenefactorLink() override;

  void update(msg::BenefactorInfo info);
  const msg::BenefactorInfo& info() const { return info_; }
  const std::vector<std::unique_ptr<Rail>>& rails() const { return rails_; }
  void submit(Transfer& transfer);

  // RailOwner
  void on_ready(Rail& rail) override;
  void on_parked(Rail& rail) override;

 private:
  friend class Transfer;
  void add_rails();
  bool open_rails(bool parked_too);
  Rail* best_rail(std::size_t bytes);
  Status start(Transfer& transfer, Rail& rail);
  void ended(Transfer& transfer, Rail& rail, bool good);
  void start_waiting();
  void fail_waiting(Error why);
  Error unreachable_error() const;

  class Peers& peers_;
  msg::BenefactorInfo info_;
  std::vector<std::unique_ptr<Rail>> rails_;  ///< the best first
  std::deque<Transfer*> waiting_;
  TimerId retry_;
  bool closing_ = false;
};

/// Peers are the links to all benefactors of the pool.
///
/// Owns: the links. Threads: the reactor's.
class Peers {
 public:
  struct Config {
    std::string host_token;
  };
  Peers(Reactor& reactor, std::vector<transport::Endpoint*> endpoints, Config config);
  ~Peers();

  /// Sets the client's number. A new number closes the links, because benefactors know the links,
  /// and fence them, under the old number.
  void set_client(ClientId client) {
    if (client_ && client_ != client) close();
    client_ = client;
  }
  /// Uses only these endpoints. To be called before the first update().
  void use(std::vector<transport::Endpoint*> endpoints) { endpoints_ = std::move(endpoints); }
  /// Takes the manager's list: adds new benefactors and forgets lost ones.
  void update(const std::vector<msg::BenefactorInfo>& benefactors);
  /// Starts a transfer. Transfer::finished reports its end.
  void submit(Transfer& transfer);
  /// Closes all links. Every transfer ends with kCancelled, or with an error of its link.
  void close();
  bool knows(BenefactorId benefactor) const { return links_.contains(benefactor); }
  /// Returns the rails of a benefactor, the best first; nullptr when it is not known.
  const std::vector<std::unique_ptr<Rail>>* rails(BenefactorId benefactor) const;
  /// Returns, by transport, the bytes moved since the start and the present rails.
  std::map<std::string, TransportFigures> figures() const;

 private:
  friend class BenefactorLink;
  void fail_later(Transfer& transfer, Error why);
  void fail_now();
  void count(const Transfer& transfer, const Rail& rail, bool good);

  Reactor& reactor_;
  std::vector<transport::Endpoint*> endpoints_;
  Config config_;
  ClientId client_;
  std::map<BenefactorId, std::unique_ptr<BenefactorLink>> links_;
  std::set<std::string, std::less<>> logged_;  ///< transports whose failure was logged
  std::map<std::string, TransportFigures, std::less<>> moved_;  ///< without the rails
  std::vector<std::pair<Transfer*, Error>> failing_;
  TimerId failing_timer_;
};

}  // namespace stdchk::client
