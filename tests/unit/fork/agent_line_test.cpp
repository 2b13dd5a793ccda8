#include "fork/vm/agent_line.h"

#include <string>

#include "tests/support/catch.h"

namespace stdchk::fork::vm {
namespace {

TEST_CASE("a line of a guest may come in pieces") {
  AgentLine line;
  CHECK_FALSE(line.add("tic"));
  CHECK(line.add("ket 3\n") == "ticket 3");
  CHECK(line.add("\n") == "");
  CHECK(line.add("join 1\n") == "join 1");
}

TEST_CASE("a guest that waits for no answer has nothing kept but its first line") {
  AgentLine line;
  std::string many;
  for (int i = 0; i < 2000; ++i) many += "x\n";
  for (int i = 0; i < 2000; ++i) CHECK(line.add(many) == "x");
  CHECK(line.add("join 1\n") == "join 1");
}

TEST_CASE("a line of a guest that is too long is dropped") {
  AgentLine line;
  const std::string half(AgentLine::kBytesMax / 2, 'x');
  CHECK_FALSE(line.add(half));
  CHECK_FALSE(line.add(half));
  CHECK_FALSE(line.add("x\n"));
  CHECK(line.add("join 1\n") == "join 1");
}

}  // namespace
}  // namespace stdchk::fork::vm
