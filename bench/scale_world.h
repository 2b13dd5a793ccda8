#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "manager/journal/journal.h"
#include "manager/service/service.h"
#include "transport/transport.h"

/// A manager with many simulated peers, in one thread, whose time is the manager's processor time.
namespace stdchk::bench {

/// A CountingJournal encodes commands as the real journal does, counts their bytes, and drops them.
/// They are durable kSync later. It wants snapshots as often as SqliteJournal.
class CountingJournal final : public manager::Journal {
 public:
  Status load(Reactor& reactor, const Apply& apply) override;
  void append(const manager::Command& command, Durable durable) override;
  bool wants_snapshot() const override;
  void write_snapshot(std::vector<manager::Command> commands) override;
  void stop() override { reactor_ = nullptr; }

  std::uint64_t records() const { return records_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t snapshots() const { return snapshots_; }
  /// Destroys snapshots. In the real journal another thread does it.
  void forget_snapshots() { taken_.clear(); }

 private:
  Reactor* reactor_ = nullptr;
  std::vector<std::byte> record_;
  std::vector<Durable> waiting_;
  std::vector<std::vector<manager::Command>> taken_;
  std::uint64_t records_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t snapshots_ = 0;
  std::uint64_t since_snapshot_ = 0;
  std::uint64_t snapshot_records_ = 0;
};

/// An Actor is a peer of the manager: it sends messages, and gets the manager's.
class Actor {
 public:
  virtual ~Actor() = default;
  /// Sends what is due. `what` comes from ScaleWorld::schedule().
  virtual void act(std::uint32_t what) = 0;
  virtual void got(msg::Envelope message) = 0;
};

/// A ScaleWorld has a manager and its peers. The peers' messages go to the manager's links without
/// sockets. The manager handles what has arrived, as a reactor's turn does, and the clock advances
/// by the processor time that this has taken. So answers wait as behind a real manager that has a
/// processor for itself. The peers take no time.
///
/// Owns: the manager; not the peers. Threads: one.
class ScaleWorld {
 public:
  /// A message takes this long to its receiver.
  static constexpr Duration kNetwork = std::chrono::microseconds(50);

  explicit ScaleWorld(manager::Config config);
  ~ScaleWorld();
  ScaleWorld(const ScaleWorld&) = delete;
  ScaleWorld& operator=(const ScaleWorld&) = delete;

  /// Connects a peer, and returns its number.
  std::uint32_t add(Actor& actor);
  void schedule(Time at, std::uint32_t actor, std::uint32_t what);
  /// Sends from within act().
  void send(std::uint32_t actor, const msg::Envelope& message);
  /// Sends kNetwork later, from anywhere.
  void send_later(std::uint32_t actor, const msg::Envelope& message);
  /// Runs until `end`, or until the manager is kOverload behind.
  void run_until(Time end);

  Time now() const { return clock_.now(); }
  /// Returns when the message that is sent now has arrived.
  Time arrived() const { return arrived_; }
  bool overloaded() const { return overloaded_; }
  manager::Service& manager() { return *service_; }
  const CountingJournal& journal() const { return journal_; }
  double busy_seconds() const { return busy_seconds_; }
  /// Returns the processor seconds of the longest turn since the last call.
  double take_longest_turn() { return std::exchange(longest_turn_, 0.0); }

 private:
  class Link;
  struct Event {
    Time at{};
    std::uint64_t number = 0;
    std::uint32_t actor = 0;
    std::uint32_t what = 0;
    bool operator>(const Event& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };
  struct Message {
    std::uint32_t actor = 0;
    std::vector<std::byte> bytes;
  };
  struct Late {
    Time at{};
    Message message;
  };

  void turn();
  void collect();

  ManualClock clock_;
  Reactor reactor_{clock_};
  CountingJournal journal_;
  std::unique_ptr<manager::Service> service_;
  std::vector<Actor*> actors_;
  std::vector<Link*> links_;  ///< the manager owns them
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::deque<Late> late_;
  std::vector<Message> inbox_;
  std::vector<Message> outbox_;
  std::uint64_t events_made_ = 0;
  Time arrived_{};
  bool overloaded_ = false;
  bool stopping_ = false;
  double clock_cost_ = 0;  ///< processor seconds of reading the processor's time
  double busy_seconds_ = 0;
  double longest_turn_ = 0;
};

}  // namespace stdchk::bench
