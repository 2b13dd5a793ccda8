#include "fork/process/clone_table.h"

#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

CloneTable starting(std::uint32_t count) {
  CloneTable table(count);
  REQUIRE(table.freeze());
  REQUIRE(table.source_came());
  return table;
}

TEST_CASE("a ticket serves one clone call") {
  CloneTable table(2);
  CHECK(table.state() == TicketState::kReserved);
  CHECK(table.freeze());
  CHECK(table.state() == TicketState::kFreezing);
  CHECK(table.freeze().error().code == Code::kBusy);
}

TEST_CASE("a frozen copy is welcome once, after the clone call") {
  CloneTable table(1);
  CHECK(table.source_came().error().code == Code::kBusy);
  REQUIRE(table.freeze());
  CHECK(table.source_came());
  CHECK(table.source_came().error().code == Code::kBusy);
}

TEST_CASE("clones are started one after the other, by id") {
  CloneTable table = starting(2);
  CHECK(table.next_to_start() == 1);
  CHECK(table.next_to_start() == 2);
  CHECK_FALSE(table.next_to_start());
  CHECK(table.started(1));
  CHECK(table.state() == TicketState::kStarting);
  CHECK(table.started(2));
  CHECK(table.state() == TicketState::kCloned);
}

TEST_CASE("nothing is started before the frozen copy has come") {
  CloneTable table(1);
  CHECK_FALSE(table.next_to_start());
  REQUIRE(table.freeze());
  CHECK_FALSE(table.next_to_start());
}

TEST_CASE("a clone may run before the frozen copy says that it made it") {
  CloneTable table = starting(1);
  REQUIRE(table.next_to_start() == 1);
  CHECK(table.running(1));
  CHECK(table.state() == TicketState::kCloned);
  CHECK(table.started(1).error().code == Code::kBusy);
  CHECK(table.find(1)->state == CloneState::kRunning);
}

TEST_CASE("a lost frozen copy fails the clones that are no processes yet, and no others") {
  CloneTable table = starting(3);
  REQUIRE(table.next_to_start() == 1);
  REQUIRE(table.running(1));
  REQUIRE(table.next_to_start() == 2);
  table.source_lost("gone");
  CHECK(table.find(1)->state == CloneState::kRunning);
  CHECK(table.find(2)->end == End::kFailed);
  CHECK(table.find(3)->value == "gone");
  CHECK(table.state() == TicketState::kCloned);
  CHECK_FALSE(table.all_ended());
}

TEST_CASE("this host's frozen copy is not asked for clones of other hosts") {
  CloneTable table(3, 1);
  REQUIRE(table.freeze());
  REQUIRE(table.source_came());
  CHECK(table.next_to_start() == 1);
  CHECK_FALSE(table.next_to_start());
  CHECK(table.started(1));
  CHECK(table.state() == TicketState::kStarting);  // the others may still need the copy
  CHECK(table.running(2));
  CHECK(table.ended(3, End::kFailed, 0, "host lost"));
  CHECK(table.state() == TicketState::kCloned);
}

TEST_CASE("the first end of a clone counts") {
  CloneTable table = starting(1);
  REQUIRE(table.next_to_start() == 1);
  REQUIRE(table.running(1));
  CHECK(table.ended(1, End::kExited, 7, "result"));
  CHECK_FALSE(table.ended(1, End::kDied, 0, ""));
  CHECK(table.find(1)->end == End::kExited);
  CHECK(table.find(1)->status == 7);
  CHECK(table.all_ended());
}

TEST_CASE("ids that a ticket does not have are refused") {
  CloneTable table = starting(1);
  CHECK(table.find(0) == nullptr);
  CHECK(table.find(2) == nullptr);
  CHECK_FALSE(table.started(0));
  CHECK_FALSE(table.running(2));
  CHECK_FALSE(table.ended(2, End::kDied, 0, ""));
}

}  // namespace
}  // namespace stdchk::fork
