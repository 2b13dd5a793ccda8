#include "manager/state/completion_records.h"

#include "tests/support/catch.h"

using namespace stdchk;
using namespace stdchk::manager;

namespace {

using Found = CompletionRecords::Found;

/// A copy, restored from its snapshot.
CompletionRecords restored(const CompletionRecords& from) {
  CompletionRecords to;
  from.snapshot([&](const Command& command) { to.restore(std::get<RestoreCalls>(command)); });
  return to;
}

}  // namespace

TEST_CASE("a client's last calls are known, and of earlier ones it is known that they are not") {
  CompletionRecords calls;
  calls.add({});
  CHECK(calls.find({{1}, 5}) == Found::kNotDone);
  calls.add({{1}, 10});
  calls.add({{1}, 8});
  calls.add({{1}, 10});
  CHECK(calls.find({{1}, 8}) == Found::kDone);
  CHECK(calls.find({{1}, 9}) == Found::kNotDone);
  CHECK(calls.find({{1}, 10}) == Found::kDone);
  CHECK(calls.find({{2}, 10}) == Found::kNotDone);
  for (std::uint64_t i = 0; i < CompletionRecords::kCallsMax - 1; ++i) calls.add({{1}, 20 + i});
  for (const CompletionRecords& each : {calls, restored(calls)}) {
    CHECK(each.find({{1}, 7}) == Found::kForgotten);
    CHECK(each.find({{1}, 8}) == Found::kForgotten);
    CHECK(each.find({{1}, 9}) == Found::kNotDone);
    CHECK(each.find({{1}, 10}) == Found::kDone);
    CHECK(each.find({{1}, 20 + CompletionRecords::kCallsMax}) == Found::kNotDone);
  }
}

TEST_CASE(
    "of clients that have changed nothing for long, where there are too many, nothing is known") {
  CompletionRecords calls;
  const std::uint64_t last = CompletionRecords::kClientsMax;
  for (std::uint64_t i = 0; i <= last; ++i) {
    calls.add({{10 + i}, 5});
    calls.add({{10}, 100 + i});  // a busy client is not evicted
  }
  for (const CompletionRecords& each : {calls, restored(calls)}) {
    CHECK(each.find({{10}, 100 + last}) == Found::kDone);
    CHECK(each.find({{11}, 5}) == Found::kForgotten);
    // later than call 5, the last call of all evicted clients
    CHECK(each.find({{11}, 6}) == Found::kNotDone);
    CHECK(each.find({{9}, 5}) == Found::kForgotten);
    CHECK(each.find({{12}, 5}) == Found::kDone);
    CHECK(each.find({{11 + last}, 5}) == Found::kNotDone);
  }
  // A restored copy evicts the same client next.
  CompletionRecords copy = restored(calls);
  for (CompletionRecords* each : {&calls, &copy}) {
    each->add({{11 + last}, 5});
    CHECK(each->find({{12}, 5}) == Found::kForgotten);
    CHECK(each->find({{13}, 5}) == Found::kDone);
  }
}

TEST_CASE("of a client that was forgotten the calls of before stay so") {
  CompletionRecords calls;
  calls.restore({{20}, 7, {}});
  calls.add({{10}, 5});
  for (const CompletionRecords& each : {calls, restored(calls)}) {
    CHECK(each.find({{10}, 4}) == Found::kForgotten);
    CHECK(each.find({{10}, 5}) == Found::kDone);
    CHECK(each.find({{10}, 7}) == Found::kForgotten);
    CHECK(each.find({{10}, 8}) == Found::kNotDone);
    CHECK(each.find({{11}, 7}) == Found::kForgotten);
    CHECK(each.find({{21}, 6}) == Found::kNotDone);
  }
}
