#include "manager/drain/drain_planner.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/policy/image_name.h"
#include "manager/drain/import.h"
#include "manager/state/access_lists.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kJobsMax = 32;
constexpr std::size_t kScannedMax = 1000;
constexpr Duration kLookMax = 2s;  ///< for the fingerprint of a file that got its name
constexpr std::size_t kHangingJobsMax = 100;

/// Returns true when the error does not spoil other pieces in the same temporary file.
bool affects_only_its_piece(const rpc::Answer& answer) {
  const Code code = answer.error().error.code;
  return code == Code::kPeerLost || code == Code::kCancelled || code == Code::kBusy;
}

/// Returns true while the file has a name, and `version` is its newest version.
bool is_newest(const State& state, FileId file, Version version) {
  const File* found = state.file(file);
  return found != nullptr && found->parent && found->newest.version == version;
}

/// Returns false while another pool holds the drain directory.
bool may_drain(const Pool& pool) {
  const auto& may = pool.config().may_drain;
  return !may || may();
}

/// Returns true when a client must not expect the file's drain soon.
bool has_failed(const Pool& pool, const DrainFailures& failures, FileId file) {
  return !may_drain(pool) || failures.has_failed(file);
}

/// From now on the drain directory gets the rules of the pool's top folder, too. The rules of an
/// earlier pool are there already: call this after they were read.
void keep_rules_of_root(Pool& pool) {
  const State& state = pool.state();
  const File& root = *state.file(kRootFile);
  RestoreFile command;
  command.attributes = state.files().attributes(root);
  command.parent = root.parent;
  command.policy = root.as_directory.policy;
  command.in_drain = true;
  pool.execute(std::move(command), [](const Result<Affected>&) {});
}

}  // namespace

DrainPlanner::DrainPlanner(Pool& pool, SetKeeper& sets, Scrubber& scrubber,
                           const SessionTable& sessions, Notices& notices,
                           KnownFingerprints& fingerprints, std::function<void()> on_name_given)
    : pool_(pool),
      sets_(sets),
      scrubber_(scrubber),
      notices_(notices),
      fingerprints_(fingerprints),
      on_name_given_(std::move(on_name_given)),
      pace_(pool, sessions),
      mirror_(pool, mirror_hooks()),
      held_(pool, sets),
      leftovers_(pool),
      load_(pool),
      pieces_(pool, load_, mirror_, failures_),
      jobs_max_(kJobsMax) {}

NameMirror::Hooks DrainPlanner::mirror_hooks() {
  return {
      .is_path_in_use = [this](const msg::MirrorChange& change) { return is_path_in_use(change); },
      .on_set_aside = [this](FileId file,
                             std::uint64_t number) { leftovers_.add_aside(file, number); },
      .on_wait_ended = [this] { leftovers_.drop_earlier_now(); },
      .on_changed =
          [this] {
            run();
            on_name_given_();
          }};
}

Status DrainPlanner::start(bool fresh) {
  if (!pool_.has_drain()) return {};
  if (!fresh) {
    const Time names_from = pool_.now() + limits::kOperationDeadline;
    mirror_.wait(names_from);
    leftovers_.drop_earlier(names_from);
    return {};
  }
  const std::string& place = pool_.config().pool.drain_directory;
  const auto emit = [this](Command command) {
    pool_.execute(std::move(command), [](const Result<Affected>&) {});
  };
  const auto& import = pool_.config().import_drained;
  STDCHK_TRY(import ? import(place, emit) : import_drained(place, emit));
  keep_rules_of_root(pool_);
  return {};
}

void DrainPlanner::run() {
  // Some journals answer commands within run(): only one run() at a time.
  if (!pool_.has_drain() || running_ || !may_drain(pool_)) return;
  running_ = true;
  if (pace_.set_when_due()) {
    for (auto& [id, job] : jobs_) find_hanging(job);
  }
  held_.run();
  mirror_.run();
  leftovers_.run();
  std::vector<std::tuple<DrainQueue::Place, std::uint64_t, FileId>> order;
  for (const auto& [id, job] : jobs_) order.emplace_back(job.place, job.number, id);
  std::sort(order.begin(), order.end());
  for (const auto& [place, number, id] : order) {
    const auto job = jobs_.find(id);
    if (job != jobs_.end()) step(job->second);
  }
  start_jobs();
  running_ = false;
}

DrainState DrainPlanner::state_of(FileId file) const {
  if (jobs_.count(file) > 0) return DrainState::kRunning;
  if (sets_.skips(*pool_.state().file(file))) return DrainState::kNone;
  return has_failed(pool_, failures_, file) ? DrainState::kFailed : DrainState::kPending;
}

void DrainPlanner::prioritise_below(FileId below) {
  pace_.stop_yielding();
  sets_.request_drain(below);
  if (below == kRootFile) {
    failures_.try_all_soon();
    return;
  }
  each_undrained(below, [&](const File& file) {
    prioritise(file.id, DrainRank::kAsked);
    failures_.try_soon(file.id);
  });
}

/// Calls `visit` for each undrained file at and below `below`. A client may ask for each image of a
/// set, so a regular file costs no walk over all files.
template <typename Visit>
void DrainPlanner::each_undrained(FileId below, const Visit& visit) const {
  const State& state = pool_.state();
  const CommitLists::List& undrained = state.commits().undrained();
  const File* one = state.file(below);
  if (one != nullptr && one->type == FileType::kRegular) {
    if (undrained.contains({one->newest.sequence, below})) visit(*one);
    return;
  }
  for (const auto& [sequence, id] : undrained) {
    if (below == kRootFile || state.files().is_below(id, below)) visit(*state.file(id));
  }
}

void DrainPlanner::prioritise(FileId file, DrainRank rank) {
  const auto job = jobs_.find(file);
  if (job == jobs_.end()) {
    queue_.add(file, rank);
  } else if (rank < job->second.place.first) {
    job->second.place = queue_.next_place(rank);
  }
}

std::optional<std::string> DrainPlanner::drained_path(const File& file,
                                                      const VersionData& version) const {
  if (version.aside != 0) {
    if (pool_.state().mirror_queue().count(version.aside) > 0) return std::nullopt;
    return aside_path(file.id, version.aside);
  }
  if (!file.parent || moves(file)) return std::nullopt;
  // An older version that was not set aside and needs no drained bytes has no file under that name.
  if (&version != &file.newest && !pool_.state().contents().needs_drained(version))
    return std::nullopt;
  return pool_.state().path(file);
}

msg::DrainNow::Reply DrainPlanner::pending(FileId below) const {
  msg::DrainNow::Reply reply;
  if (!pool_.has_drain()) return reply;
  const State& state = pool_.state();
  each_undrained(below, [&](const File& file) {
    // The files that a held file waits for count themselves.
    if (sets_.skips(file) || (below != file.id && sets_.holds(file))) return;
    ++reply.pending_files;
    reply.pending_bytes += file.newest.stored_bytes;
    const auto job = jobs_.find(file.id);
    const bool tried_again = job != jobs_.end() && !job->second.hangs;
    if (has_failed(pool_, failures_, file.id) && !tried_again) ++reply.failed_files;
  });
  // Pending changes of names count, too: without them the directory differs from the pool.
  const std::string path = state.path(*state.file(below));
  for (const auto& [sequence, change] : state.mirror_queue()) {
    if (below == kRootFile || same_or_below(change.path, path)) ++reply.pending_files;
  }
  reply.pending_files += held_.pending(below);
  return reply;
}

// ---- jobs -------------------------------------------------------------------------------------

/// Starts the files that go before others. A file that waits for other files of its set keeps its
/// place.
void DrainPlanner::start_queued_jobs() {
  using Visit = DrainQueue::Visit;
  std::size_t scanned = 0;
  queue_.visit([&](FileId id, DrainQueue::Place place) {
    // A file that a client asks for waits for no other file: the kJobsMax others may be large.
    const bool is_asked = place.first == DrainRank::kAsked;
    const DrainRank least = is_asked ? DrainRank::kAsked : DrainRank::kOther;
    if (scanned++ == kScannedMax || jobs_counted(least) >= jobs_max_) return Visit::kStop;
    const File* file = pool_.state().file(id);
    if (file == nullptr || !file->parent || file->newest.drained) return Visit::kRemove;
    if (sets_.holds(*file)) return Visit::kKeep;
    start_job(id, place);
    return Visit::kRemove;
  });
}

void DrainPlanner::start_jobs() {
  start_queued_jobs();
  if (jobs_counted() >= jobs_max_) return;
  std::vector<FileId> oldest;
  for (const auto& [sequence, id] : pool_.state().commits().undrained()) {
    if (oldest.size() == kScannedMax) break;
    if (sets_.skips(*pool_.state().file(id)) || sets_.holds(*pool_.state().file(id))) continue;
    oldest.push_back(id);
  }
  for (const FileId id : oldest) {
    if (jobs_counted() >= jobs_max_) break;
    start_job(id, {DrainRank::kOther, 0});
  }
}

bool DrainPlanner::start_job(FileId id, DrainQueue::Place place) {
  const File* file = pool_.state().file(id);
  if (file == nullptr || jobs_.count(id) > 0 || !file->parent || file->newest.drained) return false;
  if (sets_.holds(*file) || !failures_.may_try(id, pool_.now())) return false;
  DrainJob job;
  job.file = id;
  job.version = file->newest.version;
  job.number = pool_.next_id();
  job.place = place;
  job.hangs = failures_.storage_hung(id);
  if (const std::uint64_t staged = held_.staged_number(*file)) {
    job.number = staged;
    job.staged = true;
  } else if (const auto left = leftovers_.attempt_at(id, job.version)) {
    job.number = left->number;
    job.verified = left->verified;
    job.late_before = left->late;
  }
  job.verified.resize(file->newest.slices.size());
  if (!job.staged && !pieces_.plan(*file, job)) return false;
  if (!pool_.pin(id, job.version)) return false;
  leftovers_.continued(id, job.number);
  step(jobs_.emplace(id, std::move(job)).first->second);
  return true;
}

DrainJob* DrainPlanner::job_of(FileId file, std::uint64_t number) {
  const auto job = jobs_.find(file);
  return job == jobs_.end() || job->second.number != number ? nullptr : &job->second;
}

/// Advances the job by one step. May end the job.
void DrainPlanner::step(DrainJob& job) {
  if (job.phase == DrainPhase::kPieces) {
    if (!is_newest(pool_.state(), job.file, job.version))
      return end_job(job, DrainEnd::kObsolete, "has a newer version");
    if (job.done == job.requests.size()) {
      job.phase = DrainPhase::kWaitsForName;
    } else {
      return send_pieces(job);
    }
  }
  if (job.phase == DrainPhase::kWaitsForName) return finish(job);
  if (job.phase != DrainPhase::kLost) return;
  // Asks the same benefactor again: it serves requests in order. It repeats this until the lost
  // request has expired.
  if (pool_.peer_of(job.finisher) != nullptr) return send_finish(job);
  if (pool_.now() < job.late) return;
  // Another benefactor then finds either the temporary file or the final name.
  job.phase = DrainPhase::kWaitsForName;
  finish(job);
}

void DrainPlanner::send_pieces(DrainJob& job) {
  for (std::size_t i = 0; i < job.requests.size(); ++i) {
    if (job.hangs && job.unanswered > 0) return;
    const DrainRequest& request = job.requests[i];
    if (request.sent || !load_.has_room(request.benefactor, job.hangs, pace_.at_once())) continue;
    rpc::Peer* peer = pool_.peer_of(request.benefactor);
    if (peer == nullptr)
      return end_job(job, DrainEnd::kFailed, "waits for a benefactor that is silent");
    if (!pace_.pay(request.bytes)) return;
    send(job, i, *peer);
  }
}

void DrainPlanner::send(DrainJob& job, std::size_t index, rpc::Peer& peer) {
  DrainRequest& request = job.requests[index];
  const Duration deadline = drain_deadline(pool_, request.bytes * DrainPace::kPerBenefactor);
  request.sent = true;
  request.hangs = job.hangs;
  request.sent_at = pool_.now();
  ++job.unanswered;
  load_.sent(request);
  peer.call(std::move(request.pieces), deadline,
            [this, alive = pool_.alive(), file = job.file, number = job.number, index,
             late = pool_.now() + deadline + kTransit](const rpc::Answer& answer) {
              if (alive.expired()) return;
              DrainJob* sent = job_of(file, number);
              STDCHK_ASSERT(sent != nullptr);  // a job stays until all its requests are answered
              pieces_answered(*sent, index, late, answer);
            });
}

/// Requests without an answer for long no longer count, so that others may be sent.
void DrainPlanner::find_hanging(DrainJob& job) {
  if (job.asked_for_name() && pool_.now() >= job.naming_since + DrainLoad::kHangsAfter) {
    warn_of_hanging(job);
    job.hangs = true;
  }
  for (DrainRequest& request : job.requests) {
    if (!load_.is_stuck(request)) continue;
    warn_of_hanging(job);
    load_.hangs(request);
    job.hangs = job.starts_over = true;
  }
}

void DrainPlanner::warn_of_hanging(const DrainJob& job) const {
  const File* file = pool_.state().file(job.file);
  if (file == nullptr || job.hangs) return;
  log::warning("{} is not drained: its storage does not answer; others go on",
               pool_.state().path(*file));
}

/// Returns the number of jobs of the rank `least` and of better ranks. Hanging jobs do not count,
/// so that others may start.
std::size_t DrainPlanner::jobs_counted(DrainRank least) const {
  std::size_t hanging = 0;
  std::size_t all = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.place.first > least) continue;
    ++all;
    hanging += job.hangs ? 1 : 0;
  }
  return all - std::min(hanging, kHangingJobsMax);
}

void DrainPlanner::pieces_answered(DrainJob& job, std::size_t index, Time late,
                                   const rpc::Answer& answer) {
  DrainRequest& request = job.requests[index];
  request.answered = true;
  load_.ended(request);
  const BenefactorId benefactor = request.benefactor;
  const auto* reply = answer ? std::get_if<msg::DrainPieces::Reply>(&*answer) : nullptr;
  if (reply != nullptr) {
    for (const DrainRequest::Source& source : request.sources) job.verified[source.slice] = true;
    for (const std::uint32_t piece : reply->corrupt) {
      if (piece < request.sources.size()) job.verified[request.sources[piece].slice] = false;
    }
  }
  job.starts_over = job.starts_over || (!answer && !affects_only_its_piece(answer));
  if (answer) {
    load_.answered(request);
    job.hangs = false;
  } else if (is_outcome_unknown(answer)) {
    // A hanging file says nothing about other storage of the benefactor.
    if (!request.hangs) load_.park(benefactor);
    job.late = std::max(job.late, late);
  }
  pieces_done(job, request, answer);
}

void DrainPlanner::pieces_done(DrainJob& job, const DrainRequest& request,
                               const rpc::Answer& answer) {
  --job.unanswered;
  if (job.phase == DrainPhase::kEnding) {
    if (job.unanswered == 0) close_job(job.file);
    return;
  }
  if (!answer) return fail_job(job, answer);
  const auto* reply = std::get_if<msg::DrainPieces::Reply>(&*answer);
  if (reply == nullptr) return end_job(job, DrainEnd::kFailed, "was answered wrongly");
  if (!reply->corrupt.empty()) {
    if (have_moved(job, request, reply->corrupt)) {
      end_job(job, DrainEnd::kMoved, "has chunks that were moved");
      return run();
    }
    // The scrubber checks these chunks and replaces wrong copies; the next
    // attempt reads the new ones.
    scrubber_.queue_suspected(*pool_.state().file(job.file), request.benefactor);
    return end_job(job, DrainEnd::kFailed, "has chunks that fail their checksum");
  }
  ++job.done;
  step(job);
  run();
}

/// Returns true when the benefactor has none of these pieces where the request says. Compaction has
/// moved them since, and their old places may hold other bytes.
bool DrainPlanner::have_moved(const DrainJob& job, const DrainRequest& request,
                              const std::vector<std::uint32_t>& pieces) const {
  if (!is_newest(pool_.state(), job.file, job.version)) return false;
  const auto& slices = pool_.state().file(job.file)->newest.slices;
  return std::ranges::all_of(pieces, [&](std::uint32_t piece) {
    if (piece >= request.sources.size()) return false;
    const auto& [slice, offset] = request.sources[piece];
    const auto copies = pool_.state().chunks().get(slices[slice].chunk).copies;
    return offset != msg::kNoExtent &&
           std::ranges::find(copies, Extent{request.benefactor, offset}) == copies.end();
  });
}

// ---- naming drained files ---------------------------------------------------------------------

void DrainPlanner::finish(DrainJob& job) {
  if (!is_newest(pool_.state(), job.file, job.version))
    return end_job(job, DrainEnd::kObsolete, "has a newer version");
  const File& file = *pool_.state().file(job.file);
  if (!mirror_.try_end_wait() || mirror_.blocks(file) || sets_.holds(file)) return;
  if (held_.waits_for_changes(file)) return;
  job.recorded = job.recorded && file.in_drain;  // a rename may have taken the name away
  // Two files had the same name one after the other: the later job waits for its turn.
  const std::string path = pool_.state().path(file);
  for (const auto& [id, other] : jobs_) {
    const bool naming = other.asked_for_name() || other.phase == DrainPhase::kSettingAside ||
                        other.phase == DrainPhase::kRecording;
    if (id != job.file && naming && other.path == path) return;
  }
  const auto finisher = finisher_of(job);
  if (!finisher) return;
  job.path = path;
  job.finisher = *finisher;
  // Nobody pins an older version any more: once these are set aside, the name is free.
  if (pool_.state().contents().older_needs_name(file)) return set_aside(job);
  if (job.recorded && mirror_.waits_for_link(file)) return;
  if (job.recorded) return send_finish(job);
  // DrainStarted comes first: if the manager ends now, the next one knows that the name may exist.
  // Then all earlier commands are durable, too, above all the commit of this version.
  job.phase = DrainPhase::kStarting;
  pool_.execute(DrainStarted{job.file},
                [this, file = job.file, number = job.number](const Result<Affected>& outcome) {
                  DrainJob* started = job_of(file, number);
                  if (started == nullptr) return;
                  if (!outcome)
                    return end_job(*started, DrainEnd::kFailed, "could not be recorded");
                  started->recorded = true;
                  started->phase = DrainPhase::kWaitsForName;
                  // Checks again: a rename may have come in the meantime.
                  finish(*started);
                });
}

/// Chooses a benefactor that has written pieces, if one is left. It avoids hosts where naming a
/// file hangs: that may block all other names of this host in the kernel.
std::optional<BenefactorId> DrainPlanner::finisher_of(const DrainJob& job) const {
  for (const DrainRequest& request : job.requests) {
    if (pool_.peer_of(request.benefactor) == nullptr) continue;
    if (!has_hanging_name_changes(request.benefactor)) return request.benefactor;
  }
  for (const auto& [id, status] : pool_.benefactors()) {
    if (status.peer != nullptr && !has_hanging_name_changes(id)) return id;
  }
  return pool_.some_benefactor();
}

bool DrainPlanner::has_hanging_name_changes(BenefactorId benefactor) const {
  return std::ranges::any_of(jobs_, [&](const auto& entry) {
    const DrainJob& job = entry.second;
    return job.asked_for_name() && job.hangs && job.finisher == benefactor;
  });
}

/// Keeps the older version readable for its readers, as it is about to lose its name.
void DrainPlanner::set_aside(DrainJob& job) {
  rpc::Peer* peer = pool_.peer_of(job.finisher);
  job.phase = DrainPhase::kSettingAside;
  msg::MirrorChange change;
  change.kind = msg::MirrorKind::kSetAside;
  change.path = job.path;
  change.file = job.file;
  change.number = pool_.next_id();
  const Time late = pool_.now() + limits::kCallDeadline + kTransit;
  peer->call(change, limits::kCallDeadline,
             [this, alive = pool_.alive(), file = job.file, number = job.number,
              aside = change.number, late](const rpc::Answer& answer) {
               if (alive.expired()) return;
               if (!answer) leftovers_.drop(file, aside, late);
               DrainJob* job_now = job_of(file, number);
               if (job_now == nullptr) return;
               if (!answer) return fail_job(*job_now, answer);
               leftovers_.add_aside(file, aside);
               pool_.soft_state().set_older_aside(file, aside);
               job_now->phase = DrainPhase::kWaitsForName;
               finish(*job_now);
             });
}

void DrainPlanner::send_finish(DrainJob& job) {
  rpc::Peer* peer = pool_.peer_of(job.finisher);
  const File* file = pool_.state().file(job.file);
  const VersionData* version = pool_.state().version(job.file, job.version);
  if (job.phase != DrainPhase::kLost) job.naming_since = pool_.now();
  job.phase = DrainPhase::kFinishing;
  job.late = pool_.now() + limits::kOperationDeadline + kTransit;
  peer->call(
      msg::DrainFinish{job.file, job.number, job.path, version->size_bytes,
                       mode_without_list(*file), file->uid, file->gid, version->mtime_ns},
      limits::kOperationDeadline,
      [this, alive = pool_.alive(), id = job.file, number = job.number](const rpc::Answer& answer) {
        if (!alive.expired()) finished(id, number, answer);
      });
}

void DrainPlanner::finished(FileId file, std::uint64_t number, const rpc::Answer& answer) {
  DrainJob* job = job_of(file, number);
  if (job == nullptr) return;
  if (!answer) {
    if (!is_outcome_unknown(answer)) return fail_job(*job, answer);
    job->phase = DrainPhase::kLost;
    return;
  }
  jobs_max_ = std::min(2 * jobs_max_, kJobsMax);
  // A Drained record for a file without this version could not be replayed after a restart.
  if (!is_newest(pool_.state(), job->file, job->version))
    return end_job(*job, DrainEnd::kObsolete, "was removed or has a newer version");
  job->phase = DrainPhase::kRecording;
  if (!fingerprints_.can_read()) return record(*job, {});
  fingerprints_.read({job->path}, kLookMax,
                     [this, alive = pool_.alive(), file,
                      number](const std::optional<std::vector<FileFingerprint>>& fingerprints) {
                       DrainJob* const looked = alive.expired() ? nullptr : job_of(file, number);
                       if (looked == nullptr) return;
                       // Without a fingerprint, the file is compared before the pool calls it safe.
                       record(*looked, fingerprints ? fingerprints->front() : FileFingerprint{});
                     });
}

/// The file has its name in the drain directory: records it as drained.
void DrainPlanner::record(DrainJob& job, const FileFingerprint& fingerprint) {
  if (!is_newest(pool_.state(), job.file, job.version))
    return end_job(job, DrainEnd::kObsolete, "was removed or has a newer version");
  const FileId file = job.file;
  // A rename or link has come meanwhile: the file must wait for other files of its set.
  const File& named = *pool_.state().file(file);
  const bool is_held = pool_.state().mirror().held().contains(file);
  if (!named.in_drain || (is_held && sets_.holds(named)))
    return end_job(job, DrainEnd::kObsolete, "waits for other files");
  fingerprints_.add(pool_.state(), file, job.version, fingerprint);
  pool_.execute(Drained{file, job.version}, [this, file,
                                             number = job.number](const Result<Affected>& outcome) {
    DrainJob* recorded = job_of(file, number);
    if (recorded == nullptr) return;
    // kStale: the file has a newer version, which is drained in its turn.
    const bool failed =
        !outcome && outcome.error().code != Code::kStale && outcome.error().code != Code::kNotFound;
    end_job(*recorded, failed ? DrainEnd::kFailed : DrainEnd::kObsolete, "could not be recorded");
    run();
  });
  // The file is no longer pending: a client that waits for this must find
  // the links of drained sets.
  notices_.file_changed(file, {});
}

void DrainPlanner::fail_job(DrainJob& job, const rpc::Answer& answer) {
  const Error& error = answer.error().error;
  if (job.staged) held_.staged_file_failed(job.file, job.number);
  // The drain directory lacks space for so many temporary files at once.
  if (error.os_errno == ENOSPC || error.os_errno == EDQUOT) {
    jobs_max_ = std::max<std::size_t>(std::min(jobs_max_, jobs_.size()) / 2, 1);
    leftovers_.drop_attempts();
  }
  end_job(job, DrainEnd::kFailed, error.where);
}

/// Ends the job once all its requests are answered: its temporary file must not appear again.
void DrainPlanner::end_job(DrainJob& job, DrainEnd end, const char* why) {
  // After the first request for its name, the temporary file may have been renamed.
  job.starts_over = job.starts_over || job.phase != DrainPhase::kPieces;
  job.phase = DrainPhase::kEnding;
  job.end = end;
  job.why = why;
  if (job.unanswered == 0) close_job(job.file);
}

void DrainPlanner::close_job(FileId id) {
  const auto found = jobs_.find(id);
  const DrainJob job = std::move(found->second);
  jobs_.erase(found);
  const File* file = pool_.state().file(id);
  const bool newest = file != nullptr && file->parent && file->newest.version == job.version;
  const bool again = job.end != DrainEnd::kObsolete && newest;
  if (job.end == DrainEnd::kFailed && newest) {
    failures_.failed(id, pool_.now(), job.hangs);
    log::warning("{} {} and is not drained; it is tried again", pool_.state().path(*file), job.why);
  } else {
    failures_.forget(id);
  }
  const Time late = std::max(job.late, job.late_before);
  if (job.staged) {
    // DrainLeftovers keeps the file under that number as long as the version needs it.
  } else if (again && !job.starts_over) {
    leftovers_.store(id, {job.version, job.number, job.verified, late});
  } else if (again || !newest || pool_.now() < job.late_before) {
    leftovers_.drop(id, job.number, late);
  }
  pool_.unpin(id, job.version);
  leftovers_.drop_due();
}

bool DrainPlanner::is_path_in_use(const msg::MirrorChange& change) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    const DrainJob& job = entry.second;
    const bool uses =
        job.phase == DrainPhase::kSettingAside || job.phase == DrainPhase::kFinishing ||
        job.phase == DrainPhase::kLost || job.phase == DrainPhase::kRecording ||
        job.phase == DrainPhase::kPieces;  // pieces read the drained file at this path
    return uses && !job.path.empty() && concerns(change, job.file, job.path);
  });
}

}  // namespace stdchk::manager
