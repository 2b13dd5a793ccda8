#include "fuse/node_table.h"

#include <set>

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

TEST_CASE("Nodes of one file have different numbers, which all name the file") {
  NodeTable table(root());
  std::set<NodeId> numbers;
  for (Version version = 1; version <= 5; ++version) {
    const NodePtr node = *table.find_or_make(file(7, version), 1, "f");
    numbers.insert(node->id);
    CHECK(NodeTable::file_of(node->id) == FileId{7});
  }
  CHECK(numbers.size() == 5);
}

TEST_CASE("A number that the kernel has forgotten is free again") {
  NodeTable table(root());
  const NodeId first = (*table.find_or_make(file(7, 1), 1, "f"))->id;
  table.forget(first, 1);
  CHECK((*table.find_or_make(file(7, 2), 1, "f"))->id == first);
}

TEST_CASE("A node without a number of its file ends with its reference") {
  NodeTable table(root());
  const std::uint64_t large = std::uint64_t{1} << NodeTable::kFileBits;
  const NodeId first = (*table.find_or_make(file(large, 1), 1, "f"))->id;
  const NodeId second = (*table.find_or_make(file(large + 1, 1), 1, "g"))->id;
  CHECK(first != second);
  CHECK_FALSE(NodeTable::file_of(first));
  table.forget(first, 1);
  CHECK((*table.find_or_make(file(large, 1), 1, "f"))->id != first);
  CHECK(table.find_or_make_numbered(file(large, 1), first).error().code == Code::kStale);
  // Nodes beyond kNodesOfFileMax get a number that ends with them.
  std::size_t ends = 0;
  for (Version version = 1; version <= NodeTable::kNodesOfFileMax + 3; ++version) {
    if (!NodeTable::file_of((*table.find_or_make(file(7, version), 1, "h"))->id)) ++ends;
  }
  CHECK(ends == 3);
}

TEST_CASE("A handle's number makes its node again, which is the current node from then on") {
  NodeTable table(root());
  const NodePtr old_node = *table.find_or_make(file(7, 1), 1, "f");
  const NodeId number = (*table.find_or_make(file(7, 2), 1, "f"))->id;
  REQUIRE(number != old_node->id);
  table.forget(number, 1);
  const auto found = *table.find_or_make_numbered(file(7, 3), number);
  CHECK(found.node->id == number);
  CHECK(found.node->version() == 3);
  CHECK(table.current(FileId{7}) == found.node);
  CHECK(table.begin_open(found.node, false, false) == OpenTurn::kGo);
  CHECK(table.begin_open(old_node, false, false) == OpenTurn::kRefresh);
}

TEST_CASE("A handle's number takes the place of a node with another number") {
  NodeTable table(root());
  const NodePtr first = *table.find_or_make(file(7, 1), 1, "f");
  const NodeId number = (*table.find_or_make(file(7, 2), 1, "f"))->id;
  table.forget(number, 1);
  table.forget(first->id, 1);
  const NodePtr current = *table.find_or_make(file(7, 3), 1, "f");
  const auto found = *table.find_or_make_numbered(file(7, 3), number);
  CHECK(found.replaced == current);
  CHECK(table.path_of(*found.node) == "f");
  CHECK(*table.find_or_make(file(7, 3), 1, "f") == found.node);
}

TEST_CASE("A handle's number does not take the place of a session's node") {
  NodeTable table(root());
  const NodePtr writer = *table.find_or_make(file(7, 1), 1, "f");
  REQUIRE(table.begin_open(writer, true, false) == OpenTurn::kGo);
  const NodeId number = writer->id | (NodeId{1} << NodeTable::kFileBits);
  const auto found = *table.find_or_make_numbered(file(7, 1), number);
  CHECK(found.node->id == number);
  CHECK(found.replaced == nullptr);
  CHECK(table.current(FileId{7}) == writer);
}

TEST_CASE(
    "A handle's number of a node that the kernel has is one more reference, and no new version") {
  NodeTable table(root());
  const NodePtr node = *table.find_or_make(file(7, 1), 1, "f");
  CHECK((*table.find_or_make_numbered(file(7, 2), node->id)).node == node);
  CHECK(node->version() == 1);
  table.forget(node->id, 1);
  CHECK(table.find(node->id) == node);
  CHECK(table.find_or_make_numbered(file(8, 1), node->id).error().code == Code::kStale);
  CHECK(table.find_or_make_numbered(file(8, 1), NodeId{9}).error().code == Code::kStale);
}

TEST_CASE("A file is open while one of its nodes is open") {
  NodeTable table(root());
  const NodePtr first = *table.find_or_make(file(7, 1), 1, "f");
  const NodePtr second = *table.find_or_make(file(7, 2), 1, "f");
  CHECK(table.find_open(FileId{7}) == nullptr);
  REQUIRE(table.begin_open(second, false, false) == OpenTurn::kGo);
  CHECK(table.find_open(FileId{7}) == second);
  table.end_open(second, false);
  REQUIRE(table.begin_open(first, true, true) == OpenTurn::kGo);
  CHECK(table.find_open(FileId{7}) == first);
  CHECK(table.find_open(FileId{8}) == nullptr);
}

TEST_CASE("A file that the kernel finds without its name keeps the name that it had") {
  NodeTable table(root());
  Attributes folder = file(7, 1);
  folder.type = FileType::kDirectory;
  const NodePtr node = *table.find_or_make(folder, 1, "d");
  CHECK(*table.find_or_make(folder) == node);
  CHECK(table.path_of(*node) == "d");
  CHECK((*table.find_or_make(root()))->id == kRootNode);
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
