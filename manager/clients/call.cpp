#include "manager/clients/call.h"

#include <utility>

namespace stdchk::manager {

void Call::answer(rpc::Answer answer) const {
  if (!shared_->respond) return;
  const Counted& counted = shared_->counted;
  counted.counts->count(counted.kind, counted.clock->now() - counted.began);
  if (!answer) counted.counts->count_error(counted.kind, answer.error().error.code);
  if (const auto replies = replies_.lock()) replies->finish(call_id_, answer);
  shared_->respond(std::move(answer));
  shared_->respond = {};
}

void Call::fail(const Error& error, std::string detail) const {
  rpc::Failure failure{error, std::move(detail), {}};
  if (retry_class(error.code) == Retry::kBackOff) failure.retry_after = kTick;
  answer(tl::unexpected<rpc::Failure>(std::move(failure)));
}

}  // namespace stdchk::manager
