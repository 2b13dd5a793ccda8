#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/arenas/scrubber.h"
#include "manager/clients/notices.h"
#include "manager/clients/sessions.h"
#include "manager/drain/drain_failures.h"
#include "manager/drain/drain_pace.h"
#include "manager/drain/drain_queue.h"
#include "manager/drain/known_prints.h"
#include "manager/drain/name_mirror.h"
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
               Notices& notices, KnownPrints& prints, std::function<void()> on_name_given);
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
  enum class Phase : std::uint8_t {
    kPieces,
    kWaitsForName,
    kSettingAside,
    kStarting,
    kFinishing,
    kLost,  ///< unknown whether the file got its name: asks again
    kRecording,
    kEnding,  ///< has failed or is obsolete; some answers are still to come
  };
  struct Request {
    BenefactorId benefactor;
    msg::DrainPieces pieces;
    std::vector<std::uint32_t> slices;  ///< of the version: the source of each piece
    std::uint64_t bytes = 0;
    bool sent = false;
    bool answered = false;
    bool hangs = false;  ///< not counted against its benefactor's limit
    Time sent_at{};
  };
  struct Job {
    FileId file;
    Version version = 0;
    std::uint64_t number = 0;  ///< names its temporary file
    Phase phase = Phase::kPieces;
    std::vector<bool> verified;  ///< slices that the temporary file has
    bool starts_over = false;    ///< the temporary file is useless for another attempt
    std::vector<Request> requests;
    std::size_t done = 0;
    std::size_t unanswered = 0;
    Time late{};          ///< until then a lost benefactor may still execute a request
    Time late_before{};   ///< as `late`, of the earlier attempts that this one continues
    bool hangs = false;   ///< storage hangs, now or in the last attempt: one request at a time
    Time naming_since{};  ///< begin of asked_for_name()
    DrainQueue::Place place{DrainRank::kOther, 0};
    bool recorded = false;  ///< DrainStarted is journalled
    std::string path;       ///< path that the job reads or creates: must not change meanwhile
    BenefactorId finisher;
    bool failed = false;
    const char* why = nullptr;

    /// A benefactor was asked to give the file its name, and has not answered.
    bool asked_for_name() const { return phase == Phase::kFinishing || phase == Phase::kLost; }
  };
  /// The plan of a job: requests that still grow.
  struct PiecePlan {
    Job& job;
    BenefactorId any;  ///< a usable benefactor, for pieces that none has in memory
    std::map<BenefactorId, Request> open;

    /// Adds the piece of slice `number` to the open request to the benefactor. Returns this
    /// request.
    Request& add(BenefactorId benefactor, std::uint32_t number, const msg::DrainPiece& piece);
  };

  /// The rest of a failed attempt, which the next attempt continues.
  struct Left {
    Version version = 0;
    std::uint64_t number = 0;
    std::vector<bool> verified;
    Time late{};
  };

  NameMirror::Hooks mirror_hooks();
  template <typename Visit>
  void each_undrained(FileId below, const Visit& visit) const;
  void start_jobs();
  void start_queued_jobs();
  bool start_job(FileId file, DrainQueue::Place place);
  bool plan(const File& file, Job& job);
  bool plan_slice(const File& file, std::uint32_t number, PiecePlan& plan);
  bool is_usable(BenefactorId benefactor) const;
  void step(Job& job);
  void send_pieces(Job& job);
  void send(Job& job, std::size_t index, rpc::Peer& peer);
  bool has_room(const Job& job, BenefactorId benefactor) const;
  void find_hanging(Job& job);
  void warn_of_hanging(const Job& job) const;
  std::size_t jobs_counted(DrainRank least = DrainRank::kOther) const;
  void pieces_answered(Job& job, std::size_t index, Time late, const rpc::Answer& answer);
  void pieces_done(Job& job, BenefactorId benefactor, const rpc::Answer& answer);
  void finish(Job& job);
  std::optional<BenefactorId> finisher_of(const Job& job) const;
  bool names_hang_at(BenefactorId benefactor) const;
  void set_aside(Job& job);
  void send_finish(Job& job);
  void finished(FileId file, std::uint64_t number, const rpc::Answer& answer);
  void record(Job& job, const FilePrint& print);
  void fail_job(Job& job, const rpc::Answer& answer);
  void end_job(Job& job, bool failed, const char* why);
  void close_job(FileId file);
  void drop_temporaries();
  void drop_left(bool all);
  void drop_unused_asides();
  bool is_path_in_use(const msg::MirrorChange& change) const;
  Job* job_of(FileId file, std::uint64_t number);

  Pool& pool_;
  SetKeeper& sets_;
  Scrubber& scrubber_;
  Notices& notices_;
  KnownPrints& prints_;
  const std::function<void()> on_name_given_;
  DrainPace pace_;
  NameMirror mirror_;
  std::map<FileId, Job> jobs_;
  DrainFailures failures_;
  std::map<FileId, Left> left_;
  std::map<BenefactorId, Time> parked_;
  std::map<BenefactorId, std::uint32_t> in_flight_;
  std::map<BenefactorId, std::uint32_t> hanging_;  ///< requests that in_flight_ does not count
  std::map<BenefactorId, Duration> took_;          ///< duration of the last answered request
  DrainQueue queue_;
  std::size_t jobs_max_;  ///< fewer while the drain directory is short of space
  /// Temporary files to be dropped, and when.
  std::map<std::pair<FileId, std::uint64_t>, Time> garbage_;
  std::set<std::pair<FileId, std::uint64_t>> asides_;  ///< files set aside that readers may need
  bool running_ = false;
};

}  // namespace stdchk::manager
