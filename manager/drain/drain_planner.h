#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/arenas/scrubber.h"
#include "manager/clients/notices.h"
#include "manager/clients/sessions.h"
#include "manager/drain/drain_failures.h"
#include "manager/drain/drain_job.h"
#include "manager/drain/drain_leftovers.h"
#include "manager/drain/drain_load.h"
#include "manager/drain/drain_pace.h"
#include "manager/drain/drain_queue.h"
#include "manager/drain/held_names.h"
#include "manager/drain/known_fingerprints.h"
#include "manager/drain/name_mirror.h"
#include "manager/drain/piece_planner.h"
#include "manager/pool/pool.h"
#include "manager/sets/set_keeper.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A DrainPlanner brings every committed version into the drain directory and repeats changes of
/// names there. Benefactors do the work; it decides what they do, and in which order.
/// docs/internals/protocol.md has the states.
///
/// Threads: the reactor's.
/// Errors: a file that cannot be drained is retried after a back-off that doubles from 1 s to
/// 60 s. A benefactor that fails gets no pieces for 2 s. Failed files, failed benefactors and
/// storage that does not answer do not stop the others. Pieces written and verified before a
/// benefactor was lost are kept. All pieces are written again after an error of the storage or
/// a restart of the manager.
/// Limits: kJobsMax files at once. Beside them, kJobsMax files that clients ask for: such a file
/// needs no place of other files. kPerBenefactor requests at each benefactor. With drain_yields,
/// while clients write and nobody waits for the drain: one request at each and a small rate, unless
/// memory fills up.
class DrainPlanner {
 public:
  /// Calls `on_name_given` when a change of names in the drain directory has ended.
  DrainPlanner(Pool& pool, SetKeeper& sets, Scrubber& scrubber, const SessionTable& sessions,
               Notices& notices, KnownFingerprints& fingerprints,
               std::function<void()> on_name_given);
  /// Starts draining. A new pool (`fresh`) takes over the files in its drain directory.
  Status start(bool fresh);
  void run();
  /// A client asks for all files at and below `below`. The planner drains them before all others,
  /// ordered by request. A request for the root does not change the order.
  void prioritise_below(FileId below);
  /// Puts the file into the DrainQueue with this rank.
  void prioritise(FileId file, DrainRank rank);
  msg::DrainNow::Reply pending(FileId below) const;
  DrainState state_of(FileId file) const;
  /// Returns true while the drain directory may have the file's earlier content under another name.
  bool moves(const File& file) const { return mirror_.blocks(file); }
  /// Returns the path, in the drain directory, of the bytes that memory lacks; nothing while that
  /// path is changing. A client that opens this path, and then gets the same path again, has the
  /// right file.
  std::optional<std::string> drained_path(const File& file, const VersionData& version) const;

 private:
  NameMirror::Hooks mirror_hooks();
  template <typename Visit>
  void each_undrained(FileId below, const Visit& visit) const;
  void start_jobs();
  void start_queued_jobs();
  bool start_job(FileId file, DrainQueue::Place place);
  void step(DrainJob& job);
  void send_pieces(DrainJob& job);
  void send(DrainJob& job, std::size_t index, rpc::Peer& peer);
  void find_hanging(DrainJob& job);
  void warn_of_hanging(const DrainJob& job) const;
  std::size_t jobs_counted(DrainRank least = DrainRank::kOther) const;
  void pieces_answered(DrainJob& job, std::size_t index, Time late, const rpc::Answer& answer);
  void pieces_done(DrainJob& job, const DrainRequest& request, const rpc::Answer& answer);
  bool have_moved(const DrainJob& job, const DrainRequest& request,
                  const std::vector<std::uint32_t>& pieces) const;
  void finish(DrainJob& job);
  std::optional<BenefactorId> finisher_of(const DrainJob& job) const;
  bool has_hanging_name_changes(BenefactorId benefactor) const;
  void set_aside(DrainJob& job);
  void send_finish(DrainJob& job);
  void finished(FileId file, std::uint64_t number, const rpc::Answer& answer);
  void record(DrainJob& job, const FileFingerprint& fingerprint);
  void fail_job(DrainJob& job, const rpc::Answer& answer);
  void end_job(DrainJob& job, DrainEnd end, const char* why);
  void close_job(FileId file);
  bool is_path_in_use(const msg::MirrorChange& change) const;
  DrainJob* job_of(FileId file, std::uint64_t number);

  Pool& pool_;
  SetKeeper& sets_;
  Scrubber& scrubber_;
  Notices& notices_;
  KnownFingerprints& fingerprints_;
  const std::function<void()> on_name_given_;
  DrainPace pace_;
  NameMirror mirror_;
  HeldNames held_;
  std::map<FileId, DrainJob> jobs_;
  DrainFailures failures_;
  DrainLeftovers leftovers_;
  DrainLoad load_;
  PiecePlanner pieces_;
  DrainQueue queue_;
  std::size_t jobs_max_;  ///< fewer while the drain directory is short of space
  bool running_ = false;
};

}  // namespace stdchk::manager
