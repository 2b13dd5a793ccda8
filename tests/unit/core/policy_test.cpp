#include "core/policy/policy.h"

#include "core/base/units.h"
#include "core/policy/image_placement.h"
#include "tests/support/catch.h"

using namespace stdchk;

TEST_CASE("each policy has a name, a meaning and a default that is read as it is written") {
  for (const PolicyKey key : kAllPolicyKeys) {
    const std::string name(policy_name(key));
    INFO(name);
    CHECK_FALSE(name.empty());
    CHECK_FALSE(policy_meaning(key).empty());
    const PolicySetting otherwise{key, Policy{}.get(key)};
    const auto read = parse_setting(name, format_value(otherwise));
    REQUIRE(read);
    CHECK(*read == otherwise);
    CHECK_FALSE(check_setting(otherwise));
    const auto inherit = parse_setting(name, "inherit");
    REQUIRE(inherit);
    CHECK(inherit->value == kPolicyInherit);
    CHECK_FALSE(check_setting(*inherit));
  }
}

TEST_CASE("a policy's value is a number, a time or a word, and nothing else") {
  CHECK(parse_setting("keep", "3")->value == 3);
  CHECK(parse_setting("keep", "all")->value == 0);
  CHECK(parse_setting("purge-after", "12h")->value == 43200);
  CHECK(parse_setting("purge-after", "never")->value == 0);
  CHECK(parse_setting("must-be-drained", "yes")->value == 1);
  CHECK(parse_setting("chunking", "auto")->value == static_cast<std::uint64_t>(Chunking::kAuto));
  CHECK(parse_setting("commit", "redundant")->value ==
        static_cast<std::uint64_t>(CommitLevel::kRedundant));
  CHECK(parse_policy("proof=checksum")->proof() == Proof::kChecksum);
  CHECK(Policy{}.proof() == Proof::kCompletion);
  CHECK(placement_of(*parse_policy("placement=node")) == ImagePlacement::kNode);
  CHECK(placement_of({}) == ImagePlacement::kStriped);
  for (const auto& [name, value] : {std::pair{"keep", "0"},
                                    {"keep", "-1"},
                                    {"keep", "3 "},
                                    {"keep", ""},
                                    {"purge-after", "3w"},
                                    {"must-be-drained", "1"},
                                    {"drain-every", "all"},
                                    {"copies", "9"},
                                    {"copies", "0"},
                                    {"chunking", "variable"},
                                    {"commit", "early"},
                                    {"placement", "rack"},
                                    {"proof", "hope"}}) {
    INFO(name << "=" << value);
    const auto read = parse_setting(name, value);
    REQUIRE_FALSE(read);
    CHECK(read.error().error.code == Code::kInvalidArgument);
    CHECK(read.error().text.find(name) != std::string::npos);
    CHECK(read.error().text.find("allowed") != std::string::npos);
  }
  CHECK(parse_setting("kepe", "3").error().text.find("purge-after") != std::string::npos);
}

TEST_CASE("settings are read from one line, the last of a key counting") {
  const auto policy = parse_policy("copies=1,chunking=fixed  copies=inherit");
  REQUIRE(policy);
  CHECK(policy->settings.size() == 2);
  CHECK(policy->find(PolicyKey::kCopies) == kPolicyInherit);
  CHECK(policy->chunking() == Chunking::kFixed);
  CHECK(parse_policy("")->settings.empty());
  CHECK(parse_policy("copies").error().text.find("KEY=VALUE") != std::string::npos);
}

TEST_CASE("placement by node and parity exclude each other") {
  const auto refused = parse_policy("placement=node copies=ec(4,1)");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text.find("placement=node does not go with copies=ec(4,1)") == 0);
  CHECK(parse_policy("placement=node copies=3"));
  CHECK(parse_policy("placement=striped copies=ec(4,1)"));
  CHECK(parse_policy("placement=inherit copies=ec(4,1)"));
  CHECK(parse_policy("placement=node copies=inherit"));
}

TEST_CASE("numbers of a newer version are refused, and so are values that are out of range") {
  CHECK(check_setting({static_cast<PolicyKey>(999), 1})->error.code == Code::kUnsupported);
  CHECK(check_setting({PolicyKey::kCopies, 0})->error.code == Code::kInvalidArgument);
  CHECK(check_setting({PolicyKey::kCommit, 77})->error.code == Code::kInvalidArgument);
  CHECK(check_setting({PolicyKey::kDrainEvery, 0})->error.code == Code::kInvalidArgument);
}

TEST_CASE("a folder's settings are changed one by one and inherited one by one") {
  Policy own;
  own.apply({{{PolicyKey::kCopies, 2}, {PolicyKey::kKeep, 5}}});
  own.apply({{{PolicyKey::kKeep, kPolicyInherit}, {PolicyKey::kDrainEvery, 3}}});
  CHECK(own.settings ==
        std::vector<PolicySetting>{{PolicyKey::kDrainEvery, 3}, {PolicyKey::kCopies, 2}});
  own.inherit({{{PolicyKey::kKeep, 7}, {PolicyKey::kCopies, 4}}});
  CHECK(own.get(PolicyKey::kKeep) == 7);
  CHECK(own.get(PolicyKey::kCopies) == 2);
  CHECK(own.get(PolicyKey::kPurgeAfter) == 0);
  CHECK_FALSE(own.chunking());
}

TEST_CASE("times are whole numbers with a unit") {
  CHECK(parse_seconds("90").value() == 90);
  CHECK(parse_seconds("90s").value() == 90);
  CHECK(parse_seconds("15m").value() == 900);
  CHECK(parse_seconds("7d").value() == 604800);
  for (const char* text : {"", "h", "1.5h", "-1h", "1H", "1 h", "1hh", "99999999999999999999s"}) {
    INFO(text);
    CHECK_FALSE(parse_seconds(text));
  }
  for (const std::uint64_t seconds : {0ULL, 1ULL, 59ULL, 60ULL, 3600ULL, 90000ULL, 86400ULL}) {
    CHECK(parse_seconds(format_seconds(seconds)).value() == seconds);
  }
  CHECK(format_seconds(86400) == "1d");
  CHECK(format_seconds(90) == "90s");
}
