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
///   that fails is left alone for a while; neither stops the others.
/// Limits: kJobsMax files at once, kPerBenefactor requests at each benefactor.
class DrainPlanner {
 public:
  explicit DrainPlanner(Service& service) : service_(service) {}
  /// A pool that begins with nothing (`fresh`) takes over what its drain directory has.
  Status start(bool fresh);
  void run();
  /// Files below go first.
  void hurry(FileId below);
  msg::DrainNow::Reply pending(FileId below) const;
  DrainState state_of(FileId file) const;

 private:
  enum class Phase : std::uint8_t { kPieces, kWaitsForName, kStarting, kFinishing, kRecording };
  struct Request {
    BenefactorId benefactor;
    msg::DrainPieces pieces;
    std::uint64_t bytes = 0;
    bool sent = false;
  };
  struct Job {
    FileId file;
    Version version = 0;
    std::uint64_t number = 0;  ///< tells answers to an earlier job of the same file
    Phase phase = Phase::kPieces;
    std::vector<Request> requests;
    std::size_t done = 0;
    bool recorded = false;  ///< that it is about to get its name
    std::string finishing_as;
    BenefactorId finisher;
  };
  struct Failure {
    std::uint32_t attempts = 0;
    Time next{};
  };

  void start_jobs();
  bool start_job(FileId file);
  bool plan(const File& file, Job& job);
  void step(Job& job);
  void send_pieces(Job& job);
  void pieces_done(FileId file, std::uint64_t number, std::size_t request, rpc::Answer answer);
  void finish(Job& job);
  void send_finish(Job& job);
  void finished(FileId file, std::uint64_t number, const rpc::Answer& answer);
  void end_job(FileId file, bool failed, const char* why);
  void drop_temporary(FileId file, Version version);
  bool current(const Job& job) const;
  bool blocked_by_mirror(const File& file) const;
  bool earlier_is_read(const File& file) const;
  Job* job_of(FileId file, std::uint64_t number);
  Duration deadline_for(std::uint64_t bytes) const;

  void run_mirror();
  void mirrored(std::uint64_t sequence, const rpc::Answer& answer);

  Service& service_;
  std::map<FileId, Job> jobs_;
  std::map<FileId, Failure> failures_;
  std::map<BenefactorId, Time> parked_;
  std::map<BenefactorId, std::uint32_t> in_flight_;
  std::set<FileId> hurried_;
  std::uint64_t jobs_made_ = 0;
  bool running_ = false;

  bool mirror_in_flight_ = false;
  std::uint32_t mirror_attempts_ = 0;
  Time mirror_next_{};
};

}  // namespace stdchk::manager
