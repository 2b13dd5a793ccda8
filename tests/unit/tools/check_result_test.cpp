#include "tools/ask/check_result.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tools/base/exit_status.h"

using namespace stdchk;
using namespace stdchk::tools;

TEST_CASE("a check of metadata where all rules hold ends with 0") {
  const msg::CheckMetadata::Reply reply{{}, 0, 3, 5, 6};
  CHECK(check_status(reply) == kExitGood);
  CHECK(check_text(reply) == "3 files, 5 chunks, 6 references: all rules hold\n");
  CHECK(check_json(reply).at("good") == true);
}

TEST_CASE("a check that finds a broken rule says which one and ends with 1") {
  msg::CheckMetadata::Reply reply{{"chunk 4: its name does not lead to it"}, 1, 3, 5, 6};
  CHECK(check_status(reply) == kExitNo);
  CHECK(check_text(reply) ==
        "chunk 4: its name does not lead to it\n3 files, 5 chunks, 6 references: 1 broken rules\n");
  CHECK(check_json(reply).at("good") == false);
  CHECK(check_json(reply).at("broken").size() == 1);
  // More broken rules than the reply lists.
  reply.broken_count = 150;
  CHECK(check_status(reply) == kExitNo);
  CHECK(check_json(reply).at("broken_count") == 150);
}
