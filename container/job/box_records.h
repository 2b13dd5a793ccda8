#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "container/description/description.h"
#include "container/job/job.h"

namespace stdchk::container {

/// A BoxRecords has what the containers of a job have asked for, what they were told, and how much
/// output of container 0 was shown.
///
/// - An ask is a command that container 0's launcher wants to run in another container.
/// - A request is a program's wish for a checkpoint. The next set that begins answers the request.
///
/// Sets contain the asks and the commands, so that a restart goes on with both.
/// Threads: the reactor's. Pure: it sends nothing.
class BoxRecords {
 public:
  /// The job runs from its beginning.
  void begin();
  /// The job runs from `set`. Programs that wait for an answer learn of the restart.
  void begin_from(const SetDescription& set);
  void save_in(SetDescription& set) const;

  // Commands and asks.
  std::uint64_t next_command(BoxId box) { return commands_[box]++; }
  bool knows_ask(const std::string& name) const { return asks_.contains(name); }
  /// The ask became command `number` of `box`. {0, 0}: it was refused.
  void add_ask(const std::string& name, BoxId box, std::uint64_t number);
  /// Returns the names of asks whose command, `number` of `box`, has ended: each name once.
  std::vector<std::string> end_command(BoxId box, std::uint64_t number);

  // Requests, each with the number that its program gave it.
  /// Returns true when the program must learn that the job was restarted, instead of an answer.
  bool takes_restart(BoxId box, std::uint64_t request);
  /// Records a request that a set from `first` on answers. Returns false for an old request.
  bool add_request(BoxId box, std::uint64_t request, SetId first);
  bool has_requests() const { return !requests_.empty(); }
  /// Takes out the requests that `set` answers.
  std::vector<std::pair<BoxId, std::uint64_t>> answer_requests(SetId set);

  // Output of container 0.
  std::uint64_t output_bytes() const { return output_bytes_; }
  std::uint64_t error_bytes() const { return error_bytes_; }
  void set_shown(std::uint64_t output, std::uint64_t errors);

 private:
  struct Request {
    std::uint64_t number = 0;
    SetId first = 0;
  };

  std::map<BoxId, std::uint64_t> commands_;  ///< how many each container was given
  std::map<std::string, std::pair<BoxId, std::uint64_t>> asks_;
  std::set<std::string> ended_asks_;
  std::map<BoxId, Request> requests_;  ///< the newest unanswered request of each container
  std::map<BoxId, std::uint64_t> answered_;
  /// Containers whose waiting programs learn of the restart with the next state.
  std::set<BoxId> restarted_;
  std::uint64_t output_bytes_ = 0;
  std::uint64_t error_bytes_ = 0;
};

}  // namespace stdchk::container
