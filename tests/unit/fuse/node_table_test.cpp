#include "fuse/node_table.h"

#include "core/base/mutex.h"
#include "tests/support/catch.h"

using namespace stdchk;
using namespace stdchk::mount;

namespace {

Attributes file(std::uint64_t id, Version version) {
  Attributes attributes;
  attributes.id = FileId{id};
  attributes.version = version;
  return attributes;
}

Attributes root() {
  Attributes attributes = file(1, 1);
  attributes.type = FileType::kDirectory;
  return attributes;
}

}  // namespace

TEST_CASE("A version of a file keeps its node until the kernel forgets it") {
  NodeTable table(root());
  auto node = *table.find_or_make(file(7, 1), 1, "f");
  CHECK(*table.find_or_make(file(7, 1), 1, "f") == node);
  table.forget(node->id, 1);
  CHECK(table.find(node->id) == node);
  table.forget(node->id, 1);
  CHECK(table.find(node->id) == nullptr);
  CHECK(table.size() == 1);
}

TEST_CASE("A new version gets a new node, and the old one stays for those who have it") {
  NodeTable table(root());
  auto old_node = *table.find_or_make(file(7, 1), 1, "f");
  auto new_node = *table.find_or_make(file(7, 2), 1, "f");
  CHECK(old_node != new_node);
  CHECK(table.find(old_node->id) == old_node);
  CHECK(table.begin_open(old_node, false, false) == OpenTurn::kRefresh);
  CHECK(table.begin_open(new_node, false, false) == OpenTurn::kGo);
}

TEST_CASE("Node numbers are not used twice") {
  NodeTable table(root());
  auto first = (*table.find_or_make(file(7, 1), 1, "f"))->id;
  table.forget(first, 1);
  CHECK((*table.find_or_make(file(7, 1), 1, "f"))->id != first);
}

TEST_CASE("A session's node is the file's node until the session ends, whatever is committed") {
  NodeTable table(root());
  auto node = *table.find_or_make(file(7, 1), 1, "f");
  REQUIRE(table.begin_open(node, true, false) == OpenTurn::kGo);
  node->changed = true;
  CHECK(*table.find_or_make(file(7, 2), 1, "f") == node);
  REQUIRE(table.begin_open(node, true, false) == OpenTurn::kGo);
  table.end_open(node, true);
  CHECK(*table.find_or_make(file(7, 3), 1, "f") == node);
  table.end_open(node, true);
  CHECK(*table.find_or_make(file(7, 3), 1, "f") != node);
}

TEST_CASE("A session that wrote nothing leaves the node to its version") {
  NodeTable table(root());
  auto node = *table.find_or_make(file(7, 1), 1, "f");
  REQUIRE(table.begin_open(node, true, false) == OpenTurn::kGo);
  table.end_open(node, true);
  CHECK(*table.find_or_make(file(7, 1), 1, "f") == node);
}

TEST_CASE("A writer does not take the node of open readers") {
  NodeTable table(root());
  auto read_node = *table.find_or_make(file(7, 1), 1, "f");
  REQUIRE(table.begin_open(read_node, false, false) == OpenTurn::kGo);
  CHECK(table.begin_open(read_node, true, false) == OpenTurn::kRefresh);
  auto write_node = *table.find_or_make(file(7, 1), 1, "f");
  CHECK(write_node != read_node);
  CHECK(table.begin_open(write_node, true, false) == OpenTurn::kGo);
}

TEST_CASE("A node that went on with a newer version serves no later open") {
  NodeTable table(root());
  auto node = *table.find_or_make(file(7, 1), 1, "f");
  REQUIRE(table.begin_open(node, false, false) == OpenTurn::kGo);
  {
    const WriterLock lock(node->mutex);
    node->went_on = true;
    node->last = file(7, 2);
  }
  // The kernel asks for the node that it knows, and then looks the name up again.
  CHECK(table.begin_open(node, false, false) == OpenTurn::kRefresh);
  CHECK(table.begin_open(node, true, false) == OpenTurn::kRefresh);
  auto later = *table.find_or_make(file(7, 2), 1, "f");
  CHECK(later != node);
  CHECK(table.begin_open(later, false, false) == OpenTurn::kGo);
  CHECK(table.find(node->id) == node);
}

TEST_CASE("A session's node that went on with a newer version serves the session's openers") {
  NodeTable table(root());
  auto node = *table.find_or_make(file(7, 1), 1, "f");
  REQUIRE(table.begin_open(node, true, false) == OpenTurn::kGo);
  node->went_on = true;
  node->changed = true;
  CHECK(*table.find_or_make(file(7, 2), 1, "f") == node);
  CHECK(table.begin_open(node, false, false) == OpenTurn::kGo);
  table.end_open(node, true);
  CHECK(*table.find_or_make(file(7, 2), 1, "f") != node);
}

TEST_CASE("A node that the kernel forgot stays while it is open") {
  NodeTable table(root());
  auto node = *table.find_or_make(file(7, 1), 1, "f");
  REQUIRE(table.begin_open(node, true, false) == OpenTurn::kGo);
  table.forget(node->id, 1);
  CHECK(table.find(node->id) == node);
  table.end_open(node, true);
  CHECK(table.find(node->id) == nullptr);
}

TEST_CASE("The kernel cannot make the root be forgotten") {
  NodeTable table(root());
  table.forget(1, 1000);
  CHECK(table.find(1) != nullptr);
}

TEST_CASE("A new name of a node is one more reference, also when another node is current") {
  NodeTable table(root());
  auto old_node = *table.find_or_make(file(7, 1), 1, "f");
  auto new_node = *table.find_or_make(file(7, 2), 1, "f");
  table.add_name(old_node, 1, "g");
  CHECK(table.current(old_node->file) == new_node);
  CHECK(table.path_of(*old_node) == "g");
  table.forget(old_node->id, 1);
  CHECK(table.find(old_node->id) == old_node);
  table.forget(old_node->id, 1);
  CHECK(table.find(old_node->id) == nullptr);
}
