#include "manager/service/router.h"

#include <concepts>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/base/limits.h"
#include "core/messages/routes.h"

namespace stdchk::manager {
namespace {

/// Shorter than a client's patience: requests fail at once before the first waiting client gives
/// up.
constexpr Duration kStuckAfter = limits::kManagerDeadline - limits::kLease;

template <class M>
concept NamesClient = requires(M m) {
  { m.client } -> std::convertible_to<ClientId>;
};

template <class M>
constexpr bool kChangesNames = M::kKind == msg::RequestKind::kChangesNames;

/// Repeats of these are answered from the client's recent replies. The others can be done again.
template <class M>
constexpr bool kChanges = kChangesNames<M> || M::kKind == msg::RequestKind::kOpens ||
                          M::kKind == msg::RequestKind::kOfSession;

template <class M>
constexpr bool kRegisters =
    std::is_same_v<M, msg::RegisterClient> || std::is_same_v<M, msg::RegisterBenefactor>;

}  // namespace

void Router::serve(Connection& connection, msg::RequestEnvelope envelope, Time deadline,
                   rpc::Responder respond) {
  ++requests_served_;
  const Call call(std::move(respond), envelope.call_id, deadline,
                  {request_counts_, &pool_.reactor().clock(), envelope.body.index(), pool_.now()});
  std::visit([&](auto& request) { handle(connection, request, call); }, envelope.body);
}

template <class M>
void Router::handle(Connection& connection, M& request, const Call& call) {
  constexpr msg::Route kRoute = msg::route_of<M>();
  if (!pool_.config().membership.may_ask(connection.peer().link(), kRoute)) {
    return call.fail(Code::kRefused, M::kName, "Members of this role may not send this request.");
  }
  if constexpr (kRegisters<M>) {
    handle_registration(connection, request, call);
  } else if constexpr (std::is_same_v<M, msg::FollowManager>) {
    to_.admissions.follow(request, call);
  } else if constexpr (std::is_same_v<M, msg::BenefactorHeartbeat>) {
    to_.benefactors.serve(connection, request, call);
  } else if constexpr (kRoute == msg::Route::kClientToManager) {
    handle_client(connection, request, call);
  } else {
    call.fail(Code::kUnsupported, M::kName);
  }
}

template <class M>
std::function<void()> Router::handle_again(const Connection& connection, M& request,
                                           const Call& call) {
  return [this, number = connection.number(), request, call]() mutable {
    Connection* const found = connections_.find(number);
    if (found != nullptr) handle(*found, request, call);
  };
}

template <class M>
void Router::handle_registration(Connection& connection, M& request, const Call& call) {
  const auto again = handle_again(connection, request, call);
  if (to_.admissions.wait_for_epoch(again)) return;
  if constexpr (std::is_same_v<M, msg::RegisterClient>) {
    if (to_.admissions.wait_for_log_stores(again)) return;
    to_.members.serve(connection, request, call);
  } else {
    to_.benefactors.serve(connection, request, call);
  }
}

template <class M>
void Router::handle_client(Connection& connection, M& request, const Call& call) {
  const auto client = to_.clients.find(connection.client);
  if (!connection.client || client == to_.clients.end()) {
    // The client's lease ran out while its link was up: its sessions have ended.
    return call.fail(connection.client ? Code::kFenced : Code::kRefused, M::kName);
  }
  if constexpr (NamesClient<M>) {
    if (request.client != connection.client) {
      // The client's earlier identity has ended, with everything that belonged to it. Its request
      // may have been executed; for changes of names by an earlier manager the state knows that.
      const bool before = request.client && request.client < connection.client &&
                          to_.clients.count(request.client) == 0;
      if (!before) return call.fail(Code::kRefused, M::kName);
      if (!kChangesNames<M> || Pool::epoch_of(request.client) == pool_.state().epoch()) {
        return call.fail(Code::kFenced, M::kName);
      }
    }
  }
  client->second.last_heard = pool_.now();
  const auto make_retry = [&] { return handle_again(connection, request, call); };
  if (to_.leases.wait_if_leased(client->second, request, call, make_retry)) return;
  if constexpr (kChanges<M>) {
    change(connection, client->second, request, call);
  } else {
    pass(connection, client->second, request, call);
  }
}

template <class M>
void Router::change(Connection& connection, ClientRecord& client, M& request, const Call& call) {
  if (pool_.journal().failed()) return call.fail(Code::kReadOnly, M::kName);
  Call remembered = call;
  if (!remembered.first_in(client.replies)) return;
  // The disk does not answer, or benefactors that the standby relies on do not. Calls in one
  // directory queue in the kernel, where no deadline ends them. Therefore changes of names fail at
  // once instead of waiting for their deadlines in turn. Requests of sessions wait: no other call
  // waits for them.
  if (kChangesNames<M> && pool_.journal().is_stuck(kTick, kStuckAfter)) {
    return remembered.fail(Code::kManagerLost, "manager.durable");
  }
  if constexpr (kChangesNames<M>) {
    if (request.client != connection.client) {
      return to_.names.serve_again(client, request, remembered);
    }
  }
  pass(connection, client, request, remembered);
}

/// Passes the request to the service whose serve() takes this type.
template <class M>
void Router::pass(Connection& connection, ClientRecord& client, M& request, const Call& call) {
  if constexpr (requires { to_.names.serve(client, request, call); }) {
    to_.names.serve(client, request, call);
  } else if constexpr (requires { to_.reads.serve(client, request, call); }) {
    to_.reads.serve(client, request, call);
  } else if constexpr (requires { to_.sessions.serve(client, request, call); }) {
    to_.sessions.serve(client, request, call);
  } else if constexpr (requires { to_.leases.serve(client, request, call); }) {
    to_.leases.serve(client, request, call);
  } else if constexpr (requires { to_.commits.serve(client, request, call); }) {
    to_.commits.serve(client, request, call);
  } else if constexpr (requires { to_.resumption.serve(client, request, call); }) {
    to_.resumption.serve(client, request, call);
  } else if constexpr (requires { to_.locks.serve(client, request, call); }) {
    to_.locks.serve(client, request, call);
  } else if constexpr (requires { to_.members.serve(client, request, call); }) {
    to_.members.serve(client, request, call);
  } else if constexpr (requires { to_.benefactors.serve(connection, request, call); }) {
    to_.benefactors.serve(connection, request, call);
  } else {
    to_.administration.serve(client, request, call);
  }
}

}  // namespace stdchk::manager
