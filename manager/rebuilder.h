#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/messages/messages.h"
#include "core/reactor.h"
#include "manager/journal.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::manager {

/// Epochs of one line of managers are in one block of so many: a rebuilt manager begins the next
/// block, so that the one before it never has the same epoch, however often it is restarted.
inline constexpr std::uint64_t kEpochBlock = 256;

/// A Rebuilder writes the journal of a pool whose manager's disk is gone: it waits for the pool's
/// benefactors, takes the newest whole metadata log that one of them has, and makes it durable in
/// an empty journal. While one of them knows of a newer record, it waits for others as long as it
/// may. A Service that is started on that is a manager after a restart.
///
/// Threads: the reactor's.
/// Errors: in Done. kExists: the journal is not empty. kNotFound: nobody with a log came in time.
/// Not: the registration of anybody; all are told to come back, also clients.
class Rebuilder final : public transport::AcceptHandler {
 public:
  struct Found {
    std::string host_name;  ///< whose log it was
    Epoch epoch;            ///< of that log
    std::uint64_t records = 0;
    std::size_t benefactors = 0;  ///< that came
    /// Nobody knows of a record that was answered and is not in that log.
    bool complete = false;
  };
  using Done = std::function<void(Result<Found>)>;

  /// `done` is called once, never from within start().
  Rebuilder(Reactor& reactor, Journal& journal, const msg::Secret& secret, Done done);
  ~Rebuilder() override;
  Rebuilder(const Rebuilder&) = delete;
  Rebuilder& operator=(const Rebuilder&) = delete;

  Status start();
  void on_accept(std::unique_ptr<transport::Link> link) override;

 private:
  class Visitor;

  void arrived(Visitor& visitor);
  void left(Visitor& visitor);
  void gather();
  void give_up();
  void read_best();
  void read_more();
  void read(Visitor& visitor, const rpc::Answer& answer);
  Status write();
  void finish(Result<Found> found);

  Reactor& reactor_;
  Journal& journal_;
  const msg::Secret secret_;
  Done done_;
  std::map<Visitor*, std::unique_ptr<Visitor>> visitors_;
  Visitor* source_ = nullptr;  ///< whose log is read
  std::string log_;            ///< read so far
  Found found_;
  Epoch newest_epoch_;                      ///< that anybody has heard of
  std::pair<Epoch, std::uint64_t> newest_;  ///< record that anybody knows to have been answered
  bool gathering_ = false;
  bool waits_told_ = false;
  bool time_is_up_ = false;  ///< what has come must do
  TimerId gather_timer_;
  TimerId give_up_timer_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace stdchk::manager
