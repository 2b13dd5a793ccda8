#include "core/policy/access_list.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace stdchk;

namespace {

struct Entry {
  std::uint16_t tag;
  std::uint16_t rights;
  std::uint32_t id = 0xffffffff;
};

constexpr std::uint16_t kOwner = 1, kUser = 2, kOwningGroup = 4, kGroup = 8, kMask = 16,
                        kOthers = 32;

/// The bytes of an attribute, as linux/posix_acl_xattr.h has them.
std::string bytes(const std::vector<Entry>& entries, std::uint32_t version = 2) {
  std::string out;
  const auto add = [&](std::uint32_t number, std::size_t count) {
    for (std::size_t i = 0; i < count; i++) out.push_back(static_cast<char>(number >> (8 * i)));
  };
  add(version, 4);
  for (const Entry& entry : entries) {
    add(entry.tag, 2);
    add(entry.rights, 2);
    add(entry.id, 4);
  }
  return out;
}

AccessList list(const std::vector<Entry>& entries) {
  auto parsed = AccessList::parse(bytes(entries));
  REQUIRE(parsed);
  return *parsed;
}

const std::vector<Entry> kMinimal = {{kOwner, 6}, {kOwningGroup, 4}, {kOthers, 0}};
const std::vector<Entry> kNamed = {{kOwner, 7},       {kUser, 6, 1000}, {kUser, 4, 1001},
                                   {kOwningGroup, 5}, {kGroup, 7, 50},  {kMask, 6},
                                   {kOthers, 1}};

}  // namespace

TEST_CASE("an access list has the bytes that it was read from") {
  CHECK(list(kMinimal).value() == bytes(kMinimal));
  CHECK(list(kNamed).value() == bytes(kNamed));
}

TEST_CASE("a list without named users and groups and without a mask says no more than a mode") {
  CHECK(list(kMinimal).is_minimal());
  CHECK(list(kMinimal).mode() == 0640);
  CHECK_FALSE(list(kNamed).is_minimal());
  CHECK(list(kNamed).mode() == 0761);
  CHECK_FALSE(list({{kOwner, 6}, {kOwningGroup, 4}, {kMask, 2}, {kOthers, 0}}).is_minimal());
}

TEST_CASE("a value that is no valid access list is refused") {
  const std::vector<std::vector<Entry>> wrong = {
      {},
      {{kOwner, 6}, {kOwningGroup, 4}},
      {{kOwner, 6}, {kOthers, 4}, {kOwningGroup, 4}},
      {{kOwner, 6}, {kOwner, 6}, {kOwningGroup, 4}, {kOthers, 0}},
      {{kOwner, 8}, {kOwningGroup, 4}, {kOthers, 0}},
      {{kOwner, 6}, {kUser, 6, 1}, {kOwningGroup, 4}, {kOthers, 0}},
      {{kOwner, 6}, {kUser, 6}, {kOwningGroup, 4}, {kMask, 7}, {kOthers, 0}},
      {{kOwner, 6}, {kOwningGroup, 4}, {kUser, 6, 1}, {kMask, 7}, {kOthers, 0}},
      {{kOwner, 6}, {kOwningGroup, 4}, {kMask, 7}, {kGroup, 6, 1}, {kOthers, 0}},
      {{kOwner, 6}, {kOwningGroup, 4}, {kMask, 7}, {kMask, 7}, {kOthers, 0}},
      {{kOwner, 6}, {kOwningGroup, 4}, {kOthers, 0}, {64, 0}},
      {{0, 6}, {kOwner, 6}, {kOwningGroup, 4}, {kOthers, 0}},
  };
  for (const auto& entries : wrong) CHECK_FALSE(AccessList::parse(bytes(entries)));
  CHECK_FALSE(AccessList::parse(""));
  CHECK_FALSE(AccessList::parse(bytes(kMinimal, 1)));
  const std::string good = bytes(kNamed);
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO(size);
    CHECK_FALSE(AccessList::parse(good.substr(0, size)));
  }
  std::vector<Entry> longest = kNamed;
  longest.insert(longest.begin() + 1, AccessList::kEntriesMax - kNamed.size(), {kUser, 7, 5});
  CHECK(AccessList::parse(bytes(longest)));
  longest.insert(longest.begin() + 1, {kUser, 7, 5});
  CHECK_FALSE(AccessList::parse(bytes(longest)));
}

TEST_CASE("chmod changes the mask in place of the group's entry") {
  AccessList named = list(kNamed);
  named.set_mode(0102640);
  CHECK(named.mode() == 0640);
  CHECK(named.value() == bytes({{kOwner, 6},
                                {kUser, 6, 1000},
                                {kUser, 4, 1001},
                                {kOwningGroup, 5},
                                {kGroup, 7, 50},
                                {kMask, 4},
                                {kOthers, 0}}));
  AccessList minimal = list(kMinimal);
  minimal.set_mode(0751);
  CHECK(minimal.value() == bytes({{kOwner, 7}, {kOwningGroup, 5}, {kOthers, 1}}));
}

TEST_CASE("a new file gets no right that neither its maker nor the default list gives") {
  AccessList named = list(kNamed);
  CHECK(named.inherit(04666) == 04660);
  CHECK(named.mode() == 0660);
  CHECK_FALSE(named.is_minimal());
  AccessList narrow = list(kNamed);
  CHECK(narrow.inherit(0600) == 0600);
  AccessList minimal = list(kMinimal);
  CHECK(minimal.inherit(0777) == 0640);
  CHECK(minimal.is_minimal());
  // A repeat changes nothing: a restarted manager makes a file again with the mode that it has got.
  AccessList again = list(kNamed);
  CHECK(again.inherit(0660) == 0660);
  CHECK(again.value() == named.value());
}

TEST_CASE("without the list, nobody gets more rights than by the list") {
  CHECK(list(kMinimal).mode_without_names() == 0640);
  // The mask shows as the group's bits, and counts for the owning group, too.
  const Entry friend_all{kUser, 7, 1000};
  CHECK(list({{kOwner, 7}, friend_all, {kOwningGroup, 1}, {kMask, 6}, {kOthers, 0}})
            .mode_without_names() == 0700);
  CHECK(list({{kOwner, 6}, friend_all, {kOwningGroup, 4}, {kMask, 7}, {kOthers, 4}})
            .mode_without_names() == 0644);
  // The named user may be a member of the group.
  CHECK(list({{kOwner, 6}, {kUser, 0, 1000}, {kOwningGroup, 6}, {kMask, 6}, {kOthers, 4}})
            .mode_without_names() == 0600);
  // A group without rights takes none from its members who are in the owning group.
  CHECK(list({{kOwner, 6}, {kOwningGroup, 6}, {kGroup, 1, 50}, {kMask, 7}, {kOthers, 5}})
            .mode_without_names() == 0661);
}
