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
#include "manager/command.h"
#include "manager/journal.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::manager {

/// A Rebuilder writes the journal of a pool whose manager's disk is gone: it waits for the pool's
/// benefactors, takes the newest whole metadata log that one of them has, and makes it durable in
/// an empty journal. A log that is damaged is passed over. While one of them knows of a newer
/// record, it waits for others as long as it may. A Service that is started on that is a manager
/// after a restart.
///
/// A standby's has somebody to take over from, who may be alive. It sends all away until admit();
/// then it asks the keepers that have come to promise that they keep nothing for that manager any
/// more, and reads when more than half of all have promised: what was answered is in the newest of
/// their logs, and nothing can be answered any more.
///
/// Threads: the reactor's.
/// Errors: in Done. kExists: the journal is not empty. kNotFound: nobody with a log came in time.
///   kCorrupt: all logs that came are damaged, or so is the journal that should be empty.
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

  /// By whom a standby decides: benefactors that kept the log of the manager of that epoch.
  struct Quorum {
    Epoch epoch;
    std::vector<BenefactorId> keepers;
  };
  /// Instead of start(): nobody is admitted, and time is not limited.
  Status start_as_standby();
  /// The manager is silent. To be said again as long as it is.
  void admit(Quorum quorum);
  /// The manager was heard: sends all away again. False: it is too late, and what that manager says
  /// by whom to decide must not be taken any more.
  bool dismiss();

  void on_accept(std::unique_ptr<transport::Link> link) override;

 private:
  class Visitor;

  Status load();
  bool is_keeper(const Visitor& visitor) const;
  bool is_majority(std::size_t count) const { return 2 * count > quorum_->keepers.size(); }
  std::size_t promised() const;
  bool have_what_was_answered() const;
  void seek_promises();
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
  std::uint64_t accepted_ = 0;                                  ///< visitors, ever
  std::map<std::uint64_t, std::unique_ptr<Visitor>> visitors_;  ///< by number
  Visitor* source_ = nullptr;                                   ///< whose log is read
  std::string log_;                                             ///< read so far
  Found found_;
  Epoch newest_epoch_;                      ///< that anybody has heard of
  std::pair<Epoch, std::uint64_t> newest_;  ///< record that may have been answered
  bool found_damage_ = false;
  bool gathering_ = false;
  bool waits_told_ = false;
  bool time_is_up_ = false;  ///< what has come must do
  bool standby_ = false;
  std::optional<Quorum> quorum_;  ///< of a standby that admits
  Epoch promise_;                 ///< that keepers are asked for; none: not yet
  Time asked_{};                  ///< when that was
  TimerId gather_timer_;
  TimerId give_up_timer_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();
};

}  // namespace stdchk::manager
