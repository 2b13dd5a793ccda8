#pragma once

#include <algorithm>
#include <cerrno>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "benefactor/memory/metadata_log.h"
#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "manager/journal/memory_journal.h"
#include "manager/service/service.h"
#include "tests/support/catch.h"
#include "tests/support/node_clock.h"
#include "transport/mem/mem.h"
#include "transport/rpc.h"

/// A manager with peers that the test plays, in one thread with a manual clock.
namespace stdchk::manager::test {

struct World {
  explicit World(std::string drain_directory = {}) {
    config.pool.drain_directory = drain_directory;
  }
  ~World() { stop(); }

  void start() {
    config.membership = Membership::trusting_all();
    endpoint = fabric.make_endpoint("manager", clock);
    reactor.add(*endpoint);
    service = std::make_unique<Service>(reactor, journal, config);
    REQUIRE(service->start());
    REQUIRE(endpoint->listen(*service));
    turn();
  }
  void stop() {
    if (service) service->stop();
    service.reset();
    if (endpoint) reactor.remove(*endpoint);
    endpoint.reset();
  }
  void restart() {
    stop();
    start();
  }
  /// Runs all work that is ready, without passage of time.
  void turn() {
    for (int i = 0; i < 50; ++i) reactor.run_once(Duration::zero());
  }
  void pass(Duration time) {
    for (const Time end = clock.now() + time; clock.now() < end;) {
      clock.advance(std::chrono::milliseconds(100));
      turn();
    }
  }

  ManualClock clock;
  sim::NodeClock manager_clock{clock, 0, Duration::zero()};  ///< the test can set its time of day
  Reactor reactor{manager_clock};
  transport::mem::Fabric fabric;
  MemoryJournal journal;
  Config config;
  std::unique_ptr<transport::Endpoint> endpoint;
  std::unique_ptr<Service> service;
};

/// A peer of the manager.
class Actor : public rpc::PeerHandler {
 public:
  Actor(World& world, std::string name) : world_(world) {
    endpoint_ = world.fabric.make_endpoint(std::move(name), world.clock);
    world.reactor.add(*endpoint_);
    connect();
  }
  ~Actor() override {
    peer_.reset();
    world_.reactor.remove(*endpoint_);
  }
  void connect(const std::string& address = "mem:manager") {
    auto made =
        rpc::Peer::connect(world_.reactor, *endpoint_, address, *this, limits::kConnectDeadline);
    REQUIRE(made);
    peer_ = std::move(*made);
    world_.turn();
  }
  rpc::Peer& peer() { return *peer_; }
  void disconnect() {
    lose_link();
    world_.turn();
  }
  /// The other side notices the loss in the next turn.
  void lose_link() { peer_.reset(); }
  template <class M>
  Result<typename M::Reply> call(M request, std::uint64_t call_id = 0) {
    std::optional<rpc::Answer> answer;
    peer_->call_as(call_id == 0 ? rpc::next_call_id() : call_id, std::move(request),
                   limits::kCallDeadline, [&](rpc::Answer got) { answer = std::move(got); });
    world_.turn();
    for (int i = 0; i < 200 && !answer; ++i) world_.pass(std::chrono::milliseconds(100));
    REQUIRE(answer);
    if (!*answer) return fail(answer->error().error);
    return std::get<typename M::Reply>(std::move(**answer));
  }
  void on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder) override {}
  void on_notice(rpc::Peer&, msg::Notice notice) override {
    notices.push_back(std::get<msg::Invalidate>(std::move(notice)));
  }
  void on_closed(rpc::Peer&, Error) override {}

  std::vector<msg::Invalidate> notices;

 protected:
  World& world_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  std::unique_ptr<rpc::Peer> peer_;
};

class TestBenefactor : public Actor {
 public:
  TestBenefactor(World& world, std::string name, std::uint64_t life, std::uint64_t arena_bytes,
                 std::string host_token = {})
      : Actor(world, name), host(std::move(host_token)) {
    request_.host_token = host;
    request_.host_name = host;
    request_.life_low = life;
    request_.addresses = {"mem:" + name};
    request_.arena_bytes = arena_bytes;
    register_now();
  }
  void register_now() {
    const auto reply = call(request());
    REQUIRE(reply);
    id = reply->benefactor;
    if (epoch != reply->epoch) newest_sequence = 0;
    epoch = reply->epoch;
    world_.turn();
  }
  /// Makes it able to keep the metadata log from now on.
  void keep_log(std::uint64_t bytes = limits::kMiB) {
    log = std::make_unique<benefactor::MetadataLog>(bytes);
    register_now();
  }
  msg::RegisterBenefactor request() const {
    msg::RegisterBenefactor out = request_;
    out.newest_epoch = epoch;
    out.newest_sequence = newest_sequence;
    out.benefactor = id;
    if (log == nullptr) return out;
    out.log_bytes_max = log->bytes_max();
    out.log_epoch = log->epoch();
    out.log_sequence = log->sequence();
    return out;
  }
  void beat() {
    const auto reply = call(msg::BenefactorHeartbeat{id});
    REQUIRE(reply);
    newest_sequence = reply->log_sequence;
  }
  void on_request(rpc::Peer&, msg::RequestEnvelope request, Time, rpc::Responder respond) override {
    served.push_back(request.body);
    if (const auto* fence = std::get_if<msg::FenceClient>(&request.body)) {
      (void)fence;
      return respond(msg::Reply{msg::FenceClient::Reply{fences}});
    }
    const auto* pieces = std::get_if<msg::DrainPieces>(&request.body);
    if ((pieces != nullptr && hangs.count(pieces->file) > 0) || hangs_at(request.body)) {
      return hung.push_back(std::move(respond));
    }
    if (const auto* keep = std::get_if<msg::KeepLog>(&request.body); keep != nullptr && log) {
      if (log_stopped) return held.push_back(std::move(respond));
      if (const Status kept = log->store(*keep); !kept) {
        return respond(tl::unexpected(rpc::Failure{kept.error(), {}, {}}));
      }
      return respond(msg::Reply{msg::KeepLog::Reply{}});
    }
    if (const auto* read = std::get_if<msg::ReadLog>(&request.body); read != nullptr && log) {
      log->promise(read->promise);
      auto reply = log->read(read->offset);
      if (!reply) return respond(tl::unexpected(rpc::Failure{reply.error(), {}, {}}));
      return respond(msg::Reply{std::move(*reply)});
    }
    if (hold_back) {
      held_requests.push_back(std::move(request.body));
      return held.push_back(std::move(respond));
    }
    answer(request.body, respond);
  }
  /// Answers all requests that were held back; later requests are answered at once.
  void let_go() {
    hold_back = false;
    for (std::size_t i = 0; i < held.size(); ++i) answer(held_requests[i], held[i]);
    held.clear();
    held_requests.clear();
    world_.turn();
  }
  bool peer_lives() const { return peer_ != nullptr; }
  void answer(const msg::Request& request, rpc::Responder& respond) {
    if (const auto* wanted = std::get_if<msg::FindDrained>(&request)) {
      if (find_fails) {
        return respond(tl::unexpected(rpc::Failure{{Code::kDrainFailed, EIO, "test"}, {}, {}}));
      }
      msg::FindDrained::Reply reply;
      for (std::uint32_t i = 0; i < wanted->files.size(); ++i) {
        if (missing.count(wanted->files[i].path) > 0) reply.missing.push_back(i);
      }
      return respond(msg::Reply{reply});
    }
    if (fail_with != Code{}) {
      return respond(tl::unexpected(rpc::Failure{{fail_with, fail_errno, "test"}, {}, {}}));
    }
    if (std::holds_alternative<msg::DrainPieces>(request)) {
      msg::DrainPieces::Reply reply;
      const bool compares = std::get<msg::DrainPieces>(request).number == 0;
      if (compares && drained_bytes_differ) reply.corrupt = {0};
      return respond(msg::Reply{reply});
    }
    if (std::holds_alternative<msg::DrainFinish>(request)) {
      return respond(msg::Reply{msg::DrainFinish::Reply{}});
    }
    if (std::holds_alternative<msg::MirrorChange>(request)) {
      return respond(msg::Reply{msg::MirrorChange::Reply{}});
    }
    if (const auto* copies = std::get_if<msg::CopyExtents>(&request)) {
      msg::CopyExtents::Reply reply;
      for (std::uint32_t i = 0; copies_fail && i < copies->copies.size(); ++i) {
        reply.corrupt.push_back(i);
      }
      return respond(msg::Reply{reply});
    }
    if (const auto* build = std::get_if<msg::BuildStripe>(&request)) {
      msg::BuildStripe::Reply reply;
      if (copies_fail && !build->inputs.empty()) {
        reply.corrupt = {0};
      } else {
        reply.crcs.resize(build->outputs.size());
      }
      return respond(msg::Reply{reply});
    }
    if (const auto* wanted = std::get_if<msg::ReportExtents>(&request)) {
      return respond(msg::Reply{report(*wanted)});
    }
    if (const auto* garbage = std::get_if<msg::ForgetExtents>(&request)) {
      msg::ForgetExtents::Reply reply;
      for (const msg::FoundExtent& each : garbage->extents) {
        const auto found = headers.find(each.offset);
        if (found == headers.end() || found->second != each) continue;
        headers.erase(found);
        ++reply.forgotten;
      }
      return respond(msg::Reply{reply});
    }
    if (const auto* checks = std::get_if<msg::CheckExtents>(&request)) {
      msg::CheckExtents::Reply reply;
      for (std::uint32_t i = 0; i < checks->extents.size(); ++i) {
        if (wrong.count(checks->extents[i].offset) > 0) reply.corrupt.push_back(i);
      }
      return respond(msg::Reply{reply});
    }
    respond(msg::Reply{msg::MoveExtents::Reply{}});
  }
  /// Puts a header there, as a client does.
  void put_header(std::uint64_t offset, std::uint32_t length) {
    headers[offset] = {offset, length, static_cast<std::uint32_t>(offset) + length};
  }
  msg::ReportExtents::Reply report(const msg::ReportExtents& wanted) const {
    msg::ReportExtents::Reply reply;
    reply.end = std::min(wanted.end, wanted.begin + page_bytes);
    for (auto at = headers.lower_bound(wanted.begin); at != headers.end(); ++at) {
      if (at->first < reply.end) reply.extents.push_back(at->second);
    }
    return reply;
  }
  template <class M>
  std::vector<M> all() const {
    std::vector<M> out;
    for (const auto& request : served) {
      if (const auto* one = std::get_if<M>(&request)) out.push_back(*one);
    }
    return out;
  }

  BenefactorId id;
  Epoch epoch;
  std::uint64_t newest_sequence = 0;  ///< number in its last answer
  std::unique_ptr<benefactor::MetadataLog> log;
  bool log_stopped = false;  ///< leaves requests to keep the log unanswered
  bool fences = true;
  bool hold_back = false;
  Code fail_with{};
  int fail_errno = 0;
  std::vector<msg::Request> served;
  std::vector<rpc::Responder> held;
  std::vector<msg::Request> held_requests;  ///< the requests that belong to `held`
  std::set<FileId> hangs;                   ///< files whose pieces are never drained
  /// Selects other requests that are never answered.
  std::function<bool(const msg::Request&)> hangs_at = [](const msg::Request&) { return false; };
  std::vector<rpc::Responder> hung;
  const std::string host;
  std::set<std::string> missing;                        ///< files removed from the drain directory
  bool drained_bytes_differ = false;                    ///< what comparisons of drained files find
  bool find_fails = false;                              ///< look-ups in the drain directory fail
  bool copies_fail = false;                             ///< copies to it arrive corrupt
  std::set<std::uint64_t> wrong;                        ///< offsets of extents that fail a check
  std::map<std::uint64_t, msg::FoundExtent> headers;    ///< headers in its arena, by offset
  std::uint64_t page_bytes = std::uint64_t{256} << 20;  ///< bytes of the arena in one report

 private:
  msg::RegisterBenefactor request_;
};

/// Flips a bit in the first occurrence of these characters in its log.
inline void flip_bit(TestBenefactor& keeper, std::string_view place) {
  const auto whole = keeper.log->read(0);
  REQUIRE(whole);
  REQUIRE_FALSE(whole->more);
  msg::KeepLog changed;
  changed.begins = true;
  changed.epoch = keeper.log->epoch();
  changed.sequence = keeper.log->sequence();
  changed.bytes = whole->bytes;
  const std::size_t at = changed.bytes.find(place);
  REQUIRE(at != std::string::npos);
  changed.bytes[at] = static_cast<char>(changed.bytes[at] ^ 1);
  REQUIRE(keeper.log->store(changed));
}

class TestClient : public Actor {
 public:
  TestClient(World& world, std::string name, std::string on_host = {})
      : Actor(world, std::move(name)), host(std::move(on_host)) {
    register_now();
  }
  void register_now() {
    msg::RegisterClient request;
    request.resume = id;
    request.host_name = request.host_token = host;
    const auto reply = call(request);
    REQUIRE(reply);
    id = reply->client;
  }
  Result<msg::OpenSession::Reply> create(const std::string& name, std::uint64_t want = 0) {
    msg::OpenSession open;
    open.client = id;
    open.parent = kRootFile;
    open.name = name;
    open.mode = 0644;
    open.want_bytes = want;
    return call(open);
  }
  Result<msg::OpenSession::Reply> open(FileId file, bool truncate = false) {
    msg::OpenSession open;
    open.client = id;
    open.file = file;
    open.truncate = truncate;
    return call(open);
  }
  Result<Attributes> lookup(const std::string& name) {
    const auto reply = call(msg::Lookup{id, kRootFile, name});
    if (!reply) return fail(reply.error());
    return reply->attributes;
  }
  /// A commit of one chunk at `offset` in the file, placed at the start of `grant` + `at`.
  static msg::Commit commit_of(SessionId session, const Grant& grant, std::uint64_t at,
                               std::uint32_t length, std::uint64_t name, std::uint64_t offset = 0) {
    msg::Commit commit;
    commit.session = session;
    Chunk chunk;
    if (name != 0) __builtin_memcpy(chunk.name.bytes.data(), &name, sizeof(name));
    chunk.length = length;
    chunk.copies = {{grant.benefactor, grant.offset + at}};
    commit.written.chunks = {chunk};
    commit.written.slices = {{offset, length, 0, 0}};
    return commit;
  }
  /// Writes a whole file of one chunk.
  Result<FileId> write(const std::string& name, std::uint32_t length, std::uint64_t chunk_name) {
    const auto opened = create(name);
    if (!opened) return fail(opened.error());
    const auto placed = call(msg::Place{opened->session, {}, extent_bytes(length), {}, {}});
    if (!placed) {
      REQUIRE(call(msg::CloseSession{opened->session}));
      return fail(placed.error());
    }
    auto commit = commit_of(opened->session, placed->grants.at(0), 0, length, chunk_name);
    commit.end = true;
    const auto committed = call(commit);
    if (!committed) return fail(committed.error());
    return opened->attributes.id;
  }

  const std::string host;
  ClientId id;
};

}  // namespace stdchk::manager::test
