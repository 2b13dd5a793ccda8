#include "core/policy/redundancy.h"

#include "core/policy/policy.h"
#include "tests/support/catch.h"

using namespace stdchk;

TEST_CASE("copies and parity are written as they are read, and have numbers of their own") {
  for (std::uint32_t copies = 1; copies <= 16; ++copies) {
    const Redundancy one{copies, 0, 0};
    CHECK(parse_redundancy(redundancy_text(one)) == one);
    CHECK(one.number() == copies);
    CHECK(redundancy_of(one.number()) == one);
    CHECK(one.losses() == copies - 1);
  }
  const Redundancy parity{1, 8, 2};
  CHECK(redundancy_text(parity) == "ec(8,2)");
  CHECK(parse_redundancy("ec(8,2)") == parity);
  CHECK(redundancy_of(parity.number()) == parity);
  CHECK(parity.number() == 8 * 65536 + 2 * 256 + 1);
  CHECK(parity.losses() == 2);
  CHECK(redundancy_of(0) == Redundancy{});
}

TEST_CASE("what is neither copies nor parity is refused") {
  for (const char* text :
       {"", "0", "17", "-1", "ec", "ec(", "ec(4,2", "ec(4)", "ec(,)", "ec(1,1)", "ec(17,1)",
        "ec(4,0)", "ec(4,5)", "ec(4,1) ", "EC(4,1)", "ec(4, 1)", "ec(4,1,1)", "ec(70000,1)"}) {
    INFO(text);
    CHECK_FALSE(parse_redundancy(text));
  }
  for (const std::uint64_t number : {17ULL, 0x10001ULL, 0x40102ULL, 0x40501ULL, 0x110101ULL,
                                     0x40001ULL, 0x100040101ULL, ~0ULL}) {
    INFO(number);
    CHECK_FALSE(redundancy_of(number));
  }
}

TEST_CASE("what outlives more is stronger; then what is read faster after a loss") {
  const auto stronger = [](const char* a, const char* b) {
    return is_stronger(*parse_redundancy(a), *parse_redundancy(b));
  };
  CHECK(stronger("3", "2"));
  CHECK(stronger("ec(4,1)", "1"));
  CHECK(stronger("ec(8,2)", "ec(4,1)"));
  CHECK(stronger("ec(8,2)", "2"));
  CHECK(stronger("2", "ec(4,1)"));
  CHECK(stronger("ec(4,1)", "ec(8,1)"));
  CHECK_FALSE(stronger("2", "2"));
  CHECK_FALSE(stronger("ec(8,1)", "ec(4,1)"));
}

TEST_CASE("the policy for copies takes parity, too") {
  const auto policy = parse_policy("keep=2,copies=ec(4,2),commit=redundant");
  REQUIRE(policy);
  REQUIRE(policy->settings.size() == 3);
  CHECK(policy->get(PolicyKey::kCopies) == Redundancy{1, 4, 2}.number());
  CHECK(format_value(policy->settings[1]) == "ec(4,2)");
  CHECK(parse_setting("copies", "ec(4,1)")->value == Redundancy{1, 4, 1}.number());
  const auto wrong = parse_setting("copies", "ec(4,9)");
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().text.find("ec(k,m)") != std::string::npos);
  CHECK_FALSE(parse_setting("keep", "ec(4,1)"));
  CHECK(check_setting({PolicyKey::kCopies, 0x40901}));
}
