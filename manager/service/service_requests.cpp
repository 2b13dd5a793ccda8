// Who may ask what: every request passes here first.
#include <type_traits>

#include "core/base/log.h"
#include "core/messages/routes.h"
#include "manager/replication/copy_planner.h"
#include "manager/service/service.h"

namespace stdchk::manager {
namespace {

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

}  // namespace

void Service::serve(Connection& connection, msg::RequestEnvelope envelope, Time deadline,
                    rpc::Responder respond) {
  ++requests_served_;
  Call call(std::move(respond), envelope.call_id, deadline,
            {request_counts_, &reactor_.clock(), envelope.body.index(), now()});
  std::visit([&](auto& request) { handle(connection, request, call); }, envelope.body);
}

/// What was asked of an earlier manager, which has not answered.
template <class M>
void Service::serve_again(ClientRecord& client, const M& request, const Call& call) {
  switch (state_.done_calls().find({request.client, call.id()})) {
    case DoneCalls::Found::kNotDone:
      return serve(client, request, call);
    case DoneCalls::Found::kForgotten:
      return call.fail(Code::kFenced, M::kName);
    case DoneCalls::Found::kDone:
      return when_durable([call, answer = answer_again(client, request)] { call.answer(answer); });
  }
}

/// It was done; others may have changed the same since then.
template <class M>
rpc::Answer Service::answer_again(ClientRecord& client, const M& request) {
  if constexpr (std::is_same_v<M, msg::SetAttributes>) {
    return attributes_again<M>(state_.file(request.file));
  } else if constexpr (std::is_same_v<M, msg::MakeDirectory> ||
                       std::is_same_v<M, msg::MakeSymlink>) {
    constexpr bool kDirectory = std::is_same_v<M, msg::MakeDirectory>;
    const FileType type = kDirectory ? FileType::kDirectory : FileType::kSymlink;
    const File* made = state_.lookup(request.parent, request.name, {}).value_or(nullptr);
    return attributes_again<M>(made != nullptr && made->type == type ? made : nullptr);
  } else if constexpr (std::is_same_v<M, msg::Remove>) {
    return msg::Remove::Reply{drop_resumed(client, request), {}, 0};
  } else if constexpr (std::is_same_v<M, msg::MakeLink>) {
    return attributes_again<M>(state_.file(request.file));
  } else if constexpr (std::is_same_v<M, msg::MakeNode>) {
    const File* made = state_.lookup(request.parent, request.name, {}).value_or(nullptr);
    return attributes_again<M>(made != nullptr && made->type == request.type ? made : nullptr);
  } else {
    return typename M::Reply{};
  }
}

template <class M>
rpc::Answer Service::attributes_again(const File* file) const {
  if (file == nullptr) {
    return tl::unexpected(rpc::Failure{{Code::kStale, 0, M::kName}, {}, {}});
  }
  return typename M::Reply{attributes(*file)};
}

/// A pending file that covered the one that was removed went with it. Its client was not told, and
/// has brought it back.
FileId Service::drop_resumed(ClientRecord& client, const msg::Remove& request) {
  const File* file = state_.lookup(request.parent, request.name, client.id).value_or(nullptr);
  if (file == nullptr || file->parent) return {};
  const FileId id = file->id;
  state_.drop_pending_name(id);
  file_changed(id, client.id);
  return id;
}

template <class M>
void Service::handle(Connection& connection, M& request, const Call& call) {
  constexpr msg::Route kRoute = msg::route_of<M>();
  if (!config_.membership.may_ask(connection.peer().link(), kRoute)) {
    return call.fail(Code::kRefused, M::kName, "No member of this role may ask for that.");
  }
  if constexpr (std::is_same_v<M, msg::RegisterClient> ||
                std::is_same_v<M, msg::RegisterBenefactor>) {
    const auto later = [&](std::vector<std::function<void()>>& waiting) {
      waiting.push_back([this, number = connection.number(), request, call]() mutable {
        const auto found = connections_.find(number);
        if (found != connections_.end()) handle(*found->second, request, call);
      });
    };
    if (!epoch_durable_) return later(at_epoch_);
    if constexpr (std::is_same_v<M, msg::RegisterClient>) {
      if (waits_for_keepers()) return later(at_keepers_);
      register_client(connection, request, call);
    } else {
      register_benefactor(connection, request, call);
    }
  } else if constexpr (std::is_same_v<M, msg::FollowManager>) {
    follow(request, call);
  } else if constexpr (std::is_same_v<M, msg::BenefactorHeartbeat>) {
    const auto found = benefactors_.find(connection.benefactor);
    if (!connection.benefactor || request.benefactor != connection.benefactor ||
        found == benefactors_.end()) {
      return call.fail(Code::kRefused, "manager.heartbeat");
    }
    BenefactorStatus& status = found->second;
    status.last_heard = now();
    if (request.leaving && !status.leaving) {
      log::info("benefactor {} on {} wants to leave", found->first.value, status.info.host_name);
      status.leaving = true;
      benefactors_changed();
    }
    if (status.leaving && copies_->may_go(found->first)) return let_go(found->first, call);
    call.answer(heartbeat_reply(found->first, false));
  } else if constexpr (kRoute == msg::Route::kClientToManager) {
    const auto client = clients_.find(connection.client);
    if (!connection.client || client == clients_.end()) {
      // The lease ran out while the link was up: everything of this client has ended.
      return call.fail(connection.client ? Code::kFenced : Code::kRefused, M::kName);
    }
    if constexpr (NamesClient<M>) {
      if (request.client != connection.client) {
        // Who it was earlier has ended, and all that was its own. What it asked for then may have
        // been done; of changes of names by an earlier manager it is known.
        const bool before = request.client && request.client < connection.client &&
                            clients_.count(request.client) == 0;
        if (!before) return call.fail(Code::kRefused, M::kName);
        if (!kChangesNames<M> || epoch_of(request.client) == state_.epoch()) {
          return call.fail(Code::kFenced, M::kName);
        }
      }
    }
    client->second.last_heard = now();
    if constexpr (kChanges<M>) {
      if (journal_failed_) return call.fail(Code::kReadOnly, M::kName);
      Call remembered = call;
      if (!remembered.first_in(client->second.replies)) return;
      // Those of sessions wait: no other call does for them.
      if (kChangesNames<M> && is_stuck()) {
        return remembered.fail(Code::kManagerLost, "manager.durable");
      }
      if constexpr (kChangesNames<M>) {
        if (request.client != connection.client) {
          return serve_again(client->second, request, remembered);
        }
      }
      serve(client->second, request, remembered);
    } else if constexpr (std::is_same_v<M, msg::ListBenefactors>) {
      list_benefactors(connection, call);
    } else {
      serve(client->second, request, call);
    }
  } else {
    call.fail(Code::kUnsupported, M::kName);
  }
}

}  // namespace stdchk::manager
