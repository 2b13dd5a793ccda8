#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/lifetime.h"
#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "manager/journal/command.h"
#include "manager/journal/journal.h"
#include "manager/pool/membership.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::manager {

/// A Rebuilder writes the journal of a pool whose manager has lost its disk. It waits for the
/// pool's benefactors, takes the newest intact metadata log among them, and makes it durable in an
/// empty journal. It passes over damaged logs. While a benefactor knows a newer record than all
/// logs have, the Rebuilder waits for more benefactors, up to its time limit. A Service started on
/// this journal behaves like a restarted manager.
///
/// A standby's Rebuilder takes over from a manager that may be alive. It sends everyone away until
/// admit(). Then it asks benefactors that store the log to promise to store nothing more for that
/// manager. After promises from more than half of them, it reads their newest log. This log has
/// every command that was answered, and the old manager can answer no more.
///
/// Threads: the reactor's.
/// Errors: in Done:
/// - kExists: the journal is not empty.
/// - kNotFound: no benefactor with a log came in time.
/// - kCorrupt: all logs are damaged, or the journal that should be empty is.
/// Not: registration; it tells all benefactors and clients to come back later.
class Rebuilder final : public transport::AcceptHandler {
 public:
  struct Found {
    std::string host_name;  ///< the benefactor whose log was used
    Epoch epoch;            ///< epoch of that log
    std::uint64_t records = 0;
    std::size_t benefactors = 0;  ///< that came
    /// No benefactor knows an answered record that the log lacks.
    bool complete = false;
  };
  using Done = std::function<void(Result<Found>)>;

  /// Calls `done` once, never within start().
  Rebuilder(Reactor& reactor, Journal& journal, Membership membership, Done done);
  ~Rebuilder() override;
  Rebuilder(const Rebuilder&) = delete;
  Rebuilder& operator=(const Rebuilder&) = delete;

  Status start();

  /// The benefactors that decide about a take-over: those that stored the log
  /// of the manager of `epoch`.
  struct Quorum {
    Epoch epoch;
    std::vector<BenefactorId> members;
  };
  /// Starts as a standby, instead of start(): admits nobody yet, and has no time limit.
  Status start_as_standby();
  /// Reports that the manager is silent. Call it repeatedly while the silence lasts.
  void admit(Quorum quorum);
  /// Reports that the manager was heard: sends all benefactors away again. Returns false once the
  /// take-over has begun: from then on ignore the old manager's quorum.
  bool dismiss();

  void on_accept(std::unique_ptr<transport::Link> link) override;

 private:
  class Visitor;
  /// The log that is being read.
  struct Reading {
    Visitor* source = nullptr;  ///< the benefactor that has it; nullptr: no log is being read
    std::string log;            ///< bytes read so far
    bool found_damage = false;  ///< an earlier log was damaged
  };

  Status load();
  bool is_member(const Visitor& visitor) const;
  bool is_majority(std::size_t count) const { return 2 * count > quorum_->members.size(); }
  std::size_t members_here(bool only_promised) const;
  bool have_all_answered_records() const;
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
  const Membership membership_;
  Done done_;
  std::uint64_t accepted_ = 0;                                  ///< visitors ever accepted
  std::map<std::uint64_t, std::unique_ptr<Visitor>> visitors_;  ///< by number
  Reading reading_;
  Found found_;
  Epoch newest_epoch_;                      ///< the newest epoch that any peer has reported
  std::pair<Epoch, std::uint64_t> newest_;  ///< newest record that may have been answered
  bool gathering_ = false;
  bool wait_logged_ = false;
  bool time_is_up_ = false;  ///< chooses among the logs that have come
  bool standby_ = false;
  std::optional<Quorum> quorum_;  ///< set while a standby admits benefactors
  /// Benefactors promise to store nothing of earlier epochs; none: not asked yet.
  Epoch promise_;
  Time asked_{};  ///< time of the last request for promises
  TimerId gather_timer_;
  TimerId give_up_timer_;
  Lifetime lifetime_;  ///< ends when the rebuild has ended
};

}  // namespace stdchk::manager
