// Tests leases on directories, and batches of their holders (docs/decisions/0075).
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manager/service/service.h"
#include "manager/sessions/lease_service.h"
#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;
using Kind = msg::NameChangeKind;

/// Sends a request that may wait. The result is set when the manager answers.
template <class M>
std::shared_ptr<std::optional<rpc::Answer>> send(World& world, Actor& client, const M& request) {
  auto answer = std::make_shared<std::optional<rpc::Answer>>();
  client.peer().call(request, limits::kManagerDeadline,
                     [answer](rpc::Answer got) { *answer = std::move(got); });
  world.turn();
  return answer;
}

Code code_of(const std::shared_ptr<std::optional<rpc::Answer>>& answer) {
  REQUIRE(*answer);
  return **answer ? Code{} : (*answer)->error().error.code;
}

void pass(World& world, std::vector<TestClient*> living, Duration time) {
  for (Duration passed{}; passed < time; passed += 500ms) {
    world.pass(500ms);
    for (TestClient* client : living) {
      REQUIRE(client->call(msg::ClientHeartbeat{client->id}));
    }
  }
}

/// A client that holds directories.
class Holder : public TestClient {
 public:
  Holder(World& world, std::string name) : TestClient(world, std::move(name)) {}

  FileId make_directory(const std::string& name, FileId parent = kRootFile) {
    const auto made = call(msg::MakeDirectory{id, parent, name, 0755, 1, 2});
    REQUIRE(made);
    return made->attributes.id;
  }
  bool lease(FileId directory) {
    const auto reply = call(msg::LeaseDirectory{id, directory, 100});
    REQUIRE(reply);
    if (!reply->granted) return false;
    holder = reply->holder;
    next_file = reply->first_number.value;
    batch = reply->newest_batch;
    return true;
  }
  msg::NameChange add(FileId parent, const std::string& name, Kind kind = Kind::kAddFile) {
    msg::NameChange change;
    change.kind = kind;
    change.parent = parent;
    change.name = name;
    change.file = FileId{next_file++};
    change.mode = 0640;
    change.uid = 3;
    change.time_ns = 1000;
    return change;
  }
  static msg::NameChange change_of(Kind kind, FileId parent, const std::string& name, FileId file) {
    msg::NameChange change;
    change.kind = kind;
    change.parent = parent;
    change.name = name;
    change.file = file;
    change.time_ns = 2000;
    return change;
  }
  static msg::NameChange rename(FileId parent, const std::string& from, FileId file,
                                const std::string& to) {
    msg::NameChange change = change_of(Kind::kRename, parent, from, file);
    change.to_parent = parent;
    change.to_name = to;
    return change;
  }
  Result<msg::ApplyNames::Reply> apply(std::vector<msg::NameChange> changes) {
    return call(msg::ApplyNames{id, holder, ++batch, std::move(changes)});
  }
  Status give_back(FileId directory) {
    const auto reply = call(msg::ReturnLease{id, holder, {directory}});
    if (!reply) return fail(reply.error());
    return {};
  }
  std::size_t recalls(FileId directory) const {
    std::size_t count = 0;
    for (const msg::Invalidate& notice : notices)
      count += static_cast<std::size_t>(std::ranges::count(notice.recalled, directory));
    return count;
  }

  std::uint64_t holder = 0;
  std::uint64_t next_file = 0;
  std::uint64_t batch = 0;
};

/// A manager, a client that holds a directory, and another client.
struct Two {
  explicit Two(std::string drain = {}) : world(std::move(drain)) {
    world.start();
    first = std::make_unique<Holder>(world, "first");
    second = std::make_unique<Holder>(world, "second");
    directory = first->make_directory("d");
    REQUIRE(first->lease(directory));
  }
  ClientId holder_of(FileId id) const { return world.service->state().name_leases().client(id); }
  Result<FileId> look(TestClient& client, const std::string& name) {
    const auto found = client.call(msg::Lookup{client.id, directory, name});
    if (!found) return fail(found.error());
    return found->attributes.id;
  }

  World world;
  std::unique_ptr<Holder> first;
  std::unique_ptr<Holder> second;
  FileId directory;
};

}  // namespace

TEST_CASE("another client's look-up waits until the holder has sent its changes") {
  Two two;
  const auto looked = send(two.world, *two.second, msg::Lookup{two.second->id, two.directory, "a"});
  CHECK_FALSE(*looked);
  CHECK(two.first->recalls(two.directory) == 1);
  const msg::NameChange added = two.first->add(two.directory, "a");
  REQUIRE(two.first->apply({added}));
  CHECK_FALSE(*looked);
  REQUIRE(two.first->give_back(two.directory));
  two.world.turn();
  REQUIRE(code_of(looked) == Code{});
  const auto& reply = std::get<msg::Lookup::Reply>(***looked);
  CHECK(reply.attributes.id == added.file);
  CHECK(reply.attributes.mode == 0640);
  CHECK(reply.attributes.uid == 3);
  CHECK(reply.attributes.mtime_ns == 1000);
  CHECK(reply.attributes.version == 1);
  CHECK_FALSE(two.holder_of(two.directory));
}

namespace {

/// Requests of the client `by` about the directory, or about the file `a` in it.
std::vector<msg::Request> requests_about(ClientId by, FileId directory, FileId a) {
  msg::OpenSession creates;
  creates.client = by;
  creates.parent = directory;
  creates.name = "n";
  msg::OpenSession opens;
  opens.client = by;
  opens.file = a;
  return {
      msg::Lookup{by, directory, "a"},
      msg::Lookup{by, kRootFile, "d"},
      msg::GetAttributes{by, directory},
      msg::GetAttributes{by, a},
      msg::ReadDirectory{by, directory},
      msg::ReadDirectory{by, kRootFile},
      msg::SetAttributes{by, a, 1, 0600},
      msg::SetXattr{by, a, "user.a", "b"},
      msg::SetXattr{by, kRootFile, "user.stdchk.keep", "1"},
      msg::GetXattrs{a},
      msg::GetMap{by, a},
      msg::MakeDirectory{by, directory, "m"},
      msg::MakeSymlink{by, directory, "s", "t"},
      msg::MakeNode{by, directory, "p", FileType::kFifo, 0600},
      msg::MakeLink{by, a, kRootFile, "l"},
      msg::Remove{by, directory, "a"},
      msg::Remove{by, kRootFile, "d", true},
      msg::Rename{by, directory, "a", kRootFile, "b"},
      msg::Rename{by, kRootFile, "d", kRootFile, "e"},
      msg::SetLock{by, a},
      msg::GetLock{by, a},
      msg::SetPolicy{by, directory},
      creates,
      opens,
  };
}

}  // namespace

TEST_CASE("each request about a leased directory, or about a file in it, waits for the holder") {
  const std::size_t count = requests_about({}, {}, {}).size();
  for (std::size_t i = 0; i < count; ++i) {
    Two two;
    const msg::NameChange added = two.first->add(two.directory, "a");
    REQUIRE(two.first->apply({added}));
    const auto request = requests_about(two.second->id, two.directory, added.file).at(i);
    INFO(std::visit([]<class M>(const M&) { return M::kName; }, request));
    const auto waits = send(two.world, *two.second, request);
    CHECK_FALSE(*waits);
    CHECK(two.first->recalls(two.directory) == 1);
    REQUIRE(two.first->give_back(two.directory));
    two.world.turn();
    CHECK(*waits);
    CHECK_FALSE(two.holder_of(two.directory));
  }
}

TEST_CASE("the holder asks about its directory without a recall, and must not change its names") {
  Two two;
  Holder& first = *two.first;
  REQUIRE(first.apply({first.add(two.directory, "a")}));
  CHECK(two.look(first, "a"));
  CHECK(first.call(msg::ReadDirectory{first.id, two.directory})->entries.size() == 1);
  CHECK(first.call(msg::GetAttributes{first.id, two.directory}));
  CHECK(first.recalls(two.directory) == 0);
  const auto waits = send(two.world, first, msg::Remove{first.id, two.directory, "a"});
  CHECK_FALSE(*waits);
  CHECK(first.recalls(two.directory) == 1);
  REQUIRE(first.give_back(two.directory));
  CHECK(code_of(waits) == Code{});
}

TEST_CASE("a directory that others use is not leased") {
  World world;
  world.start();
  Holder first(world, "first");
  Holder second(world, "second");
  const FileId directory = first.make_directory("d");
  SECTION("another client has looked at it for less than two cache leases") {
    CHECK(second.call(msg::ReadDirectory{second.id, directory}));
    CHECK_FALSE(first.lease(directory));
    pass(world, {&first, &second}, 2 * limits::kCacheLease + 500ms);
    CHECK(first.lease(directory));
  }
  SECTION("another client holds it") {
    REQUIRE(second.lease(directory));
    CHECK_FALSE(first.lease(directory));
  }
  SECTION("another client has a file in it open") {
    msg::OpenSession open;
    open.client = second.id;
    open.parent = directory;
    open.name = "a";
    const auto opened = second.call(open);
    REQUIRE(opened);
    REQUIRE(second.call(msg::Commit{opened->session}));
    pass(world, {&first, &second}, 2 * limits::kCacheLease + 500ms);
    CHECK_FALSE(first.lease(directory));
    REQUIRE(second.call(msg::CloseSession{opened->session}));
    CHECK(first.lease(directory));
  }
  SECTION("a name in it is pending") {
    msg::OpenSession open;
    open.client = first.id;
    open.parent = directory;
    open.name = "a";
    REQUIRE(first.call(open));
    CHECK_FALSE(first.lease(directory));
  }
  SECTION("it has an image") {
    msg::OpenSession open;
    open.client = first.id;
    open.parent = directory;
    open.name = "app.N0.T1";
    const auto opened = first.call(open);
    msg::Commit commit{opened->session};
    commit.end = true;
    REQUIRE(first.call(commit));
    CHECK_FALSE(first.lease(directory));
  }
  SECTION("a rule of sets holds in it") {
    REQUIRE(first.call(msg::SetXattr{first.id, kRootFile, "user.stdchk.rule.set", "directory"}));
    CHECK_FALSE(first.lease(directory));
  }
  SECTION("what is made in it gets access lists") {
    const std::string list(
        "\2\0\0\0\1\0\7\0\xff\xff\xff\xff\4\0\5\0\xff\xff\xff\xff\40\0\0\0\xff\xff\xff\xff", 28);
    const std::string name(kXattrDefaultList);
    REQUIRE(first.call(msg::SetXattr{first.id, directory, name, list}));
    CHECK_FALSE(first.lease(directory));
    REQUIRE(first.call(msg::SetXattr{first.id, directory, name, "", {}, true}));
    CHECK(first.lease(directory));
    // The holder returns the lease before it sets a list.
    const auto waits = send(world, first, msg::SetXattr{first.id, directory, name, list});
    CHECK_FALSE(*waits);
    REQUIRE(first.give_back(directory));
    world.turn();
    CHECK(*waits);
  }
  SECTION("a directory in it is another client's") {
    const FileId below = second.make_directory("e", directory);
    pass(world, {&first, &second}, 2 * limits::kCacheLease + 500ms);
    REQUIRE(second.lease(below));
    CHECK_FALSE(first.lease(directory));
  }
  SECTION("the directory above is another client's") {
    const FileId below = first.make_directory("e", directory);
    pass(world, {&first, &second}, 2 * limits::kCacheLease + 500ms);
    REQUIRE(first.lease(directory));
    CHECK_FALSE(second.lease(below));
    CHECK(first.lease(below));
  }
  SECTION("it does not exist") { CHECK_FALSE(first.lease(FileId{12345})); }
}

TEST_CASE(
    "a file without a name ends no lease, and others see the name that it gets at its commit") {
  Two two;
  Holder& first = *two.first;
  msg::OpenSession open;
  open.client = first.id;
  open.parent = two.directory;
  open.unnamed = true;
  open.mode = 0640;
  const auto opened = first.call(open);
  REQUIRE(opened);
  CHECK(opened->created);
  CHECK(opened->attributes.link_count == 0);
  const FileId file = opened->attributes.id;
  REQUIRE(first.apply({first.add(two.directory, "taken")}));
  CHECK(first.recalls(two.directory) == 0);
  REQUIRE(first.give_back(two.directory));

  const auto link_as = [&](Holder& by, const std::string& name) {
    return by.call(msg::MakeLink{by.id, file, two.directory, name});
  };
  CHECK(link_as(first, "taken").error().code == Code::kExists);
  CHECK(link_as(*two.second, "a").error().code == Code::kNotFound);
  const auto linked = link_as(first, "a");
  REQUIRE(linked);
  CHECK(linked->attributes.link_count == 1);
  CHECK_FALSE(two.look(*two.second, "a"));
  CHECK(link_as(first, "b").error().code == Code::kNotFound);
  REQUIRE(first.call(msg::Commit{opened->session}));
  CHECK(two.look(*two.second, "a") == file);
  CHECK(link_as(first, "b"));
}

TEST_CASE("a file with a second name is in no leased directory") {
  Two two;
  REQUIRE(two.first->apply({two.first->add(two.directory, "a")}));
  const auto file = two.look(*two.first, "a");
  REQUIRE(two.first->give_back(two.directory));
  REQUIRE(two.first->call(msg::MakeLink{two.first->id, *file, kRootFile, "l"}));
  CHECK_FALSE(two.first->lease(two.directory));
}

TEST_CASE("a batch makes, renames, changes and removes names") {
  Two two("/drain");
  Holder& first = *two.first;
  const FileId d = two.directory;
  const auto a = first.add(d, "a");
  const auto b = first.add(d, "b");
  const auto link = [&] {
    msg::NameChange made = first.add(d, "s", Kind::kAddSymlink);
    made.target = "a";
    return made;
  }();
  auto below = first.add(d, "e", Kind::kAddDirectory);
  below.lease = true;
  const auto c = first.add(below.file, "c");
  auto mode = Holder::change_of(Kind::kAttributes, {}, {}, a.file);
  mode.mask = static_cast<std::uint32_t>(msg::SetMask::kMode);
  mode.mode = 0600;
  REQUIRE(first.apply({a, b, link, below, c, mode}));
  CHECK(two.holder_of(below.file) == first.id);
  CHECK(first.call(msg::ReadSymlink{link.file})->target == "a");
  CHECK(first.call(msg::GetAttributes{first.id, a.file})->attributes.mode == 0600);
  const auto up = Holder::rename(below.file, "c", c.file, "c");
  auto moved = up;
  moved.to_parent = d;
  REQUIRE(first.apply({Holder::rename(d, "a", a.file, "b"), moved,
                       Holder::change_of(Kind::kRemoveDirectory, d, "e", below.file),
                       Holder::change_of(Kind::kRemoveFile, d, "s", link.file)}));
  CHECK(two.look(first, "b") == a.file);
  CHECK(two.look(first, "c") == c.file);
  CHECK_FALSE(two.look(first, "a"));
  CHECK_FALSE(two.look(first, "s"));
  CHECK_FALSE(two.look(first, "e"));
  CHECK_FALSE(two.holder_of(below.file));
  // A drain of the replaced file may still be under way. The file has no name.
  const File* const replaced = two.world.service->state().file(b.file);
  CHECK((replaced == nullptr || !replaced->parent));
}

TEST_CASE("a batch that comes twice is applied once") {
  Two two;
  Holder& first = *two.first;
  const auto a = first.add(two.directory, "a");
  const msg::ApplyNames batch{first.id, first.holder, 1, {a}};
  REQUIRE(first.call(batch));
  REQUIRE(first.call(batch));
  CHECK(two.look(first, "a") == a.file);
  REQUIRE(first.call(
      msg::ApplyNames{first.id,
                      first.holder,
                      2,
                      {Holder::change_of(Kind::kRemoveFile, two.directory, "a", a.file)}}));
  REQUIRE(first.call(batch));
  CHECK_FALSE(two.look(first, "a"));
}

TEST_CASE("a batch that does not fit ends the holder's leases, and what was before it stays") {
  Two two;
  Holder& first = *two.first;
  const FileId other = first.make_directory("other");
  REQUIRE(first.lease(other));
  const auto a = first.add(two.directory, "a");
  const auto z = first.add(other, "z");
  std::vector<msg::NameChange> wrong;
  bool some_stays = true;
  SECTION("a name exists") { wrong = {a, first.add(two.directory, "a"), z}; }
  SECTION("a name does not exist") {
    wrong = {a, Holder::change_of(Kind::kRemoveFile, two.directory, "b", a.file), z};
  }
  SECTION("the name has another file") {
    wrong = {a, Holder::change_of(Kind::kRemoveFile, two.directory, "a", z.file), z};
  }
  SECTION("a directory is not the holder's") { wrong = {a, first.add(kRootFile, "b"), z}; }
  SECTION("a file is not the holder's") {
    auto mode = Holder::change_of(Kind::kAttributes, {}, {}, kRootFile);
    mode.mask = 1;
    wrong = {a, mode, z};
  }
  SECTION("a file's number was not given") {
    auto unknown = a;
    unknown.name = "b";
    unknown.file.value += 1'000'000;
    wrong = {a, unknown, z};
    some_stays = false;
  }
  SECTION("a name belongs to sets") {
    wrong = {a, first.add(two.directory, "app.N0.T1"), z};
    some_stays = false;
  }
  const auto applied = first.apply(wrong);
  REQUIRE_FALSE(applied);
  CHECK(applied.error().code == Code::kStale);
  CHECK_FALSE(two.holder_of(two.directory));
  CHECK_FALSE(two.holder_of(other));
  CHECK(two.look(first, "a").has_value() == some_stays);
  CHECK_FALSE(first.call(msg::Lookup{first.id, other, "z"}));
  CHECK(first.apply({z}).error().code == Code::kStale);
}

TEST_CASE("requests go on when a batch that does not fit has ended the leases that they wait for") {
  Two two;
  Holder& first = *two.first;
  auto kept = first.add(two.directory, "kept", Kind::kAddDirectory);
  auto removed = first.add(two.directory, "removed", Kind::kAddDirectory);
  kept.lease = removed.lease = true;
  REQUIRE(first.apply({kept, removed}));
  const ClientId asker = two.second->id;
  const auto in_kept = send(two.world, *two.second, msg::ReadDirectory{asker, kept.file});
  const auto in_removed = send(two.world, *two.second, msg::ReadDirectory{asker, removed.file});
  CHECK_FALSE(*in_kept);
  CHECK_FALSE(*in_removed);
  auto made = first.add(two.directory, "made", Kind::kAddDirectory);
  made.lease = true;
  const auto applied = first.apply(
      {Holder::change_of(Kind::kRemoveDirectory, two.directory, "removed", removed.file), made,
       first.add(two.directory, "made")});
  REQUIRE_FALSE(applied);
  CHECK(applied.error().code == Code::kStale);
  two.world.turn();
  CHECK(code_of(in_kept) == Code{});
  CHECK(*in_removed);
  for (const FileId directory : {two.directory, kept.file, made.file}) {
    CHECK_FALSE(two.holder_of(directory));
    CHECK(two.second->call(msg::ReadDirectory{asker, directory}));
  }
}

TEST_CASE("a batch with a later number than the next does not fit") {
  Two two;
  ++two.first->batch;
  CHECK(two.first->apply({two.first->add(two.directory, "a")}).error().code == Code::kStale);
  CHECK_FALSE(two.holder_of(two.directory));
}

TEST_CASE("only the holder sends batches and returns leases") {
  Two two;
  two.second->holder = two.first->holder;
  CHECK(two.second->apply({two.first->add(two.directory, "a")}).error().code == Code::kStale);
  CHECK(two.second->give_back(two.directory).error().code == Code::kStale);
  CHECK(two.holder_of(two.directory) == two.first->id);
}

TEST_CASE("a holder that does not return a lease in time loses all its leases") {
  Two two;
  const FileId other = two.first->make_directory("other");
  REQUIRE(two.first->lease(other));
  const auto looked = send(two.world, *two.second, msg::Lookup{two.second->id, two.directory, "a"});
  pass(two.world, {two.first.get(), two.second.get()}, LeaseService::kRecallTime - 1s);
  CHECK_FALSE(*looked);
  pass(two.world, {two.first.get(), two.second.get()}, 2s);
  CHECK(code_of(looked) == Code::kNotFound);
  CHECK_FALSE(two.holder_of(other));
  // A holder that lives learns it for its other directories, too.
  CHECK(two.first->recalls(other) > 0);
  CHECK(two.first->apply({two.first->add(two.directory, "a")}).error().code == Code::kStale);
}

TEST_CASE("a holder that has lost the answer to its request for a lease delays nobody") {
  Two two;
  Holder& first = *two.first;
  const auto looked = send(two.world, *two.second, msg::Lookup{two.second->id, two.directory, "a"});
  CHECK_FALSE(*looked);
  SECTION("it asks again, and others want the directory") {
    CHECK_FALSE(first.lease(two.directory));
  }
  SECTION("it returns a lease whose number it does not know") {
    const msg::ReturnLease unknown{two.second->id, 0, {two.directory}};
    CHECK(two.second->call(unknown).error().code == Code::kStale);
    CHECK_FALSE(*looked);
    CHECK(first.call(msg::ReturnLease{first.id, 0, {two.directory}}));
  }
  two.world.turn();
  CHECK(code_of(looked) == Code::kNotFound);
  CHECK_FALSE(two.holder_of(two.directory));
}

TEST_CASE("a client's question does not overtake its own change that waits for a holder") {
  Two two;
  Holder& first = *two.first;
  Holder& second = *two.second;
  const auto renamed =
      send(two.world, second, msg::Rename{second.id, kRootFile, "d", kRootFile, "e"});
  const auto asked = send(two.world, second, msg::ReadDirectory{second.id, kRootFile});
  CHECK_FALSE(*renamed);
  CHECK_FALSE(*asked);
  CHECK(first.call(msg::GetAttributes{first.id, kRootFile}));
  REQUIRE(first.give_back(two.directory));
  two.world.turn();
  REQUIRE(code_of(renamed) == Code{});
  REQUIRE(code_of(asked) == Code{});
  const auto& listing = std::get<msg::ReadDirectory::Reply>(***asked);
  REQUIRE(listing.entries.size() == 1);
  CHECK(listing.entries.front().name == "e");
}

TEST_CASE("requests go on when a batch removes the directory that they wait for") {
  Two two;
  Holder& first = *two.first;
  auto below = first.add(two.directory, "e", Kind::kAddDirectory);
  below.lease = true;
  REQUIRE(first.apply({below}));
  const auto listed = send(two.world, *two.second, msg::ReadDirectory{two.second->id, below.file});
  CHECK_FALSE(*listed);
  REQUIRE(first.apply({Holder::change_of(Kind::kRemoveDirectory, two.directory, "e", below.file)}));
  two.world.turn();
  CHECK(*listed);
  CHECK_FALSE(two.look(first, "e"));
}

TEST_CASE("a number for a new file counts although its client was given many others since") {
  Two two;
  Holder& first = *two.first;
  const auto open = first.add(two.directory, "open");
  for (int i = 0; i < 200; ++i) {
    // Numbers of others lie between the ranges of one client.
    two.second->make_directory("other" + std::to_string(i));
    REQUIRE(first.call(
        msg::ApplyNames{first.id, first.holder, ++first.batch, {}, LeaseService::kNumbersMax}));
  }
  CHECK(first.apply({open}));
}

TEST_CASE("the leases of a client end with its goodbye, and with its silence") {
  Two two;
  const auto looked = send(two.world, *two.second, msg::Lookup{two.second->id, two.directory, "a"});
  SECTION("goodbye") { REQUIRE(two.first->call(msg::GoodbyeClient{two.first->id})); }
  SECTION("silence") {
    two.first->disconnect();
    pass(two.world, {two.second.get()}, limits::kLease + 1s);
  }
  two.world.turn();
  CHECK(code_of(looked) == Code::kNotFound);
  CHECK_FALSE(two.holder_of(two.directory));
}

TEST_CASE("a recall reaches a holder that has lost its link meanwhile") {
  Two two;
  two.first->disconnect();
  const auto looked = send(two.world, *two.second, msg::Lookup{two.second->id, two.directory, "a"});
  two.first->connect();
  two.first->register_now();
  two.world.pass(500ms);
  CHECK(two.first->recalls(two.directory) > 0);
  REQUIRE(two.first->apply({two.first->add(two.directory, "a")}));
  REQUIRE(two.first->give_back(two.directory));
  two.world.turn();
  CHECK(code_of(looked) == Code{});
}

TEST_CASE("a restarted manager knows the leases, and the holder brings its last batch") {
  Two two;
  Holder& first = *two.first;
  const auto a = first.add(two.directory, "a");
  REQUIRE(first.apply({a}));
  const ClientId before = first.id;
  two.world.restart();
  two.second->connect();
  two.second->register_now();
  const auto looked = send(two.world, *two.second, msg::Lookup{two.second->id, two.directory, "b"});
  CHECK_FALSE(*looked);
  first.connect();
  first.register_now();
  REQUIRE(first.id != before);
  two.world.pass(500ms);
  CHECK(first.recalls(two.directory) > 0);
  SECTION("the last batch was not applied") {
    REQUIRE(first.apply({first.add(two.directory, "b")}));
  }
  SECTION("the last batch was applied, and comes again") {
    --first.batch;
    REQUIRE(first.apply({a}));
    REQUIRE(first.apply({first.add(two.directory, "b")}));
  }
  CHECK_FALSE(*looked);
  CHECK_FALSE(first.lease(two.directory));
  REQUIRE(first.give_back(two.directory));
  two.world.turn();
  CHECK(code_of(looked) == Code{});
  CHECK(two.look(*two.second, "a") == a.file);
  CHECK(two.world.service->state().name_leases().empty());
}

TEST_CASE("a restarted manager leases to a client that has returned all directories before") {
  Two two;
  REQUIRE(two.first->give_back(two.directory));
  two.world.restart();
  two.first->connect();
  two.first->register_now();
  CHECK(two.first->lease(two.directory));
  CHECK(two.world.service->state().name_leases().holders().size() == 2);
  pass(two.world, {two.first.get()}, LeaseService::kRecallTime + 1s);
  CHECK(two.world.service->state().name_leases().holders().size() == 1);
  CHECK(two.first->apply({two.first->add(two.directory, "a")}));
}

TEST_CASE("a restarted manager ends the leases of holders that do not come back") {
  Two two;
  two.world.restart();
  two.second->connect();
  two.second->register_now();
  const auto looked = send(two.world, *two.second, msg::Lookup{two.second->id, two.directory, "a"});
  pass(two.world, {two.second.get()}, LeaseService::kRecallTime - 1s);
  CHECK_FALSE(*looked);
  pass(two.world, {two.second.get()}, 2s);
  CHECK(code_of(looked) == Code::kNotFound);
  two.first->connect();
  two.first->register_now();
  CHECK(two.first->apply({two.first->add(two.directory, "a")}).error().code == Code::kStale);
}

TEST_CASE("the holder opens a session for a file under the number that it has given it") {
  Two two;
  Holder& first = *two.first;
  msg::OpenSession open;
  open.client = first.id;
  open.parent = two.directory;
  open.name = "a";
  open.number = FileId{first.next_file};
  const auto opened = first.call(open);
  REQUIRE(opened);
  CHECK(opened->attributes.id == open.number);
  CHECK(first.recalls(two.directory) == 0);
  msg::Commit commit{opened->session};
  commit.end = true;
  REQUIRE(first.call(commit));
  CHECK(two.look(first, "a") == open.number);
  open.name = "b";
  CHECK(first.call(open).error().code == Code::kExists);
  open.number.value += 1'000'000;
  CHECK(first.call(open).error().code == Code::kInvalidArgument);
  open.client = two.second->id;
  open.parent = kRootFile;
  CHECK(two.second->call(open).error().code == Code::kStale);
}

TEST_CASE("a late batch of leases that have ended is not applied to later leases") {
  Two two;
  Holder& first = *two.first;
  const msg::ApplyNames late{first.id, first.holder, 1, {first.add(two.directory, "a")}};
  const auto looked = send(two.world, *two.second, msg::Lookup{two.second->id, two.directory, "a"});
  pass(two.world, {&first, two.second.get()}, LeaseService::kRecallTime + 1s);
  CHECK(code_of(looked) == Code::kNotFound);
  pass(two.world, {&first, two.second.get()}, 2 * limits::kCacheLease + 500ms);
  REQUIRE(first.lease(two.directory));
  CHECK(first.call(late).error().code == Code::kStale);
  CHECK_FALSE(two.look(first, "a"));
  CHECK(first.apply({first.add(two.directory, "b")}));
}

TEST_CASE("a snapshot has the leases and the holders' newest batches") {
  State state;
  REQUIRE(state.apply(AddDirectory{{20}, kRootFile, "d", 0755, 1, 2, 9}));
  REQUIRE(state.apply(AddDirectory{{21}, kRootFile, "e", 0755, 1, 2, 9}));
  REQUIRE(state.apply(LeaseNames{{20}, 70, {40}}));
  REQUIRE(state.apply(LeaseNames{{21}, 71, {41}}));
  CHECK_FALSE(state.apply(LeaseNames{{20}, 71, {41}}));
  CHECK_FALSE(state.apply(LeaseNames{{}, 70, {41}}));
  REQUIRE(state.apply(ApplyNames{70, 1, {}}));
  REQUIRE(state.apply(ApplyNames{70, 2, {}}));
  CHECK_FALSE(state.apply(ApplyNames{70, 2, {}}));
  CHECK_FALSE(state.apply(ApplyNames{72, 1, {}}));
  REQUIRE(state.apply(EndLeases{71, {{21}}}));
  State again;
  state.snapshot([&](const Command& command) { REQUIRE(again.apply(command)); });
  CHECK(again.name_leases().directories() == state.name_leases().directories());
  CHECK(again.name_leases().holders() == state.name_leases().holders());
  CHECK(again.name_leases().find(70)->newest_batch == 2);
  REQUIRE(again.apply(EndLeases{70, {}}));
  CHECK(again.name_leases().find(70) == nullptr);
  CHECK_FALSE(again.name_leases().client({20}));
}
