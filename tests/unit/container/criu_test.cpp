#include "container/criu/criu.h"

#include "tests/support/catch.h"

namespace stdchk::container {
namespace {

TEST_CASE("the version is read from what criu says, of a release and of a built one") {
  CHECK(criu_version_of("Version: 4.2.1\n") == "4.2.1");
  CHECK(criu_version_of("Version: 4.3 (gitid v4.3)\n") == "4.3");
  CHECK(criu_version_of("criu: not found").empty());
}

TEST_CASE("since Linux 6.16 only CRIU 4.2 and later saves TCP sockets") {
  CHECK(criu_is_new_enough("4.2.1", "6.18.44-fc"));
  CHECK_FALSE(criu_is_new_enough("4.1.1", "6.18.44-fc"));
  CHECK(criu_is_new_enough("4.1.1", "6.12.9-amd64"));
  CHECK_FALSE(criu_is_new_enough("3.17.1", "6.12.9-amd64"));
  CHECK_FALSE(criu_is_new_enough("", "6.12.9-amd64"));
}

TEST_CASE("of a log the last three errors are shown, without those that stop nothing") {
  const std::string log =
      "(00.01) Error (criu/util.c:1): rlimit: Can't setup RLIMIT_NOFILE for self\n"
      "(00.02) Warn  (criu/a.c:1): nothing\n"
      "(00.03) Error (criu/b.c:1): first\n"
      "(00.04) Error (criu/b.c:2): second\n"
      "(00.05) Error (criu/b.c:3): third\n"
      "(00.06) Error (criu/b.c:4): Dumping FAILED.\n";
  CHECK(criu_errors(log) ==
        "Error (criu/b.c:2): second; Error (criu/b.c:3): third; Error (criu/b.c:4): Dumping "
        "FAILED.");
  CHECK(criu_errors("").empty());
}

}  // namespace
}  // namespace stdchk::container
