#include <string>
#include <vector>

#include "container/job/box_records.h"
#include "container/job/checkpoint_book.h"
#include "tests/support/catch.h"

namespace stdchk::container {
namespace {

using Requests = std::vector<std::pair<BoxId, std::uint64_t>>;

SetDescription set_with(SetId set) {
  SetDescription description;
  description.set = set;
  description.boxes[0];
  description.boxes[1];
  return description;
}

}  // namespace

TEST_CASE("a request is answered once, by the first set that begins after it") {
  BoxRecords records;
  records.begin();
  CHECK(records.add_request(1, 5, 3));
  CHECK_FALSE(records.add_request(1, 5, 4));  // the container repeats it until the answer
  CHECK(records.answer_requests(2).empty());
  CHECK(records.answer_requests(3) == Requests{{1, 5}});
  CHECK_FALSE(records.has_requests());
  CHECK_FALSE(records.add_request(1, 5, 4));
  CHECK(records.add_request(1, 6, 4));
}

TEST_CASE("a program that waits in a set learns of the restart once, and gets no answer") {
  BoxRecords records;
  records.begin();
  REQUIRE(records.add_request(1, 5, 3));
  records.begin_from(set_with(2));
  CHECK_FALSE(records.has_requests());
  CHECK(records.takes_restart(1, 5));
  CHECK_FALSE(records.takes_restart(1, 5));
  CHECK_FALSE(records.add_request(1, 5, 3));
  CHECK_FALSE(records.takes_restart(0, 0));  // container 0 has asked for nothing
}

TEST_CASE("a set has the commands and asks, and a restart goes on with them") {
  BoxRecords records;
  records.begin();
  const std::uint64_t number = records.next_command(1);
  records.add_ask("first", 1, number);
  records.set_shown(10, 20);
  SetDescription set = set_with(1);
  records.save_in(set);
  CHECK(set.output_bytes == 10);
  CHECK(set.error_bytes == 20);
  CHECK(records.end_command(1, number) == std::vector<std::string>{"first"});
  CHECK(records.end_command(1, number).empty());  // once
  records.begin_from(set);
  CHECK(records.knows_ask("first"));
  CHECK(records.end_command(1, number) == std::vector<std::string>{"first"});
  CHECK(records.next_command(1) == number + 1);
  CHECK(records.next_command(0) == 1);  // 0 is the program
}

TEST_CASE("those who wait for a set are told in their order, others go on waiting") {
  CheckpointBook book;
  std::string said;
  book.wait(1, [&](const Outcome<void>& saved) { said += saved ? "a." : "a!"; });
  book.wait(2, [&](const Outcome<void>& saved) { said += saved ? "b." : "b!"; });
  book.wait(1, [&](const Outcome<void>& saved) { said += saved ? "c." : "c!"; });
  for (const auto& done : book.take_answered(1)) done({});
  CHECK(said == "a.c.");
  CHECK(book.has_waiting());
  for (const auto& done : book.take_all()) done(problem("!"));
  CHECK(said == "a.c.b!");
  CHECK_FALSE(book.has_waiting());
}

TEST_CASE("evacuations begin in their order, and are told when the job ends before") {
  CheckpointBook book;
  std::string said;
  const auto begins = [](NodeId) -> Outcome<void> { return {}; };
  CHECK_FALSE(book.take_move(begins));
  book.want_move(2, [&](const Outcome<void>& saved) { said += saved ? "a." : "a!"; });
  book.want_move(1, [&](const Outcome<void>& saved) { said += saved ? "b." : "b!"; });
  const auto first = book.take_move(begins);
  REQUIRE(first);
  CHECK(first->node == 2);
  for (const auto& done : book.take_all()) done(problem("!"));
  CHECK(said == "b!");
  CHECK_FALSE(book.take_move(begins));
}

TEST_CASE("a complete set drops older ones, and has the figures of its own steps") {
  CheckpointBook book;
  book.add(set_with(1));
  book.begin();
  book.add(set_with(2));
  book.note_step(msg::NodeStep::kSave, std::chrono::milliseconds(5));
  book.note_step(msg::NodeStep::kSave, std::chrono::milliseconds(3));
  book.note_saved(100);
  book.note_stored(2, 1, 100);
  CheckpointAction action;
  action.set = 2;
  action.taken = true;
  const CheckpointFigures& figures = book.taken(action);
  CHECK(figures.image_bytes == 100);
  CHECK(figures.steps.at(name_of(msg::NodeStep::kSave)) == std::chrono::milliseconds(5));
  CHECK(book.find(1) == nullptr);
  REQUIRE(book.find(2) != nullptr);
  CHECK(book.find(2)->image_bytes.at(1) == 100);
  book.begin();
  action.set = 3;
  CHECK(book.taken(action).image_bytes == 0);
}

}  // namespace stdchk::container
