#include "client/engine/name_cache.h"

#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

ContentTag tag_of(unsigned number) {
  ContentTag tag{};
  tag[0] = static_cast<std::byte>(number & 0xFF);
  tag[1] = static_cast<std::byte>(number >> 8);
  return tag;
}

ChunkName name_of(unsigned number) {
  ChunkName name;
  name.bytes[31] = static_cast<std::byte>(number & 0xFF);
  name.bytes[30] = static_cast<std::byte>(number >> 8);
  return name;
}

TEST_CASE("a name is found by its tag") {
  NameCache names;
  CHECK_FALSE(names.find(tag_of(1)).has_value());
  names.insert(tag_of(1), name_of(1));
  names.insert(tag_of(2), name_of(2));
  CHECK(names.find(tag_of(1)) == name_of(1));
  CHECK(names.find(tag_of(2)) == name_of(2));
  CHECK_FALSE(names.find(tag_of(3)).has_value());
}

TEST_CASE("a name cache keeps what was found or learnt last, and no more than it may") {
  NameCache names(100);
  names.insert(tag_of(0), name_of(0));
  for (unsigned i = 1; i <= 1000; ++i) {
    names.insert(tag_of(i), name_of(i));
    CHECK(names.find(tag_of(0)) == name_of(0));
  }
  unsigned kept = 0;
  for (unsigned i = 1; i <= 1000; ++i) {
    if (NameCache(names).find(tag_of(i)).has_value()) ++kept;
  }
  CHECK(kept >= 49);
  CHECK(kept < 100);
  CHECK(names.find(tag_of(1000)) == name_of(1000));
  CHECK_FALSE(names.find(tag_of(1)).has_value());
}

}  // namespace
}  // namespace stdchk::client
