#include "tools/base/hosts.h"

#include <stdlib.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/catch.h"

namespace stdchk::tools {
namespace {

Outcome<std::vector<Host>> read_text(const std::string& text) {
  std::string path = "/tmp/stdchk-hosts-XXXXXX";
  ::close(::mkstemp(path.data()));
  std::ofstream(path) << text;
  auto hosts = read_hosts(path, 1, 2);
  ::unlink(path.c_str());
  return hosts;
}

}  // namespace

TEST_CASE("a host without an address is reached by its name, without the user") {
  const auto hosts = read_text("user@h1\nh2 address=10.0.0.2 # the second\n");
  REQUIRE(hosts);
  REQUIRE(hosts->size() == 2);
  CHECK(hosts->at(0).name == "user@h1");
  CHECK(hosts->at(0).address == "h1");
  CHECK(hosts->at(1).address == "10.0.0.2");
}

TEST_CASE("what is no host name is none behind a user, either") {
  for (const char* name : {"-h", ".h", "h;ls", "user@", "user@-h", "user@.h", "-u@h"}) {
    INFO(name);
    CHECK_FALSE(read_text(name));
  }
}

}  // namespace stdchk::tools
