#include "tests/sim/plain_client.h"

#include <algorithm>

#include "core/base/limits.h"
#include "tests/sim/plain_operations.h"

namespace stdchk::sim {

using namespace std::chrono_literals;

struct PlainClient::Transfer final : transport::Operation {
  explicit Transfer(PlainClient& of) : client(of) {}
  void complete(Status status) override { client.finish_transfer(*this, std::move(status)); }
  PlainClient& client;
  std::uint64_t number = 0;
  bool write = false;
  BenefactorId benefactor;
  std::uint64_t offset = 0;
  std::vector<transport::LocalPiece> pieces;
  std::function<void(Status)> done;
};

PlainClient::PlainClient(Cluster& cluster, std::string name, Enabled on_enabled)
    : cluster_(cluster),
      node_(cluster.add_node(name)),
      on_enabled_(std::move(on_enabled)),
      managers_(cluster.managers(), 1s) {
  connect();
}

PlainClient::~PlainClient() {
  dying_ = true;
  accesses_.clear();  // completes the transfers
  transfers_.clear();
  manager_.reset();
  for (const auto& each : buffers_) {
    if (const auto buffer = each.lock()) buffer->region.reset();
  }
  cluster_.remove_node(node_);
}

std::shared_ptr<PlainClient::Buffer> PlainClient::make_buffer(std::size_t bytes) {
  auto buffer = std::make_shared<Buffer>();
  buffer->bytes.resize(std::max<std::size_t>(bytes, 1));
  auto region = node_.endpoint.register_memory(buffer->bytes);
  STDCHK_ASSERT(region.has_value());
  buffer->region = std::move(*region);
  std::erase_if(buffers_, [](const auto& each) { return each.expired(); });
  buffers_.push_back(buffer);
  return buffer;
}

// ---- the manager --------------------------------------------------------------------------------

void PlainClient::connect() {
  ++generation_;
  auto peer = rpc::Peer::connect(node_.reactor, node_.endpoint, managers_.current(), *this,
                                 limits::kConnectDeadline);
  STDCHK_ASSERT(peer.has_value());
  manager_ = std::move(*peer);
}

void PlainClient::on_connected(rpc::Peer& peer) {
  msg::RegisterClient request;
  request.host_token = cluster_.host_for(node_.name);
  request.host_name = node_.name;
  request.role = "library";
  request.resume = id_;
  request.newest_epoch = epoch_;
  peer.call(request, limits::kCallDeadline, [this](rpc::Answer answer) {
    if (!answer.has_value()) return manager_->close(answer.error().error);
    const auto& reply = std::get<msg::RegisterClient::Reply>(*answer);
    if (reply.epoch < epoch_) return manager_->close({Code::kFenced, 0, "sim"});
    epoch_ = reply.epoch;
    managers_.answered();
    if (reply.client != id_) {
      // Everything of the old client number has ended; benefactors refuse it.
      id_ = reply.client;
      known_.clear();
      while (!accesses_.empty()) end_access(accesses_.begin()->first, {Code::kFenced, 0, "sim"});
    }
    manager_->set_sender(id_.value);
    registered_ = true;
    take_list(reply.benefactors);
    heartbeat();
    const auto waiting = std::move(when_registered_);
    when_registered_.clear();
    for (const auto& each : waiting) each();
  });
}

void PlainClient::on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder) {}

void PlainClient::on_notice(rpc::Peer&, msg::Notice notice) {
  const auto& what = std::get<msg::Invalidate>(notice);
  for (const SessionId session : what.fenced) forget(session);
  for (const FileId directory : what.recalled) {
    if (on_recall) on_recall(*this, directory);
  }
  if (!what.benefactors_changed || !registered_) return;
  manager_->call(msg::ListBenefactors{}, limits::kCallDeadline, [this](rpc::Answer answer) {
    if (answer.has_value()) take_list(std::get<msg::ListBenefactors::Reply>(*answer).benefactors);
  });
}

void PlainClient::on_closed(rpc::Peer&, Error) {
  const bool had_one = std::exchange(registered_, false);
  node_.reactor.cancel(heartbeat_);
  // The old peer ends when the new one replaces it.
  reconnect_ = node_.reactor.schedule_after(
      had_one ? managers_.delay_before_retry() : managers_.next(), [this] { connect(); });
}

void PlainClient::heartbeat() {
  heartbeat_ = node_.reactor.schedule_after(limits::kHeartbeatInterval, [this] { heartbeat(); });
  manager_->call(msg::ClientHeartbeat{id_}, limits::kCallDeadline, [this](rpc::Answer answer) {
    if (!answer.has_value() && answer.error().error.code == Code::kFenced) {
      manager_->close(answer.error().error);
    }
  });
}

void PlainClient::take_list(const std::vector<msg::BenefactorInfo>& list) {
  benefactors_.clear();
  for (const auto& each : list) benefactors_[each.id] = each;
}

void PlainClient::call(msg::Request request, Time end, rpc::Peer::Callback done) {
  send(rpc::next_call_id(), id_, std::move(request), end, std::move(done));
}

void PlainClient::send(std::uint64_t number, ClientId as, msg::Request request, Time end,
                       rpc::Peer::Callback done) {
  if (now() >= end) return done(tl::make_unexpected(rpc::Failure{{Code::kDeadline, 0, "sim"}, {}}));
  if (!registered_) {
    // Checks every 100 ms whether the link is up.
    node_.reactor.schedule_after(100ms, [this, number, as, request = std::move(request), end,
                                         done = std::move(done)]() mutable {
      send(number, as, std::move(request), end, std::move(done));
    });
    return;
  }
  // Under another client number the manager would not recognise a repeat. Only name changes are
  // recognised anyway.
  if (id_ != as && msg::kind_of(request) != msg::RequestKind::kChangesNames)
    return done(tl::make_unexpected(rpc::Failure{{Code::kFenced, 0, "sim"}, {}}));
  auto again = [this, number, request, end, done, as](rpc::Answer answer) mutable {
    const bool lost = !answer.has_value() && answer.error().error.code == Code::kPeerLost;
    if (!lost) return done(std::move(answer));
    node_.reactor.schedule_after(
        300ms, [this, number, request = std::move(request), end, done = std::move(done), as] {
          send(number, as, request, end, done);
        });
  };
  manager_->call_as(number, std::move(request),
                    std::min(end - now(), Duration(limits::kCallDeadline)), std::move(again));
}

void PlainClient::insist(std::uint64_t number, ClientId as, const msg::Request& request,
                         const rpc::Peer::Callback& done, int rounds) {
  send(number, as, request, now() + limits::kCallDeadline,
       [this, number, as, request, done, rounds](rpc::Answer answer) {
         if (rounds == 0 || !ending_of(answer).maybe || id_ != as) return done(std::move(answer));
         insist(number, as, request, done, rounds - 1);
       });
}

void PlainClient::add_grants(SessionId session, const std::vector<Grant>& grants) {
  for (const Grant& grant : grants) known_[grant.id] = {session, grant};
  if (!grants.empty()) on_enabled_(*this);
}

void PlainClient::forget(SessionId session) {
  std::erase_if(known_, [&](const auto& each) { return each.second.first == session; });
}

// ---- benefactors --------------------------------------------------------------------------------

bool PlainClient::reaches(BenefactorId benefactor) const {
  const auto found = accesses_.find(benefactor);
  return found != accesses_.end() && found->second->ready && found->second->peer->connected();
}

void PlainClient::with_access(BenefactorId benefactor, Waiter waiter) {
  auto& access = accesses_[benefactor];
  if (access != nullptr && access->ready) return waiter(access.get());
  if (access == nullptr) {
    const auto info = benefactors_.find(benefactor);
    if (info == benefactors_.end() || info->second.addresses.empty()) {
      accesses_.erase(benefactor);
      return waiter(fail(Code::kPeerLost, "sim.access"));
    }
    access = std::make_unique<Access>(*this, benefactor);
    auto peer = rpc::Peer::connect(node_.reactor, node_.endpoint, info->second.addresses.front(),
                                   *access, limits::kConnectDeadline);
    STDCHK_ASSERT(peer.has_value());
    access->peer = std::move(*peer);
  }
  access->waiting.push_back(std::move(waiter));
}

void PlainClient::Access::on_connected(rpc::Peer& of) {
  of.set_sender(client.id_.value);
  const msg::Attach request{client.id_, benefactor};
  of.call(request, limits::kCallDeadline, [this](rpc::Answer answer) {
    if (!answer.has_value()) return client.end_access(benefactor, answer.error().error);
    const auto& reply = std::get<msg::Attach::Reply>(*answer);
    key = {reply.key, reply.base, reply.length};
    ready = true;
    client.on_enabled_(client);
    const auto all = std::move(waiting);
    waiting.clear();
    for (const auto& each : all) each(this);
  });
}

void PlainClient::Access::on_closed(rpc::Peer&, Error why) { client.end_access(benefactor, why); }

void PlainClient::end_access(BenefactorId benefactor, Error why) {
  auto node = accesses_.extract(benefactor);
  if (node.empty()) return;
  const auto waiting = std::move(node.mapped()->waiting);
  node.mapped().reset();
  for (const auto& each : waiting) each(fail(why));
}

void PlainClient::transfer(bool write, BenefactorId benefactor, std::uint64_t offset,
                           std::vector<transport::LocalPiece> pieces,
                           std::function<void(Status)> done) {
  auto made = std::make_unique<Transfer>(*this);
  Transfer& transfer = *made;
  transfer.number = ++transfers_made_;
  transfer.write = write;
  transfer.benefactor = benefactor;
  transfer.offset = offset;
  transfer.pieces = std::move(pieces);
  transfer.done = std::move(done);
  transfers_.emplace(transfer.number, std::move(made));
  with_access(benefactor, [this, number = transfer.number](Result<Access*> access) {
    const auto found = transfers_.find(number);
    if (found == transfers_.end()) return;
    if (!access.has_value()) return finish_transfer(*found->second, fail(access.error()));
    run_transfer(*found->second, **access);
  });
}

void PlainClient::run_transfer(Transfer& transfer, Access& access) {
  transport::Link& link = access.peer->link();
  const Status status = transfer.write
                            ? link.write(transfer.pieces, access.key, transfer.offset, transfer)
                            : link.read(transfer.pieces, access.key, transfer.offset, transfer);
  if (status.has_value()) return;
  if (status.error().code != Code::kWouldBlock) return finish_transfer(transfer, status);
  node_.reactor.schedule_after(1ms, [this, number = transfer.number] {
    const auto found = transfers_.find(number);
    if (found == transfers_.end()) return;
    Transfer& again = *found->second;
    with_access(again.benefactor, [this, number](Result<Access*> now_access) {
      const auto still = transfers_.find(number);
      if (still == transfers_.end()) return;
      if (!now_access.has_value()) return finish_transfer(*still->second, fail(now_access.error()));
      run_transfer(*still->second, **now_access);
    });
  });
}

void PlainClient::finish_transfer(Transfer& transfer, Status status) {
  if (dying_) return;
  const auto done = std::move(transfer.done);
  transfers_.erase(transfer.number);
  done(std::move(status));
}

// ---- operations ---------------------------------------------------------------------------------

void PlainClient::store(const std::string& name, std::vector<Part> parts, bool truncate, Done done,
                        FileId parent) {
  auto operation = std::make_shared<StoreOperation>(*this, parent, name, std::move(parts), truncate,
                                                    std::move(done));
  operation->start();
}

void PlainClient::load(const std::string& name, Loaded done, FileId parent) {
  std::make_shared<LoadOperation>(*this, parent, name, std::move(done))->start();
}

void PlainClient::ask(msg::Request request, rpc::Peer::Callback done) {
  call(std::move(request), now() + kOperationTime, std::move(done));
}

void PlainClient::remove(const std::string& name, Done done) {
  msg::Remove request;
  request.client = id_;
  request.parent = kRootFile;
  request.name = name;
  call(request, now() + kOperationTime,
       [done = std::move(done)](rpc::Answer answer) { done(ending_of(answer)); });
}

void PlainClient::rename(const std::string& from, const std::string& to, Done done) {
  msg::Rename request;
  request.client = id_;
  request.from_parent = kRootFile;
  request.from_name = from;
  request.to_parent = kRootFile;
  request.to_name = to;
  call(request, now() + kOperationTime,
       [done = std::move(done)](rpc::Answer answer) { done(ending_of(answer)); });
}

}  // namespace stdchk::sim
