#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/files/drain_manifest.h"
#include "core/policy/image_name.h"
#include "core/policy/set_rules.h"
#include "manager/replication/copy_planner.h"
#include "manager/sets/set_keeper.h"
#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 64 * limits::kMiB;
constexpr std::int64_t kSecond = 1'000'000'000;

/// A set of application "a" with the commit number `sequence`.
ImageSet set_at(std::uint64_t timestep, std::uint64_t sequence, std::uint64_t images = 2,
                std::uint64_t drained = 0) {
  ImageSet set;
  set.name = set_name("a", timestep);
  set.application = "a";
  set.timestep = timestep;
  set.images = images;
  set.drained = drained;
  set.sequence = sequence;
  set.newest_ns = static_cast<std::int64_t>(sequence) * kSecond;
  return set;
}

std::vector<std::uint64_t> steps_of(const std::vector<const ImageSet*>& sets) {
  std::vector<std::uint64_t> steps;
  steps.reserve(sets.size());
  for (const ImageSet* set : sets) steps.push_back(set->timestep);
  return steps;
}

std::vector<std::uint64_t> removed(const SetsPlan& plan) { return steps_of(plan.remove); }

Policy policy_of(std::string_view text) { return *parse_policy(text); }

/// Commits images of ranks 0 to `ranks` - 1 of one timestep in the root.
void write_set(TestClient& client, std::uint64_t timestep, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const auto name = "a.N" + std::to_string(rank) + ".T" + std::to_string(timestep);
    const auto opened = client.create(name, 4096);
    REQUIRE(opened);
    auto commit = TestClient::commit_of(opened->session, opened->grants.at(0), 0, 1000,
                                        1 + timestep * 100 + static_cast<std::uint64_t>(rank));
    commit.end = true;
    REQUIRE(client.call(commit));
  }
}

std::vector<std::uint64_t> steps_of(TestClient& client) {
  const auto sets = client.call(msg::ListSets{kRootFile});
  REQUIRE(sets);
  std::vector<std::uint64_t> steps;
  for (const auto& set : sets->sets) steps.push_back(set.timestep);
  return steps;
}

std::string latest(TestClient& client) {
  const auto link = client.lookup(kLatestName);
  if (!link) return "";
  const auto target = client.call(msg::ReadSymlink{link->id});
  REQUIRE(target);
  return target->target;
}

/// The number of symbolic links that the benefactor had to make in the drain directory.
std::ptrdiff_t links_made(const TestBenefactor& benefactor) {
  return std::ranges::count(benefactor.all<msg::MirrorChange>(), msg::MirrorKind::kSymlink,
                            &msg::MirrorChange::kind);
}

using Steps = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("a set is named by its images, or with a star for their numbers") {
  CHECK(set_name("x.y", 7) == "x.y.*.T7");
  CHECK(parse_set_name("x.y.*.T7")->timestep == 7);
  CHECK(parse_set_name("x.y.*.T7")->application == "x.y");
  CHECK(parse_set_name("x.N3.T7")->application == "x");
  for (const char* text : {"", "*", "x.*", ".*.T7", "x.*.7", "x.*.T", "x"}) {
    INFO(text);
    CHECK_FALSE(parse_set_name(text));
  }
}

TEST_CASE("without the number of images no set is complete and none is removed") {
  const std::vector<ImageSet> sets = {set_at(1, 1), set_at(2, 2), set_at(3, 3)};
  const SetsPlan plan = plan_sets(sets, policy_of("keep=1 purge-after=1s"), 1000 * kSecond);
  CHECK(plan.latest.empty());
  CHECK(plan.remove.empty());
}

TEST_CASE("keep counts complete sets; a half set does not push out a whole one") {
  const std::vector<ImageSet> sets = {set_at(1, 1), set_at(2, 2), set_at(3, 3, 1), set_at(4, 4),
                                      set_at(5, 5, 1)};
  const SetsPlan two = plan_sets(sets, policy_of("images=2 keep=2"), 0);
  CHECK(two.latest == "a.*.T4");
  CHECK(removed(two) == Steps{1});
  // The half set T3 is older than the kept sets; the half set T5 may still become whole.
  CHECK(removed(plan_sets(sets, policy_of("images=2 keep=1"), 0)) == Steps{1, 2, 3});
  CHECK(removed(plan_sets(sets, policy_of("images=2"), 0)).empty());
}

TEST_CASE("the newest is what was completed last, also when a run begins anew with small steps") {
  const std::vector<ImageSet> sets = {set_at(9, 1), set_at(10, 2), set_at(1, 3)};
  const SetsPlan plan = plan_sets(sets, policy_of("images=2 keep=2"), 0);
  CHECK(plan.latest == "a.*.T1");
  CHECK(removed(plan) == Steps{9});
}

TEST_CASE("what must be drained is neither complete nor removed before it is") {
  const std::vector<ImageSet> sets = {set_at(1, 1, 2, 2), set_at(2, 2, 2, 1), set_at(3, 3, 2, 2),
                                      set_at(4, 4, 2, 0)};
  const SetsPlan plan = plan_sets(sets, policy_of("images=2 keep=1 must-be-drained=yes"), 0);
  CHECK(plan.latest == "a.*.T3");
  CHECK(steps_of(plan.drained) == Steps{3, 1});
  CHECK(removed(plan) == Steps{1});
  const SetsPlan loose = plan_sets(sets, policy_of("images=2"), 0);
  CHECK(loose.latest == "a.*.T4");
  CHECK(steps_of(loose.drained) == Steps{3, 1});
}

TEST_CASE("a purge takes old sets, but never the last complete one, a pinned or a used one") {
  std::vector<ImageSet> sets = {set_at(1, 1), set_at(2, 2), set_at(3, 3), set_at(4, 4)};
  sets[0].pinned = true;
  sets[1].in_use = true;
  const SetsPlan plan = plan_sets(sets, policy_of("images=2 purge-after=10s"), 13 * kSecond);
  CHECK(removed(plan) == Steps{3});
  REQUIRE(plan.next_ns);
  CHECK(*plan.next_ns == 14 * kSecond);  // the set in use is tried again
  CHECK(removed(plan_sets(sets, policy_of("images=2 purge-after=10s"), 99 * kSecond)) == Steps{3});
  const SetsPlan young = plan_sets(sets, policy_of("images=2 purge-after=10s"), 5 * kSecond);
  CHECK(young.remove.empty());
  CHECK(*young.next_ns == 12 * kSecond);
}

TEST_CASE("a purge leaves the newest whole set, also when that is never drained") {
  std::vector<ImageSet> sets = {set_at(1, 1, 2, 2), set_at(2, 2, 2, 2), set_at(3, 3), set_at(4, 4),
                                set_at(5, 5, 1)};
  for (const std::size_t skipped : {2U, 3U, 4U}) sets[skipped].skipped = true;
  const Policy policy = policy_of("images=2 purge-after=10s must-be-drained=yes");
  CHECK(removed(plan_sets(sets, policy, 99 * kSecond)) == Steps{1, 3, 5});
}

TEST_CASE("each application of a folder has its own sets") {
  std::vector<ImageSet> sets = {set_at(1, 1), set_at(2, 2), set_at(3, 3)};
  sets[1].application = "b";
  const SetsPlan plan = plan_sets(sets, policy_of("images=2 keep=1"), 0);
  CHECK(removed(plan) == Steps{1});
  CHECK(plan.latest == "a.*.T3");
}

TEST_CASE("the manager keeps n complete sets and moves the link, also after a restart") {
  World world;
  world.start();
  {
    TestBenefactor benefactor(world, "b1", 1, kArena);
    TestClient client(world, "client");
    REQUIRE(client.call(msg::SetPolicy{client.id, kRootFile, policy_of("images=2 keep=2")}));
    write_set(client, 1, 1);
    world.pass(1s);
    CHECK(latest(client).empty());
    write_set(client, 1, 2);
    world.pass(1s);
    CHECK(latest(client) == "a.*.T1");
    for (std::uint64_t step = 2; step <= 4; ++step) write_set(client, step, 2);
    write_set(client, 5, 1);
    world.pass(1s);
    CHECK(latest(client) == "a.*.T4");
    CHECK(steps_of(client) == Steps{5, 4, 3});
    CHECK_FALSE(client.lookup("a.N0.T2"));
    // A user removes an image of the newest set: the previous complete set becomes the newest.
    REQUIRE(client.call(msg::Remove{client.id, kRootFile, "a.N1.T4", false}));
    world.pass(1s);
    CHECK(latest(client) == "a.*.T3");
  }
  world.restart();
  TestBenefactor benefactor(world, "b2", 2, kArena);
  TestClient client(world, "again");
  CHECK(latest(client) == "a.*.T3");
  world.pass(3s);  // sessions of the earlier manager might still have stored images
  write_set(client, 5, 2);
  world.pass(1s);
  CHECK(latest(client) == "a.*.T5");
}

TEST_CASE("a name that the link has had as its target stands for a set, and names no new file") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  REQUIRE(client.call(msg::SetPolicy{client.id, kRootFile, policy_of("images=2")}));
  for (std::uint64_t step = 1; step <= 2; ++step) write_set(client, step, 2);
  world.pass(1s);
  REQUIRE(latest(client) == "a.*.T2");
  // The program's host may still know the earlier target.
  for (const char* const name : {"a.*.T2", "a.*.T1"}) {
    CHECK(client.create(name).error().code == Code::kInvalidArgument);
  }
  for (const char* const name : {"a.*.T3", "b.*.T1", "a*.N0.T1"}) CHECK(client.create(name));
}

TEST_CASE("the link of a set of one file leads to the file, and a write through it replaces it") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  REQUIRE(client.call(
      msg::SetXattr{client.id, kRootFile, std::string(kXattrRule) + "series", "{A}_step{T}.cpt"}));
  REQUIRE(client.call(msg::SetPolicy{client.id, kRootFile, policy_of("images=1")}));
  const auto file = client.write("md_step1.cpt", 1000, 7);
  REQUIRE(file);
  world.pass(1s);
  REQUIRE(latest(client) == "md_step1.cpt");
  // The manager gets the file's name: it cannot know that the program has opened the link.
  const auto opened = client.create("md_step1.cpt");
  REQUIRE(opened);
  CHECK_FALSE(opened->created);
  CHECK(opened->attributes.id == *file);
  // The earlier content stays until the writer closes the file.
  CHECK(client.lookup("md_step1.cpt")->size_bytes == 1000);
}

TEST_CASE("the link moves, and old sets go, also when the manager's time of day is set back") {
  World world;
  world.start();
  {
    TestBenefactor benefactor(world, "b1", 1, kArena);
    TestClient client(world, "client");
    REQUIRE(client.call(msg::SetPolicy{client.id, kRootFile, policy_of("images=2 keep=1")}));
    write_set(client, 1, 2);
    world.pass(1s);
    write_set(client, 2, 2);
  }
  world.restart();
  TestBenefactor benefactor(world, "b2", 2, kArena);
  TestClient client(world, "again");
  world.pass(500ms);
  CHECK(latest(client) == "a.*.T1");  // sessions of the earlier manager might still write an image
  world.manager_clock.jump(-1h);
  world.pass(4s);
  CHECK(latest(client) == "a.*.T2");
  CHECK(steps_of(client) == Steps{2});
}

TEST_CASE("a pinned set and one that is read stay while they are") {
  World world;
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  for (std::uint64_t step = 1; step <= 3; ++step) write_set(client, step, 2);
  msg::SetXattr pin{client.id, kRootFile, "user.stdchk.pin.a.*.T1", "1"};
  REQUIRE(client.call(pin));
  const auto read = client.lookup("a.N0.T2");
  REQUIRE(read);
  REQUIRE(client.call(msg::GetMap{client.id, read->id}));
  REQUIRE(client.call(msg::SetPolicy{client.id, kRootFile, policy_of("images=2 keep=1")}));
  world.pass(3s);
  CHECK(steps_of(client) == Steps{3, 2, 1});
  REQUIRE(client.call(msg::Unpin{client.id, read->id, read->version}));
  world.pass(3s);
  CHECK(steps_of(client) == Steps{3, 1});
  pin.remove = true;
  REQUIRE(client.call(pin));
  world.pass(1s);
  CHECK(steps_of(client) == Steps{3});
}

TEST_CASE("sets are purged by their age alone, without anybody asking") {
  World world;
  world.config.policy = policy_of("images=1 purge-after=20s");
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto pass = [&](Duration time) {
    for (Duration passed{}; passed < time; passed += 1s) {
      world.pass(1s);
      benefactor.beat();
      REQUIRE(client.call(msg::ClientHeartbeat{client.id}));
    }
  };
  write_set(client, 1, 1);
  pass(12s);
  write_set(client, 2, 1);
  CHECK(steps_of(client) == Steps{2, 1});
  pass(10s);
  CHECK(steps_of(client) == Steps{2});
  pass(30s);
  CHECK(steps_of(client) == Steps{2});
}

TEST_CASE("a file that somebody has called like the link stays theirs") {
  World world;
  world.config.policy = policy_of("images=1");
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  REQUIRE(client.call(msg::MakeDirectory{client.id, kRootFile, kLatestName, 0755}));
  write_set(client, 1, 1);
  world.pass(1s);
  CHECK(client.lookup(kLatestName)->type == FileType::kDirectory);
}

TEST_CASE("the drain directory's link names a set only when all of it is there") {
  World world("/pfs");
  world.config.policy = policy_of("images=2");
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  benefactor.fail_with = Code::kDrainFailed;
  write_set(client, 1, 2);
  world.pass(1s);
  CHECK(latest(client) == "a.*.T1");
  CHECK(links_made(benefactor) == 0);
  benefactor.fail_with = Code{};
  for (int i = 0; i < 5; ++i) {
    benefactor.beat();
    REQUIRE(client.call(msg::ClientHeartbeat{client.id}));
    world.pass(1s);
  }
  CHECK(links_made(benefactor) == 1);
  const auto sets = client.call(msg::ListSets{kRootFile});
  REQUIRE(sets);
  CHECK(sets->sets.at(0).drained == 2);
}

TEST_CASE("the list of sets says what keeps a set from being complete") {
  const auto problem_of = [](TestClient& client, std::uint64_t step) {
    const auto sets = client.call(msg::ListSets{kRootFile});
    REQUIRE(sets);
    const auto set = std::ranges::find(sets->sets, step, &msg::ListSets::Entry::timestep);
    REQUIRE(set != sets->sets.end());
    CHECK(set->complete == set->problem.empty());
    return set->problem;
  };
  const auto write = [](TestClient& client, const std::string& name) {
    const auto opened = client.create(name, 4096);
    REQUIRE(opened);
    auto commit = TestClient::commit_of(opened->session, opened->grants.at(0), 0, 1000, 7);
    commit.end = true;
    REQUIRE(client.call(commit));
  };
  SECTION("images") {
    World world;
    world.config.policy = policy_of("images=4");
    world.start();
    TestBenefactor benefactor(world, "b1", 1, kArena);
    TestClient client(world, "client");
    write_set(client, 1, 4);
    write_set(client, 2, 3);
    write_set(client, 3, 1);
    write(client, "a.N1.T4");
    world.pass(1s);
    CHECK(problem_of(client, 1).empty());
    CHECK(problem_of(client, 2) == "it has 3 of 4 images; rank 3 is missing");
    CHECK(problem_of(client, 3) == "it has 1 of 4 images; ranks 1, 2, 3 are missing");
    // Some programs count their ranks from 1.
    CHECK(problem_of(client, 4) == "it has 1 of 4 images");
  }
  SECTION("more ranks than are named") {
    World world;
    world.config.policy = policy_of("images=1000000");
    world.start();
    TestBenefactor benefactor(world, "b1", 1, kArena);
    TestClient client(world, "client");
    write_set(client, 1, 2);
    CHECK(problem_of(client, 1) ==
          "it has 2 of 1000000 images; ranks 2, 3, 4 and others are missing");
  }
  SECTION("a policy without a number of images") {
    World world;
    world.start();
    TestBenefactor benefactor(world, "b1", 1, kArena);
    TestClient client(world, "client");
    write_set(client, 1, 2);
    CHECK(problem_of(client, 1) == "the policy does not say how many images a set has (images=N)");
  }
  SECTION("the drain") {
    World world("/pfs");
    world.config.policy = policy_of("images=2 must-be-drained=yes");
    world.start();
    TestBenefactor benefactor(world, "b1", 1, kArena);
    benefactor.fail_with = Code::kDrainFailed;
    TestClient client(world, "client");
    write_set(client, 1, 2);
    world.pass(1s);
    CHECK(problem_of(client, 1) == "0 of its 2 files are drained, and must-be-drained=yes");
  }
}

TEST_CASE("the list of sets has the problems of the newest sets only") {
  World world;
  world.config.policy = policy_of("images=2");
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  constexpr std::uint64_t kSets = limits::kSetProblemsMax + 1;
  for (std::uint64_t step = 1; step <= kSets; ++step) write_set(client, step, 1);
  const auto sets = client.call(msg::ListSets{kRootFile});
  REQUIRE(sets);
  REQUIRE(sets->sets.size() == kSets);
  CHECK(sets->sets.front().timestep == kSets);
  CHECK(std::ranges::count(sets->sets, "", &msg::ListSets::Entry::problem) == 1);
  CHECK(sets->sets.back().problem.empty());
}

TEST_CASE("the newest safe set is remembered when the pool has only a newer one that is not") {
  World world("/pfs");
  world.config.policy = policy_of("images=2 keep=1");
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto safe = [&] {
    const auto newest = world.service->planners().sets.safe_sets().newest();
    return newest ? newest->name : "";
  };
  CHECK(safe() == "");
  write_set(client, 1, 2);
  world.pass(1s);
  CHECK(safe() == "a.*.T1");
  benefactor.fail_with = Code::kDrainFailed;
  write_set(client, 2, 2);
  world.pass(1s);
  REQUIRE(steps_of(client) == std::vector<std::uint64_t>{2});
  CHECK(safe() == "a.*.T1");
  benefactor.fail_with = Code{};
  for (int i = 0; i < 5; ++i) {
    benefactor.beat();
    REQUIRE(client.call(msg::ClientHeartbeat{client.id}));
    world.pass(1s);
  }
  CHECK(safe() == "a.*.T2");
  const auto newest = world.service->planners().sets.safe_sets().newest();
  CHECK(newest->newest_ns == client.lookup("a.N1.T2")->ctime_ns);
}

TEST_CASE("a safe set that is written again is not safe") {
  SafeSets safe;
  const FileId folder{5};
  std::vector<ImageSet> sets{set_at(1, 1, 2, 2), set_at(2, 2, 2, 2)};
  safe.note(folder, sets, {&sets[1], &sets[0]});
  CHECK(safe.newest()->name == "a.*.T2");
  safe.note(folder, sets, {&sets[0]});
  CHECK(safe.newest()->name == "a.*.T1");
  safe.forget(folder);
  CHECK_FALSE(safe.newest());
}

TEST_CASE("when nothing is left to drain the drain directory's link is there, too") {
  World world("/pfs");
  world.config.policy = policy_of("images=2");
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  write_set(client, 1, 2);
  world.journal.set_automatic(false);  // commits become durable only on request
  std::uint64_t pending = 1;
  for (int i = 0; i < 2000 && pending > 0; ++i) {
    world.pass(1ms);
    const auto reply = client.call(msg::DrainNow{kRootFile});
    REQUIRE(reply);
    pending = reply->pending_files;
    world.journal.sync();
  }
  CHECK(pending == 0);
  CHECK(links_made(benefactor) == 1);
}

TEST_CASE("the newest whole set is drained before older ones and before halves") {
  World world("/pfs");
  constexpr int kRanks = 16;
  world.config.policy = policy_of("images=16");
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  for (std::uint64_t step = 1; step <= 3; ++step) write_set(client, step, kRanks);
  write_set(client, 4, 3);
  std::vector<FileId> newest;
  newest.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    newest.push_back(client.lookup("a.N" + std::to_string(rank) + ".T3")->id);
  }
  world.pass(2s);
  std::vector<FileId> order;
  for (const msg::Request& request : benefactor.served) {
    const auto* pieces = std::get_if<msg::DrainPieces>(&request);
    if (pieces != nullptr) order.push_back(pieces->file);
  }
  REQUIRE(order.size() == 3 * kRanks + 3);
  order.resize(kRanks);
  std::ranges::sort(order);
  CHECK(order == newest);
}

TEST_CASE("every k-th set is drained, and of the others what somebody asks for") {
  World world("/pfs");
  world.config.policy = policy_of("images=2,drain-every=3,keep=4,must-be-drained=yes");
  world.start();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  const auto wait = [&] {
    for (int i = 0; i < 3; ++i) {
      benefactor.beat();
      REQUIRE(client.call(msg::ClientHeartbeat{client.id}));
      world.pass(1s);
    }
  };
  const auto drained = [&] {
    std::vector<std::uint64_t> steps;
    const auto sets = client.call(msg::ListSets{kRootFile});
    REQUIRE(sets);
    for (const auto& set : sets->sets) {
      if (set.drained == set.images) steps.push_back(set.timestep);
    }
    return steps;
  };
  for (std::uint64_t step = 1; step <= 6; ++step) {
    write_set(client, step, 2);
    wait();
  }
  CHECK(drained() == std::vector<std::uint64_t>{4, 1});
  CHECK(latest(client) == "a.*.T4");
  // A set that the policy leaves out is not waited for.
  CHECK(client.call(msg::StatPool{})->drain_pending_files == 0);
  const auto second = client.lookup("a.N0.T2");
  CHECK(client.call(msg::DrainNow{second->id})->pending_files == 1);
  wait();
  CHECK(client.lookup("a.N0.T2")->drain == DrainState::kDrained);
  CHECK(client.lookup("a.N1.T2")->drain == DrainState::kNone);
  // A request to drain everything includes the newest whole set.
  write_set(client, 7, 1);
  wait();
  REQUIRE(client.call(msg::DrainNow{kRootFile}));
  wait();
  CHECK(drained() == std::vector<std::uint64_t>{7, 6, 4, 1});
  CHECK(latest(client) == "a.*.T6");
}

TEST_CASE("what is left out is drained after all, the oldest set first, when space is short") {
  World world("/pfs");
  world.config.policy = policy_of("drain-every=100");
  world.start();
  TestBenefactor benefactor(world, "b1", 1, 6 * limits::kMiB);
  TestClient client(world, "client");
  // Writes a set of two images of slightly less than 1 MiB each.
  const auto write = [&](std::uint64_t step) {
    for (const std::string rank : {"0", "1"}) {
      if (!client.write("a.N" + rank + ".T" + std::to_string(step), 1'000'000, 0)) return false;
    }
    benefactor.beat();
    world.pass(1s);
    return true;
  };
  for (std::uint64_t step = 1; step <= 3; ++step) REQUIRE(write(step));
  CHECK(client.lookup("a.N0.T1")->drain == DrainState::kDrained);
  CHECK(client.lookup("a.N0.T2")->drain == DrainState::kNone);
  REQUIRE(write(4));  // replaces the first set
  CHECK(client.lookup("a.N0.T2")->drain == DrainState::kNone);
  REQUIRE(write(5));
  CHECK(client.lookup("a.N0.T2")->drain == DrainState::kDrained);
  CHECK(client.lookup("a.N1.T2")->drain == DrainState::kDrained);
  CHECK(client.lookup("a.N0.T3")->drain == DrainState::kNone);
}

TEST_CASE("a manager that comes back goes on with every k-th set") {
  World world("/pfs");
  world.config.policy = policy_of("drain-every=2");
  world.start();
  std::vector<DrainState> states;
  {
    TestBenefactor benefactor(world, "b1", 1, kArena);
    TestClient client(world, "client");
    for (std::uint64_t step = 1; step <= 2; ++step) {
      write_set(client, step, 1);
      world.pass(1s);
    }
  }
  world.restart();
  TestBenefactor benefactor(world, "b1", 1, kArena);
  TestClient client(world, "client");
  world.pass(3s);  // sessions of the earlier manager might still have stored images
  for (std::uint64_t step = 3; step <= 4; ++step) {
    write_set(client, step, 1);
    benefactor.beat();
    world.pass(1s);
  }
  for (std::uint64_t step = 1; step <= 4; ++step) {
    states.push_back(client.lookup("a.N0.T" + std::to_string(step))->drain);
  }
  using enum DrainState;
  CHECK(states == std::vector<DrainState>{kDrained, kNone, kDrained, kNone});
}

TEST_CASE("a set that drain-every leaves out is obsolete like others") {
  auto left_out = set_at(2, 2);
  left_out.skipped = true;
  const std::vector<ImageSet> sets = {set_at(1, 1, 2, 1), left_out, set_at(3, 3, 2, 2)};
  const auto plan = plan_sets(sets, policy_of("images=2,keep=1,must-be-drained=yes"), 0);
  CHECK(removed(plan) == std::vector<std::uint64_t>{2});
}

// ---- sets of more than one run -----------------------------------------------------------------

namespace {

/// A folder with three images in a set, in which nothing is removed.
struct Runs : World {
  explicit Runs(const std::string& policy = "images=3", std::string drain_directory = {})
      : World(std::move(drain_directory)) {
    config.policy = policy_of(policy);
    start();
    connect();
  }
  ~Runs() { disconnect(); }
  void connect() {
    ++lives_;
    const std::string life = std::to_string(lives_);
    benefactor = std::make_unique<TestBenefactor>(*this, "b" + life, lives_, kArena);
    client = std::make_unique<TestClient>(*this, "client" + life);
  }
  void disconnect() {
    client.reset();
    benefactor.reset();
  }
  static std::string name(std::uint64_t rank, std::uint64_t step) {
    return "a.N" + std::to_string(rank) + ".T" + std::to_string(step);
  }
  /// Opens an image with O_TRUNC.
  msg::OpenSession::Reply open(std::uint64_t rank, std::uint64_t step, TestClient* by = nullptr) {
    TestClient& writer = by == nullptr ? *client : *by;
    msg::OpenSession request;
    request.client = writer.id;
    request.parent = kRootFile;
    request.name = name(rank, step);
    request.mode = 0644;
    request.truncate = true;
    request.want_bytes = 4096;
    const auto opened = writer.call(request);
    REQUIRE(opened);
    return *opened;
  }
  void commit(const msg::OpenSession::Reply& opened, std::uint64_t offset = 0) {
    auto commit =
        TestClient::commit_of(opened.session, opened.grants.at(0), 0, 1000, ++contents_, offset);
    commit.end = true;
    REQUIRE(client->call(commit));
  }
  void write(std::uint64_t rank, std::uint64_t step) { commit(open(rank, step)); }
  /// Opens an existing image without truncation, with a grant for more bytes.
  std::pair<SessionId, Grant> open_to_change(std::uint64_t rank, std::uint64_t step) {
    const auto image = client->lookup(name(rank, step));
    REQUIRE(image);
    const auto opened = client->open(image->id);
    REQUIRE(opened);
    const auto placed = client->call(msg::Place{opened->session, {}, 4096, {}, {}});
    REQUIRE(placed);
    return {opened->session, placed->grants.at(0)};
  }
  void write_all(std::uint64_t step) {
    for (std::uint64_t rank = 0; rank < 3; ++rank) write(rank, step);
  }
  std::string link() {
    pass(1s);
    benefactor->beat();
    REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
    return latest(*client);
  }
  bool complete(std::uint64_t step) {
    const auto sets = client->call(msg::ListSets{kRootFile});
    REQUIRE(sets);
    const auto set = std::ranges::find(sets->sets, step, &msg::ListSets::Entry::timestep);
    return set != sets->sets.end() && set->complete;
  }
  /// Restarts the manager from its journal or from a snapshot, and reconnects.
  void come_back() {
    disconnect();
    restart();
    connect();
  }
  void begin_again() {
    come_back();
    wait_for_grants();
  }
  /// Resumes a session that open() began.
  msg::ResumeSession resume_of(const msg::OpenSession::Reply& opened, std::uint64_t rank,
                               std::uint64_t step) const {
    msg::ResumeSession request;
    request.client = client->id;
    request.session = opened.session;
    request.file = opened.attributes.id;
    request.base = opened.attributes.version;
    request.truncated = request.base > 0;
    request.opened = opened.opened;
    if (request.base > 0) return request;
    request.parent = kRootFile;
    request.name = name(rank, step);
    return request;
  }
  /// Commits a resumed session with a chunk in newly granted space.
  void commit_resumed(msg::OpenSession::Reply opened) {
    const auto placed = client->call(msg::Place{opened.session, {}, 4096, {}, {}});
    REQUIRE(placed);
    opened.grants = placed->grants;
    commit(opened);
  }
  /// Waits until clients of the earlier manager have reported their stored chunks.
  void wait_for_grants() {
    for (int i = 0; i < 5; ++i) link();
  }
  void take_snapshots() {
    journal.set_snapshot_every(1);
    pass(1s);
  }

  std::unique_ptr<TestBenefactor> benefactor;
  std::unique_ptr<TestClient> client;

 private:
  std::uint64_t lives_ = 0;
  std::uint64_t contents_ = 0;
};

}  // namespace

TEST_CASE("a set that is written again is complete when all of its images are") {
  Runs runs("images=3 keep=1 purge-after=20s");
  runs.write_all(1);
  runs.write_all(2);
  CHECK(runs.link() == "a.*.T2");
  CHECK(steps_of(*runs.client) == Steps{2});
  bool again = false;
  SECTION("by one manager") {}
  SECTION("by one that starts again from its journal") { again = true; }
  SECTION("by one that starts again from a snapshot") {
    again = true;
    runs.take_snapshots();
  }
  for (const std::uint64_t rank : {1U, 2U}) {
    runs.write(rank, 2);
    CHECK(latest(*runs.client).empty());
    if (again) runs.begin_again();
    CHECK(runs.link().empty());
    CHECK_FALSE(runs.complete(2));
    CHECK(steps_of(*runs.client) == Steps{2});
  }
  const auto sets = runs.client->call(msg::ListSets{kRootFile});
  REQUIRE(sets);
  CHECK(sets->sets.at(0).images == 2);
  runs.write(0, 2);
  CHECK(runs.link() == "a.*.T2");
  // Rewrites the image once more; this run then continues with another timestep.
  runs.write(0, 2);
  if (again) runs.begin_again();
  CHECK(runs.link().empty());
  runs.write_all(3);
  CHECK(runs.link() == "a.*.T3");
  CHECK(steps_of(*runs.client) == Steps{3});
}

TEST_CASE("a set that is written again does not push a complete one out") {
  Runs runs("images=3 keep=1");
  for (const std::uint64_t rank : {0U, 1U}) runs.write(rank, 1);
  runs.write_all(2);
  runs.write_all(1);  // the earlier half set disappears
  CHECK(runs.link() == "a.*.T1");
  runs.write(2, 1);
  CHECK(runs.link().empty());
  CHECK(steps_of(*runs.client) == Steps{1});
  runs.write(0, 1);
  CHECK_FALSE(runs.complete(1));
}

TEST_CASE("what a run has left completes no set of the next one") {
  Runs runs;
  runs.write_all(1);
  runs.write(0, 2);
  runs.write(1, 2);
  const auto killed = [&](bool snapshot) {
    const auto third = runs.open(2, 2);
    REQUIRE(runs.client->call(msg::CloseSession{third.session, true, 10, false}));
    if (snapshot) {
      runs.take_snapshots();
      runs.begin_again();
    }
  };
  SECTION("because a writer was killed") { killed(false); }
  SECTION("because a writer was killed, and the manager has started again") { killed(true); }
  SECTION("because the node of a writer is lost") {
    auto other = std::make_unique<TestClient>(runs, "other");
    runs.open(2, 2, other.get());
    other.reset();
    for (Duration passed{}; passed < 2 * limits::kLease; passed += 1s)
      CHECK(runs.link() == "a.*.T1");
  }
  SECTION("because it begins with an earlier timestep") { runs.write_all(1); }
  SECTION("because the ranks have removed what they had first") {
    for (std::uint64_t rank : {0U, 1U}) {
      REQUIRE(
          runs.client->call(msg::Remove{runs.client->id, kRootFile, Runs::name(rank, 2), false}));
      runs.write(rank, 2);
    }
    runs.write(2, 2);
    CHECK(runs.link() == "a.*.T2");
    return;
  }
  CHECK(runs.link() == "a.*.T1");
  runs.write(2, 2);
  CHECK_FALSE(runs.complete(2));
  CHECK(runs.link() == "a.*.T1");
  runs.write(1, 2);
  CHECK(runs.link() == "a.*.T1");
  runs.write(0, 2);
  CHECK(runs.link() == "a.*.T2");
}

TEST_CASE("a run with other timesteps completes no set of the one before") {
  Runs runs;
  runs.write_all(10);
  runs.write(0, 20);
  runs.write(1, 20);
  runs.write_all(15);
  CHECK(runs.link() == "a.*.T15");
  runs.write(2, 20);
  CHECK(runs.link() == "a.*.T15");
  CHECK_FALSE(runs.complete(20));
  runs.write(0, 20);
  runs.write(1, 20);
  CHECK(runs.link() == "a.*.T20");
}

TEST_CASE("the link leaves a set with the image that is removed from it, and goes with the last") {
  Runs runs;
  runs.write_all(1);
  runs.write_all(2);
  CHECK(runs.link() == "a.*.T2");
  REQUIRE(runs.client->call(msg::Remove{runs.client->id, kRootFile, Runs::name(1, 2), false}));
  CHECK(latest(*runs.client) == "a.*.T1");
  REQUIRE(runs.client->call(msg::Remove{runs.client->id, kRootFile, Runs::name(1, 1), false}));
  CHECK(latest(*runs.client).empty());
}

TEST_CASE("who writes while an image is written again is of the same run") {
  Runs runs;
  runs.write_all(1);
  runs.write(0, 2);
  runs.write(1, 2);
  // The next run writes all three images at once; the missing image is committed first.
  const auto first = runs.open(0, 2);
  const auto third = runs.open(2, 2);
  runs.commit(third);
  CHECK(runs.link() == "a.*.T1");
  runs.commit(first);
  CHECK(runs.link() == "a.*.T1");
  runs.write(1, 2);
  CHECK(runs.link() == "a.*.T2");
}

TEST_CASE("what is written to a file without a name changes no set of a restarted manager") {
  Runs runs;
  const auto removed = runs.client->create("other", 4096);
  REQUIRE(removed);
  auto first = TestClient::commit_of(removed->session, removed->grants.at(0), 0, 1000, 901);
  REQUIRE(runs.client->call(first));
  REQUIRE(runs.client->call(msg::Remove{runs.client->id, kRootFile, "other", false}));
  runs.write_all(1);
  auto second =
      TestClient::commit_of(removed->session, removed->grants.at(0), extent_bytes(1000), 1000, 902);
  REQUIRE(runs.client->call(second));
  runs.write_all(2);
  runs.write_all(1);
  CHECK(runs.complete(1));
  CHECK(runs.complete(2));
  runs.begin_again();
  CHECK(runs.complete(1));
  CHECK(runs.complete(2));
  CHECK(runs.link() == "a.*.T1");
  CHECK(runs.service->services().administration.audit().broken().empty());
  runs.write_all(3);
  CHECK(runs.link() == "a.*.T3");
}

TEST_CASE("a writer of a run that is over completes nothing") {
  Runs runs;
  runs.write(0, 1);
  const auto late = runs.open(1, 1);
  const auto killed = runs.open(2, 1);
  REQUIRE(runs.client->call(msg::CloseSession{killed.session, true, 10, false}));
  runs.commit(late);
  runs.write(2, 1);
  runs.write(0, 1);
  CHECK(runs.link().empty());
  runs.write_all(2);
  CHECK(runs.link() == "a.*.T2");
}

TEST_CASE("a writer that does not go on with another manager has failed") {
  Runs runs;
  runs.write(0, 1);
  runs.write(1, 1);
  const auto third = runs.open(2, 1);
  runs.come_back();
  auto request = runs.resume_of(third, 2, 1);
  request.stored =
      TestClient::commit_of(third.session, third.grants.at(0), 0, 1000, 77).written.chunks;
  request.stored.at(0).copies.clear();
  REQUIRE_FALSE(runs.client->call(request));
  runs.wait_for_grants();
  runs.write(2, 1);
  CHECK_FALSE(runs.complete(1));
  runs.write(0, 1);
  CHECK_FALSE(runs.complete(1));
  runs.write(1, 1);
  CHECK(runs.link() == "a.*.T1");
}

TEST_CASE("an image that is written again across a restart makes its set stale") {
  Runs runs;
  runs.write(0, 1);
  runs.write(1, 1);
  const auto first = runs.open(0, 1);
  const auto third = runs.open(2, 1);
  runs.come_back();
  SECTION("known before the one that was missing is committed") {
    REQUIRE(runs.client->call(runs.resume_of(first, 0, 1)));
    REQUIRE(runs.client->call(runs.resume_of(third, 2, 1)));
    runs.wait_for_grants();
    runs.commit_resumed(third);
  }
  SECTION("known after that") {
    REQUIRE(runs.client->call(runs.resume_of(third, 2, 1)));
    runs.wait_for_grants();
    runs.commit_resumed(third);
    CHECK(runs.complete(1));
    REQUIRE(runs.client->call(runs.resume_of(first, 0, 1)));
    CHECK(latest(*runs.client).empty());
  }
  CHECK_FALSE(runs.complete(1));
  CHECK(runs.link().empty());
  runs.commit_resumed(first);
  CHECK(runs.link().empty());
  runs.write(1, 1);
  CHECK(runs.link() == "a.*.T1");
}

TEST_CASE("an image that is only changed across a restart leaves its set as it is") {
  Runs runs;
  runs.write(0, 1);
  runs.write(1, 1);
  const auto image = runs.client->lookup(Runs::name(0, 1));
  REQUIRE(image);
  const auto opened = runs.client->open(image->id);
  REQUIRE(opened);
  runs.come_back();
  auto request = runs.resume_of(*opened, 0, 1);
  request.truncated = false;
  REQUIRE(runs.client->call(request));
  runs.wait_for_grants();
  runs.write(2, 1);
  CHECK(runs.link() == "a.*.T1");
}

TEST_CASE("a session that goes on is of the run in which it was opened") {
  Runs runs;
  runs.write_all(1);
  runs.write(0, 2);
  // The next run begins with the first timestep again, and continues across a manager restart.
  const auto first = runs.open(0, 1);
  const auto second = runs.open(1, 1);
  runs.commit(runs.open(2, 1));
  REQUIRE(runs.client->write("other", 1000, 99));
  runs.come_back();
  REQUIRE(runs.client->call(runs.resume_of(first, 0, 1)));
  REQUIRE(runs.client->call(runs.resume_of(second, 1, 1)));
  runs.wait_for_grants();
  runs.commit_resumed(first);
  runs.commit_resumed(second);
  CHECK(runs.link() == "a.*.T1");
}

TEST_CASE("the links of a restarted manager do not go forward while clients of before may come") {
  Runs runs;
  for (const std::uint64_t rank : {0U, 1U, 2U}) runs.write(rank, 1);
  CHECK(runs.link() == "a.*.T1");
  for (const std::uint64_t rank : {0U, 1U}) runs.write(rank, 2);
  const auto third = runs.open(2, 2);
  const auto stored = TestClient::commit_of(third.session, third.grants.at(0), 0, 1000, 77);
  // The benefactor keeps its memory, so that stored chunks survive.
  runs.client.reset();
  runs.restart();
  runs.benefactor->connect();
  runs.benefactor->register_now();
  runs.client = std::make_unique<TestClient>(runs, "again");
  auto request = runs.resume_of(third, 2, 2);
  request.stored = stored.written.chunks;
  REQUIRE(runs.client->call(request));
  auto commit = stored;
  commit.end = true;
  REQUIRE(runs.client->call(commit));
  CHECK(runs.complete(2));
  CHECK(runs.link() == "a.*.T1");
  runs.wait_for_grants();
  CHECK(runs.link() == "a.*.T2");
}

TEST_CASE("an image that is added to stays in its set") {
  Runs runs;
  runs.write_all(1);
  const auto [session, grant] = runs.open_to_change(1, 1);
  auto added = TestClient::commit_of(session, grant, 0, 500, 77, 1000);
  REQUIRE(runs.client->call(added));
  CHECK(runs.link() == "a.*.T1");
  SECTION("and with all of it overwritten it is another") {
    auto over = TestClient::commit_of(session, grant, 1024, 1500, 78);
    over.end = true;
    REQUIRE(runs.client->call(over));
    CHECK(runs.link().empty());
  }
  SECTION("and is stale with it") {
    runs.write(0, 1);
    auto again = TestClient::commit_of(session, grant, 1024, 500, 78, 1500);
    again.end = true;
    REQUIRE(runs.client->call(again));
    runs.write(2, 1);
    CHECK(runs.link().empty());
    runs.write(1, 1);
    CHECK(runs.link() == "a.*.T1");
  }
}

TEST_CASE("an image that is added to stays in its set when a later set was written again") {
  Runs runs;
  runs.write_all(1);
  runs.write_all(2);
  runs.write(0, 2);
  CHECK(runs.link() == "a.*.T1");
  const auto [session, grant] = runs.open_to_change(1, 1);
  auto added = TestClient::commit_of(session, grant, 0, 500, 77, 1000);
  added.end = true;
  REQUIRE(runs.client->call(added));
  CHECK(runs.link() == "a.*.T1");
  CHECK(runs.complete(1));
}

TEST_CASE("an image that was renamed into its set is of it from then on") {
  Runs runs;
  const auto renamed = [&](std::uint64_t rank, std::uint64_t step) {
    const std::string to = Runs::name(rank, step);
    REQUIRE(runs.client->write(to + ".part", 1000, 1000 + runs.service->state().sequence()));
    msg::Rename rename;
    rename.client = runs.client->id;
    rename.from_parent = rename.to_parent = kRootFile;
    rename.from_name = to + ".part";
    rename.to_name = to;
    REQUIRE(runs.client->call(rename));
  };
  for (const std::uint64_t step : {1U, 2U}) {
    for (std::uint64_t rank = 0; rank < 3; ++rank) renamed(rank, step);
  }
  CHECK(runs.link() == "a.*.T2");
  renamed(2, 2);
  CHECK(latest(*runs.client) == "a.*.T1");
  renamed(0, 2);
  renamed(1, 2);
  CHECK(runs.link() == "a.*.T2");
  // An image of one set is renamed into another set, so that set was never written whole.
  msg::Rename move;
  move.client = runs.client->id;
  move.from_parent = move.to_parent = kRootFile;
  move.from_name = Runs::name(0, 1);
  move.to_name = Runs::name(0, 2);
  REQUIRE(runs.client->call(move));
  CHECK(runs.link().empty());
}

TEST_CASE("one set of names for all timesteps is complete each time that all have written it") {
  Runs runs;
  for (int i = 0; i < 3; ++i) {
    runs.write(0, 0);
    runs.write(2, 0);
    CHECK(runs.link().empty());
    runs.write(1, 0);
    CHECK(runs.link() == "a.*.T0");
  }
  // Two sets are rewritten in turn; at any time, at least one set is complete.
  for (int i = 0; i < 3; ++i) {
    for (const std::uint64_t step : {1U, 0U}) {
      const std::string before = runs.link();
      runs.write(2, step);
      runs.write(1, step);
      CHECK(runs.link() == before);
      runs.write(0, step);
      CHECK(runs.link() == "a.*.T" + std::to_string(step));
    }
  }
}

TEST_CASE("an empty image completes no set") {
  Runs runs;
  runs.write(0, 1);
  runs.write(1, 1);
  const auto opened = runs.open(2, 1);
  // commits empty first, as a shell's redirection does
  REQUIRE(runs.client->call(msg::Commit{opened.session}));
  CHECK(runs.link().empty());
  CHECK_FALSE(runs.complete(1));
  msg::Commit longer{opened.session};
  longer.set_size = true;
  longer.size_bytes = 1000;
  REQUIRE(runs.client->call(longer));  // a length without bytes
  CHECK_FALSE(runs.complete(1));
  runs.commit(opened);
  CHECK(runs.link() == "a.*.T1");
  const auto again = runs.open(2, 1);
  REQUIRE(runs.client->call(msg::Commit{again.session}));
  CHECK(runs.link().empty());
  runs.commit(again);
  CHECK(runs.link().empty());
}

TEST_CASE("with commit=redundant a set is complete when it has all of its copies") {
  Runs runs("images=2,copies=2,commit=redundant,keep=1");
  TestBenefactor second(runs, "second", 100, kArena, "other");
  const auto beat = [&] {
    second.beat();
    return runs.link();
  };
  write_set(*runs.client, 1, 2);
  beat();
  beat();
  CHECK(beat() == "a.*.T1");
  second.hold_back = runs.benefactor->hold_back = true;
  write_set(*runs.client, 2, 2);
  beat();
  CHECK(beat() == "a.*.T1");
  CHECK_FALSE(runs.complete(2));
  CHECK(steps_of(*runs.client) == Steps{2, 1});
  second.let_go();
  runs.benefactor->let_go();
  beat();
  beat();
  CHECK(beat() == "a.*.T2");
  CHECK(steps_of(*runs.client) == Steps{2});
  // A copy lost later does not make the set incomplete, not even after a manager's restart.
  second.disconnect();
  for (int i = 0; i < 120; ++i) runs.link();
  CHECK(runs.service->planners().copies.figures().debt_chunks > 0);
  CHECK(runs.link() == "a.*.T2");
  runs.begin_again();
  CHECK(runs.link() == "a.*.T2");
}

TEST_CASE("with commit=stored a set is complete without its copies") {
  Runs runs("images=2,copies=2");
  write_set(*runs.client, 1, 2);
  CHECK(runs.link() == "a.*.T1");
  CHECK(runs.service->planners().copies.figures().debt_chunks == 2);
}

// ---- the link in the drain directory -----------------------------------------------------------

namespace {

/// The changes that the benefactor made in the drain directory since the last call, in order.
std::vector<std::string> done_in_drain(TestBenefactor& benefactor) {
  std::vector<std::string> out;
  for (const msg::Request& request : benefactor.served) {
    if (const auto* finish = std::get_if<msg::DrainFinish>(&request)) out.push_back(finish->path);
    const auto* change = std::get_if<msg::MirrorChange>(&request);
    if (change == nullptr) continue;
    if (change->kind == msg::MirrorKind::kSymlink) {
      out.push_back(change->path + " -> " + change->other_path);
    }
    if (change->kind == msg::MirrorKind::kUnlink) out.push_back("no " + change->path);
    if (change->kind == msg::MirrorKind::kRename) {
      out.push_back(change->path + " to " + change->other_path);
    }
  }
  benefactor.served.clear();
  return out;
}

/// Runs with a drain directory.
struct DrainedRuns : Runs {
  explicit DrainedRuns(const std::string& policy = "images=3") : Runs(policy, "/pfs") {}
  std::vector<std::string> drain() {
    for (int i = 0; i < 3; ++i) {
      pass(1s);
      benefactor->beat();
      REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
    }
    return done_in_drain(*benefactor);
  }
  void remove(const std::string& path) {
    REQUIRE(client->call(msg::Remove{client->id, kRootFile, path, false}));
  }
  void rename(const std::string& from, const std::string& to) {
    msg::Rename request;
    request.client = client->id;
    request.from_parent = request.to_parent = kRootFile;
    request.from_name = from;
    request.to_name = to;
    REQUIRE(client->call(request));
  }
};

using Done = std::vector<std::string>;

}  // namespace

TEST_CASE("the drain directory's link leaves a set before an image of it is replaced there") {
  DrainedRuns runs;
  runs.write_all(1);
  runs.drain();
  runs.write_all(2);
  CHECK(runs.drain().back() == "latest -> a.*.T2");
  runs.write(0, 2);
  CHECK(runs.drain() == Done{"latest -> a.*.T1", "a.N0.T2"});
  runs.write(1, 2);
  CHECK(runs.drain() == Done{"a.N1.T2"});
  runs.write(2, 2);
  CHECK(runs.drain() == Done{"a.N2.T2", "latest -> a.*.T2"});
  // Rewriting T1 breaks the set, which the link does not name; so the link has no other target
  // left.
  runs.write(1, 1);
  CHECK(runs.drain() == Done{"a.N1.T1"});
  runs.write(1, 2);
  CHECK(runs.drain() == Done{"no latest", "a.N1.T2"});
}

TEST_CASE("a manager that starts again has the link leave a set before an image is replaced") {
  DrainedRuns runs;
  for (const std::uint64_t step : {1U, 2U}) {
    runs.write_all(step);
    runs.drain();
  }
  runs.benefactor->hold_back = true;
  runs.write(0, 2);
  runs.link();
  REQUIRE(runs.benefactor->held.size() == 1);
  runs.benefactor->held[0](msg::Reply{msg::DrainPieces::Reply{}});
  runs.link();
  // the request stays unanswered
  CHECK(done_in_drain(*runs.benefactor) == Done{"latest -> a.*.T1"});
  SECTION("from its journal") {}
  SECTION("from a snapshot") { runs.take_snapshots(); }
  runs.disconnect();
  runs.restart();
  runs.benefactor = std::make_unique<TestBenefactor>(runs, "b1", 1, kArena);
  runs.client = std::make_unique<TestClient>(runs, "again");
  CHECK(runs.drain() == Done{"latest -> a.*.T1", "a.N0.T2"});
  runs.write(1, 1);
  CHECK(runs.drain() == Done{"no latest", "a.N1.T1"});
}

TEST_CASE("sets that the pool has removed stay whole in the drain directory") {
  DrainedRuns runs("images=3 keep=1");
  for (const std::uint64_t step : {1U, 2U}) {
    runs.write_all(step);
    runs.drain();
  }
  CHECK(steps_of(*runs.client) == Steps{2});
  runs.benefactor->hold_back = true;
  runs.write_all(3);
  runs.link();
  // T2, which is drained, is removed in the pool; the drain directory's link stays
  CHECK(steps_of(*runs.client) == Steps{3});
  CHECK(done_in_drain(*runs.benefactor).empty());
  runs.benefactor->let_go();
  CHECK(runs.drain().back() == "latest -> a.*.T3");
  runs.write(0, 3);
  CHECK(runs.drain() == Done{"latest -> a.*.T2", "a.N0.T3"});
  runs.write(0, 2);
  CHECK(runs.drain() == Done{"latest -> a.*.T1", "a.N0.T2"});
  CHECK(latest(*runs.client).empty());
}

TEST_CASE("the drain directory's link leaves a set before an image of it is taken away there") {
  DrainedRuns runs;
  for (const std::uint64_t step : {1U, 2U, 3U}) {
    runs.write_all(step);
    runs.drain();
  }
  runs.remove("a.N1.T3");
  CHECK(runs.drain() == Done{"latest -> a.*.T2", "no a.N1.T3"});
  SECTION("by a renaming") {
    runs.rename("a.N1.T2", "other");
    CHECK(runs.drain() == Done{"latest -> a.*.T1", "a.N1.T2 to other"});
    runs.rename("other", "a.N0.T1");
    CHECK(runs.drain() == Done{"no latest", "other to a.N0.T1"});
  }
  SECTION("by an exchange") {
    msg::Rename exchange;
    exchange.client = runs.client->id;
    exchange.from_parent = exchange.to_parent = kRootFile;
    exchange.from_name = "a.N1.T1";
    exchange.to_name = "a.N1.T2";
    exchange.exchange = true;
    REQUIRE(runs.client->call(exchange));
    const Done done = runs.drain();
    CHECK(done.size() == 4);  // an exchange takes three renames
    CHECK(done.at(0) == "no latest");
  }
}

TEST_CASE("an image that is added to leaves the drain directory's link where it is") {
  DrainedRuns runs;
  runs.write_all(1);
  CHECK(runs.drain().back() == "latest -> a.*.T1");
  const auto [session, grant] = runs.open_to_change(1, 1);
  auto added = TestClient::commit_of(session, grant, 0, 500, 77, 1000);
  added.end = true;
  REQUIRE(runs.client->call(added));
  CHECK(runs.drain() == Done{"a.N1.T1"});
}

TEST_CASE("a link that somebody has removed is made again, in the drain directory too") {
  DrainedRuns runs;
  runs.write_all(1);
  runs.drain();
  runs.remove(kLatestName);
  CHECK(runs.drain() == Done{"no latest", "latest -> a.*.T1"});
  CHECK(latest(*runs.client) == "a.*.T1");
}

TEST_CASE("the drain directory's link leaves a file of the same name alone") {
  DrainedRuns runs;
  runs.write_all(1);
  runs.drain();
  REQUIRE(runs.client->write("mine", 1000, 9));
  runs.rename("mine", kLatestName);
  CHECK(runs.drain() == Done{"latest"});
  runs.write(0, 1);
  CHECK(runs.drain() == Done{"a.N0.T1"});
}

TEST_CASE("a folder remembers a bounded number of sets that are whole in the drain directory") {
  DrainedRuns runs;
  constexpr std::uint64_t kSets = limits::kDrainedSetsMax + 4;
  for (std::uint64_t step = 1; step <= kSets; ++step) {
    runs.write_all(step);
    runs.drain();
  }
  const File& root = *runs.service->state().file(kRootFile);
  REQUIRE(root.as_directory.drained_sets.size() == limits::kDrainedSetsMax);
  CHECK(root.as_directory.drained_sets.front().name == "a.*.T5");
  CHECK(root.as_directory.drained_sets.back().name == "a.*.T" + std::to_string(kSets));
  CHECK(runs.drain().empty());
}

// ---- how many images a set has -----------------------------------------------------------------

TEST_CASE("a set that was whole stays so with as many images as it had, whatever the policy says") {
  std::vector<ImageSet> sets = {set_at(1, 1, 3, 3), set_at(2, 2, 4)};
  sets[0].whole = 3;
  CHECK(plan_sets(sets, policy_of("images=5"), 0).latest == "a.*.T1");
  CHECK(plan_sets(sets, policy_of("images=unknown"), 0).latest == "a.*.T1");
  CHECK(plan_sets(sets, policy_of("images=4"), 0).latest == "a.*.T2");
  CHECK(plan_sets(sets, policy_of("images=5,must-be-drained=yes"), 0).latest == "a.*.T1");
  // Without a known number of images, no set is removed.
  CHECK(removed(plan_sets(sets, policy_of("images=unknown keep=1 purge-after=1s"), 99 * kSecond))
            .empty());
  sets[0].images = 2;
  CHECK(plan_sets(sets, policy_of("images=2"), 0).latest == "a.*.T2");
  CHECK_FALSE(is_complete(sets[0], policy_of("images=2")));
}

TEST_CASE("a set that was whole stays so when its folder asks for another number of images") {
  Runs runs;
  const auto ask_for = [&](const std::string& images) {
    REQUIRE(runs.client->call(
        msg::SetPolicy{runs.client->id, kRootFile, policy_of("images=" + images)}));
  };
  runs.write_all(1);
  ask_for("5");  // before the manager has judged the set
  bool again = false;
  SECTION("by one manager") {}
  SECTION("by one that starts again from its journal") { again = true; }
  SECTION("by one that starts again from a snapshot") {
    again = true;
    runs.take_snapshots();
  }
  for (const std::string images : {"5", "unknown", "2", "5"}) {
    ask_for(images);
    if (again) runs.begin_again();
    INFO(images);
    CHECK(runs.link() == "a.*.T1");
    CHECK(runs.complete(1));
  }
  runs.write_all(2);
  CHECK(runs.link() == "a.*.T1");
  CHECK_FALSE(runs.complete(2));
  // A rewritten set is judged like any other.
  runs.write(0, 1);
  CHECK(latest(*runs.client).empty());
  if (again) runs.begin_again();
  runs.write(1, 1);
  runs.write(2, 1);
  CHECK(runs.link().empty());
  CHECK_FALSE(runs.complete(1));
  ask_for("3");
  CHECK(runs.link() == "a.*.T1");
}

TEST_CASE("a set loses what made it whole with the image that goes, whatever its folder asks for") {
  Runs runs;
  runs.write_all(1);
  runs.write_all(2);
  CHECK(runs.link() == "a.*.T2");
  REQUIRE(
      runs.client->call(msg::SetPolicy{runs.client->id, kRootFile, policy_of("images=unknown")}));
  CHECK(runs.link() == "a.*.T2");
  REQUIRE(runs.client->call(msg::Remove{runs.client->id, kRootFile, Runs::name(1, 2), false}));
  CHECK(latest(*runs.client) == "a.*.T1");
  runs.write(1, 1);
  CHECK(latest(*runs.client).empty());
  runs.begin_again();
  CHECK(runs.link().empty());
}

TEST_CASE("a run of more ranks completes no set of the one before with those that were missing") {
  Runs runs;
  runs.write_all(1);
  REQUIRE(runs.client->call(msg::SetPolicy{runs.client->id, kRootFile, policy_of("images=5")}));
  CHECK(runs.link() == "a.*.T1");
  const auto add = [&](std::uint64_t rank) { runs.write(rank, 1); };
  SECTION("written in place") { add(3); }
  SECTION("written under another name first") {
    REQUIRE(runs.client->write("a.part", 1000, 1000));
    msg::Rename rename;
    rename.client = runs.client->id;
    rename.from_parent = rename.to_parent = kRootFile;
    rename.from_name = "a.part";
    rename.to_name = Runs::name(3, 1);
    REQUIRE(runs.client->call(rename));
  }
  CHECK(latest(*runs.client).empty());
  add(4);
  CHECK_FALSE(runs.complete(1));
  runs.begin_again();
  CHECK(runs.link().empty());
  for (const std::uint64_t rank : {0U, 1U, 2U}) add(rank);
  CHECK(runs.link() == "a.*.T1");
}

TEST_CASE("more images than a folder asks for leave a set whole") {
  Runs runs("images=2");
  for (const std::uint64_t rank : {0U, 1U, 2U}) runs.write(rank, 1);
  CHECK(runs.link() == "a.*.T1");
  runs.write(3, 1);
  CHECK(latest(*runs.client) == "a.*.T1");
  REQUIRE(runs.client->call(msg::SetPolicy{runs.client->id, kRootFile, policy_of("images=5")}));
  CHECK(runs.link() == "a.*.T1");
}

// ---- sets of an earlier pool -------------------------------------------------------------------

namespace {

/// A drain directory with images of one to three timesteps, and perhaps a link.
struct DrainedBefore {
  DrainedBefore() { std::filesystem::create_directories(root); }
  ~DrainedBefore() { std::filesystem::remove_all(root); }
  void put(std::uint64_t rank, std::uint64_t step, std::chrono::seconds age) const {
    const std::string path = root + "/" + Runs::name(rank, step);
    std::ofstream(path) << "bytes";
    std::filesystem::last_write_time(path, now - age);
  }
  void put_all(std::uint64_t step, std::chrono::seconds age) const {
    for (const std::uint64_t rank : {0U, 1U, 2U}) put(rank, step, age);
  }
  void put_link(const std::string& target) const {
    std::filesystem::create_symlink(target, root + "/" + kLatestName);
  }

  const std::string root =
      (std::filesystem::temp_directory_path() / ("sets-" + std::to_string(::getpid()))).string();
  const std::filesystem::file_time_type now = std::filesystem::file_time_type::clock::now();
};

}  // namespace

TEST_CASE("of an earlier pool's sets the one that its link names is whole, as it is") {
  const std::string images = GENERATE(as<std::string>{}, "unknown", "2", "3", "5");
  const DrainedBefore before;
  before.put_all(1, 300s);
  before.put_all(2, 200s);
  before.put_all(3, 100s);
  before.put(1, 3, 10s);  // rewritten, unlike the set's other images
  before.put_link("a.*.T2");
  INFO(images);
  Runs runs("images=" + images, before.root);
  CHECK(runs.link() == "a.*.T2");
  CHECK(runs.complete(2));
  CHECK_FALSE(runs.complete(1));
  CHECK_FALSE(runs.complete(3));
  runs.begin_again();
  CHECK(runs.link() == "a.*.T2");
  runs.write_all(3);
  CHECK(runs.complete(3) == (images == "2" || images == "3"));
  runs.write(0, 2);
  CHECK_FALSE(runs.complete(2));
  CHECK(runs.link() == (runs.complete(3) ? "a.*.T3" : ""));
}

TEST_CASE("the drain directory's link leaves an earlier pool's set before an image is replaced") {
  const DrainedBefore before;
  before.put_all(1, 200s);
  before.put_link("a.*.T1");
  Runs runs("images=unknown", before.root);
  CHECK(runs.link() == "a.*.T1");
  done_in_drain(*runs.benefactor);
  runs.write(1, 1);
  for (int i = 0; i < 3; ++i) runs.link();
  CHECK(done_in_drain(*runs.benefactor) == Done{"no latest", "a.N1.T1"});
}

TEST_CASE("of an earlier pool's sets that no link names none is whole, whatever is asked for") {
  const std::string images = GENERATE(as<std::string>{}, "2", "3");
  const DrainedBefore before;
  std::uint64_t ranks = 2;
  SECTION("of which a part was drained") {}
  SECTION("or all") { ranks = 3; }
  SECTION("or the link names one that is not there") { before.put_link("a.*.T7"); }
  for (std::uint64_t rank = 0; rank < ranks; ++rank) before.put(rank, 1, 100s);
  Runs runs("images=" + images, before.root);
  CHECK(runs.link().empty());
  CHECK_FALSE(runs.complete(1));
  CHECK(links_made(*runs.benefactor) == 0);
  // Rewriting every image makes the set this pool's own.
  runs.write(2, 1);
  CHECK_FALSE(runs.complete(1));
  runs.write(0, 1);
  runs.write(1, 1);
  CHECK(runs.link() == "a.*.T1");
}

TEST_CASE("what an earlier pool has of later timesteps keeps no set from being whole") {
  const DrainedBefore before;
  before.put_all(1, 200s);
  before.put(1, 2, 100s);
  if (GENERATE(false, true)) before.put_link("a.*.T1");
  Runs runs("images=3", before.root);
  // Rank 0 has no image of the second timestep; rank 1 has an image.
  runs.write_all(1);
  CHECK(runs.complete(1));
  CHECK(runs.link() == "a.*.T1");
  runs.write_all(2);
  CHECK(runs.link() == "a.*.T2");
}

namespace {

/// A LAMMPS run of two ranks, whose earlier pool has drained a part of a set.
struct DrainedPattern : DrainedBefore {
  static constexpr std::string_view kPattern = "series={A}.{T}.{N|base}";
  DrainedPattern() {
    std::filesystem::create_symlink(kPattern, root + "/" + std::string(kPolicyLinkName));
  }
  void put_file(const std::string& name) const { std::ofstream(root + "/" + name) << "bytes"; }
};

void write_file(Runs& runs, const std::string& name, std::uint64_t content) {
  const auto opened = runs.client->create(name, 4096);
  REQUIRE(opened);
  auto commit = TestClient::commit_of(opened->session, opened->grants.at(0), 0, 1000, content);
  commit.end = true;
  REQUIRE(runs.client->call(commit));
}

bool is_complete(Runs& runs, const std::string& set_name) {
  const auto sets = runs.client->call(msg::ListSets{kRootFile});
  REQUIRE(sets);
  const auto set = std::ranges::find(sets->sets, set_name, &msg::ListSets::Entry::application);
  REQUIRE(set != sets->sets.end());
  return set->complete;
}

}  // namespace

TEST_CASE("an earlier pool's images complete no set of a pattern, either") {
  const DrainedPattern before;
  before.put_file("r.0100.0");
  Runs runs("images=2", before.root);
  write_file(runs, "r.0100.1", 9001);
  write_file(runs, "r.0100.base", 9002);
  CHECK(runs.link().empty());
  CHECK_FALSE(is_complete(runs, "r.0100.*"));
  write_file(runs, "r.0200.0", 9004);
  write_file(runs, "r.0200.1", 9005);
  write_file(runs, "r.0200.base", 9006);
  CHECK(is_complete(runs, "r.0200.*"));
}

TEST_CASE("of an earlier pool's sets of a pattern the one that its link names is whole") {
  const DrainedPattern before;
  for (const char* name : {"r.0100.0", "r.0100.1", "r.0100.base", "r.0200.0"}) {
    before.put_file(name);
  }
  before.put_link("r.0100.*");
  Runs runs("images=3", before.root);
  CHECK(runs.link() == "r.0100.*");
  CHECK(is_complete(runs, "r.0100.*"));
  CHECK_FALSE(is_complete(runs, "r.0200.*"));
}
