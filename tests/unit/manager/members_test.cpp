// Tests malicious members after the handshake. Each uses its own key for actions beyond its
// role. The manager and the benefactor are real services.

#include "tests/support/members.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "benefactor/memory/arena.h"
#include "benefactor/service/service.h"
#include "core/base/clock.h"
#include "core/base/executor.h"
#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"
#include "core/policy/policy.h"
#include "manager/journal/memory_journal.h"
#include "manager/recovery/rebuilder.h"
#include "manager/service/service.h"
#include "tests/support/catch.h"
#include "transport/mem/mem.h"
#include "transport/rpc.h"
#include "transport/sealed/sealed.h"
#include "transport/secure/ticket.h"
#include "transport/tcp/tcp.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
using transport::secure::Keyring;
using transport::secure::new_member;
using transport::secure::Role;
using transport::secure::SecureEndpoint;
using transport::secure::ticket_of;

constexpr std::uint64_t kArena = 4 * limits::kMiB;

Secret root_secret() { return test::secret_of(7); }

/// All parts of one pool, in one thread.
struct TestPool {
  explicit TestPool(Policy of_all = {}) : policy(std::move(of_all)) { start_manager(); }
  ~TestPool() {
    benefactor.reset();
    if (lender_endpoint) reactor.remove(*lender_endpoint);
    if (data_endpoint) reactor.remove(*data_endpoint);
    stop_manager();
  }
  void start_manager() {
    Config config;
    config.membership = Membership(root);
    config.policy = policy;
    config.on_superseded = [this](Epoch epoch) { superseded = epoch; };
    config.on_damaged = [this](const std::string& how) { damage = how; };
    manager_endpoint = secured("manager", root);
    reactor.add(*manager_endpoint);
    service = std::make_unique<Service>(reactor, journal, std::move(config));
    REQUIRE(service->start());
    REQUIRE(manager_endpoint->listen(*service));
    turn();
  }
  void stop_manager() {
    service->stop();
    service.reset();
    reactor.remove(*manager_endpoint);
    manager_endpoint.reset();
  }
  /// Starts a real benefactor. `over_tcp`: clients reach it by sockets, which check their writes.
  void start_benefactor(bool over_tcp = false) {
    benefactor::ArenaOptions options;
    options.bytes = kArena;
    options.check_machine = false;
    options.prefault = false;
    auto made = benefactor::Arena::create(options, clock);
    REQUIRE(made);
    arena = std::move(*made);
    lender_endpoint = secured("lender", lender);
    reactor.add(*lender_endpoint);
    if (over_tcp) data_endpoint = tcp_of(lender);
    benefactor::Config config;
    config.manager_address = "mem:manager";
    config.keyring = lender;
    config.life = {5, lender->mark(5)};
    config.executor = &executor;
    benefactor = std::make_unique<benefactor::Service>(
        reactor, std::move(config), *arena, *lender_endpoint,
        std::vector<transport::Endpoint*>{over_tcp ? data_endpoint.get() : lender_endpoint.get()});
    REQUIRE(benefactor->start());
    pass(3s);
    REQUIRE(benefactor->registered());
  }
  std::unique_ptr<transport::Endpoint> secured(const std::string& name,
                                               const std::shared_ptr<Keyring>& who) {
    return std::make_unique<SecureEndpoint>(fabric.make_endpoint(name, clock), clock, who);
  }
  std::unique_ptr<transport::Endpoint> tcp_of(const std::shared_ptr<Keyring>& who) {
    auto made = transport::tcp::open_tcp(clock, "127.0.0.1", 0, who, {});
    REQUIRE(made);
    reactor.add(**made);
    return std::move(*made);
  }
  std::shared_ptr<Keyring> member(Role role) const {
    return std::make_shared<Keyring>(Keyring::of_member(root->key_of(new_member(role))));
  }
  void turn() {
    for (int i = 0; i < 60; ++i) reactor.run_once(Duration::zero());
  }
  void pass(Duration time) {
    for (const Time end = clock.now() + time; clock.now() < end;) {
      clock.advance(100ms);
      turn();
    }
  }

  const Policy policy;
  ManualClock clock;
  Reactor reactor{clock};
  transport::mem::Fabric fabric;
  MemoryJournal journal;
  InlineExecutor executor;
  std::shared_ptr<Keyring> root =
      std::make_shared<Keyring>(Keyring::of_root(root_secret(), transport::secure::kAnyManager));
  std::shared_ptr<Keyring> lender = member(Role::kBenefactor);
  std::unique_ptr<transport::Endpoint> manager_endpoint;
  std::unique_ptr<transport::Endpoint> lender_endpoint;
  std::unique_ptr<transport::Endpoint> data_endpoint;
  std::unique_ptr<Service> service;
  std::unique_ptr<benefactor::Arena> arena;
  std::unique_ptr<benefactor::Service> benefactor;
  std::optional<Epoch> superseded;
  std::string damage;
};

/// A link of a member, which can send any message.
struct Actor : rpc::PeerHandler {
  Actor(TestPool& all, const std::string& name, std::shared_ptr<Keyring> who)
      : pool(all), keyring(std::move(who)), endpoint(pool.secured(name, keyring)) {
    pool.reactor.add(*endpoint);
  }
  /// By an endpoint that the reactor has already.
  Actor(TestPool& all, std::shared_ptr<Keyring> who, std::unique_ptr<transport::Endpoint> by)
      : pool(all), keyring(std::move(who)), endpoint(std::move(by)) {}
  ~Actor() override {
    peer.reset();
    pool.reactor.remove(*endpoint);
  }
  /// True: the other end has accepted the link.
  bool connect(const std::string& address = "mem:manager",
               const std::optional<transport::secure::Ticket>& ticket = std::nullopt) {
    connected = closed = false;
    auto made = rpc::Peer::connect(pool.reactor, *endpoint, address, *this,
                                   limits::kConnectDeadline, ticket ? &*ticket : nullptr);
    REQUIRE(made);
    peer = std::move(*made);
    pool.turn();
    for (int i = 0; i < 20 && !connected && !closed; ++i) pool.pass(100ms);
    return connected && !closed;
  }
  template <class M>
  Result<typename M::Reply> call(M request) {
    std::optional<rpc::Answer> answer;
    peer->call(std::move(request), limits::kCallDeadline,
               [&](rpc::Answer got) { answer = std::move(got); });
    pool.turn();
    for (int i = 0; i < 200 && !answer; ++i) pool.pass(100ms);
    REQUIRE(answer);
    if (!*answer) return fail(answer->error().error);
    return std::get<typename M::Reply>(std::move(**answer));
  }
  msg::RegisterBenefactor lends(std::uint64_t life) const {
    msg::RegisterBenefactor request;
    request.life_high = life;
    request.life_low = keyring->mark(life);
    request.addresses = {"mem:somewhere"};
    request.arena_bytes = kArena;
    return request;
  }
  void on_connected(rpc::Peer&) override { connected = true; }
  void on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder) override {}
  void on_notice(rpc::Peer&, msg::Notice) override { ++notices; }
  void on_closed(rpc::Peer&, Error) override { closed = true; }

  TestPool& pool;
  std::shared_ptr<Keyring> keyring;
  std::unique_ptr<transport::Endpoint> endpoint;
  std::unique_ptr<rpc::Peer> peer;
  bool connected = false;
  bool closed = false;
  int notices = 0;
};

/// A Writer is a client with a link to the manager and a TCP link to the benefactor.
struct Writer {
  Writer(TestPool& pool, const std::string& name)
      : control(pool, name, pool.member(Role::kClient)),
        data(pool, control.keyring, pool.tcp_of(control.keyring)) {
    region = std::move(*data.endpoint->register_memory(bytes));
    REQUIRE(control.connect());
    const auto given = control.call(msg::RegisterClient{});
    REQUIRE(given);
    id = given->client;
    const msg::BenefactorInfo& info = given->benefactors.at(0);
    REQUIRE(data.connect(info.addresses.at(0), ticket_of(info)));
    const auto attached = data.call(msg::Attach{id, info.id});
    REQUIRE(attached);
    key = {attached->key, attached->base, attached->length};
  }
  ~Writer() { data.peer.reset(); }
  msg::OpenSession::Reply open(const std::string& name) {
    msg::OpenSession request;
    request.client = id;
    request.parent = kRootFile;
    request.name = name;
    request.mode = 0644;
    request.want_bytes = 64 * limits::kKiB;
    auto opened = control.call(request);
    REQUIRE(opened);
    REQUIRE(opened->grants.size() == 1);
    return *opened;
  }
  bool present(const Grant& grant) { return data.peer->link().present(key, grant).has_value(); }
  /// True: the bytes are in the arena.
  bool write(std::uint64_t offset) {
    struct Sent final : transport::Operation {
      void complete(Status status) override { done = std::move(status); }
      std::optional<Status> done;
    } sent;
    const std::array pieces{transport::LocalPiece{bytes.data(), bytes.size(), region.get()}};
    if (!data.peer->link().write(pieces, key, offset, sent)) return false;
    for (int i = 0; i < 200 && !sent.done; ++i) data.pool.pass(10ms);
    REQUIRE(sent.done);
    return sent.done->has_value();
  }

  Actor control;
  Actor data;
  std::vector<std::byte> bytes = std::vector<std::byte>(4096, std::byte{0xEE});
  std::unique_ptr<transport::MemoryRegion> region;
  ClientId id;
  transport::RemoteKey key;
};

/// A StoredChunk is a commit of one chunk that fills the writer's bytes, which it prepares.
struct StoredChunk {
  StoredChunk(Writer& writer, const msg::OpenSession::Reply& opened) {
    const auto content = ByteSpan(writer.bytes).subspan(limits::kExtentHeaderBytes);
    const Grant& grant = opened.grants.at(0);
    Chunk chunk;
    chunk.length = static_cast<std::uint32_t>(content.size());
    chunk.crc = crc32c(0, content);
    chunk.copies = {{grant.benefactor, grant.offset}};
    encode_extent_header({chunk.name, chunk.length, chunk.crc, opened.attributes.id, 0},
                         writer.bytes.data());
    commit.session = opened.session;
    commit.written.chunks = {chunk};
    commit.written.slices = {{0, chunk.length, 0, 0}};
  }
  Chunk& chunk() { return commit.written.chunks[0]; }
  msg::Commit commit;
};

/// Calls `visit` with one of each request.
template <std::size_t I = 0, class Visit>
void for_each_request(Visit visit) {
  if constexpr (I < std::variant_size_v<msg::AnyRequest>) {
    visit(std::variant_alternative_t<I, msg::AnyRequest>{});
    for_each_request<I + 1>(visit);
  }
}

/// Sets the ids without which a message is invalid.
template <class M>
void make_valid(M& request) {
  if constexpr (requires { request.addresses; }) request.addresses = {"mem:x"};
}

template <class M>
Code answer_to(Actor& actor) {
  M request{};
  make_valid(request);
  const auto answer = actor.call(std::move(request));
  return answer ? Code{} : answer.error().code;
}

/// Requires that `actor` is attached to a benefactor. Checks that the benefactor refuses all that
/// only a manager may order, also to fence the client `other`.
void check_takes_no_orders_of(Actor& actor, ClientId other) {
  for_each_request([&]<class M>(M) {
    if (std::is_same_v<M, msg::Attach>) return;
    CAPTURE(M::kName);
    const Code code = answer_to<M>(actor);
    CHECK((code == Code::kRefused || code == Code::kInvalidArgument));
  });
  CHECK(actor.call(msg::FenceClient{other}).error().code == Code::kRefused);
  CHECK(actor.call(msg::ForgetExtents{}).error().code == Code::kRefused);
}

}  // namespace

TEST_CASE("a member asks a manager for what its role may ask for, and for nothing else") {
  TestPool pool;
  const auto [role, own] =
      GENERATE(table<Role, msg::Route>({{Role::kClient, msg::Route::kClientToManager},
                                        {Role::kBenefactor, msg::Route::kBenefactorToManager},
                                        {Role::kManager, msg::Route::kStandbyToManager}}));
  Actor actor(pool, "actor",
              role == Role::kManager ? std::make_shared<Keyring>(Keyring::of_root(
                                           root_secret(), new_member(Role::kManager)))
                                     : pool.member(role));
  REQUIRE(actor.connect());
  for_each_request([&, own = own]<class M>(M) {
    if (msg::route_of<M>() == own) return;
    CAPTURE(M::kName);
    // A request that cannot be encoded without its ids never reached the service.
    const Code code = answer_to<M>(actor);
    CHECK((code == Code::kRefused || code == Code::kInvalidArgument));
    CHECK_FALSE(actor.closed);
  });
  CHECK(pool.service->pool().benefactors().empty());
}

TEST_CASE("a link without a proof is closed, also where a service would be reached without one") {
  TestPool pool;
  // Leaves the handshake out: the service itself must refuse the link.
  const auto bare = pool.fabric.make_endpoint("bare", pool.clock);
  pool.reactor.add(*bare);
  REQUIRE(bare->listen(*pool.service));
  struct Side : transport::LinkHandler {
    void on_connected(transport::Link&) override {}
    void on_message(transport::Link&, ByteSpan) override {}
    void on_closed(transport::Link&, Error) override { closed = true; }
    bool closed = false;
  } side;
  const auto stranger = pool.fabric.make_endpoint("stranger", pool.clock);
  pool.reactor.add(*stranger);
  auto link = stranger->connect("mem:bare", side, 1s);
  REQUIRE(link);
  pool.turn();
  CHECK(side.closed);
  link->reset();
  pool.reactor.remove(*stranger);
  pool.reactor.remove(*bare);
  Config nobody;
  CHECK_FALSE(
      nobody.membership.admits(*std::make_unique<Actor>(pool, "x", pool.member(Role::kClient))
                                    ->endpoint->connect("mem:manager", side, 1s)
                                    .value()));
}

TEST_CASE("a client's number is its own: another member that resumes it gets one of its own") {
  TestPool pool;
  Actor honest(pool, "honest", pool.member(Role::kClient));
  Actor thief(pool, "thief", pool.member(Role::kClient));
  REQUIRE(honest.connect());
  REQUIRE(thief.connect());
  const auto given = honest.call(msg::RegisterClient{});
  REQUIRE(given);
  REQUIRE_FALSE(given->proof.empty());
  msg::RegisterClient theft;
  theft.resume = given->client;
  theft.newest_epoch = given->epoch;
  const bool with_proof = GENERATE(false, true);
  if (with_proof) theft.proof = given->proof;  // an overheard proof, which is for another member
  const auto taken = thief.call(theft);
  REQUIRE(taken);
  CHECK(taken->client != given->client);
  CHECK(honest.call(msg::Lookup{given->client, kRootFile, "a"}).error().code == Code::kNotFound);
  CHECK(thief.call(msg::Lookup{given->client, kRootFile, "a"}).error().code == Code::kRefused);
  // The right member gets it back over another link.
  Actor again(pool, "again", honest.keyring);
  REQUIRE(again.connect());
  theft.proof = given->proof;
  const auto resumed = again.call(theft);
  REQUIRE(resumed);
  CHECK(resumed->client == given->client);
}

TEST_CASE("no member ends a manager by telling of a later one, or of records that it has lost") {
  TestPool pool;
  Actor client(pool, "client", pool.member(Role::kClient));
  Actor lender(pool, "lender", pool.member(Role::kBenefactor));
  REQUIRE(client.connect());
  REQUIRE(lender.connect());
  const auto given = client.call(msg::RegisterClient{});
  REQUIRE(given);
  msg::RegisterClient lie;
  lie.newest_epoch = Epoch{1 << 20};
  lie.proof = given->proof;
  CHECK(client.call(lie));
  lie.resume = ClientId{(std::uint64_t{1} << 60) + 5};
  CHECK(client.call(lie));
  lie.newest_epoch = given->epoch;
  lie.resume = ClientId{given->client.value + 1000};
  CHECK(client.call(lie));
  msg::RegisterBenefactor request = lender.lends(3);
  const auto registered = lender.call(request);
  REQUIRE(registered);
  request.benefactor = registered->benefactor;
  request.proof = registered->proof;
  request.newest_epoch = Epoch{1 << 20};
  CHECK(lender.call(request));
  request.newest_epoch = registered->epoch;
  request.newest_sequence = 1'000'000;
  CHECK(lender.call(request));
  CHECK_FALSE(pool.superseded.has_value());
  CHECK(pool.damage.empty());
  // A manager believes a proof that any real manager has issued, and so learns of its successor.
  TestPool later;
  const Membership other(later.root);
  msg::RegisterClient truth;
  truth.newest_epoch = Epoch{kEpochBlock};
  truth.resume = ClientId{(truth.newest_epoch.value << 40) + 5};
  truth.proof = other.proof_of(truth.resume, client.keyring->self());
  CHECK(client.call(truth).error().code == Code::kBusy);
  REQUIRE(pool.superseded.has_value());
  CHECK(pool.superseded->value == kEpochBlock);
}

TEST_CASE("a benefactor's life is its own: nobody else registers under it") {
  TestPool pool;
  Actor honest(pool, "honest", pool.member(Role::kBenefactor));
  Actor thief(pool, "thief", pool.member(Role::kBenefactor));
  REQUIRE(honest.connect());
  REQUIRE(thief.connect());
  const auto registered = honest.call(honest.lends(3));
  REQUIRE(registered);
  msg::RegisterBenefactor theft = honest.lends(3);
  theft.proof = registered->proof;
  theft.benefactor = registered->benefactor;
  theft.newest_epoch = registered->epoch;
  CHECK(thief.call(theft).error().code == Code::kRefused);
  theft.life_low = 77;
  CHECK(thief.call(theft).error().code == Code::kRefused);
  CHECK(thief.call(msg::BenefactorHeartbeat{registered->benefactor}).error().code ==
        Code::kRefused);
  CHECK(honest.call(msg::BenefactorHeartbeat{registered->benefactor}));
  CHECK(pool.service->pool().benefactors().size() == 1);
  // After a restart, the right member gets the same number again.
  pool.stop_manager();
  pool.start_manager();
  REQUIRE(thief.connect());
  CHECK(thief.call(theft).error().code == Code::kRefused);
  REQUIRE(honest.connect());
  msg::RegisterBenefactor again = honest.lends(3);
  again.proof = registered->proof;
  again.benefactor = registered->benefactor;
  again.newest_epoch = registered->epoch;
  const auto back = honest.call(again);
  REQUIRE(back);
  CHECK(back->benefactor == registered->benefactor);
}

TEST_CASE("a client attaches by its ticket, under its own number, and says nothing else there") {
  TestPool pool;
  pool.start_benefactor();
  Actor client(pool, "client", pool.member(Role::kClient));
  Actor other(pool, "other", pool.member(Role::kClient));
  REQUIRE(client.connect());
  REQUIRE(other.connect());
  const auto given = client.call(msg::RegisterClient{});
  const auto others = other.call(msg::RegisterClient{});
  REQUIRE((given && others));
  REQUIRE(given->benefactors.size() == 1);
  const auto ticket = ticket_of(given->benefactors[0]);
  const auto others_ticket = ticket_of(others->benefactors[0]);
  REQUIRE((ticket && others_ticket));
  CHECK_FALSE(ticket->key == others_ticket->key);
  const BenefactorId lender = pool.benefactor->id();

  SECTION("as it should") {
    REQUIRE(client.connect("mem:lender", ticket));
    CHECK(client.call(msg::Attach{given->client, lender}));
    CHECK(pool.benefactor->is_attached(given->client));
  }
  SECTION("not under another number") {
    REQUIRE(client.connect("mem:lender", ticket));
    CHECK(client.call(msg::Attach{others->client, lender}).error().code == Code::kRefused);
    CHECK(client.call(msg::Attach{ClientId{given->client.value + 1}, lender}).error().code ==
          Code::kRefused);
    CHECK(pool.benefactor->attached_count() == 0);
  }
  SECTION("not by another one's ticket, a changed one, or none") {
    CHECK_FALSE(client.connect("mem:lender", others_ticket));
    auto changed = *ticket;
    changed.number = others->client.value;
    CHECK_FALSE(client.connect("mem:lender", changed));
    CHECK_FALSE(client.connect("mem:lender"));
    CHECK(pool.benefactor->attached_count() == 0);
  }
  SECTION("and a benefactor does for it nothing that a manager asks for") {
    REQUIRE(client.connect("mem:lender", ticket));
    REQUIRE(client.call(msg::Attach{given->client, lender}));
    check_takes_no_orders_of(client, others->client);
    CHECK(pool.benefactor->is_attached(given->client));
  }
  SECTION("not any more when it was fenced") {
    REQUIRE(client.connect("mem:lender", ticket));
    REQUIRE(client.call(msg::Attach{given->client, lender}));
    // The client's lease runs out: the manager gives it another number, and the old one is useless.
    pool.stop_manager();
    pool.start_manager();
    pool.pass(10s);
    REQUIRE(pool.benefactor->registered());
    CHECK_FALSE(pool.benefactor->is_attached(given->client));
    const bool linked = client.connect("mem:lender", ticket);
    if (linked) {
      CHECK(client.call(msg::Attach{given->client, lender}).error().code == Code::kFenced);
    }
    // Afterwards the client continues: none of the attacks had a lasting effect.
    REQUIRE(client.connect());
    msg::RegisterClient resume;
    resume.resume = given->client;
    resume.newest_epoch = given->epoch;
    resume.proof = given->proof;
    const auto anew = client.call(resume);
    REQUIRE(anew);
    REQUIRE(anew->benefactors.size() == 1);
    REQUIRE(client.connect("mem:lender", ticket_of(anew->benefactors[0])));
    CHECK(client.call(msg::Attach{anew->client, lender}));
  }
}

TEST_CASE("a benefactor that copies from another one says nothing else there") {
  TestPool pool;
  pool.start_benefactor();
  Actor client(pool, "client", pool.member(Role::kClient));
  REQUIRE(client.connect());
  const auto given = client.call(msg::RegisterClient{});
  REQUIRE((given && given->benefactors.size() == 1));
  REQUIRE(client.connect("mem:lender", ticket_of(given->benefactors[0])));
  const BenefactorId lender = pool.benefactor->id();
  REQUIRE(client.call(msg::Attach{given->client, lender}));
  // As the manager orders a copy: a number of the epoch, and a ticket for it.
  Actor copier(pool, "copier", pool.member(Role::kBenefactor));
  const ClientId number{given->client.value + 100};
  const auto ticket = pool.root->ticket(copier.keyring->self(), pool.lender->self(), number.value);
  REQUIRE(copier.connect("mem:lender", ticket));
  CHECK(copier.call(msg::Attach{given->client, lender}).error().code == Code::kRefused);
  REQUIRE(copier.call(msg::Attach{number, lender}));
  check_takes_no_orders_of(copier, given->client);
  CHECK(copier.call(msg::MoveExtents{}).error().code == Code::kRefused);
  CHECK(pool.benefactor->is_attached(given->client));
  CHECK_FALSE(client.closed);
}

TEST_CASE("a client changes nothing in the session of another client") {
  TestPool pool;
  pool.start_benefactor(true);
  Writer victim(pool, "victim");
  Writer thief(pool, "thief");
  const auto opened = victim.open("file");
  StoredChunk stored(victim, opened);
  REQUIRE(victim.present(opened.grants[0]));
  REQUIRE(victim.write(opened.grants[0].offset));
  const auto code_of = [&](auto request) {
    const auto answer = thief.control.call(std::move(request));
    return answer ? Code{} : answer.error().code;
  };
  msg::ResumeSession resume;
  resume.session = opened.session;
  msg::Place place;
  place.session = opened.session;
  place.want_bytes = 4096;
  msg::Commit ending = stored.commit;
  ending.end = true;
  CHECK(code_of(stored.commit) == Code::kFenced);
  CHECK(code_of(ending) == Code::kFenced);
  CHECK(code_of(place) == Code::kFenced);
  CHECK(code_of(msg::CloseSession{opened.session}) == Code::kFenced);
  CHECK_FALSE(thief.control.call(resume));
  // Nor does the thief commit the victim's chunk as its own.
  const auto own = thief.open("own");
  msg::Commit theft = stored.commit;
  theft.session = own.session;
  CHECK_FALSE(thief.control.call(theft));
  CHECK(victim.control.call(ending));
  const auto seen = victim.control.call(msg::Lookup{victim.id, kRootFile, "file"});
  REQUIRE(seen);
  CHECK(seen->attributes.size_bytes == stored.chunk().length);
}

TEST_CASE("after a restart of the manager a session goes on only with the member that opened it") {
  TestPool pool;
  pool.start_benefactor(true);
  Writer victim(pool, "victim");
  Writer thief(pool, "thief");
  const auto opened = victim.open("file");
  const auto own = thief.open("own");
  StoredChunk stored(victim, opened);
  REQUIRE(victim.present(opened.grants[0]));
  REQUIRE(victim.write(opened.grants[0].offset));
  const auto come_back = [](Writer& writer) {
    REQUIRE(writer.control.connect());
    const auto given = writer.control.call(msg::RegisterClient{});
    REQUIRE(given);
    return given->client;
  };
  const auto resume_of = [&](ClientId client, const msg::OpenSession::Reply& session,
                             const std::string& name) {
    msg::ResumeSession resume;
    resume.client = client;
    resume.session = session.session;
    resume.file = session.attributes.id;
    resume.parent = kRootFile;
    resume.name = name;
    resume.mode = 0644;
    return resume;
  };
  const int restarts = GENERATE(1, 2);  // each later manager knows the owner
  for (int i = 0; i < restarts; ++i) {
    pool.stop_manager();
    pool.start_manager();
    pool.pass(3s);
  }
  REQUIRE(pool.benefactor->registered());
  // The thief comes first, and knows all numbers.
  const ClientId thiefs = come_back(thief);
  auto theft = resume_of(thiefs, opened, "file");
  SECTION("with nothing stored") {}
  SECTION("with what the victim has stored") { theft.stored = stored.commit.written.chunks; }
  SECTION("in a later part") { theft.part = 1; }
  CHECK(thief.control.call(theft).error().code == Code::kRefused);
  CHECK(thief.control.call(resume_of(thiefs, own, "own")));
  // The right member goes on with what it has stored.
  auto resume = resume_of(come_back(victim), opened, "file");
  resume.stored = stored.commit.written.chunks;
  const auto resumed = victim.control.call(resume);
  REQUIRE(resumed);
  CHECK_FALSE(resumed->committed);
  const auto committed = victim.control.call(stored.commit);
  REQUIRE(committed);
  CHECK(committed->attributes.size_bytes == stored.chunk().length);
}

TEST_CASE("many sessions of one member have different numbers that name the member") {
  TestPool pool;
  pool.start_benefactor();
  Actor one(pool, "one", pool.member(Role::kClient));
  Actor other(pool, "other", pool.member(Role::kClient));
  std::set<SessionId> numbers;
  std::set<std::uint64_t> marks;
  for (Actor* actor : {&one, &other}) {
    REQUIRE(actor->connect());
    const auto given = actor->call(msg::RegisterClient{});
    REQUIRE(given);
    for (int i = 0; i < 20; ++i) {
      msg::OpenSession request;
      request.client = given->client;
      request.parent = kRootFile;
      request.name = "file" + std::to_string(i);
      const auto opened = actor->call(request);
      REQUIRE(opened);
      numbers.insert(opened->session);
      CHECK(opened->session.value >> 40 == given->epoch.value);
      marks.insert(opened->session.value >> 24 & 0xffff);
    }
  }
  CHECK(numbers.size() == 40);
  CHECK(marks.size() == 2);  // equal for 1 in 65,536 pairs of members
}

TEST_CASE("a commit with a wrong checksum or name is refused where the policy asks for a proof") {
  const bool proves = GENERATE(true, false);
  TestPool pool(proves ? parse_policy("proof=checksum").value() : Policy{});
  pool.start_benefactor(true);
  Writer liar(pool, "liar");
  const auto opened = liar.open("file");
  StoredChunk stored(liar, opened);
  REQUIRE(liar.present(opened.grants[0]));
  REQUIRE(liar.write(opened.grants[0].offset));
  StoredChunk lie = stored;
  SECTION("the checksum of other bytes") { lie.chunk().crc ^= 1; }
  SECTION("the name of other bytes") { lie.chunk().name = name_chunk(ByteSpan(liar.bytes)); }
  SECTION("the length of another chunk") {
    lie.chunk().length -= 8;
    lie.commit.written.slices[0].length -= 8;
  }
  const auto answer = liar.control.call(lie.commit);
  if (proves) {
    REQUIRE_FALSE(answer);
    CHECK(answer.error().code == Code::kDataLost);
    CHECK(liar.control.call(stored.commit));  // the truth
  } else {
    CHECK(answer);  // readers find the damage: docs/guide/security.md
  }
}

TEST_CASE("over tcp a client writes where the manager has granted space to it, and nowhere else") {
  TestPool pool;
  pool.start_benefactor(true);
  Writer victim(pool, "victim");
  Writer thief(pool, "thief");
  const auto has = [&](std::uint64_t offset, std::byte value) {
    return pool.arena->bytes()[offset] == value;
  };
  const auto mine = thief.open("mine");
  const Grant own = mine.grants[0];
  REQUIRE(thief.present(own));
  REQUIRE(thief.write(own.offset));
  REQUIRE(has(own.offset, std::byte{0xEE}));

  SECTION("not into another one's grant, which it may even know") {
    const Grant others = victim.open("others").grants[0];
    SECTION("without presenting it") { CHECK_FALSE(thief.write(others.offset)); }
    SECTION("by presenting it") {
      REQUIRE(thief.present(others));
      CHECK_FALSE(thief.write(others.offset));
    }
    SECTION("by a grant that it has made longer") {
      Grant longer = own;
      longer.length += others.offset + others.length;
      REQUIRE(thief.present(longer));
      CHECK_FALSE(thief.write(others.offset));
    }
    CHECK(has(others.offset, std::byte{0}));
    CHECK(thief.data.closed);
    // The victim goes on.
    REQUIRE(victim.present(others));
    CHECK(victim.write(others.offset));
  }
  SECTION("not where it gave space back and another client has begun to write") {
    REQUIRE(thief.control.call(msg::CloseSession{mine.session}));
    const Grant others = victim.open("others").grants[0];
    REQUIRE(others.offset == own.offset);
    std::ranges::fill(victim.bytes, std::byte{0x11});
    REQUIRE(victim.present(others));
    REQUIRE(victim.write(others.offset));
    REQUIRE(has(own.offset, std::byte{0x11}));
    SECTION("by what it has presented before") {}
    SECTION("by presenting it again") { REQUIRE(thief.present(own)); }
    CHECK_FALSE(thief.write(own.offset));
    CHECK(has(own.offset, std::byte{0x11}));
    CHECK(thief.data.closed);
  }
}

TEST_CASE("a member that listens where the manager was is told nothing") {
  TestPool pool;
  pool.stop_manager();
  struct Listener : transport::AcceptHandler {
    void on_accept(std::unique_ptr<transport::Link>) override { accepted = true; }
    bool accepted = false;
  } listener;
  // A member with its own key poses as the manager.
  const auto key = pool.root->key_of(new_member(Role::kBenefactor));
  auto posing =
      std::make_shared<Keyring>(Keyring::of_root(key.key, transport::secure::kAnyManager));
  auto endpoint = pool.secured("manager", posing);
  pool.reactor.add(*endpoint);
  REQUIRE(endpoint->listen(listener));
  Actor client(pool, "client", pool.member(Role::kClient));
  CHECK_FALSE(client.connect());
  CHECK_FALSE(listener.accepted);
  pool.reactor.remove(*endpoint);
  endpoint.reset();
  pool.start_manager();
}

TEST_CASE("one benefactor that comes twice, or as another one, makes no majority for a standby") {
  TestPool pool;
  Actor one(pool, "one", pool.member(Role::kBenefactor));
  Actor two(pool, "two", pool.member(Role::kBenefactor));
  Actor thief(pool, "thief", pool.member(Role::kBenefactor));
  std::vector<BenefactorId> keepers;
  std::vector<msg::RegisterBenefactor> requests;
  for (Actor* actor : {&one, &two, &thief}) {
    REQUIRE(actor->connect());
    auto request = actor->lends(3);
    const auto reply = actor->call(request);
    REQUIRE(reply);
    request.benefactor = reply->benefactor;
    request.newest_epoch = reply->epoch;
    request.proof = reply->proof;
    request.log_epoch = reply->epoch;
    request.log_sequence = 1;
    request.log_bytes_max = limits::kMiB;
    keepers.push_back(reply->benefactor);
    requests.push_back(request);
  }
  const Epoch epoch = pool.service->state().epoch();
  // The thief sends every possible message to a standby of the same pool.
  MemoryJournal journal;
  bool done = false;
  Rebuilder rebuilder(pool.reactor, journal, Membership(pool.root),
                      [&](const auto&) { done = true; });
  REQUIRE(rebuilder.start_as_standby());
  auto endpoint = pool.secured("standby", pool.root);
  pool.reactor.add(*endpoint);
  REQUIRE(endpoint->listen(rebuilder));
  rebuilder.admit({epoch, keepers});
  struct Promising : Actor {
    using Actor::Actor;
    void on_request(rpc::Peer&, msg::RequestEnvelope, Time, rpc::Responder respond) override {
      asked = true;
      respond(msg::Reply{msg::ReadLog::Reply{}});
    }
    bool asked = false;
  };
  Promising first(pool, "first", thief.keyring);
  Promising second(pool, "second", thief.keyring);
  Promising third(pool, "third", thief.keyring);
  std::size_t number = 0;
  for (Promising* link : {&first, &second, &third}) {
    REQUIRE(link->connect("mem:standby"));
    auto claim = link->lends(3);
    const auto& stolen = requests[number];
    claim.benefactor = number < 2 ? stolen.benefactor : requests[2].benefactor;
    claim.newest_epoch = epoch;
    claim.proof = number < 2 ? stolen.proof : requests[2].proof;
    claim.log_epoch = epoch;
    claim.log_sequence = 1;
    claim.log_bytes_max = limits::kMiB;
    link->peer->call(claim, limits::kCallDeadline, [](const rpc::Answer&) {});
    ++number;
  }
  pool.turn();
  CHECK_FALSE(first.asked);
  CHECK_FALSE(second.asked);
  CHECK_FALSE(third.asked);
  CHECK_FALSE(done);
  // Three honest benefactors must be asked.
  Promising honest_one(pool, "honest1", one.keyring);
  REQUIRE(honest_one.connect("mem:standby"));
  honest_one.peer->call(requests[0], limits::kCallDeadline, [](const rpc::Answer&) {});
  pool.turn();
  CHECK(honest_one.asked);
  for (Actor* link : std::initializer_list<Actor*>{&first, &second, &third, &honest_one}) {
    link->peer.reset();
  }
  pool.turn();
  pool.reactor.remove(*endpoint);
}

}  // namespace stdchk::manager
