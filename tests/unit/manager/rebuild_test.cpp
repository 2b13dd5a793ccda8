// Tests the metadata log on benefactors, the manager rebuilt from it, and the fence of epochs.
#include "manager/journal/metadata_log.h"
#include "manager/recovery/log_replicas.h"
#include "manager/recovery/rebuilder.h"
#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;

std::uint32_t keepers(World& world) { return world.service->planners().logs.count(); }

/// Lets time pass while the benefactors stay alive.
void pass(World& world, std::vector<TestBenefactor*> benefactors, Duration time) {
  for (Duration passed{}; passed < time; passed += 500ms) {
    world.pass(500ms);
    for (TestBenefactor* each : benefactors) each->beat();
  }
}

/// Makes the benefactors keep the log from now on.
void keep_logs(World& world, std::vector<TestBenefactor*> benefactors) {
  for (TestBenefactor* each : benefactors) each->keep_log();
  world.pass(400ms);
}

void lose_manager_and_disk(World& world) {
  world.stop();
  world.journal = MemoryJournal{};
}

using Rebuilt = std::optional<Result<Rebuilder::Found>>;

void offer(TestBenefactor& benefactor, const msg::RegisterBenefactor& request) {
  benefactor.connect();
  benefactor.peer().call(request, limits::kCallDeadline, [](const rpc::Answer&) {});
}

/// Starts a manager with an empty disk. `meanwhile(found)` runs until the manager is rebuilt.
template <class Meanwhile>
Result<Rebuilder::Found> rebuild_while(World& world, Meanwhile meanwhile) {
  world.endpoint = world.fabric.make_endpoint("manager", world.clock);
  world.reactor.add(*world.endpoint);
  Rebuilt found;
  {
    Rebuilder rebuilder(world.reactor, world.journal, Membership::trusting_all(),
                        [&](Result<Rebuilder::Found> got) { found = std::move(got); });
    REQUIRE(rebuilder.start());
    REQUIRE(world.endpoint->listen(rebuilder));
    meanwhile(found);
  }
  world.reactor.remove(*world.endpoint);
  world.endpoint.reset();
  REQUIRE(found);
  return *found;
}

/// Rebuilds the manager while the benefactors offer their logs.
Result<Rebuilder::Found> rebuild(World& world, std::vector<TestBenefactor*> benefactors) {
  return rebuild_while(world, [&](const Rebuilt& found) {
    for (TestBenefactor* each : benefactors) offer(*each, each->request());
    for (int i = 0; i < 700 && !found; ++i) world.pass(100ms);
  });
}

void come_back(World& world, std::vector<TestBenefactor*> benefactors) {
  world.start();
  for (TestBenefactor* each : benefactors) {
    each->connect();
    each->register_now();
  }
}

/// The commands of a snapshot; equal commands mean equal states.
std::vector<Command> content(World& world) {
  std::vector<Command> out;
  world.service->state().snapshot([&](Command command) {
    if (!std::holds_alternative<RestoreCounters>(command)) out.push_back(std::move(command));
  });
  return out;
}

}  // namespace

TEST_CASE(
    "M8: what was answered comes back from the benefactors alone, what was removed does not") {
  World world;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena, "h1"), two(world, "b2", 2, kArena, "h2");
  keep_logs(world, {&one, &two});
  CHECK(keepers(world) == 2);
  std::vector<Command> before;
  std::uint64_t free = 0;
  {
    TestClient client(world, "client");
    REQUIRE(client.write("a", 1000, 7));
    REQUIRE(client.write("b", 2000, 0));
    REQUIRE(client.write("gone", 3000, 9));
    const auto folder = client.call(msg::MakeDirectory{client.id, kRootFile, "folder", 0755});
    REQUIRE(folder);
    const Policy policy{{{PolicyKey::kCopies, 2}}};
    REQUIRE(client.call(msg::SetPolicy{client.id, folder->attributes.id, policy}));
    REQUIRE(client.call(msg::Remove{client.id, kRootFile, "gone"}));
    REQUIRE(client.call(msg::StatPool{})->log_copies == 2);
    REQUIRE(client.call(msg::GoodbyeClient{client.id}));
  }
  world.turn();
  before = content(world);
  free = world.service->pool().space().free_bytes(one.id) +
         world.service->pool().space().free_bytes(two.id);
  lose_manager_and_disk(world);

  const auto found = rebuild(world, {&one, &two});
  REQUIRE(found);
  CHECK(found->benefactors == 2);
  CHECK(found->epoch == Epoch{1});
  CHECK(found->complete);
  come_back(world, {&one, &two});
  CHECK(world.service->state().epoch() == Epoch{kEpochBlock});
  CHECK(content(world) == before);
  CHECK(world.service->pool().space().free_bytes(one.id) +
            world.service->pool().space().free_bytes(two.id) ==
        free);
  TestClient client(world, "client2");
  CHECK(client.lookup("a")->size_bytes == 1000);
  CHECK(client.lookup("gone").error().code == Code::kNotFound);
  // Rebuilds again, from the rebuilt manager's logs.
  REQUIRE(client.write("c", 500, 3));
  world.pass(400ms);
  lose_manager_and_disk(world);
  REQUIRE(rebuild(world, {&one, &two}));
  come_back(world, {&one, &two});
  CHECK(world.service->state().epoch() == Epoch{2 * kEpochBlock});
  TestClient last(world, "client3");
  CHECK(last.lookup("c")->size_bytes == 500);
}

TEST_CASE(
    "M8: a commit is answered when the benefactors that keep the log have it, or have failed") {
  World world;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena), two(world, "b2", 2, kArena);
  keep_logs(world, {&one, &two});
  REQUIRE(keepers(world) == 2);
  TestClient client(world, "client");
  const auto opened = client.create("a", 4096);
  REQUIRE(opened);
  two.log_stopped = true;
  bool answered = false;
  client.peer().call(TestClient::commit_of(opened->session, opened->grants.at(0), 0, 1000, 7),
                     limits::kCallDeadline,
                     [&](const rpc::Answer& answer) { answered = answer.has_value(); });
  world.turn();
  CHECK_FALSE(answered);
  world.pass(900ms);
  CHECK_FALSE(answered);
  world.pass(300ms);
  CHECK(answered);
  CHECK(keepers(world) == 1);
  // The benefactor that answered has the record; the other's log ends earlier.
  const auto log = one.log->read(0);
  REQUIRE(log);
  const auto commands = decode_log(log->bytes);
  REQUIRE(commands);
  CHECK(std::holds_alternative<CommitVersion>(commands->commands.back()));
  CHECK(two.log->sequence() < one.log->sequence());
  // After a pause the second benefactor is asked again, with a whole log.
  two.log_stopped = false;
  pass(world, {&one, &two}, 6s);
  CHECK(keepers(world) == 2);
  CHECK(two.log->sequence() == one.log->sequence());
}

TEST_CASE("the log that knows most is taken, and one that cannot be read is not") {
  World world;
  world.start();
  TestBenefactor old(world, "b1", 1, kArena), good(world, "b2", 2, kArena),
      bad(world, "b3", 3, kArena);
  keep_logs(world, {&old, &good, &bad});
  REQUIRE(keepers(world) == 3);
  {
    TestClient client(world, "client");
    REQUIRE(client.write("a", 1000, 7));
    old.log_stopped = true;
    REQUIRE(client.write("b", 1000, 8));
  }
  // Invalid bytes that claim to be the newest log.
  msg::KeepLog wrong;
  wrong.epoch = Epoch{1};
  wrong.begins = true;
  wrong.sequence = 1000;
  wrong.bytes = "no record";
  REQUIRE(bad.log->store(wrong));
  lose_manager_and_disk(world);
  const auto found = rebuild(world, {&old, &bad, &good});
  REQUIRE(found);
  come_back(world, {&old, &good, &bad});
  TestClient client(world, "client2");
  CHECK(client.lookup("a"));
  CHECK(client.lookup("b"));
}

/// A benefactor makes its checksums right again, but it has no key for the MACs.
TEST_CASE("M8: a log that its benefactor has changed is passed over, and so is one cut short") {
  World world;
  world.start();
  TestBenefactor good(world, "b1", 1, kArena), bad(world, "b2", 2, kArena);
  keep_logs(world, {&good, &bad});
  REQUIRE(keepers(world) == 2);
  {
    TestClient client(world, "client");
    REQUIRE(client.write("a", 1000, 7));
    REQUIRE(client.write("b", 1000, 8));
  }
  const std::string log = bad.log->read(0)->bytes;
  const std::uint64_t sequence = bad.log->sequence();
  const auto last = decode_log(log);
  REQUIRE(last);
  msg::KeepLog changed;
  changed.epoch = Epoch{1};
  changed.begins = true;
  changed.sequence = sequence + 1;  // claims more records than the other log has
  SECTION("with a key of its own") {
    const LogKeys keys(Secret{{std::byte{1}}});
    LogSnapshot snapshot(keys, Epoch{1}, sequence + 1, 7, changed.bytes);
    for (std::size_t i = 0; i + 1 < last->commands.size(); ++i) {
      REQUIRE(snapshot.append(last->commands[i], changed.bytes));
    }
    snapshot.finish(changed.bytes);
  }
  SECTION("without its newest record, and with a claim that it has more") {
    std::string record;
    const LogKeys keys(Secret{});
    REQUIRE(append_record(keys, Epoch{1}, sequence, last->commands.back(), record));
    changed.bytes = log.substr(0, log.size() - record.size());
    REQUIRE(decode_log(changed.bytes, &keys));
  }
  REQUIRE(bad.log->store(changed));
  lose_manager_and_disk(world);
  const auto found = rebuild(world, {&bad, &good});
  REQUIRE(found);
  come_back(world, {&good, &bad});
  TestClient client(world, "client2");
  CHECK(client.lookup("a"));
  CHECK(client.lookup("b"));
}

TEST_CASE("M8: a log with a wrong bit is passed over, wherever it is, and another one taken") {
  World world;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena), two(world, "b2", 2, kArena),
      three(world, "b3", 3, kArena);
  const std::vector<TestBenefactor*> all{&one, &two, &three};
  keep_logs(world, all);
  REQUIRE(keepers(world) == 3);
  std::vector<Command> before;
  {
    TestClient client(world, "client");
    REQUIRE(client.write("the name", 1000, 7));
    REQUIRE(client.call(msg::GoodbyeClient{client.id}));
  }
  world.turn();
  before = content(world);
  lose_manager_and_disk(world);
  // Any of the three logs may come first.
  const int good = GENERATE(0, 1, 2);
  for (int i = 0; i < 3; ++i) {
    if (i != good) flip_bit(*all[static_cast<std::size_t>(i)], "the name");
  }
  const Time began = world.clock.now();
  const auto found = rebuild(world, all);
  REQUIRE(found);
  CHECK(found->complete);
  CHECK(world.clock.now() - began < 10s);
  come_back(world, all);
  CHECK(content(world) == before);
}

TEST_CASE("M8: where all logs have wrong bits there is no manager, and that is said") {
  World world;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena), two(world, "b2", 2, kArena),
      three(world, "b3", 3, kArena);
  keep_logs(world, {&one, &two, &three});
  {
    TestClient client(world, "client");
    REQUIRE(client.write("the name", 1000, 7));
  }
  lose_manager_and_disk(world);
  for (TestBenefactor* each : {&one, &two, &three}) flip_bit(*each, "the name");
  CHECK(rebuild(world, {&one, &two, &three}).error().code == Code::kCorrupt);
}

TEST_CASE("M8: what only a log with a wrong bit may have had is waited for, and said to be gone") {
  World world;
  world.start();
  TestBenefactor newer(world, "b1", 1, kArena), good(world, "b2", 2, kArena);
  keep_logs(world, {&newer, &good});
  {
    TestClient client(world, "client");
    REQUIRE(client.write("the name", 1000, 7));
    good.log_stopped = true;
    REQUIRE(client.write("b", 1000, 8));
  }
  lose_manager_and_disk(world);
  flip_bit(newer, "the name");
  const Time began = world.clock.now();
  const auto found = rebuild(world, {&newer, &good});
  REQUIRE(found);
  CHECK_FALSE(found->complete);
  CHECK(world.clock.now() - began > 30s);
}

TEST_CASE(
    "M3: a rebuilt manager grants no extent before it has heard of it and fenced its writers") {
  World world;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena), two(world, "b2", 2, kArena);
  keep_logs(world, {&one, &two});
  {
    TestClient client(world, "client");
    REQUIRE(client.write("a", 1000, 7));
  }
  lose_manager_and_disk(world);
  REQUIRE(rebuild(world, {&one}));
  one.fences = false;
  come_back(world, {&one});
  TestClient client(world, "client2");
  const auto early = client.create("x", 4096);
  REQUIRE(early);
  CHECK(early->grants.empty());
  one.fences = true;
  pass(world, {&one}, 4s);
  client.register_now();
  const auto opened = client.create("b", kArena / 2);
  REQUIRE(opened);
  REQUIRE_FALSE(opened->grants.empty());
  const auto map = client.call(msg::GetMap{client.id, client.lookup("a")->id});
  REQUIRE(map);
  for (const Grant& grant : opened->grants) {
    CHECK(grant.benefactor == one.id);
    for (const Extent& copy : map->page.chunks.at(0).copies) {
      const bool apart = copy.benefactor != grant.benefactor ||
                         copy.offset + extent_bytes(1000) <= grant.offset ||
                         copy.offset >= grant.offset + grant.length;
      CHECK(apart);
    }
  }
}

TEST_CASE(
    "a log that lacks what was answered is taken only when no other comes, and that is said") {
  World world;
  world.start();
  TestBenefactor old(world, "b1", 1, kArena), good(world, "b2", 2, kArena);
  keep_logs(world, {&old, &good});
  {
    TestClient client(world, "client");
    old.log_stopped = true;
    REQUIRE(client.write("a", 1000, 7));
  }
  old.beat();
  const Time began = world.clock.now();
  lose_manager_and_disk(world);
  const auto late = rebuild(world, {&old});
  REQUIRE(late);
  CHECK_FALSE(late->complete);
  CHECK(world.clock.now() - began > 30s);
  world.journal = MemoryJournal{};
  const auto whole = rebuild(world, {&old, &good});
  REQUIRE(whole);
  CHECK(whole->complete);
}

TEST_CASE("a log of a manager whose journal had lost its end is taken, and what it lacks is said") {
  World world;
  world.start();
  TestBenefactor one(world, "b1", 1, kArena), two(world, "b2", 2, kArena);
  keep_logs(world, {&one, &two});
  {
    TestClient client(world, "client");
    REQUIRE(client.write("a", 1000, 7));
  }
  one.beat();
  world.stop();
  world.journal.lose_end(1);
  come_back(world, {&two});
  pass(world, {&two}, 1s);
  REQUIRE(two.log->epoch() == Epoch{2});
  lose_manager_and_disk(world);
  const auto found = rebuild(world, {&one, &two});
  REQUIRE(found);
  CHECK(found->epoch == Epoch{2});
  CHECK_FALSE(found->complete);
  std::vector<std::string> damage;
  world.config.on_damaged = [&](const std::string& how) { damage.push_back(how); };
  come_back(world, {&one, &two});
  CHECK(damage.empty());
}

TEST_CASE("a manager that is told of a later epoch changes nothing more and ends") {
  World world;
  std::vector<Epoch> later;
  world.config.on_superseded = [&](Epoch epoch) { later.push_back(epoch); };
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  Actor other(world, "other");
  msg::RegisterClient request;
  request.newest_epoch = Epoch{1};
  CHECK(other.call(request));
  CHECK(later.empty());
  Actor fenced(world, "fenced");
  request.newest_epoch = Epoch{kEpochBlock};
  CHECK(fenced.call(request).error().code == Code::kBusy);
  benefactor.epoch = Epoch{kEpochBlock};
  CHECK(benefactor.call(benefactor.request()).error().code == Code::kBusy);
  CHECK(later == std::vector<Epoch>{Epoch{kEpochBlock}});
  CHECK(client.call(msg::MakeDirectory{client.id, kRootFile, "x", 0755}).error().code ==
        Code::kReadOnly);
}

TEST_CASE(
    "a manager that was restarted on its old disk is of an earlier epoch than a rebuilt one") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  keep_logs(world, {&benefactor});
  world.stop();
  MemoryJournal old = world.journal;
  world.journal = MemoryJournal{};
  REQUIRE(rebuild(world, {&benefactor}));
  come_back(world, {&benefactor});
  world.stop();
  // The old manager comes back repeatedly.
  world.journal = old;
  std::vector<Epoch> later;
  world.config.on_superseded = [&](Epoch epoch) { later.push_back(epoch); };
  for (int i = 0; i < 3; ++i) {
    world.restart();
    benefactor.connect();
    CHECK(benefactor.call(benefactor.request()).error().code == Code::kBusy);
  }
  CHECK(later.size() == 3);
}

TEST_CASE("nothing is rebuilt over a journal, nor when nobody with a log comes") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  world.stop();
  Rebuilder rebuilder(world.reactor, world.journal, Membership::trusting_all(),
                      [](const auto&) { CHECK(false); });
  CHECK(rebuilder.start().error().code == Code::kExists);
  world.journal = MemoryJournal{};
  CHECK(rebuild(world, {&benefactor}).error().code == Code::kNotFound);
}

TEST_CASE("a log that lacks a record counts when time is up, also of one that is away just then") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  keep_logs(world, {&benefactor});
  lose_manager_and_disk(world);
  const auto rebuilt = rebuild_while(world, [&](const Rebuilt& found) {
    auto request = benefactor.request();
    request.newest_sequence = benefactor.log->sequence() + 1;
    offer(benefactor, request);
    world.pass(59s);
    CHECK(!found);
    benefactor.disconnect();
    world.pass(2s);
    CHECK(!found);
    offer(benefactor, request);
    world.pass(200ms);
  });
  REQUIRE(rebuilt);
  CHECK(!rebuilt->complete);
}

TEST_CASE("M8: a restarted manager lets clients in when a benefactor keeps the metadata again") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  keep_logs(world, {&benefactor});
  world.restart();
  Actor client(world, "client");
  std::optional<rpc::Answer> answer;
  msg::RegisterClient request;
  client.peer().call(request, limits::kCallDeadline, [&](rpc::Answer got) { answer = got; });
  world.pass(1s);
  CHECK(!answer);
  SECTION("at once") {
    benefactor.connect();
    benefactor.register_now();
    CHECK(keepers(world) == 1);
    CHECK(answer);
  }
  SECTION("or when none has come for too long") {
    world.pass(1700ms);
    CHECK(keepers(world) == 0);
    CHECK(answer);
  }
}

TEST_CASE("the log is kept on hosts of their own, also when these come later") {
  World world;
  world.start();
  std::vector<std::unique_ptr<TestBenefactor>> all;
  const auto add = [&](std::uint64_t life, const std::string& host) {
    all.push_back(
        std::make_unique<TestBenefactor>(world, "b" + std::to_string(life), life, kArena, host));
    all.back()->keep_log();
  };
  for (std::uint64_t life = 1; life <= 4; ++life) add(life, "h1");
  world.pass(400ms);
  CHECK(keepers(world) == limits::kLogCopies);
  add(5, "h2");
  add(6, "h3");
  world.pass(2s);
  CHECK(keepers(world) == limits::kLogCopies);
  const std::uint64_t newest = all[4]->log->sequence();
  CHECK(all[5]->log->sequence() == newest);
  TestClient client(world, "client");
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, "x", 0755}));
  std::size_t of_first_host = 0;
  for (const auto& each : all) {
    if (each->log->sequence() > newest) of_first_host += each->host == "h1" ? 1 : 0;
  }
  CHECK(all[4]->log->sequence() == newest + 1);
  CHECK(all[5]->log->sequence() == newest + 1);
  CHECK(of_first_host == 1);
}

TEST_CASE("a log that has grown long is begun anew, and one that does not fit is not kept") {
  World world;
  world.start();
  TestBenefactor roomy(world, "b1", 1, kArena), small(world, "b2", 2, kArena);
  roomy.keep_log(32 * limits::kKiB);
  small.keep_log(64);
  world.pass(400ms);
  CHECK(keepers(world) == 1);
  TestClient client(world, "client");
  const auto made = client.call(msg::MakeDirectory{client.id, kRootFile, "x", 0700});
  REQUIRE(made);
  for (std::uint32_t i = 0; i < 500; ++i) {
    msg::SetAttributes change;
    change.client = client.id;
    change.file = made->attributes.id;
    change.mask = static_cast<std::uint32_t>(msg::SetMask::kMode);
    change.mode = i % 2 == 0 ? 0700 : 0750;
    REQUIRE(client.call(change));
    if (i % 20 == 0) pass(world, {&roomy}, 500ms);
  }
  CHECK(keepers(world) == 1);
  CHECK(roomy.log->sequence() > 500);
  const auto before = content(world);
  lose_manager_and_disk(world);
  REQUIRE(rebuild(world, {&roomy, &small}));
  come_back(world, {&roomy, &small});
  CHECK(content(world) == before);
}
