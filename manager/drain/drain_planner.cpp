#include "manager/drain/drain_planner.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/sealed_chunk.h"
#include "core/policy/image_name.h"
#include "manager/drain/import.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kJobsMax = 32;
constexpr std::uint64_t kRequestBytesMax = 16 * limits::kMiB;
constexpr std::size_t kScannedMax = 1000;
constexpr Duration kParked = 2s;
constexpr Duration kLookMax = 2s;       ///< for the print of a file that got its name
constexpr Duration kSealedAgain = 60s;  ///< interval of the warning about an encrypted file
/// A request hangs when it has no answer for 10 s, and for 4 times as long as the last one took.
/// More requests would only make slow storage slower.
constexpr Duration kHangsAfter = 10s;
constexpr int kHangsAfterFactor = 4;
constexpr std::uint32_t kHangingMax = 16;  ///< hanging requests at each benefactor
constexpr std::size_t kHangingJobsMax = 100;

/// Returns true when the error does not spoil other pieces in the same temporary file.
bool spares_the_rest(const rpc::Answer& answer) {
  const Code code = answer.error().error.code;
  return code == Code::kPeerLost || code == Code::kCancelled || code == Code::kBusy;
}

/// Returns true while the file has a name, and `version` is its newest version.
bool is_newest(const State& state, FileId file, Version version) {
  const File* found = state.file(file);
  return found != nullptr && found->parent && found->newest.version == version;
}

/// Returns the time that a request for so many bytes may take at a benefactor.
Duration deadline_for(const Pool& pool, std::uint64_t bytes) {
  Duration deadline = limits::kOperationDeadline;
  const std::uint64_t rate = pool.config().pool.drain_rate_bytes_per_s;
  // Requests at one benefactor share its rate, and each piece is written and read back.
  if (rate > 0)
    deadline += std::chrono::seconds(std::min<std::uint64_t>(86400, 4 * bytes / rate + 1));
  return deadline;
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
                           const SessionTable& sessions, Notices& notices, KnownPrints& prints,
                           std::function<void()> on_name_given)
    : pool_(pool),
      sets_(sets),
      scrubber_(scrubber),
      notices_(notices),
      prints_(prints),
      on_name_given_(std::move(on_name_given)),
      pace_(pool, sessions),
      mirror_(pool, mirror_hooks()),
      jobs_max_(kJobsMax) {}

NameMirror::Hooks DrainPlanner::mirror_hooks() {
  return {
      .is_path_in_use = [this](const msg::MirrorChange& change) { return is_path_in_use(change); },
      .on_set_aside = [this](FileId file, std::uint64_t number) { asides_.emplace(file, number); },
      .on_wait_ended =
          [this] {
            // Temporary files of earlier managers may go now, too.
            if (garbage_.empty() || garbage_.begin()->first.first) return;
            garbage_.begin()->second = pool_.now();
          },
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
    // Drops temporary files that earlier managers have left. The new epoch is not begun yet.
    const State& state = pool_.state();
    const auto& queue = state.mirror_queue();
    const std::uint64_t below = queue.empty() ? state.mirror().newest() + 1 : queue.begin()->first;
    garbage_[{FileId{}, ((state.epoch().value + 1) << 40) | below}] = names_from;
    return {};
  }
  STDCHK_TRY(import_drained(pool_.config().pool.drain_directory, [this](Command command) {
    pool_.execute(std::move(command), [](const Result<Affected>&) {});
  }));
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
  mirror_.run();
  drop_unused_asides();
  drop_left(false);
  drop_temporaries();
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
  sets_.want(below);
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
    return std::string(msg::kTemporaryFolder) + "/" + msg::temporary_name(file.id, version.aside);
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
  Job job;
  job.file = id;
  job.version = file->newest.version;
  job.number = pool_.next_id();
  job.place = place;
  job.hangs = failures_.storage_hung(id);
  const auto left = left_.find(id);
  if (left != left_.end() && left->second.version == job.version) {
    job.number = left->second.number;
    job.verified = left->second.verified;
    job.late_before = left->second.late;
  }
  job.verified.resize(file->newest.slices.size());
  if (!plan(*file, job)) return false;
  if (!pool_.pin(id, job.version)) return false;
  if (left != left_.end() && left->second.number == job.number) left_.erase(left);
  step(jobs_.emplace(id, std::move(job)).first->second);
  return true;
}

bool DrainPlanner::is_usable(BenefactorId benefactor) const {
  const auto parked = parked_.find(benefactor);
  return pool_.peer_of(benefactor) != nullptr &&
         (parked == parked_.end() || parked->second <= pool_.now());
}

/// Decides which benefactor writes which pieces. Returns false when the job cannot start now.
bool DrainPlanner::plan(const File& file, Job& job) {
  PiecePlan plan{job, {}, {}};
  for (const auto& [id, status] : pool_.benefactors()) {
    if (is_usable(id)) plan.any = id;
  }
  if (!plan.any) return false;
  for (std::uint32_t i = 0; i < file.newest.slices.size(); ++i) {
    if (!job.verified[i] && !plan_slice(file, i, plan)) return false;
  }
  for (auto& [id, request] : plan.open) job.requests.push_back(std::move(request));
  if (job.requests.empty()) {
    // The file consists of holes only: a request without pieces makes the temporary file.
    Request& request = job.requests.emplace_back();
    request.benefactor = plan.any;
    request.pieces.file = job.file;
    request.pieces.number = job.number;
  }
  return true;
}

/// Plans the piece of one slice. Returns false when nobody can write it now.
bool DrainPlanner::plan_slice(const File& file, std::uint32_t number, PiecePlan& plan) {
  const State& state = pool_.state();
  const PackedSlice& slice = file.newest.slices[number];
  const Chunk chunk = state.chunks().get(slice.chunk);
  if (is_sealed(chunk.name)) {
    log::warning(
        "{} is encrypted, and benefactors have no key to drain it; copy it through a mount that "
        "has the key",
        state.path(file));
    failures_.failed_for(file.id, pool_.now(), kSealedAgain);
    return false;
  }
  msg::DrainPiece piece{slice.file_offset, slice.length, slice.chunk_offset, msg::kNoExtent,
                        chunk.length,      chunk.crc,    chunk.name};
  if (chunk.copies.empty()) {
    if (mirror_.blocks(file)) return false;
    Request& request = plan.add(plan.any, number, piece);
    request.pieces.base_path = plan.job.path = state.path(file);
    request.pieces.base_uid = file.uid;  // a change that is not mirrored yet blocks the file above
    return true;
  }
  const auto copy = std::ranges::find_if(chunk.copies, [&](const Extent& at) {
    return is_usable(at.benefactor) && !pool_.is_wrong(at);
  });
  if (copy == chunk.copies.end()) {
    const bool may_return =
        std::ranges::any_of(chunk.copies, [&](const Extent& at) { return pool_.is_readable(at); });
    failures_.waits_for_copies(file.id, pool_.now(), kParked, may_return);
    return false;
  }
  piece.extent_offset = copy->offset;
  plan.add(copy->benefactor, number, piece);
  return true;
}

DrainPlanner::Request& DrainPlanner::PiecePlan::add(BenefactorId benefactor, std::uint32_t number,
                                                    const msg::DrainPiece& piece) {
  const auto is_full = [](const Request& request) {
    return request.bytes >= kRequestBytesMax ||
           request.pieces.pieces.size() == limits::kMapPageSlicesMax;
  };
  Request& request = open[benefactor];
  if (is_full(request)) job.requests.push_back(std::exchange(request, {}));
  request.benefactor = benefactor;
  request.pieces.file = job.file;
  request.pieces.number = job.number;
  request.pieces.pieces.push_back(piece);
  request.slices.push_back(number);
  request.bytes += piece.length;
  return request;
}

DrainPlanner::Job* DrainPlanner::job_of(FileId file, std::uint64_t number) {
  const auto job = jobs_.find(file);
  return job == jobs_.end() || job->second.number != number ? nullptr : &job->second;
}

/// Advances the job by one step. May end the job.
void DrainPlanner::step(Job& job) {
  if (job.phase == Phase::kPieces) {
    if (!is_newest(pool_.state(), job.file, job.version))
      return end_job(job, false, "has a newer version");
    if (job.done == job.requests.size()) {
      job.phase = Phase::kWaitsForName;
    } else {
      return send_pieces(job);
    }
  }
  if (job.phase == Phase::kWaitsForName) return finish(job);
  if (job.phase != Phase::kLost) return;
  // Asks the same benefactor again: it serves requests in order. It repeats this until the lost
  // request has expired.
  if (pool_.peer_of(job.finisher) != nullptr) return send_finish(job);
  if (pool_.now() < job.late) return;
  // Another benefactor then finds either the temporary file or the final name.
  job.phase = Phase::kWaitsForName;
  finish(job);
}

bool DrainPlanner::has_room(const Job& job, BenefactorId benefactor) const {
  const auto count = [&](const auto& counts) {
    const auto found = counts.find(benefactor);
    return found == counts.end() ? 0 : found->second;
  };
  return job.hangs ? count(hanging_) < kHangingMax : count(in_flight_) < pace_.at_once();
}

void DrainPlanner::send_pieces(Job& job) {
  for (std::size_t i = 0; i < job.requests.size(); ++i) {
    if (job.hangs && job.unanswered > 0) return;
    const Request& request = job.requests[i];
    if (request.sent || !has_room(job, request.benefactor)) continue;
    rpc::Peer* peer = pool_.peer_of(request.benefactor);
    if (peer == nullptr) return end_job(job, true, "waits for a benefactor that is silent");
    if (!pace_.pay(request.bytes)) return;
    send(job, i, *peer);
  }
}

void DrainPlanner::send(Job& job, std::size_t index, rpc::Peer& peer) {
  Request& request = job.requests[index];
  const Duration deadline = deadline_for(pool_, request.bytes * DrainPace::kPerBenefactor);
  request.sent = true;
  request.hangs = job.hangs;
  request.sent_at = pool_.now();
  ++job.unanswered;
  ++(request.hangs ? hanging_ : in_flight_)[request.benefactor];
  peer.call(std::move(request.pieces), deadline,
            [this, alive = pool_.alive(), file = job.file, number = job.number, index,
             late = pool_.now() + deadline + kTransit](const rpc::Answer& answer) {
              if (alive.expired()) return;
              Job* sent = job_of(file, number);
              STDCHK_ASSERT(sent != nullptr);  // a job stays until all its requests are answered
              pieces_answered(*sent, index, late, answer);
            });
}

/// Requests without an answer for long no longer count, so that others may be sent.
void DrainPlanner::find_hanging(Job& job) {
  if (job.asked_for_name() && pool_.now() >= job.naming_since + kHangsAfter) {
    warn_of_hanging(job);
    job.hangs = true;
  }
  for (Request& request : job.requests) {
    if (!request.sent || request.answered || request.hangs) continue;
    const Duration by_rate = deadline_for(pool_, request.bytes) - limits::kOperationDeadline;
    const Duration patience =
        std::max(kHangsAfter + by_rate, kHangsAfterFactor * took_[request.benefactor]);
    if (pool_.now() < request.sent_at + patience) continue;
    if (hanging_[request.benefactor] >= kHangingMax) continue;
    warn_of_hanging(job);
    request.hangs = job.hangs = job.starts_over = true;
    --in_flight_[request.benefactor];
    ++hanging_[request.benefactor];
  }
}

void DrainPlanner::warn_of_hanging(const Job& job) const {
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

void DrainPlanner::pieces_answered(Job& job, std::size_t index, Time late,
                                   const rpc::Answer& answer) {
  Request& request = job.requests[index];
  request.answered = true;
  --(request.hangs ? hanging_ : in_flight_)[request.benefactor];
  const BenefactorId benefactor = request.benefactor;
  const auto* reply = answer ? std::get_if<msg::DrainPieces::Reply>(&*answer) : nullptr;
  if (reply != nullptr) {
    for (const std::uint32_t slice : request.slices) job.verified[slice] = true;
    for (const std::uint32_t piece : reply->corrupt) {
      if (piece < request.slices.size()) job.verified[request.slices[piece]] = false;
    }
  }
  job.starts_over = job.starts_over || (!answer && !spares_the_rest(answer));
  if (answer) {
    took_[benefactor] = pool_.now() - request.sent_at;
    job.hangs = false;
  } else if (lost_on_the_way(answer)) {
    // A hanging file says nothing about other storage of the benefactor.
    if (!request.hangs) parked_[benefactor] = pool_.now() + kParked;
    job.late = std::max(job.late, late);
  }
  pieces_done(job, benefactor, answer);
}

void DrainPlanner::pieces_done(Job& job, BenefactorId benefactor, const rpc::Answer& answer) {
  --job.unanswered;
  if (job.phase == Phase::kEnding) {
    if (job.unanswered == 0) close_job(job.file);
    return;
  }
  if (!answer) return fail_job(job, answer);
  const auto* reply = std::get_if<msg::DrainPieces::Reply>(&*answer);
  if (reply == nullptr) return end_job(job, true, "was answered wrongly");
  if (!reply->corrupt.empty()) {
    // The scrubber checks these chunks and replaces wrong copies; the next
    // attempt reads the new ones.
    scrubber_.suspect(*pool_.state().file(job.file), benefactor);
    return end_job(job, true, "has chunks that fail their checksum");
  }
  ++job.done;
  step(job);
  run();
}

// ---- naming drained files ---------------------------------------------------------------------

void DrainPlanner::finish(Job& job) {
  if (!is_newest(pool_.state(), job.file, job.version))
    return end_job(job, false, "has a newer version");
  const File& file = *pool_.state().file(job.file);
  if (!mirror_.try_end_wait() || mirror_.blocks(file) || sets_.holds(file)) return;
  // Two files had the same name one after the other: the later job waits for its turn.
  const std::string path = pool_.state().path(file);
  for (const auto& [id, other] : jobs_) {
    const bool naming = other.asked_for_name() || other.phase == Phase::kSettingAside ||
                        other.phase == Phase::kRecording;
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
  job.phase = Phase::kStarting;
  pool_.execute(DrainStarted{job.file},
                [this, file = job.file, number = job.number](const Result<Affected>& outcome) {
                  Job* started = job_of(file, number);
                  if (started == nullptr) return;
                  if (!outcome) return end_job(*started, true, "could not be recorded");
                  started->recorded = true;
                  started->phase = Phase::kWaitsForName;
                  // Checks again: a rename may have come in the meantime.
                  finish(*started);
                });
}

/// Chooses a benefactor that has written pieces, if one is left. It avoids hosts where naming a
/// file hangs: that may block all other names of this host in the kernel.
std::optional<BenefactorId> DrainPlanner::finisher_of(const Job& job) const {
  for (const Request& request : job.requests) {
    if (pool_.peer_of(request.benefactor) == nullptr) continue;
    if (!names_hang_at(request.benefactor)) return request.benefactor;
  }
  for (const auto& [id, status] : pool_.benefactors()) {
    if (status.peer != nullptr && !names_hang_at(id)) return id;
  }
  return pool_.some_benefactor();
}

bool DrainPlanner::names_hang_at(BenefactorId benefactor) const {
  return std::ranges::any_of(jobs_, [&](const auto& entry) {
    const Job& job = entry.second;
    return job.asked_for_name() && job.hangs && job.finisher == benefactor;
  });
}

/// Keeps the older version readable for its readers, as it is about to lose its name.
void DrainPlanner::set_aside(Job& job) {
  rpc::Peer* peer = pool_.peer_of(job.finisher);
  job.phase = Phase::kSettingAside;
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
               if (!answer) garbage_[{file, aside}] = late;
               Job* job_now = job_of(file, number);
               if (job_now == nullptr) return;
               if (!answer) return fail_job(*job_now, answer);
               asides_.emplace(file, aside);
               pool_.soft_state().set_older_aside(file, aside);
               job_now->phase = Phase::kWaitsForName;
               finish(*job_now);
             });
}

void DrainPlanner::send_finish(Job& job) {
  rpc::Peer* peer = pool_.peer_of(job.finisher);
  const File* file = pool_.state().file(job.file);
  const VersionData* version = pool_.state().version(job.file, job.version);
  if (job.phase != Phase::kLost) job.naming_since = pool_.now();
  job.phase = Phase::kFinishing;
  job.late = pool_.now() + limits::kOperationDeadline + kTransit;
  peer->call(
      msg::DrainFinish{job.file, job.number, job.path, version->size_bytes, file->mode, file->uid,
                       file->gid, version->mtime_ns},
      limits::kOperationDeadline,
      [this, alive = pool_.alive(), id = job.file, number = job.number](const rpc::Answer& answer) {
        if (!alive.expired()) finished(id, number, answer);
      });
}

void DrainPlanner::finished(FileId file, std::uint64_t number, const rpc::Answer& answer) {
  Job* job = job_of(file, number);
  if (job == nullptr) return;
  if (!answer) {
    if (!lost_on_the_way(answer)) return fail_job(*job, answer);
    job->phase = Phase::kLost;
    return;
  }
  jobs_max_ = std::min(2 * jobs_max_, kJobsMax);
  // A Drained record for a file without this version could not be replayed after a restart.
  if (!is_newest(pool_.state(), job->file, job->version))
    return end_job(*job, false, "was removed or has a newer version");
  job->phase = Phase::kRecording;
  if (!prints_.can_look()) return record(*job, {});
  prints_.look({job->path}, kLookMax,
               [this, alive = pool_.alive(), file,
                number](const std::optional<std::vector<FilePrint>>& prints) {
                 Job* const looked = alive.expired() ? nullptr : job_of(file, number);
                 if (looked == nullptr) return;
                 // Without a print, the file is compared before the pool calls it safe.
                 record(*looked, prints ? prints->front() : FilePrint{});
               });
}

/// The file has its name in the drain directory: records it as drained.
void DrainPlanner::record(Job& job, const FilePrint& print) {
  if (!is_newest(pool_.state(), job.file, job.version))
    return end_job(job, false, "was removed or has a newer version");
  const FileId file = job.file;
  prints_.add(pool_.state(), file, job.version, print);
  pool_.execute(Drained{file, job.version},
                [this, file, number = job.number](const Result<Affected>& outcome) {
                  Job* recorded = job_of(file, number);
                  if (recorded == nullptr) return;
                  // kStale: the file has a newer version, which is drained in its turn.
                  const bool failed = !outcome && outcome.error().code != Code::kStale &&
                                      outcome.error().code != Code::kNotFound;
                  end_job(*recorded, failed, "could not be recorded");
                  run();
                });
  // The file is no longer pending: a client that waits for this must find
  // the links of drained sets.
  notices_.file_changed(file, {});
}

void DrainPlanner::fail_job(Job& job, const rpc::Answer& answer) {
  const Error& error = answer.error().error;
  // The drain directory lacks space for so many temporary files at once.
  if (error.os_errno == ENOSPC || error.os_errno == EDQUOT) {
    jobs_max_ = std::max<std::size_t>(std::min(jobs_max_, jobs_.size()) / 2, 1);
    drop_left(true);
  }
  end_job(job, true, error.where);
}

/// Ends the job once all its requests are answered: its temporary file must not appear again.
void DrainPlanner::end_job(Job& job, bool failed, const char* why) {
  // After the first request for its name, the temporary file may have been renamed.
  job.starts_over = job.starts_over || job.phase != Phase::kPieces;
  job.phase = Phase::kEnding;
  job.failed = failed;
  job.why = why;
  if (job.unanswered == 0) close_job(job.file);
}

void DrainPlanner::close_job(FileId id) {
  const auto found = jobs_.find(id);
  const Job job = std::move(found->second);
  jobs_.erase(found);
  const File* file = pool_.state().file(id);
  const bool newest = file != nullptr && file->parent && file->newest.version == job.version;
  if (job.failed && newest) {
    failures_.failed(id, pool_.now(), job.hangs);
    log::warning("{} {} and is not drained; it is tried again", pool_.state().path(*file), job.why);
  } else {
    failures_.forget(id);
  }
  const Time late = std::max(job.late, job.late_before);
  if (job.failed && newest && !job.starts_over) {
    left_[id] = {job.version, job.number, job.verified, late};
  } else if (job.failed || !newest || pool_.now() < job.late_before) {
    garbage_[{id, job.number}] = late;
  }
  pool_.unpin(id, job.version);
  drop_temporaries();
}

void DrainPlanner::drop_temporaries() {
  for (auto& [which, when] : garbage_) {
    if (pool_.now() < when) continue;
    const auto benefactor = pool_.some_benefactor();
    if (!benefactor) return;
    msg::MirrorChange change;
    change.kind = msg::MirrorKind::kDropTemporary;
    change.file = which.first;
    change.number = which.second;
    when = pool_.now() + limits::kCallDeadline + kTransit;
    pool_.peer_of(*benefactor)
        ->call(change, limits::kCallDeadline,
               [this, alive = pool_.alive(), key = which](const rpc::Answer& answer) {
                 if (!alive.expired() && answer) garbage_.erase(key);
               });
  }
}

/// Drops what no further attempt continues, or everything when space is short (`all`).
void DrainPlanner::drop_left(bool all) {
  std::erase_if(left_, [&](const auto& entry) {
    const auto& [id, left] = entry;
    const File* file = pool_.state().file(id);
    const bool wanted = file != nullptr && file->parent && file->newest.version == left.version;
    if (wanted && !all) return false;
    garbage_[{id, left.number}] = left.late;
    return true;
  });
}

void DrainPlanner::drop_unused_asides() {
  std::erase_if(asides_, [this](const auto& aside) {
    if (pool_.state().files().is_aside(aside.first, aside.second)) return false;
    garbage_[aside] = {};
    return true;
  });
}

bool DrainPlanner::is_path_in_use(const msg::MirrorChange& change) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    const Job& job = entry.second;
    const bool uses = job.phase == Phase::kSettingAside || job.phase == Phase::kFinishing ||
                      job.phase == Phase::kLost || job.phase == Phase::kRecording ||
                      job.phase == Phase::kPieces;  // pieces read the drained file at this path
    return uses && !job.path.empty() && concerns(change, job.file, job.path);
  });
}

}  // namespace stdchk::manager
