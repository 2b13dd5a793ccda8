#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::manager {

class Service;
struct File;

/// A DrainPlanner brings every committed version into the drain directory and repeats changes of
/// names there: the benefactors do the work, it says what and in which order. docs/protocol.md has
/// the states.
///
/// Threads: the reactor's.
/// Errors: a file that cannot be drained is tried again after a back-off that doubles; a benefactor
///   that fails is left alone for a while; neither stops the others, nor does a file whose storage
///   does not answer. Pieces that were written and verified before a benefactor was lost are not
///   written again; all are when the storage has failed, or the manager has ended.
/// Limits: kJobsMax files at once, kPerBenefactor requests at each benefactor. While somebody
///   writes and nobody waits for the drain: one at each and a small rate, unless memory fills up.
class DrainPlanner {
 public:
  explicit DrainPlanner(Service& service);
  /// A pool that begins with nothing (`fresh`) takes over what its drain directory has.
  Status start(bool fresh);
  void run();
  /// Files below go first.
  void hurry(FileId below);
  /// That file goes before those that nobody hurries.
  void prefer(FileId file);
  msg::DrainNow::Reply pending(FileId below) const;
  DrainState state_of(FileId file) const;
  /// True while the drain directory may have the file's earlier content elsewhere than under its
  /// name.
  bool moves(const File& file) const { return blocked_by_mirror(file); }

 private:
  enum class Phase : std::uint8_t {
    kPieces,
    kWaitsForName,
    kSettingAside,
    kStarting,
    kFinishing,
    kLost,  ///< it is not known whether it has its name: asked again
    kRecording,
    kEnding,  ///< has failed, or is not wanted any more; some answers are still to come
  };
  struct Request {
    BenefactorId benefactor;
    msg::DrainPieces pieces;
    std::vector<std::uint32_t> slices;  ///< of the version: where each piece is from
    std::uint64_t bytes = 0;
    bool sent = false;
    bool answered = false;
    bool hangs = false;  ///< takes no room from others
    Time sent_at{};
  };
  struct Job {
    FileId file;
    Version version = 0;
    std::uint64_t number = 0;  ///< of its temporary file
    Phase phase = Phase::kPieces;
    std::vector<bool> verified;  ///< the slices that the temporary file has
    bool starts_over = false;    ///< what is in the temporary file is of no use to another attempt
    std::vector<Request> requests;
    std::size_t done = 0;
    std::size_t unanswered = 0;
    Time late{};          ///< until then a benefactor that was lost may still do what it was asked
    Time late_before{};   ///< the same for the attempts that this one goes on with
    bool hangs = false;   ///< or the last attempt did: one request at a time
    Time naming_since{};  ///< since when it is asked_for_name()
    bool preferred = false;
    bool recorded = false;  ///< that it is about to get its name
    std::string
        path;  ///< what it reads or gets under that name: it must not change in the meantime
    BenefactorId finisher;
    bool failed = false;
    const char* why = nullptr;

    /// A benefactor was asked to give it its name, and has not answered.
    bool asked_for_name() const { return phase == Phase::kFinishing || phase == Phase::kLost; }
  };
  struct Failure {
    std::uint32_t attempts = 0;
    Time last{};
    Time next{};
    bool hung = false;
    bool waits = false;  ///< for a benefactor that may come back: nothing has failed
  };

  /// Of an attempt that has failed: what the next one goes on with.
  struct Left {
    Version version = 0;
    std::uint64_t number = 0;
    std::vector<bool> verified;
    Time late{};
  };

  static void try_soon(Failure& failure);
  void start_jobs();
  bool start_job(FileId file, bool preferred);
  bool plan(const File& file, Job& job);
  void step(Job& job);
  void send_pieces(Job& job);
  void send(Job& job, std::size_t index, rpc::Peer& peer);
  bool has_room(const Job& job, BenefactorId benefactor) const;
  void find_hanging(Job& job);
  void warn_of_hanging(const Job& job) const;
  std::size_t jobs_counted() const;
  void set_pace();
  bool is_half_full(std::uint64_t bytes) const;
  bool pay(std::uint64_t bytes);
  void pieces_answered(Job& job, std::size_t index, Time late, const rpc::Answer& answer);
  void pieces_done(Job& job, BenefactorId benefactor, const rpc::Answer& answer);
  void finish(Job& job);
  std::optional<BenefactorId> finisher_of(const Job& job) const;
  bool names_hang_at(BenefactorId benefactor) const;
  void set_aside(Job& job);
  void send_finish(Job& job);
  void finished(FileId file, std::uint64_t number, const rpc::Answer& answer);
  void fail_job(Job& job, const rpc::Answer& answer);
  void end_job(Job& job, bool failed, const char* why);
  void close_job(FileId file);
  void drop_temporaries();
  void drop_left(bool all);
  void drop_unused_asides();
  bool current(const Job& job) const;
  bool has_failed(FileId file) const;
  bool blocked_by_mirror(const File& file) const;
  bool waits_for_link(const File& file) const;
  bool is_path_in_use(const msg::MirrorChange& change) const;
  Job* job_of(FileId file, std::uint64_t number);
  Duration deadline_for(std::uint64_t bytes) const;

  bool may_name();
  void run_mirror();
  bool skip_mirror(std::uint64_t sequence, const msg::MirrorChange& change);
  rpc::Peer* mirror_peer();
  void mirrored(std::uint64_t sequence, const rpc::Answer& answer);

  Service& service_;
  std::map<FileId, Job> jobs_;
  std::map<FileId, Failure> failures_;
  std::map<FileId, Left> left_;
  std::map<BenefactorId, Time> parked_;
  std::map<BenefactorId, std::uint32_t> in_flight_;
  std::map<BenefactorId, std::uint32_t> hanging_;  ///< those that are not in in_flight_
  std::map<BenefactorId, Duration> took_;          ///< the last one that was answered
  Time asked_until_{};                             ///< somebody waits for the drain
  Time pace_next_{};                               ///< when to look again how fast
  std::uint32_t at_once_;                          ///< requests at each benefactor
  std::uint64_t rate_ = 0;  ///< bytes a second of all together; 0: not limited
  Time paid_until_{};       ///< when all bytes asked for so far are within it
  std::set<FileId> hurried_;
  std::size_t jobs_max_;  ///< less while the drain directory is short of space
  /// Temporary files to be dropped, and when.
  std::map<std::pair<FileId, std::uint64_t>, Time> garbage_;
  std::set<std::pair<FileId, std::uint64_t>> asides_;  ///< that readers may need
  bool running_ = false;
  /// Until then benefactors that have not come back may still do what an earlier manager asked.
  Time names_from_{};

  bool mirror_in_flight_ = false;
  std::uint32_t mirror_attempts_ = 0;
  Time mirror_next_{};
  BenefactorId mirror_at_;
  Time mirror_late_{};  ///< until then nobody but mirror_at_ may be asked
};

}  // namespace stdchk::manager
