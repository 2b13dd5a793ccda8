#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error_codes.h"
#include "core/base/result.h"
#include "manager/clients/clients.h"
#include "manager/clients/request_counts.h"
#include "manager/pool/pool.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// The time between two ticks of the manager. Errors that a client may retry say this back-off.
inline constexpr Duration kTick = std::chrono::milliseconds(200);

/// A Call represents a request until its answer. Copies share the request; only
/// the first answer counts.
class Call {
 public:
  /// The request counters that the answer updates.
  struct Counted {
    std::shared_ptr<RequestCounts> counts;
    Clock* clock = nullptr;
    std::size_t kind = 0;
    Time began{};
  };
  Call(rpc::Responder respond, std::uint64_t call_id, Time deadline, Counted counted)
      : shared_(std::make_shared<Shared>(std::move(respond), std::move(counted))),
        call_id_(call_id),
        deadline_(deadline) {}
  /// Registers the call, so that repeats get the same answer. Returns false when this call is
  /// itself a repeat; then its answer is taken care of.
  bool first_in(const std::shared_ptr<RecentReplies>& replies) {
    if (replies->begin(call_id_, shared_->respond) != RecentReplies::Seen::kNew) return false;
    replies_ = replies;
    return true;
  }
  void answer(rpc::Answer answer) const;
  void fail(const Error& error, std::string detail = {}) const;
  void fail(Code code, const char* where, std::string detail = {}) const {
    fail(Error{code, 0, where}, std::move(detail));
  }
  Time deadline() const { return deadline_; }
  std::uint64_t id() const { return call_id_; }

 private:
  struct Shared {
    Shared(rpc::Responder to, Counted what) : respond(std::move(to)), counted(std::move(what)) {}
    rpc::Responder respond;
    Counted counted;
  };
  std::shared_ptr<Shared> shared_;
  std::weak_ptr<RecentReplies> replies_;
  std::uint64_t call_id_;
  Time deadline_;
};

/// Executes the command. Answers the call with `make_reply(outcome)` when the command is durable,
/// or with the error.
template <class MakeReply>
void answer_when_durable(Pool& pool, Command command, const Call& call, MakeReply make_reply) {
  pool.execute(std::move(command), [call, make_reply](const Result<Affected>& outcome) {
    if (outcome) {
      call.answer(make_reply(*outcome));
    } else {
      call.fail(outcome.error());
    }
  });
}

}  // namespace stdchk::manager
