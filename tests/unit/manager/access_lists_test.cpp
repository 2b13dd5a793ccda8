// Tests what the manager does with access lists (core/policy/access_list.h).
#include "manager/state/access_lists.h"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "manager/service/service.h"
#include "tests/unit/manager/world.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using namespace stdchk::manager::test;
using namespace std::chrono_literals;

/// The bytes of a list: owner, user 1000, group, mask, others.
std::string list_of(const std::array<int, 5>& rights) {
  std::string out("\2\0\0\0", 4);
  constexpr std::array<int, 5> kTags = {1, 2, 4, 16, 32};
  for (std::size_t i = 0; i < rights.size(); ++i) {
    const bool is_user = kTags[i] == 2;
    out += {static_cast<char>(kTags[i]), 0, static_cast<char>(rights[i]), 0};
    out += is_user ? std::string("\xe8\3\0\0", 4) : std::string(4, '\xff');
  }
  return out;
}

std::string minimal_list(int owner, int group, int others) {
  std::string out("\2\0\0\0", 4);
  for (const auto& [tag, rights] : {std::pair{1, owner}, {4, group}, {32, others}}) {
    out +=
        {static_cast<char>(tag), 0, static_cast<char>(rights), 0, '\xff', '\xff', '\xff', '\xff'};
  }
  return out;
}

class Client : public TestClient {
 public:
  using TestClient::TestClient;

  bool set(FileId file, std::string_view xattr, const std::string& value) {
    return call(msg::SetXattr{id, file, std::string(xattr), value}).has_value();
  }
  std::optional<std::string> get(FileId file, std::string_view xattr) {
    const auto all = call(msg::GetXattrs{file});
    REQUIRE(all);
    for (const auto& [name, value] : all->attributes) {
      if (name == xattr) return value;
    }
    return std::nullopt;
  }
  Attributes look(FileId file) {
    const auto reply = call(msg::GetAttributes{id, file});
    REQUIRE(reply);
    return reply->attributes;
  }
  FileId make_directory(const std::string& name, std::uint32_t mode = 0755,
                        std::uint32_t unmasked = 0, FileId parent = kRootFile) {
    const auto made = call(msg::MakeDirectory{id, parent, name, mode, 1, 2, unmasked});
    REQUIRE(made);
    return made->attributes.id;
  }
  FileId make_file(const std::string& name, FileId parent, std::uint32_t mode,
                   std::uint32_t unmasked, bool commits = true) {
    msg::OpenSession open;
    open.client = id;
    open.parent = parent;
    open.name = name;
    open.mode = mode;
    open.unmasked = unmasked;
    const auto opened = call(open);
    REQUIRE(opened);
    if (commits) {
      msg::Commit commit{opened->session};
      commit.end = true;
      REQUIRE(call(commit));
    }
    return opened->attributes.id;
  }
  void chmod(FileId file, std::uint32_t mode) {
    msg::SetAttributes change;
    change.client = id;
    change.file = file;
    change.mask = static_cast<std::uint32_t>(msg::SetMask::kMode);
    change.mode = mode;
    REQUIRE(call(change));
  }
};

}  // namespace

TEST_CASE("an access list and the mode of its file say the same") {
  World world;
  world.start();
  Client client(world, "client");
  const FileId file = client.make_file("f", kRootFile, 02644, 0);
  CHECK_FALSE(client.look(file).has_access_list);
  REQUIRE(client.set(file, kXattrAccessList, list_of({7, 6, 4, 6, 1})));
  CHECK(client.look(file).mode == 02761);
  CHECK(client.look(file).has_access_list);
  CHECK_FALSE(client.look(file).has_default_list);
  client.chmod(file, 0640);
  CHECK(client.get(file, kXattrAccessList) == list_of({6, 6, 4, 4, 0}));
  REQUIRE(client.set(file, kXattrAccessList, minimal_list(7, 5, 0)));
  CHECK(client.look(file).mode == 0750);
  CHECK_FALSE(client.look(file).has_access_list);
  CHECK_FALSE(client.get(file, kXattrAccessList));
}

TEST_CASE("no invalid access list is stored") {
  World world;
  world.start();
  Client client(world, "client");
  const FileId file = client.make_file("f", kRootFile, 0644, 0);
  CHECK_FALSE(client.set(file, kXattrAccessList, "no list"));
  CHECK_FALSE(client.set(file, kXattrAccessList, list_of({7, 8, 4, 6, 1})));
  CHECK_FALSE(client.set(file, kXattrDefaultList, list_of({7, 7, 4, 6, 1})));
  CHECK_FALSE(client.set(kRootFile, kXattrDefaultList, ""));
  CHECK(client.look(file).mode == 0644);
  CHECK(client.call(msg::GetXattrs{file})->attributes.empty());
}

TEST_CASE("a default list takes the place of the umask, and directories pass it on") {
  World world;
  world.start();
  Client client(world, "client");
  const FileId directory = client.make_directory("d");
  REQUIRE(client.set(directory, kXattrDefaultList, list_of({7, 6, 5, 7, 0})));
  CHECK(client.look(directory).mode == 0755);
  CHECK(client.look(directory).has_default_list);

  const bool commits = GENERATE(true, false);
  const FileId file = client.make_file("f", directory, 0600, 0666, commits);
  CHECK(client.look(file).mode == 0660);
  CHECK(client.get(file, kXattrAccessList) == list_of({6, 6, 5, 6, 0}));
  CHECK_FALSE(client.get(file, kXattrDefaultList));

  const FileId below = client.make_directory("e", 0700, 0777, directory);
  CHECK(client.look(below).mode == 0770);
  CHECK(client.get(below, kXattrAccessList) == list_of({7, 6, 5, 7, 0}));
  CHECK(client.get(below, kXattrDefaultList) == list_of({7, 6, 5, 7, 0}));

  const auto fifo =
      client.call(msg::MakeNode{client.id, directory, "p", FileType::kFifo, 0600, 1, 2, 0, 0640});
  REQUIRE(fifo);
  CHECK(fifo->attributes.mode == 0640);
  CHECK(fifo->attributes.has_access_list);

  REQUIRE(client.call(msg::MakeSymlink{client.id, directory, "l", "f", 1, 2}));
  CHECK(client.call(msg::Lookup{client.id, directory, "l"})->attributes.mode == 0777);

  // An earlier client does not send the mode before the umask.
  CHECK(client.look(client.make_file("g", directory, 0600, 0)).mode == 0600);
  CHECK(client.look(client.make_file("h", kRootFile, 0600, 0666)).mode == 0600);
  CHECK(client.look(client.make_directory("i", 0700, 0777)).mode == 0700);
}

TEST_CASE("access lists outlive a restart of the manager, from the journal and from a snapshot") {
  World world;
  world.start();
  Client client(world, "client");
  const FileId directory = client.make_directory("d");
  REQUIRE(client.set(directory, kXattrDefaultList, list_of({7, 6, 5, 7, 0})));
  const FileId below = client.make_directory("e", 0700, 0777, directory);
  const FileId file = client.make_file("f", directory, 0600, 0666);
  client.chmod(file, 0640);
  const bool from_snapshot = GENERATE(false, true);
  if (from_snapshot) {
    world.journal.set_snapshot_every(1);
    client.make_directory("more");
    world.pass(1s);
    client.make_directory("and more");
  }
  world.restart();
  Client later(world, "later");
  CHECK(later.get(file, kXattrAccessList) == list_of({6, 6, 5, 4, 0}));
  CHECK(later.look(file).mode == 0640);
  CHECK(later.look(file).has_access_list);
  CHECK(later.get(below, kXattrDefaultList) == list_of({7, 6, 5, 7, 0}));
  CHECK(later.look(below).mode == 0770);
}

TEST_CASE("attributes say that a file has no extended attributes") {
  World world;
  world.start();
  Client client(world, "client");
  const bool commits = GENERATE(true, false);
  const FileId file = client.make_file("f", kRootFile, 0644, 0, commits);
  CHECK(client.look(file).has_no_xattrs);
  const auto set = client.call(msg::SetXattr{client.id, file, "user.k", "v"});
  REQUIRE(set);
  CHECK(set->attributes.id == file);
  CHECK_FALSE(set->attributes.has_no_xattrs);
  CHECK_FALSE(client.look(file).has_no_xattrs);
  const auto removed = client.call(msg::SetXattr{client.id, file, "user.k", "", {}, true});
  REQUIRE(removed);
  CHECK(removed->attributes.has_no_xattrs);
  CHECK(client.look(file).has_no_xattrs);

  const FileId directory = client.make_directory("d");
  CHECK(client.look(directory).has_no_xattrs);
  REQUIRE(client.set(directory, kXattrDefaultList, list_of({7, 6, 5, 7, 0})));
  const FileId below = client.make_file("g", directory, 0600, 0666, commits);
  CHECK_FALSE(client.look(below).has_no_xattrs);
  if (!commits) return;
  world.restart();
  Client later(world, "later");
  CHECK(later.look(file).has_no_xattrs);
  CHECK_FALSE(later.look(below).has_no_xattrs);
}

TEST_CASE("nobody gets rights in the drain directory that the list does not give") {
  File file;
  file.mode = 02644;
  CHECK(mode_without_list(file) == 02644);
  REQUIRE(set_list(file, kXattrAccessList, list_of({7, 6, 5, 7, 5})));
  CHECK(file.mode == 02775);
  CHECK(mode_without_list(file) == 02744);
  change_mode(file, 0640);
  CHECK(mode_without_list(file) == 0640);
}
