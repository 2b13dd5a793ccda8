#include "manager/drain_planner.h"

#include <algorithm>

#include "core/limits.h"
#include "core/log.h"
#include "manager/import.h"
#include "manager/service.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kJobsMax = 32;
constexpr std::uint32_t kPerBenefactor = 2;
constexpr std::uint64_t kRequestBytesMax = 32 * limits::kMiB;
constexpr std::size_t kScannedMax = 1000;
constexpr std::size_t kMirrorScannedMax = 1000;
constexpr Duration kParked = 2s;
constexpr Duration kBackOffFirst = 1s;
constexpr Duration kBackOffLast = 60s;
constexpr std::uint32_t kMirrorAttempts = 5;

bool same_or_below(const std::string& path, const std::string& directory) {
  return path.compare(0, directory.size(), directory) == 0 &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

/// True when a file with that path must not get its name before, or while, the change happens.
bool concerns(const msg::MirrorChange& change, FileId file, const std::string& path) {
  if (change.file == file || same_or_below(path, change.path)) return true;
  const bool two =
      change.kind == msg::MirrorKind::kRename || change.kind == msg::MirrorKind::kExchange;
  return two && same_or_below(path, change.other_path);
}

bool lost_on_the_way(const rpc::Answer& answer) {
  const Code code = answer.error().error.code;
  return code == Code::kPeerLost || code == Code::kDeadline || code == Code::kCancelled;
}

}  // namespace

Status DrainPlanner::start(bool fresh) {
  if (!fresh || !service_.has_drain()) return {};
  return import_drained(service_.config().pool.drain_directory, [this](Command command) {
    service_.execute(std::move(command), [](const Result<Outcome>&) {});
  });
}

void DrainPlanner::run() {
  // Commands are answered within run() by some journals; one turn at a time.
  if (!service_.has_drain() || running_) return;
  running_ = true;
  run_mirror();
  std::vector<FileId> ids;
  for (const auto& [id, job] : jobs_) ids.push_back(id);
  for (const FileId id : ids) {
    const auto job = jobs_.find(id);
    if (job != jobs_.end()) step(job->second);
  }
  start_jobs();
  running_ = false;
}

DrainState DrainPlanner::state_of(FileId file) const {
  if (jobs_.count(file) > 0) return DrainState::kRunning;
  return failures_.count(file) > 0 ? DrainState::kFailed : DrainState::kPending;
}

void DrainPlanner::hurry(FileId below) {
  if (below == kRootFile) {
    for (auto& [id, failure] : failures_) failure.next = {};
    return;
  }
  for (const auto& [sequence, id] : service_.state().undrained()) {
    if (!service_.state().is_below(id, below)) continue;
    hurried_.insert(id);
    const auto failure = failures_.find(id);
    if (failure != failures_.end()) failure->second.next = {};
  }
}

msg::DrainNow::Reply DrainPlanner::pending(FileId below) const {
  msg::DrainNow::Reply reply;
  if (!service_.has_drain()) return reply;
  const State& state = service_.state();
  for (const auto& [sequence, id] : state.undrained()) {
    if (below != kRootFile && !state.is_below(id, below)) continue;
    ++reply.pending_files;
    reply.pending_bytes += state.file(id)->newest.stored_bytes;
    if (failures_.count(id) > 0) ++reply.failed_files;
  }
  // Changes of names count, too: without them the directory is not what the pool shows.
  if (below == kRootFile) reply.pending_files += state.mirror_queue().size();
  return reply;
}

// ---- jobs -------------------------------------------------------------------------------------

void DrainPlanner::start_jobs() {
  for (auto hurried = hurried_.begin(); hurried != hurried_.end() && jobs_.size() < kJobsMax;) {
    start_job(*hurried);
    hurried = hurried_.erase(hurried);
  }
  std::vector<FileId> oldest;
  for (const auto& [sequence, id] : service_.state().undrained()) {
    if (oldest.size() == kScannedMax) break;
    oldest.push_back(id);
  }
  for (const FileId id : oldest) {
    if (jobs_.size() >= kJobsMax) break;
    start_job(id);
  }
}

/// True when a reader has an earlier version whose bytes are only in the drained file: until it
/// lets go, that file must not be replaced.
bool DrainPlanner::earlier_is_read(const File& file) const {
  const ChunkTable& chunks = service_.state().chunks();
  return std::any_of(file.older.begin(), file.older.end(), [&](const auto& older) {
    const PackedSlices& slices = older.second.slices;
    return std::any_of(slices.begin(), slices.end(),
                       [&](const PackedSlice& slice) { return !chunks.has_copies(slice.chunk); });
  });
}

bool DrainPlanner::start_job(FileId id) {
  const File* file = service_.state().file(id);
  if (file == nullptr || jobs_.count(id) > 0 || !file->parent || file->newest.drained) return false;
  // No earlier version is pinned anew: what is so now is so until the job ends.
  if (earlier_is_read(*file)) return false;
  const auto failure = failures_.find(id);
  if (failure != failures_.end() && service_.now() < failure->second.next) return false;
  Job job;
  job.file = id;
  job.version = file->newest.version;
  job.number = ++jobs_made_;
  if (!plan(*file, job)) return false;
  if (!service_.pin(id, job.version)) return false;
  step(jobs_.emplace(id, std::move(job)).first->second);
  return true;
}

/// Which benefactor writes which pieces. False: not now.
bool DrainPlanner::plan(const File& file, Job& job) {
  const State& state = service_.state();
  std::map<BenefactorId, Request> open;
  const auto add = [&](BenefactorId benefactor, const msg::DrainPiece& piece, bool base) {
    Request& request = open[benefactor];
    request.benefactor = benefactor;
    request.pieces.file = job.file;
    request.pieces.version = job.version;
    if (base) request.pieces.base_path = state.path(file);
    request.pieces.pieces.push_back(piece);
    request.bytes += piece.length;
    if (request.bytes >= kRequestBytesMax ||
        request.pieces.pieces.size() == limits::kMapPageSlicesMax) {
      job.requests.push_back(std::move(request));
      open.erase(benefactor);
    }
  };
  const auto usable = [&](BenefactorId id) {
    const auto parked = parked_.find(id);
    return service_.peer_of(id) != nullptr &&
           (parked == parked_.end() || parked->second <= service_.now());
  };
  BenefactorId any;
  for (const auto& [id, status] : service_.benefactors()) {
    if (usable(id)) any = id;
  }
  if (!any) return false;
  for (const PackedSlice& slice : file.newest.slices) {
    const Chunk chunk = state.chunks().get(slice.chunk);
    msg::DrainPiece piece{slice.file_offset, slice.length, slice.chunk_offset, msg::kNoExtent,
                          chunk.length,      chunk.crc,    chunk.name};
    if (chunk.copies.empty()) {
      if (blocked_by_mirror(file)) return false;
      add(any, piece, true);
      continue;
    }
    const auto copy = std::find_if(chunk.copies.begin(), chunk.copies.end(),
                                   [&](const Extent& at) { return usable(at.benefactor); });
    if (copy == chunk.copies.end()) {
      Failure& failure = failures_[job.file];
      failure.attempts = std::max<std::uint32_t>(failure.attempts, 1);
      failure.next = service_.now() + kParked;
      return false;
    }
    piece.extent_offset = copy->offset;
    add(copy->benefactor, piece, false);
  }
  for (auto& [id, request] : open) job.requests.push_back(std::move(request));
  if (job.requests.empty()) {
    // Nothing but holes: the temporary file is made by a request without pieces.
    Request& request = job.requests.emplace_back();
    request.benefactor = any;
    request.pieces.file = job.file;
    request.pieces.version = job.version;
  }
  return true;
}

bool DrainPlanner::current(const Job& job) const {
  const File* file = service_.state().file(job.file);
  return file != nullptr && file->parent && file->newest.version == job.version;
}

DrainPlanner::Job* DrainPlanner::job_of(FileId file, std::uint64_t number) {
  const auto job = jobs_.find(file);
  return job == jobs_.end() || job->second.number != number ? nullptr : &job->second;
}

/// May end the job.
void DrainPlanner::step(Job& job) {
  if (job.phase == Phase::kPieces) {
    if (!current(job)) return end_job(job.file, false, "has a newer version");
    if (job.done == job.requests.size()) {
      job.phase = Phase::kWaitsForName;
    } else {
      return send_pieces(job);
    }
  }
  if (job.phase == Phase::kWaitsForName) finish(job);
}

Duration DrainPlanner::deadline_for(std::uint64_t bytes) const {
  Duration deadline = limits::kOperationDeadline;
  const std::uint64_t rate = service_.config().pool.drain_rate_bytes_per_s;
  // Others of the same benefactor share its rate, and each piece is written and read back.
  if (rate > 0)
    deadline += std::chrono::seconds(std::min<std::uint64_t>(86400, 4 * bytes / rate + 1));
  return deadline;
}

void DrainPlanner::send_pieces(Job& job) {
  for (std::size_t i = 0; i < job.requests.size(); ++i) {
    Request& request = job.requests[i];
    if (request.sent || in_flight_[request.benefactor] >= kPerBenefactor) continue;
    rpc::Peer* peer = service_.peer_of(request.benefactor);
    if (peer == nullptr) return end_job(job.file, true, "waits for a benefactor that is silent");
    request.sent = true;
    ++in_flight_[request.benefactor];
    peer->call(std::move(request.pieces), deadline_for(request.bytes * kPerBenefactor),
               [this, alive = service_.alive(), file = job.file, number = job.number, i,
                benefactor = request.benefactor](rpc::Answer answer) {
                 if (alive.expired()) return;
                 --in_flight_[benefactor];
                 if (!answer && lost_on_the_way(answer)) {
                   parked_[benefactor] = service_.now() + kParked;
                 }
                 pieces_done(file, number, i, std::move(answer));
               });
  }
}

void DrainPlanner::pieces_done(FileId file, std::uint64_t number, std::size_t, rpc::Answer answer) {
  Job* job = job_of(file, number);
  if (job == nullptr) return;
  const auto* reply = answer ? std::get_if<msg::DrainPieces::Reply>(&*answer) : nullptr;
  if (reply == nullptr) {
    return end_job(file, true, answer ? "was answered wrongly" : answer.error().error.where);
  }
  if (!reply->corrupt.empty()) return end_job(file, true, "has chunks that fail their checksum");
  ++job->done;
  step(*job);
  run();
}

// ---- the name ---------------------------------------------------------------------------------

bool DrainPlanner::blocked_by_mirror(const File& file) const {
  const auto& queue = service_.state().mirror_queue();
  if (queue.empty()) return false;
  if (queue.size() > kMirrorScannedMax) return true;
  const std::string path = service_.state().path(file);
  return std::any_of(queue.begin(), queue.end(),
                     [&](const auto& change) { return concerns(change.second, file.id, path); });
}

void DrainPlanner::finish(Job& job) {
  if (!current(job)) return end_job(job.file, false, "has a newer version");
  const File& file = *service_.state().file(job.file);
  if (blocked_by_mirror(file)) return;
  // Two files that had the same name one after the other: the later one waits for its turn.
  const std::string path = service_.state().path(file);
  for (const auto& [id, other] : jobs_) {
    const bool naming = other.phase == Phase::kFinishing || other.phase == Phase::kRecording;
    if (id != job.file && naming && other.finishing_as == path) return;
  }
  if (job.recorded) return send_finish(job);
  // Recorded first: should the manager end now, it knows that the name may be there. And what comes
  // before this record, the version's commit above all, is durable then.
  job.phase = Phase::kStarting;
  service_.execute(DrainStarted{job.file},
                   [this, file = job.file, number = job.number](const Result<Outcome>& outcome) {
                     Job* started = job_of(file, number);
                     if (started == nullptr) return;
                     if (!outcome) return end_job(file, true, "could not be recorded");
                     started->phase = Phase::kWaitsForName;
                     started->recorded = true;
                     step(*started);
                   });
}

void DrainPlanner::send_finish(Job& job) {
  const File& file = *service_.state().file(job.file);
  rpc::Peer* peer = service_.peer_of(job.requests.front().benefactor);
  if (peer == nullptr) return end_job(job.file, true, "waits for a benefactor that is silent");
  job.phase = Phase::kFinishing;
  job.finishing_as = service_.state().path(file);
  peer->call(msg::DrainFinish{job.file, job.version, job.finishing_as, file.newest.size_bytes,
                              file.mode, file.uid, file.gid, file.newest.mtime_ns},
             limits::kOperationDeadline,
             [this, alive = service_.alive(), id = job.file,
              number = job.number](const rpc::Answer& answer) {
               if (!alive.expired()) finished(id, number, answer);
             });
}

void DrainPlanner::finished(FileId file, std::uint64_t number, const rpc::Answer& answer) {
  Job* job = job_of(file, number);
  if (job == nullptr) return;
  if (!answer) return end_job(file, true, answer.error().error.where);
  // A record of what has no name any more could not be applied again after a restart.
  if (!current(*job)) return end_job(file, false, "was removed or has a newer version");
  job->phase = Phase::kRecording;
  service_.execute(Drained{file, job->version},
                   [this, file, number](const Result<Outcome>& outcome) {
                     if (job_of(file, number) == nullptr) return;
                     // Stale: it has a newer version, which is drained in its turn.
                     const bool failed = !outcome && outcome.error().code != Code::kStale &&
                                         outcome.error().code != Code::kNotFound;
                     end_job(file, failed, "could not be recorded");
                     service_.file_changed(file, {});
                     run();
                   });
}

void DrainPlanner::end_job(FileId id, bool failed, const char* why) {
  const auto found = jobs_.find(id);
  const Job job = std::move(found->second);
  jobs_.erase(found);
  const File* file = service_.state().file(id);
  const bool newest = file != nullptr && file->parent && file->newest.version == job.version;
  if (failed && newest) {
    Failure& failure = failures_[id];
    const Duration wait =
        std::min<Duration>(kBackOffLast, kBackOffFirst * (1U << failure.attempts));
    failure.attempts = std::min(failure.attempts + 1, 10U);
    failure.next = service_.now() + wait;
    log::warning("{} {} and is not drained; it is tried again", service_.state().path(*file), why);
  } else {
    failures_.erase(id);
    if (!newest) drop_temporary(id, job.version);
  }
  service_.unpin(id, job.version);
}

void DrainPlanner::drop_temporary(FileId file, Version version) {
  rpc::Peer* peer = service_.some_benefactor();
  if (peer == nullptr) return;  // the next pool's start removes it
  msg::MirrorChange change;
  change.kind = msg::MirrorKind::kDropTemporary;
  change.file = file;
  change.version = version;
  peer->call(change, limits::kCallDeadline, [](const rpc::Answer&) {});
}

// ---- names ------------------------------------------------------------------------------------

void DrainPlanner::run_mirror() {
  const auto& queue = service_.state().mirror_queue();
  if (mirror_in_flight_ || queue.empty() || service_.now() < mirror_next_) return;
  const auto& [sequence, change] = *queue.begin();
  // What is not durable may not have happened after a restart; its file would be gone all the same.
  if (!service_.mirror_is_durable(sequence)) return;
  for (const auto& [id, job] : jobs_) {
    if (job.phase != Phase::kFinishing && job.phase != Phase::kRecording) continue;
    if (concerns(change, id, job.finishing_as)) return;
  }
  rpc::Peer* peer = service_.some_benefactor();
  if (peer == nullptr) return;
  mirror_in_flight_ = true;
  peer->call(change, limits::kCallDeadline,
             [this, alive = service_.alive(), number = sequence](const rpc::Answer& answer) {
               if (!alive.expired()) mirrored(number, answer);
             });
}

void DrainPlanner::mirrored(std::uint64_t sequence, const rpc::Answer& answer) {
  if (!answer) {
    if (!lost_on_the_way(answer)) ++mirror_attempts_;
    const auto change = service_.state().mirror_queue().find(sequence);
    // A file that was not moved would be looked for, and given up from memory, under a wrong name.
    const bool moves = change->second.kind == msg::MirrorKind::kRename ||
                       change->second.kind == msg::MirrorKind::kExchange;
    if (mirror_attempts_ < kMirrorAttempts || moves) {
      mirror_in_flight_ = false;
      mirror_next_ = service_.now() + kBackOffFirst;
      return;
    }
    log::error("a change of {} could not be repeated in the drain directory: {} {}",
               change->second.path, describe(answer.error().error), answer.error().detail);
  }
  mirror_attempts_ = 0;
  // The next change waits until this one cannot be repeated any more.
  service_.execute(Mirrored{sequence}, [this, alive = service_.alive()](const Result<Outcome>&) {
    if (alive.expired()) return;
    mirror_in_flight_ = false;
    run();
  });
}

}  // namespace stdchk::manager
