#include "manager/service/client_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {

ClientService::ClientService(Pool& pool, Neighbours neighbours) : pool_(pool), to_(neighbours) {}

void ClientService::serve(Connection& connection, msg::RegisterClient request, const Call& call) {
  if (connection.benefactor) return call.fail(Code::kInvalidArgument, "register client");
  const Membership& membership = pool_.config().membership;
  if (!membership.examine(request, connection.member())) {
    log::warning("a client on {} does not prove that it was client {}", request.host_name,
                 request.resume.value);
  }
  const bool met = request.resume.value <= pool_.last_id();
  if (to_.admissions.is_outdated({request.newest_epoch, 0, met}, call)) return;
  auto resumed = to_.clients.find(request.resume);
  // A client that registers twice on one link stays one client.
  if (resumed == to_.clients.end()) resumed = to_.clients.find(connection.client);
  if (resumed == to_.clients.end()) {
    ClientRecord record;
    record.id = ClientId{pool_.next_id()};
    record.before = request.resume;
    resumed = to_.clients.emplace(record.id, std::move(record)).first;
  }
  ClientRecord& client = resumed->second;
  client.host_name = request.host_name;
  client.host_token = request.host_token;
  client.role = request.role;
  client.last_heard = pool_.now();
  // Older links of the same client lose their identity.
  to_.connections.for_each([&](Connection& other) {
    if (&other != &connection && other.client == client.id) other.client = {};
  });
  if (connection.client && connection.client != client.id) {
    const auto before = to_.clients.find(connection.client);
    if (before != to_.clients.end()) before->second.peer = nullptr;
  }
  client.peer = &connection.peer();
  connection.client = client.id;
  call.answer(msg::RegisterClient::Reply{client.id, pool_.state().epoch(), pool_.config().pool,
                                         to_.benefactors.list_for(connection),
                                         membership.proof_of(client.id, connection.member())});
}

void ClientService::serve(ClientRecord& client, const msg::ClientHeartbeat& request,
                          const Call& call) {
  to_.ledger.add_report(request.totals, request.reads);
  client.reader_count = request.reader_count;
  call.answer(msg::ClientHeartbeat::Reply{});
}

void ClientService::serve(ClientRecord& client, const msg::GoodbyeClient& request,
                          const Call& call) {
  to_.ledger.add_last_report(request.totals, request.reads);
  call.answer(msg::GoodbyeClient::Reply{});
  end(client.id);
}

void ClientService::closed(Connection& connection) {
  const auto client = to_.clients.find(connection.client);
  if (client == to_.clients.end() || client->second.peer != &connection.peer()) return;
  client->second.peer = nullptr;
}

void ClientService::check_leases() {
  std::vector<ClientId> ended;
  for (const auto& [id, client] : to_.clients) {
    if (pool_.now() - client.last_heard > limits::kLease) ended.push_back(id);
  }
  for (const ClientId id : ended) {
    log::warning("client {} on {} was silent for its whole lease: its sessions are ended", id.value,
                 to_.clients.at(id).host_name);
    end(id);
  }
}

void ClientService::discount(Duration pause) {
  for (auto& [id, client] : to_.clients) {
    client.last_heard = std::min(client.last_heard + pause, pool_.now());
  }
}

void ClientService::end(ClientId id) {
  const auto found = to_.clients.find(id);
  if (found == to_.clients.end()) return;
  const auto sessions = found->second.sessions;
  for (const auto& [file, session] : sessions) to_.sessions.give_up(session, false);
  const auto pins = found->second.pins;
  for (const auto& [file, version] : pins) {
    to_.notices.unuse(file, id);
    pool_.unpin(file, version);
  }
  if (!sessions.empty() && found->second.peer != nullptr) {
    msg::Invalidate notice;
    for (const auto& [file, session] : sessions) notice.fenced.push_back(session);
    // A client that does not get the notice learns it from the answer to its next request.
    if (!found->second.peer->notify(notice)) log::debug("client {} could not be told", id.value);
  }
  to_.leases.end(found->second);
  to_.clients.erase(found);
  // The sessions have ended: what the client had written under a lock is committed or lost.
  to_.locks.end(id);
  for (const BenefactorId benefactor : pool_.space().quarantined_at(id)) {
    to_.fences.add(benefactor, id, false);
  }
}

}  // namespace stdchk::manager
