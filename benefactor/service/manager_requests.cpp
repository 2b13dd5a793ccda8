#include "benefactor/service/manager_requests.h"

#include <utility>

#include "benefactor/drain/file_drainer.h"
#include "benefactor/drain/object_drainer.h"
#include "benefactor/memory/check_extents.h"
#include "benefactor/memory/move_extents.h"
#include "benefactor/service/refuse.h"
#include "core/base/log.h"
#include "core/chunk/extent_header.h"
#include "core/objects/object_place.h"

namespace stdchk::benefactor {
namespace {

constexpr const char* kWhere = "benefactor.job";

tl::unexpected<rpc::Failure> failed(Error error) {
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

ManagerRequests::ManagerRequests(Reactor& reactor, Parts parts)
    : reactor_(reactor),
      parts_(parts),
      stop_(parts.config.pause),
      forgetter_(parts.arena),
      jobs_(reactor, parts.config.executor, stop_) {}

ManagerRequests::~ManagerRequests() { stop_.request(); }

void ManagerRequests::start() {
  Executor* const executor = parts_.config.executor;
  copier_ = std::make_unique<Copier>(
      reactor_, Copier::Config{parts_.clients.access(), parts_.arena, executor, counts_});
  builder_ = std::make_unique<StripeBuilder>(
      reactor_, StripeBuilder::Config{parts_.clients.access(), parts_.arena, executor, counts_});
}

void ManagerRequests::drain_into(const std::string& directory, std::uint64_t rate) {
  if (directory == drain_directory_ && rate == drain_rate_) return;
  drain_directory_ = directory;
  drain_rate_ = rate;
  if (directory.empty()) {
    drainer_ = nullptr;
  } else if (parts_.config.make_drainer) {
    drainer_ = parts_.config.make_drainer(directory, rate);
  } else if (is_object_store(directory)) {
    drainer_ = make_object_drainer(parts_.arena, directory, rate, reactor_.clock(), stop_);
  } else {
    drainer_ =
        std::make_shared<FileDrainer>(parts_.arena, directory, rate, reactor_.clock(), stop_);
  }
}

void ManagerRequests::lose_manager() {
  forgetter_.lose_link();
  if (copier_) copier_->cancel();
  if (builder_) builder_->cancel();
}

/// From now on the benefactor itself writes to the targets, so older grants open them no more.
template <class Targets>
void ManagerRequests::close_grants(const Targets& targets, GrantId before) {
  for (const auto& target : targets) {
    parts_.clients.grants().close(target.to_offset, extent_bytes(target.length), before);
  }
}

void ManagerRequests::serve(msg::Request request, Order order) {
  if (const auto* fence = std::get_if<msg::FenceClient>(&request)) {
    return order.respond(parts_.clients.fence_client(*fence));
  }
  if (const auto* keep = std::get_if<msg::KeepLog>(&request)) {
    const Status kept = parts_.log.store(*keep);
    return order.respond(kept ? rpc::Answer(msg::Reply(msg::KeepLog::Reply{}))
                              : failed(kept.error()));
  }
  if (const auto* wanted = std::get_if<msg::ReadLog>(&request)) {
    return read_log(*wanted, std::move(order));
  }
  if (auto* moves = std::get_if<msg::MoveExtents>(&request)) {
    return move(std::move(*moves), std::move(order));
  }
  if (auto* copies = std::get_if<msg::CopyExtents>(&request)) {
    return copy(std::move(*copies), std::move(order));
  }
  if (auto* stripe = std::get_if<msg::BuildStripe>(&request)) {
    return build(std::move(*stripe), std::move(order));
  }
  if (auto* checks = std::get_if<msg::CheckExtents>(&request)) {
    return check(std::move(*checks), std::move(order));
  }
  if (auto* wanted = std::get_if<msg::ReportExtents>(&request)) {
    return report(*wanted, std::move(order));
  }
  if (auto* garbage = std::get_if<msg::ForgetExtents>(&request)) {
    return forget(std::move(*garbage), std::move(order));
  }
  serve_drain(std::move(request), std::move(order));
}

void ManagerRequests::read_log(const msg::ReadLog& request, Order order) {
  parts_.log.promise(request.promise);
  auto reply = parts_.log.read(request.offset);
  if (!reply) return order.respond(failed(reply.error()));
  order.respond(msg::Reply(std::move(*reply)));
}

void ManagerRequests::move(msg::MoveExtents moves, Order order) {
  close_grants(moves.moves, moves.grants_before);
  jobs_.start(Jobs::Worker::kMoves, std::move(order),
              [arena = parts_.arena, moves = std::move(moves), counts = counts_]() -> rpc::Answer {
                auto reply = move_extents(arena, moves);
                add(counts->moved_bytes, bytes_of(moves.moves, reply.failed));
                return msg::Reply(std::move(reply));
              });
}

void ManagerRequests::copy(msg::CopyExtents copies, Order order) {
  close_grants(copies.copies, copies.grants_before);
  copier_->copy(std::move(copies), order.deadline, std::move(order.respond));
}

void ManagerRequests::build(msg::BuildStripe stripe, Order order) {
  close_grants(stripe.outputs, stripe.grants_before);
  builder_->build(std::move(stripe), order.deadline, std::move(order.respond));
}

void ManagerRequests::check(msg::CheckExtents checks, Order order) {
  jobs_.start(
      Jobs::Worker::kChecks, std::move(order),
      [arena = parts_.arena, checks = std::move(checks), counts = counts_]() -> rpc::Answer {
        auto reply = check_extents(arena, checks);
        add(counts->checked_bytes, bytes_of(checks.extents, {}));
        add(counts->wrong_extents, reply.corrupt.size());
        return msg::Reply(std::move(reply));
      });
}

void ManagerRequests::report(const msg::ReportExtents& wanted, Order order) {
  jobs_.start(Jobs::Worker::kChecks, std::move(order),
              [arena = parts_.arena, wanted]() -> rpc::Answer {
                return msg::Reply(report_extents(arena, wanted));
              });
}

void ManagerRequests::forget(msg::ForgetExtents garbage, Order order) {
  jobs_.start(Jobs::Worker::kChecks, std::move(order),
              [&forgetter = forgetter_, link = forgetter_.link(),
               garbage = std::move(garbage)]() -> rpc::Answer {
                auto reply = forgetter.forget(garbage, link);
                if (!reply) return failed(reply.error());
                return msg::Reply(*reply);
              });
}

// ---- the drain --------------------------------------------------------------------------------

void ManagerRequests::serve_drain(msg::Request request, Order order) {
  auto* pieces = std::get_if<msg::DrainPieces>(&request);
  auto* end = std::get_if<msg::DrainFinish>(&request);
  auto* change = std::get_if<msg::MirrorChange>(&request);
  auto* wanted = std::get_if<msg::FindDrained>(&request);
  if (pieces == nullptr && end == nullptr && change == nullptr && wanted == nullptr) {
    return order.respond(
        refuse(Code::kRefused, kWhere, "A benefactor does not serve this request."));
  }
  if (!drainer_) {
    return order.respond(
        refuse(Code::kInvalidArgument, kWhere, "The pool has no drain directory."));
  }
  if (pieces != nullptr) return drain(std::move(*pieces), std::move(order));
  if (end != nullptr) return finish(std::move(*end), std::move(order));
  if (change != nullptr) return mirror(std::move(*change), std::move(order));
  find(std::move(*wanted), std::move(order));
}

void ManagerRequests::drain(msg::DrainPieces pieces, Order order) {
  const FileId file = pieces.file;
  const std::uint64_t attempt = pieces.number;
  const Time deadline = order.deadline;
  jobs_.start_drain(file, attempt, std::move(order),
                    [drainer = drainer_, pieces = std::move(pieces), deadline, counts = counts_] {
                      auto done = drainer->write_pieces(pieces, deadline);
                      const bool writes = pieces.number != 0;
                      if (done && writes) {
                        add(counts->drained_bytes, bytes_of(pieces.pieces, done->corrupt));
                      }
                      if (!done && writes) add(counts->drains_failed, 1);
                      return to_answer("a drain", std::move(done));
                    });
}

void ManagerRequests::finish(msg::DrainFinish end, Order order) {
  const JobQueues::Key queue{true, end.file.value};
  const Time deadline = order.deadline;
  jobs_.start_in_order(queue, std::move(order),
                       [drainer = drainer_, end = std::move(end), deadline, counts = counts_] {
                         auto done = drainer->finish(end, deadline);
                         add(done ? counts->drained_files : counts->drains_failed, 1);
                         return to_answer("the end of a drain", std::move(done));
                       });
}

void ManagerRequests::mirror(msg::MirrorChange change, Order order) {
  const bool of_file = change.kind == msg::MirrorKind::kDropTemporary;
  const JobQueues::Key queue{of_file, of_file ? change.file.value : change.number};
  const Time deadline = order.deadline;
  jobs_.start_in_order(
      queue, std::move(order), [drainer = drainer_, change = std::move(change), deadline] {
        return to_answer("a change of the drain directory", drainer->mirror(change, deadline));
      });
}

/// Other jobs need not wait for the check, because it changes nothing.
void ManagerRequests::find(msg::FindDrained wanted, Order order) {
  const Time deadline = order.deadline;
  jobs_.start_alone(std::move(order), [drainer = drainer_, wanted = std::move(wanted), deadline] {
    return to_answer("a look at the drain directory", drainer->find(wanted, deadline));
  });
}

}  // namespace stdchk::benefactor
