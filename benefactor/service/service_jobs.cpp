#include <set>
#include <utility>

#include "benefactor/memory/check_extents.h"
#include "benefactor/memory/move_extents.h"
#include "benefactor/service/service.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"

namespace stdchk::benefactor {
namespace {

constexpr Duration kBusyRetry = std::chrono::milliseconds(200);
constexpr Duration kHangsAfter = std::chrono::seconds(5);
constexpr std::size_t kHangingAttemptsMax = 2;  ///< of one file

tl::unexpected<rpc::Failure> refuse(Code code, std::string detail, Duration retry_after = {}) {
  return tl::unexpected<rpc::Failure>(
      rpc::Failure{Error{code, 0, "benefactor.job"}, std::move(detail), retry_after});
}

tl::unexpected<rpc::Failure> refuse(Error error) {
  return tl::unexpected<rpc::Failure>(rpc::Failure{error, {}, {}});
}

/// Makes the answer of a job. Logs an error, because its outcome is handled here; the manager plans
/// what follows.
template <class T>
rpc::Answer to_answer(const char* what, Outcome<T> outcome) {
  if (outcome) return msg::Reply(std::move(*outcome));
  Problem& problem = outcome.error();
  log::warning("{} failed: {} {}", what, describe(problem.error), problem.text);
  return tl::unexpected<rpc::Failure>(
      rpc::Failure{problem.error, std::move(problem.text), Duration{}});
}

void add(std::atomic<std::uint64_t>& to, std::uint64_t count) {
  to.fetch_add(count, std::memory_order_relaxed);
}

/// Returns the bytes of all parts but the excepted ones.
template <class Part>
std::uint64_t bytes_of(const std::vector<Part>& parts, const std::vector<std::uint32_t>& excepted) {
  std::uint64_t bytes = 0;
  for (const Part& part : parts) bytes += part.length;
  for (const std::uint32_t index : excepted) bytes -= parts[index].length;
  return bytes;
}

}  // namespace

Service::~Service() {
  lifetime_.end();
  stop_.request();
  copier_.reset();
  builder_.reset();
  workers_.reset();
  reactor_.cancel(manager_timer_);
  reactor_.cancel(sweep_timer_);
  for (const auto& [number, drain] : drains_) reactor_.cancel(drain.timer);
  for (auto& [number, job] : jobs_) {
    reactor_.cancel(job.timer);
    job.respond(refuse(Code::kCancelled, "The benefactor ends."));
  }
}

/// From now on the benefactor itself writes to the targets, so older grants open them no more.
template <class Targets>
void Service::close_grants(const Targets& targets, GrantId before) {
  for (const auto& target : targets) {
    grants_.close(target.to_offset, extent_bytes(target.length), before);
  }
}

void Service::serve_manager(msg::Request request, Time deadline, rpc::Responder respond) {
  if (const auto* fence = std::get_if<msg::FenceClient>(&request)) {
    return respond(fence_client(*fence));
  }
  if (const auto* keep = std::get_if<msg::KeepLog>(&request)) {
    if (const Status kept = log_.keep(*keep); !kept) return respond(refuse(kept.error()));
    return respond(msg::Reply(msg::KeepLog::Reply{}));
  }
  if (const auto* read = std::get_if<msg::ReadLog>(&request)) {
    log_.promise(read->promise);
    auto reply = log_.read(read->offset);
    if (!reply) return respond(refuse(reply.error()));
    return respond(msg::Reply(std::move(*reply)));
  }
  if (config_.executor == nullptr && !workers_) workers_ = std::make_unique<Workers>();
  if (auto* moves = std::get_if<msg::MoveExtents>(&request)) {
    close_grants(moves->moves, moves->grants_before);
    start_job(
        worker(&Workers::moves), deadline, std::move(respond),
        [arena = arena_.bytes(), moves = std::move(*moves), counts = counts_]() -> rpc::Answer {
          auto reply = move_extents(arena, moves);
          add(counts->moved_bytes, bytes_of(moves.moves, reply.failed));
          return msg::Reply(std::move(reply));
        });
    return;
  }
  if (auto* copies = std::get_if<msg::CopyExtents>(&request)) {
    close_grants(copies->copies, copies->grants_before);
    return copier_->copy(std::move(*copies), deadline, std::move(respond));
  }
  if (auto* build = std::get_if<msg::BuildStripe>(&request)) {
    close_grants(build->outputs, build->grants_before);
    return builder_->build(std::move(*build), deadline, std::move(respond));
  }
  if (auto* checks = std::get_if<msg::CheckExtents>(&request)) {
    start_job(
        worker(&Workers::checks), deadline, std::move(respond),
        [arena = arena_.bytes(), checks = std::move(*checks), counts = counts_]() -> rpc::Answer {
          auto reply = check_extents(arena, checks);
          add(counts->checked_bytes, bytes_of(checks.extents, {}));
          add(counts->wrong_extents, reply.corrupt.size());
          return msg::Reply(std::move(reply));
        });
    return;
  }
  if (auto* wanted = std::get_if<msg::ReportExtents>(&request)) {
    start_job(worker(&Workers::checks), deadline, std::move(respond),
              [arena = arena_.bytes(), wanted = *wanted]() -> rpc::Answer {
                return msg::Reply(report_extents(arena, wanted));
              });
    return;
  }
  if (auto* garbage = std::get_if<msg::ForgetExtents>(&request)) {
    start_job(worker(&Workers::checks), deadline, std::move(respond),
              [&forgetter = forgetter_, link = forgetter_.link(),
               garbage = std::move(*garbage)]() -> rpc::Answer {
                auto reply = forgetter.forget(garbage, link);
                if (!reply) return refuse(reply.error());
                return msg::Reply(*reply);
              });
    return;
  }
  serve_drain(std::move(request), deadline, std::move(respond));
}

void Service::serve_drain(msg::Request request, Time deadline, rpc::Responder respond) {
  const bool drains = std::holds_alternative<msg::DrainPieces>(request) ||
                      std::holds_alternative<msg::DrainFinish>(request) ||
                      std::holds_alternative<msg::MirrorChange>(request) ||
                      std::holds_alternative<msg::FindDrained>(request);
  if (!drains) return respond(refuse(Code::kRefused, "A benefactor does not serve this request."));
  if (!drainer_) {
    return respond(refuse(Code::kInvalidArgument, "The pool has no drain directory."));
  }
  if (auto* pieces = std::get_if<msg::DrainPieces>(&request)) {
    start_drain(std::move(*pieces), deadline, std::move(respond));
  } else if (auto* finish = std::get_if<msg::DrainFinish>(&request)) {
    const JobLines::Line line{true, finish->file.value};
    start_names(line, deadline, std::move(respond),
                [drainer = drainer_, finish = std::move(*finish), deadline, counts = counts_] {
                  auto done = drainer->finish(finish, deadline);
                  add(done ? counts->drained_files : counts->drains_failed, 1);
                  return to_answer("the end of a drain", std::move(done));
                });
  } else if (auto* change = std::get_if<msg::MirrorChange>(&request)) {
    const bool of_file = change->kind == msg::MirrorKind::kDropTemporary;
    const JobLines::Line line{of_file, of_file ? change->file.value : change->number};
    start_names(line, deadline, std::move(respond),
                [drainer = drainer_, change = std::move(*change), deadline] {
                  return to_answer("a change of the drain directory",
                                   drainer->mirror(change, deadline));
                });
  } else if (auto* wanted = std::get_if<msg::FindDrained>(&request)) {
    // Uses a line of its own: other jobs need not wait for a check, which changes nothing.
    const JobLines::Line line{false, ~jobs_made_};
    start_names(line, deadline, std::move(respond),
                [drainer = drainer_, wanted = std::move(*wanted), deadline] {
                  return to_answer("a look at the drain directory",
                                   drainer->find(wanted, deadline));
                });
  }
}

/// Runs a change of names in its line. The manager enforces all other orders; only repeats must
/// stay in order here.
void Service::start_names(JobLines::Line line, Time deadline, rpc::Responder respond,
                          std::function<rpc::Answer()> work) {
  if (!names_) names_ = std::make_unique<JobLines>(worker(&Workers::names));
  struct OneLine final : Executor {
    OneLine(JobLines& to, JobLines::Line which) : lines(to), line(which) {}
    void run(std::function<void()> of) override { lines.run(line, std::move(of)); }
    JobLines& lines;
    const JobLines::Line line;
  } executor(*names_, line);
  const std::uint64_t number = start_job(executor, deadline, std::move(respond), std::move(work));
  if (number != 0) watch(number, &Workers::names, {}, 0);
}

/// Starts another thread when a job hangs. The storage of a file or a name may hang while other
/// storage works; the job keeps its thread.
void Service::watch(std::uint64_t number, ThreadExecutor Workers::*own, FileId file,
                    std::uint64_t attempt) {
  const TimerId timer = reactor_.schedule_after(kHangsAfter, [this, own] {
    if (!workers_) return;
    ThreadExecutor& threads = (*workers_).*own;
    // Jobs that wait in their line occupy no thread.
    const bool some_are_free = own == &Workers::names && names_->count() < threads.thread_count();
    if (!some_are_free && threads.thread_count() < kDrainThreadsMax) threads.add_thread();
  });
  drains_.emplace(number, Drain{file, attempt, timer});
}

void Service::start_drain(msg::DrainPieces pieces, Time deadline, rpc::Responder respond) {
  const FileId file = pieces.file;
  const std::uint64_t attempt = pieces.number;
  std::set<std::uint64_t> hanging;
  for (const auto& [number, drain] : drains_) {
    if (drain.file && drain.file == file && drain.attempt != attempt) hanging.insert(drain.attempt);
  }
  if (hanging.size() >= kHangingAttemptsMax) {
    return respond(refuse(Code::kBusy, "Earlier drains of the file hang.", kHangsAfter));
  }
  const std::uint64_t number =
      start_job(worker(&Workers::pieces), deadline, std::move(respond),
                [drainer = drainer_, pieces = std::move(pieces), deadline, counts = counts_] {
                  auto done = drainer->write_pieces(pieces, deadline);
                  if (done) add(counts->drained_bytes, bytes_of(pieces.pieces, done->corrupt));
                  if (!done) add(counts->drains_failed, 1);
                  return to_answer("a drain", std::move(done));
                });
  if (number != 0) watch(number, &Workers::pieces, file, attempt);
}

/// Returns the job's number; 0 if the job was refused.
std::uint64_t Service::start_job(Executor& executor, Time deadline, rpc::Responder respond,
                                 std::function<rpc::Answer()> work) {
  if (jobs_.size() >= kJobsMax) {
    respond(refuse(Code::kBusy, "Too many jobs wait already.", kBusyRetry));
    return 0;
  }
  const std::uint64_t number = ++jobs_made_;
  const TimerId timer = reactor_.schedule_at(deadline, [this, number] {
    finish_job(number, refuse(Code::kDeadline, "The storage did not answer in time."));
  });
  jobs_.emplace(number, Job{std::move(respond), timer});
  executor.run([this, number, deadline, work = std::move(work),
                asked_by = std::weak_ptr<rpc::Peer>(manager_),
                alive = lifetime_.watch()]() mutable {
    // Otherwise the manager has given the job up, or was replaced: another
    // attempt may be under way.
    const bool wanted = reactor_.clock().now() < deadline && !asked_by.expired();
    rpc::Answer answer =
        wanted ? work() : rpc::Answer(refuse(Code::kDeadline, "The job came too late."));
    auto hand_back = [this, number, alive, answer = std::move(answer)]() mutable {
      if (alive.expired()) return;
      const auto drain = drains_.find(number);
      if (drain != drains_.end()) {
        reactor_.cancel(drain->second.timer);
        drains_.erase(drain);
      }
      finish_job(number, std::move(answer));
    };
    // A full queue empties within milliseconds. If not, the job's timer answers.
    if (!reactor_.post(hand_back)) {
      stop_.sleep(std::chrono::milliseconds(100));
      if (!reactor_.post(hand_back)) log::error("a job's answer was lost: the reactor is stuck");
    }
  });
  return number;
}

void Service::finish_job(std::uint64_t number, rpc::Answer answer) {
  const auto job = jobs_.find(number);
  if (job == jobs_.end()) return;  // its timer has answered
  rpc::Responder respond = std::move(job->second.respond);
  reactor_.cancel(job->second.timer);
  jobs_.erase(job);
  respond(std::move(answer));
}

}  // namespace stdchk::benefactor
