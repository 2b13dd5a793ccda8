#include "benefactor/service/service.h"

#include <atomic>
#include <functional>
#include <optional>
#include <semaphore>
#include <thread>

#include "benefactor/memory/move_extents.h"
#include "core/base/log.h"
#include "tests/support/catch.h"
#include "tests/unit/benefactor/support.h"
#include "transport/mem/mem.h"

namespace stdchk::benefactor {
namespace {

using std::chrono::seconds;

/// A manager played by the test: answers registrations and heartbeats, and sends the test's
/// requests.
struct FakeManager : transport::AcceptHandler, rpc::PeerHandler {
  FakeManager(Reactor& turns, transport::Endpoint& at) : reactor(turns) {
    REQUIRE(at.listen(*this));
  }
  void on_accept(std::unique_ptr<transport::Link> link) override {
    peer = std::make_unique<rpc::Peer>(reactor, std::move(link), *this);
  }
  void on_request(rpc::Peer&, msg::RequestEnvelope request, Time, rpc::Responder respond) override {
    if (auto* wanted = std::get_if<msg::RegisterBenefactor>(&request.body)) {
      registrations.push_back(*wanted);
      if (refuses) {
        return respond(tl::unexpected<rpc::Failure>(
            rpc::Failure{Error{Code::kRefused, 0, "test"}, "the pool is full", {}}));
      }
      return respond(msg::Reply(reply));
    }
    if (std::holds_alternative<msg::BenefactorHeartbeat>(request.body)) {
      ++heartbeats;
      if (forget) {
        return respond(
            tl::unexpected<rpc::Failure>(rpc::Failure{Error{Code::kNotFound, 0, "test"}, "", {}}));
      }
      leaving |= std::get<msg::BenefactorHeartbeat>(request.body).leaving;
      return respond(msg::Reply(msg::BenefactorHeartbeat::Reply{may_go}));
    }
  }
  void on_closed(rpc::Peer&, Error) override { peer.reset(); }

  Reactor& reactor;
  std::unique_ptr<rpc::Peer> peer;
  msg::RegisterBenefactor::Reply reply{BenefactorId{5}, Epoch{1}, ClientId{100}, {}};
  std::vector<msg::RegisterBenefactor> registrations;
  int heartbeats = 0;
  bool forget = false;
  bool refuses = false;
  bool leaving = false;
  bool may_go = false;
};

/// A SharedManualClock is a ManualClock that workers may read.
class SharedManualClock final : public Clock {
 public:
  Time now() const override { return Time(Duration(now_ns_.load())); }
  std::int64_t wall_ns() const override { return now_ns_; }
  void advance(Duration by) { now_ns_ += by.count(); }

 private:
  std::atomic<std::int64_t> now_ns_{1'000'000'000};
};

/// A WriteOperation records its result.
struct WriteOperation : transport::Operation {
  void complete(Status status) override { done = status; }
  std::optional<Status> done;
};

/// A client with one link to the benefactor.
struct Client : rpc::PeerHandler {
  void on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder) override {}
  void on_closed(rpc::Peer&, Error why) override { closed = why; }
  std::unique_ptr<rpc::Peer> peer;
  std::optional<Error> closed;
};

struct Pool {
  explicit Pool(bool inline_jobs = true) : use_inline(inline_jobs) {
    log::start("test", log::Level::kError);
    for (auto* endpoint : {manager_endpoint.get(), control.get(), data.get(), clients.get()}) {
      reactor.add(*endpoint);
    }
    ArenaOptions options;
    options.bytes = 4 * limits::kMiB;
    options.prefault = false;
    options.check_machine = false;
    auto made = Arena::create(options, clock);
    REQUIRE(made);
    arena = std::move(*made);
    manager = std::make_unique<FakeManager>(reactor, *manager_endpoint);
    region = std::move(*clients->register_memory(buffer));
  }
  ~Pool() {
    service.reset();
    manager.reset();
  }
  Config config() {
    Config config;
    config.manager_address = "mem:manager";
    config.trusts_unproven_links = true;
    config.life = {11, 12};
    config.host_name = "here";
    config.executor = use_inline ? &inline_executor : nullptr;
    config.pause = [](Duration) {};
    config.log_bytes = log_bytes;
    config.on_refused = [this](const std::string& why) { refused = why; };
    return config;
  }
  void start() {
    service = std::make_unique<Service>(reactor, config(), *arena, *control,
                                        std::vector<transport::Endpoint*>{data.get()});
    REQUIRE(service->start());
    turn_until([&] { return service->registered(); });
  }
  /// Runs the reactor and moves the clock until `done`; fails after one minute of the clock.
  void turn_until(const std::function<bool()>& done) {
    for (int i = 0; i < 6000 && !done(); ++i) turn();
    REQUIRE(done());
  }
  void turn() {
    for (int i = 0; i < 10; ++i) reactor.run_once(Duration::zero());
    if (!use_inline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    clock.advance(std::chrono::milliseconds(10));
  }
  std::unique_ptr<Client> connect() {
    auto client = std::make_unique<Client>();
    auto peer = rpc::Peer::connect(reactor, *clients, "mem:data", *client, seconds(3));
    REQUIRE(peer);
    client->peer = std::move(*peer);
    return client;
  }
  rpc::Answer ask(rpc::Peer& peer, msg::Request request) {
    std::optional<rpc::Answer> answer;
    peer.call(std::move(request), seconds(10), [&](rpc::Answer a) { answer = std::move(a); });
    turn_until([&] { return answer.has_value(); });
    return *answer;
  }
  rpc::Answer attach(Client& client, std::uint64_t id, std::uint64_t benefactor = 5) {
    return ask(*client.peer, msg::Attach{ClientId{id}, BenefactorId{benefactor}});
  }
  static Code code_of(const rpc::Answer& answer) {
    return answer ? Code{} : answer.error().error.code;
  }
  Status write(Client& client, const msg::Attach::Reply& key) {
    WriteOperation operation;
    const transport::LocalPiece piece{buffer.data(), buffer.size(), region.get()};
    STDCHK_TRY(
        client.peer->link().write({&piece, 1}, {key.key, key.base, key.length}, 0, operation));
    turn_until([&] { return operation.done.has_value(); });
    return *operation.done;
  }

  const bool use_inline;
  InlineExecutor inline_executor;
  SharedManualClock clock;
  Reactor reactor{clock};
  transport::mem::Fabric fabric;
  std::unique_ptr<transport::Endpoint> manager_endpoint = fabric.make_endpoint("manager", clock);
  std::unique_ptr<transport::Endpoint> control = fabric.make_endpoint("control", clock);
  std::unique_ptr<transport::Endpoint> data = fabric.make_endpoint("data", clock);
  std::unique_ptr<transport::Endpoint> clients = fabric.make_endpoint("clients", clock);
  std::vector<std::byte> buffer = content_of(4096, 9);
  std::unique_ptr<transport::MemoryRegion> region;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<FakeManager> manager;
  std::unique_ptr<Service> service;
  std::optional<std::string> refused;
  std::uint64_t log_bytes = 0;
};

}  // namespace

TEST_CASE("a benefactor registers its life and its addresses and sends heartbeats") {
  Pool pool;
  pool.start();
  REQUIRE(pool.manager->registrations.size() == 1);
  const auto& registration = pool.manager->registrations[0];
  CHECK(registration.life_high == 11);
  CHECK(registration.life_low == 12);
  CHECK(registration.addresses == std::vector<std::string>{"mem:data"});
  CHECK(registration.arena_bytes == 4 * limits::kMiB);
  const Time start = pool.clock.now();
  pool.turn_until([&] { return pool.manager->heartbeats >= 4; });
  CHECK(pool.clock.now() - start <= 5 * limits::kHeartbeatInterval);
}

TEST_CASE("a benefactor that lost its manager comes back as the same life") {
  Pool pool;
  pool.start();
  pool.manager->peer.reset();
  pool.turn_until([&] { return pool.manager->registrations.size() == 2; });
  CHECK(pool.manager->registrations[1].life_low == 12);
  pool.turn_until([&] { return pool.service->registered(); });
  SECTION("also when the manager does not know it any more") {
    pool.manager->forget = true;
    pool.turn_until([&] { return pool.manager->registrations.size() == 3; });
    pool.manager->forget = false;
    pool.turn_until([&] { return pool.service->registered(); });
  }
}

TEST_CASE("a benefactor waits for a manager that is not there yet") {
  Pool pool;
  auto config = pool.config();
  config.manager_address = "mem:later";
  pool.service = std::make_unique<Service>(pool.reactor, config, *pool.arena, *pool.control,
                                           std::vector<transport::Endpoint*>{pool.data.get()});
  REQUIRE(pool.service->start());
  for (int i = 0; i < 500; ++i) pool.turn();
  CHECK_FALSE(pool.service->registered());
  CHECK_FALSE(pool.refused);
  const auto endpoint = pool.fabric.make_endpoint("later", pool.clock);
  pool.reactor.add(*endpoint);
  {
    FakeManager manager(pool.reactor, *endpoint);
    pool.turn_until([&] { return pool.service->registered(); });
    pool.service.reset();
  }
  pool.reactor.remove(*endpoint);
}

TEST_CASE("a benefactor goes back to a manager that it has lost, and then to the next address") {
  Pool pool;
  auto config = pool.config();
  config.manager_address = "mem:manager,mem:next";
  pool.service = std::make_unique<Service>(pool.reactor, config, *pool.arena, *pool.control,
                                           std::vector<transport::Endpoint*>{pool.data.get()});
  const auto endpoint = pool.fabric.make_endpoint("next", pool.clock);
  pool.reactor.add(*endpoint);
  {
    FakeManager next(pool.reactor, *endpoint);
    next.reply.epoch = Epoch{256};
    REQUIRE(pool.service->start());
    pool.turn_until([&] { return pool.service->registered(); });
    pool.manager->peer.reset();
    pool.turn_until([&] { return pool.manager->registrations.size() == 2; });
    pool.turn_until([&] { return pool.service->registered(); });
    CHECK(next.registrations.empty());
    // The first manager is useless from now on.
    pool.manager->reply.epoch = {};
    pool.manager->peer.reset();
    pool.turn_until([&] { return pool.service->epoch() == Epoch{256}; });
    CHECK(pool.manager->registrations.size() == 3);
    CHECK(next.registrations.back().benefactor == BenefactorId{5});
    CHECK(next.registrations.back().newest_epoch == Epoch{1});
    pool.service.reset();
  }
  pool.reactor.remove(*endpoint);
}

TEST_CASE("a benefactor that its manager refuses is told why") {
  Pool pool;
  pool.manager->refuses = true;
  pool.service = std::make_unique<Service>(pool.reactor, pool.config(), *pool.arena, *pool.control,
                                           std::vector<transport::Endpoint*>{pool.data.get()});
  REQUIRE(pool.service->start());
  pool.turn_until([&] { return pool.refused.has_value(); });
  CHECK(*pool.refused == "the pool is full");
}

TEST_CASE("an attached client can write into the arena") {
  Pool pool;
  pool.start();
  const auto client = pool.connect();
  const auto answer = pool.attach(*client, 100);
  REQUIRE(answer);
  const auto key = std::get<msg::Attach::Reply>(*answer);
  CHECK(key.length == 4 * limits::kMiB);
  REQUIRE(pool.write(*client, key));
  CHECK(std::equal(pool.buffer.begin(), pool.buffer.end(), pool.arena->bytes().begin()));
}

TEST_CASE("attach is refused to another benefactor, and to old clients") {
  Pool pool;
  pool.start();
  const auto client = pool.connect();
  CHECK(Pool::code_of(pool.attach(*client, 100, 6)) == Code::kStale);
  CHECK(Pool::code_of(pool.attach(*client, 99)) == Code::kFenced);
  CHECK(Pool::code_of(pool.attach(*client, 0)) == Code::kFenced);
  CHECK(pool.attach(*client, 100));
  CHECK(Pool::code_of(pool.attach(*client, 101)) == Code::kRefused);
  CHECK(Pool::code_of(pool.ask(*client->peer, msg::StatPool{})) == Code::kRefused);
  CHECK(Pool::code_of(pool.ask(*client->peer, msg::FenceClient{ClientId{100}})) == Code::kRefused);
}

TEST_CASE("M3: a fenced client cannot write, nor attach again, and others go on") {
  Pool pool;
  pool.start();
  const auto bad = pool.connect(), good = pool.connect();
  const auto bad_key = std::get<msg::Attach::Reply>(*pool.attach(*bad, 100));
  const auto good_key = std::get<msg::Attach::Reply>(*pool.attach(*good, 101));
  const auto answer = pool.ask(*pool.manager->peer, msg::FenceClient{ClientId{100}});
  REQUIRE(answer);
  CHECK(std::get<msg::FenceClient::Reply>(*answer).fenced);
  CHECK_FALSE(pool.write(*bad, bad_key));
  CHECK(pool.arena->bytes()[0] == std::byte{0});
  CHECK(pool.write(*good, good_key));
  const auto again = pool.connect();
  CHECK(Pool::code_of(pool.attach(*again, 100)) == Code::kFenced);
  CHECK(pool.service->attached_count() == 1);
}

TEST_CASE("M3: a fence may take all clients of earlier epochs") {
  Pool pool;
  pool.start();
  const auto a = pool.connect(), b = pool.connect(), c = pool.connect();
  REQUIRE(pool.attach(*a, 100));
  REQUIRE(pool.attach(*b, 105));
  REQUIRE(pool.attach(*c, 106));
  REQUIRE(pool.ask(*pool.manager->peer, msg::FenceClient{ClientId{105}, true}));
  CHECK(pool.service->attached_count() == 1);
  const auto d = pool.connect();
  CHECK(Pool::code_of(pool.attach(*d, 104)) == Code::kFenced);
  CHECK(pool.attach(*d, 107));
}

TEST_CASE("M3: a restarted manager's benefactors fence the clients of before") {
  Pool pool;
  pool.start();
  const auto client = pool.connect();
  const auto key = std::get<msg::Attach::Reply>(*pool.attach(*client, 100));
  pool.manager->reply.epoch = Epoch{2};
  pool.manager->reply.first_client = ClientId{200};
  pool.manager->peer.reset();
  pool.turn_until([&] { return pool.service->epoch() == Epoch{2}; });
  CHECK_FALSE(pool.write(*client, key));
  const auto again = pool.connect();
  CHECK(Pool::code_of(pool.attach(*again, 199)) == Code::kFenced);
  CHECK(pool.attach(*again, 200));
}

TEST_CASE("a manager of an earlier epoch is refused, and told of the later one") {
  Pool pool;
  pool.start();
  pool.manager->reply.epoch = Epoch{256};
  pool.manager->peer.reset();
  pool.turn_until([&] { return pool.service->epoch() == Epoch{256}; });
  pool.manager->reply.epoch = Epoch{2};
  pool.manager->peer.reset();
  const std::size_t before = pool.manager->registrations.size();
  pool.turn_until([&] { return pool.manager->registrations.size() > before + 2; });
  CHECK(pool.manager->registrations.back().newest_epoch == Epoch{256});
  CHECK_FALSE(pool.service->registered());
  CHECK(pool.service->epoch() == Epoch{256});
  const auto client = pool.connect();
  CHECK(Pool::code_of(pool.attach(*client, 100)) == Code::kBusy);
  pool.manager->reply.epoch = Epoch{257};
  pool.turn_until([&] { return pool.service->registered(); });
}

TEST_CASE("a benefactor keeps its manager's log and gives it back, and says what it has") {
  Pool pool;
  pool.log_bytes = 4096;
  pool.start();
  CHECK(pool.manager->registrations.back().log_bytes_max == 4096);
  CHECK(pool.manager->registrations.back().log_sequence == 0);
  REQUIRE(pool.ask(*pool.manager->peer, msg::KeepLog{Epoch{1}, true, 0, 3, "records"}));
  CHECK(Pool::code_of(pool.ask(*pool.manager->peer, msg::KeepLog{Epoch{1}, false, 9, 4, "x"})) ==
        Code::kStale);
  const auto read = pool.ask(*pool.manager->peer, msg::ReadLog{0});
  REQUIRE(read);
  CHECK(std::get<msg::ReadLog::Reply>(*read).bytes == "records");
  pool.manager->peer.reset();
  pool.turn_until([&] { return pool.manager->registrations.size() == 2; });
  CHECK(pool.manager->registrations.back().log_epoch == Epoch{1});
  CHECK(pool.manager->registrations.back().log_sequence == 3);
}

TEST_CASE("a lost manager that comes back in the same epoch leaves clients attached") {
  Pool pool;
  pool.start();
  const auto client = pool.connect();
  const auto key = std::get<msg::Attach::Reply>(*pool.attach(*client, 100));
  pool.manager->peer.reset();
  pool.turn_until([&] { return pool.manager->registrations.size() == 2; });
  pool.turn_until([&] { return pool.service->registered(); });
  CHECK(pool.write(*client, key));
}

TEST_CASE("a link that never attaches is closed") {
  Pool pool;
  pool.start();
  const auto client = pool.connect();
  pool.turn_until([&] { return client->closed.has_value(); });
}

TEST_CASE("the fence forgets no client within its memory and refuses below it") {
  ClientFence fence(3);
  CHECK(fence.admits(ClientId{1}));
  for (const std::uint64_t id : {10U, 20U, 30U, 40U}) fence.fence(ClientId{id});
  CHECK(fence.remembered() == 3);
  CHECK_FALSE(fence.admits(ClientId{10}));
  CHECK_FALSE(fence.admits(ClientId{9}));
  CHECK(fence.admits(ClientId{11}));
  CHECK_FALSE(fence.admits(ClientId{40}));
  fence.fence_below(ClientId{35});
  CHECK(fence.remembered() == 1);
  CHECK_FALSE(fence.admits(ClientId{34}));
  CHECK(fence.admits(ClientId{36}));
  CHECK_FALSE(fence.admits(ClientId{}));
}

namespace {

void drain_through_the_service(bool inline_jobs) {
  Pool pool(inline_jobs);
  const TemporaryFolder folder;
  pool.manager->reply.config.drain_directory = folder.path();
  pool.start();
  const PlacedChunk chunk = place_chunk(pool.arena->bytes(), 128, content_of(1000, 3));
  msg::DrainPieces pieces;
  pieces.file = FileId{9};
  pieces.number = 1;
  pieces.pieces.push_back({0, 1000, 0, 128, 1000, chunk.crc, chunk.name});
  const auto wrote = pool.ask(*pool.manager->peer, pieces);
  REQUIRE(wrote);
  CHECK(std::get<msg::DrainPieces::Reply>(*wrote).corrupt.empty());
  msg::DrainFinish finish;
  finish.file = FileId{9};
  finish.number = 1;
  finish.path = "app/image";
  finish.size_bytes = 1000;
  finish.mode = 0600;
  REQUIRE(pool.ask(*pool.manager->peer, finish));
  CHECK(read_file(folder / "app/image").size() == 1000);
  const msg::FindDrained wanted{{{"app/image", 1000, 0}, {"app/other", 1000, 0}}};
  const auto found = pool.ask(*pool.manager->peer, wanted);
  REQUIRE(found);
  CHECK(std::get<msg::FindDrained::Reply>(*found).missing == std::vector<std::uint32_t>{1});
  msg::MirrorChange change;
  change.kind = msg::MirrorKind::kUnlink;
  change.path = "app/../app/image";
  const auto refused = pool.ask(*pool.manager->peer, change);
  CHECK(Pool::code_of(refused) == Code::kInvalidArgument);
  CHECK(refused.error().detail.find("plain path") != std::string::npos);
  change.path = "app/image";
  CHECK(pool.ask(*pool.manager->peer, change));
  CHECK_FALSE(path_exists(folder / "app/image"));
}

}  // namespace

TEST_CASE("the manager has files drained, with jobs run inline") {
  drain_through_the_service(true);
}

TEST_CASE("the manager has files drained, with jobs run on threads") {
  drain_through_the_service(false);
}

TEST_CASE("a drain without a drain directory is refused") {
  Pool pool;
  pool.start();
  CHECK(Pool::code_of(pool.ask(*pool.manager->peer, msg::DrainPieces{FileId{1}, 1, "", {}})) ==
        Code::kInvalidArgument);
}

namespace {

/// A Drainer whose work on certain files hangs until the test releases it.
struct StuckDrainer final : Drainer {
  Outcome<msg::DrainPieces::Reply> write_pieces(const msg::DrainPieces& request, Time) override {
    if (request.file == FileId{1}) go_on->acquire();
    return msg::DrainPieces::Reply{};
  }
  Outcome<msg::DrainFinish::Reply> finish(const msg::DrainFinish& request, Time) override {
    if (request.file == FileId{3} || request.file == FileId{4}) go_on->acquire();
    return msg::DrainFinish::Reply{};
  }
  Outcome<msg::MirrorChange::Reply> mirror(const msg::MirrorChange& request, Time) override {
    if (request.path == "hung") go_on->acquire();
    return msg::MirrorChange::Reply{};
  }
  Outcome<msg::FindDrained::Reply> find(const msg::FindDrained&, Time) override {
    return msg::FindDrained::Reply{};
  }
  std::shared_ptr<std::counting_semaphore<>> go_on;
};

/// Starts a benefactor whose drains of file 1, names of files 3 and 4, and changes of "hung" hang.
/// Each release of the returned semaphore frees one.
std::shared_ptr<std::counting_semaphore<>> start_with_stuck_drainer(Pool& pool) {
  auto go_on = std::make_shared<std::counting_semaphore<>>(0);
  auto config = pool.config();
  config.make_drainer = [go_on](const std::string&, std::uint64_t) {
    auto drainer = std::make_unique<StuckDrainer>();
    drainer->go_on = go_on;
    return drainer;
  };
  pool.manager->reply.config.drain_directory = "/nowhere";
  pool.service = std::make_unique<Service>(pool.reactor, config, *pool.arena, *pool.control,
                                           std::vector<transport::Endpoint*>{pool.data.get()});
  REQUIRE(pool.service->start());
  pool.turn_until([&] { return pool.service->registered(); });
  return go_on;
}

}  // namespace

TEST_CASE("a job that is stuck holds up no other one and is answered at its deadline") {
  Pool pool(false);
  const auto go_on = start_with_stuck_drainer(pool);
  std::optional<rpc::Answer> stuck;
  pool.manager->peer->call(msg::DrainPieces{FileId{1}, 1, "", {}}, seconds(2),
                           [&](rpc::Answer answer) { stuck = std::move(answer); });
  CHECK(pool.ask(*pool.manager->peer, msg::DrainPieces{FileId{2}, 1, "", {}}));
  CHECK(pool.ask(*pool.manager->peer, msg::DrainFinish{}));
  CHECK(pool.ask(*pool.manager->peer, msg::MoveExtents{}));
  CHECK_FALSE(stuck);
  pool.turn_until([&] { return stuck.has_value(); });
  CHECK(Pool::code_of(*stuck) == Code::kDeadline);
  go_on->release();
}

TEST_CASE("names that hang hold up no others, and repeats wait for them") {
  Pool pool(false);
  const auto go_on = start_with_stuck_drainer(pool);
  std::vector<int> ended;
  const auto ask = [&](int number, auto request) {
    pool.manager->peer->call(std::move(request), seconds(20),
                             [&ended, number](const rpc::Answer& answer) {
                               CHECK(answer.has_value());
                               ended.push_back(number);
                             });
  };
  msg::DrainFinish finish;
  finish.file = FileId{3};
  ask(1, finish);
  // The other thread does all other work.
  for (std::uint64_t file = 10; file < 14; ++file) {
    finish.file = FileId{file};
    CHECK(pool.ask(*pool.manager->peer, finish));
  }
  finish.file = FileId{3};
  ask(2, finish);
  finish.file = FileId{4};
  ask(3, finish);
  msg::MirrorChange change;
  change.kind = msg::MirrorKind::kUnlink;
  change.path = "hung";
  change.number = 5;
  ask(4, change);
  // Now both threads hang, and new threads replace them.
  change.path = "other";
  change.number = 6;
  CHECK(pool.ask(*pool.manager->peer, change));
  CHECK(ended.empty());
  go_on->release(4);
  pool.turn_until([&] { return ended.size() == 4; });
  const auto position = [&](int number) { return std::ranges::find(ended, number); };
  CHECK(position(1) < position(2));
}

TEST_CASE("drains that hang get other threads in their place, and no third attempt") {
  Pool pool(false);
  const auto go_on = start_with_stuck_drainer(pool);
  int ended = 0;
  const auto hang = [&](std::uint64_t attempt) {
    pool.manager->peer->call(msg::DrainPieces{FileId{1}, attempt, "", {}}, seconds(7),
                             [&](const rpc::Answer&) { ++ended; });
  };
  hang(1);
  hang(1);
  // Each thread has a job. A further job waits until the service notices that these hang.
  CHECK(pool.ask(*pool.manager->peer, msg::DrainPieces{FileId{2}, 1, "", {}}));
  hang(2);
  pool.turn_until([&] { return ended == 3; });
  CHECK(pool.ask(*pool.manager->peer, msg::DrainPieces{FileId{2}, 2, "", {}}));
  CHECK(Pool::code_of(pool.ask(*pool.manager->peer, msg::DrainPieces{FileId{1}, 3, "", {}})) ==
        Code::kBusy);
  go_on->release(3);
}

TEST_CASE("extents are moved when they are sound and do not overlap") {
  std::vector<std::byte> arena(limits::kMiB);
  const PlacedChunk chunk = place_chunk(arena, 64 * 1024, content_of(10'000, 1));
  const auto move = [&](std::uint64_t from, std::uint64_t to, std::uint32_t crc) {
    return move_extents(arena, {{{from, to, chunk.length, crc}}}).failed.empty();
  };
  CHECK(move(64 * 1024, 0, chunk.crc));
  CHECK(std::equal(arena.begin(), arena.begin() + 64 + 10'000, arena.begin() + 64 * 1024));
  CHECK(move(0, 10'112, chunk.crc));
  CHECK_FALSE(move(64 * 1024, 64 * 1024 + 64, chunk.crc));
  CHECK_FALSE(move(64 * 1024, 64 * 1024, chunk.crc));
  CHECK_FALSE(move(64 * 1024, 256 * 1024, chunk.crc + 1));
  CHECK_FALSE(move(64 * 1024, limits::kMiB - 64, chunk.crc));
  CHECK_FALSE(move(64 * 1024, 256 * 1024 + 1, chunk.crc));
  CHECK(arena[256 * 1024] == std::byte{0});
}

TEST_CASE("a copy is read from its source by one-sided transfer and proven where it lies") {
  const bool inline_jobs = GENERATE(true, false);
  Pool pool(inline_jobs);
  pool.start();
  const MutableByteSpan arena = pool.arena->bytes();
  msg::CopyExtents request;
  request.client = ClientId{200};
  request.source.id = BenefactorId{5};  // itself: reads work the same from every benefactor
  request.source.addresses = {"mem:data"};
  std::vector<std::vector<std::byte>> contents;
  for (unsigned i = 0; i < 20; ++i) {
    contents.push_back(content_of(30000 + i, i));
    const auto placed = place_chunk(arena, i * 32768ULL, contents.back());
    request.copies.push_back({placed.extent_offset, limits::kMiB + i * 32768ULL, placed.length,
                              placed.crc, placed.name});
  }
  arena[3 * 32768 + 100] ^= std::byte{1};           // changed since it was written
  request.copies[4].name.bytes[0] ^= std::byte{1};  // another chunk by now
  request.copies[5].to_offset = 8 * limits::kMiB;   // beyond the end
  const auto answer = pool.ask(*pool.manager->peer, request);
  REQUIRE(answer);
  const auto& reply = std::get<msg::CopyExtents::Reply>(*answer);
  CHECK(reply.corrupt == std::vector<std::uint32_t>{3, 4});
  CHECK(reply.failed == std::vector<std::uint32_t>{5});
  for (unsigned i = 6; i < 20; ++i) {
    const ByteSpan copy =
        arena.subspan(request.copies[i].to_offset + limits::kExtentHeaderBytes, contents[i].size());
    CHECK(std::equal(copy.begin(), copy.end(), contents[i].begin()));
  }
}

TEST_CASE(
    "copies fail in bounded time when their source is not there, and those behind them go on") {
  Pool pool;
  pool.start();
  const auto placed = place_chunk(pool.arena->bytes(), 0, content_of(1000, 1));
  msg::CopyExtents nowhere;
  nowhere.client = ClientId{200};
  nowhere.source.id = BenefactorId{6};
  nowhere.source.addresses = {"mem:nobody"};
  nowhere.copies = {{0, 64 * 1024, placed.length, placed.crc, placed.name}};
  msg::CopyExtents other = nowhere;
  other.source.id = BenefactorId{7};  // another benefactor answers there
  other.source.addresses = {"mem:data"};
  msg::CopyExtents good = nowhere;
  good.source.id = BenefactorId{5};
  good.source.addresses = {"mem:data"};
  std::vector<std::size_t> failed;
  const Time start = pool.clock.now();
  for (const auto& request : {nowhere, other, good}) {
    pool.manager->peer->call(request, seconds(30), [&](const rpc::Answer& answer) {
      REQUIRE(answer);
      failed.push_back(std::get<msg::CopyExtents::Reply>(*answer).failed.size());
    });
  }
  pool.turn_until([&] { return failed.size() == 3; });
  CHECK(failed == std::vector<std::size_t>{1, 1, 0});
  CHECK(pool.clock.now() - start <= 2 * limits::kConnectDeadline + seconds(1));
}

TEST_CASE("a benefactor that has lost its manager copies nothing more before it registers again") {
  Pool pool;
  pool.start();
  const auto placed = place_chunk(pool.arena->bytes(), 0, content_of(1000, 1));
  msg::CopyExtents request;
  request.client = ClientId{200};
  request.source.id = BenefactorId{5};
  request.source.addresses = {"mem:data"};
  request.copies = {{0, 64 * 1024, placed.length, placed.crc, placed.name}};
  // Sent, then lost before the source is attached.
  pool.manager->peer->call(request, seconds(30), [](const rpc::Answer&) {});
  pool.reactor.run_once(Duration::zero());
  pool.manager->peer.reset();
  pool.turn_until([&] { return pool.manager->registrations.size() == 2; });
  const ByteSpan target = pool.arena->bytes().subspan(64 * 1024, limits::kExtentHeaderBytes);
  const bool came = decode_extent_header(target).has_value();
  for (int i = 0; i < 100; ++i) pool.turn();
  CHECK(decode_extent_header(target).has_value() == came);
}

TEST_CASE("checked extents that are not their chunks are named") {
  Pool pool;
  pool.start();
  msg::CheckExtents request;
  for (unsigned i = 0; i < 3; ++i) {
    const auto placed = place_chunk(pool.arena->bytes(), i * 4096ULL, content_of(1000, i));
    request.extents.push_back({placed.extent_offset, placed.length, placed.crc, placed.name});
  }
  pool.arena->bytes()[4096 + 64 + 7] ^= std::byte{4};
  const auto answer = pool.ask(*pool.manager->peer, request);
  REQUIRE(answer);
  CHECK(std::get<msg::CheckExtents::Reply>(*answer).corrupt == std::vector<std::uint32_t>{1});
}

TEST_CASE("a chunk that was changed so that its checksum stays is found by its name") {
  Pool pool;
  pool.start();
  msg::CheckExtents request;
  for (unsigned i = 0; i < 2; ++i) {
    const auto placed = place_chunk(pool.arena->bytes(), i * 4096ULL, content_of(1000, i));
    request.extents.push_back({placed.extent_offset, placed.length, placed.crc, placed.name});
    // The generator polynomial of CRC32C: the checksum misses its multiples. Low bits come first.
    const std::uint64_t polynomial = 1 | std::uint64_t{0x82F63B78} << 1;
    for (std::size_t at = 0; at < 5; ++at) {
      pool.arena->bytes()[i * 4096 + limits::kExtentHeaderBytes + 100 + at] ^=
          static_cast<std::byte>(polynomial >> (8 * at));
    }
  }
  request.extents[1].name = {};  // only the checksum of this chunk is known
  const auto answer = pool.ask(*pool.manager->peer, request);
  REQUIRE(answer);
  CHECK(std::get<msg::CheckExtents::Reply>(*answer).corrupt == std::vector<std::uint32_t>{0});
}

namespace {

/// Runs work when the test says so.
struct LaterExecutor final : Executor {
  void run(std::function<void()> work) override { waiting.push_back(std::move(work)); }
  void run_all() {
    for (const auto& work : std::exchange(waiting, {})) work();
  }
  std::vector<std::function<void()>> waiting;
};

}  // namespace

TEST_CASE("extents are reported to the manager and forgotten on its word") {
  Pool pool;
  pool.start();
  place_chunk(pool.arena->bytes(), 0, content_of(1000, 1));
  place_chunk(pool.arena->bytes(), 4096, content_of(1000, 2));
  const std::uint64_t end = pool.arena->bytes().size();
  const auto answer = pool.ask(*pool.manager->peer, msg::ReportExtents{0, end});
  REQUIRE(answer);
  auto reported = std::get<msg::ReportExtents::Reply>(*answer);
  CHECK(reported.end == end);
  REQUIRE(reported.extents.size() == 2);
  const auto forgotten =
      pool.ask(*pool.manager->peer, msg::ForgetExtents{{reported.extents.back()}});
  REQUIRE(forgotten);
  CHECK(std::get<msg::ForgetExtents::Reply>(*forgotten).forgotten == 1);
  const auto again = pool.ask(*pool.manager->peer, msg::ReportExtents{0, end});
  REQUIRE(again);
  reported.extents.pop_back();
  CHECK(std::get<msg::ReportExtents::Reply>(*again).extents == reported.extents);
}

TEST_CASE("what a manager whose link is lost has asked for is not forgotten later") {
  Pool pool;
  LaterExecutor later;
  Config config = pool.config();
  config.executor = &later;
  pool.service = std::make_unique<Service>(pool.reactor, config, *pool.arena, *pool.control,
                                           std::vector<transport::Endpoint*>{pool.data.get()});
  REQUIRE(pool.service->start());
  pool.turn_until([&] { return pool.service->registered(); });
  place_chunk(pool.arena->bytes(), 0, content_of(1000, 1));
  const auto reported = report_extents(pool.arena->bytes(), {0, 4096}).extents;
  REQUIRE(reported.size() == 1);
  pool.manager->peer->call(msg::ForgetExtents{reported}, seconds(30), [](const rpc::Answer&) {});
  pool.turn_until([&] { return !later.waiting.empty(); });
  pool.manager->peer.reset();
  // Answers before or after a second registration, which another manager may have taken.
  const bool registered = GENERATE(false, true);
  pool.turn_until([&] {
    return registered ? pool.manager->registrations.size() == 2 : !pool.service->registered();
  });
  later.run_all();
  CHECK(report_extents(pool.arena->bytes(), {0, 4096}).extents == reported);
}

TEST_CASE("a benefactor that wants to leave says so until it may go") {
  Pool pool;
  pool.start();
  bool may_go = false;
  pool.service->leave([&](bool) { may_go = true; });
  pool.turn_until([&] { return pool.manager->leaving; });
  for (int i = 0; i < 300; ++i) pool.turn();
  CHECK_FALSE(may_go);
  pool.manager->may_go = true;
  pool.turn_until([&] { return may_go; });
}

TEST_CASE("a benefactor without a manager may go at once") {
  Pool pool;
  pool.start();
  pool.manager->peer.reset();
  bool may_go = false;
  pool.service->leave([&](bool) { may_go = true; });
  pool.turn_until([&] { return may_go; });
}

}  // namespace stdchk::benefactor
