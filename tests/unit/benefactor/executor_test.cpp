#include "core/base/executor.h"

#include <atomic>
#include <semaphore>

#include "tests/support/catch.h"

namespace stdchk {

TEST_CASE("an inline executor has run the work when run returns") {
  InlineExecutor executor;
  bool ran = false;
  executor.run([&] { ran = true; });
  CHECK(ran);
}

TEST_CASE("a thread executor runs work in its order and several at once") {
  ThreadExecutor executor("test", 2);
  std::binary_semaphore first{0}, second{0};
  std::atomic<int> done{0};
  // The two pieces of work wait for each other: one thread alone would never end.
  executor.run([&] {
    second.release();
    first.acquire();
    ++done;
  });
  executor.run([&] {
    first.release();
    second.acquire();
    ++done;
  });
  std::binary_semaphore last{0};
  executor.run([&] { last.release(); });
  last.acquire();
  while (done != 2) std::this_thread::yield();
  CHECK(executor.thread_count() == 2);
}

TEST_CASE("a thread executor that ends drops what was not begun and waits for what was") {
  std::binary_semaphore begun{0}, go_on{0};
  std::atomic<bool> finished{false}, dropped_ran{false};
  std::thread releaser;
  {
    ThreadExecutor executor("test", 1);
    executor.run([&] {
      begun.release();
      go_on.acquire();
      finished = true;
    });
    executor.run([&] { dropped_ran = true; });
    begun.acquire();
    releaser = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      go_on.release();
    });
  }
  CHECK(finished);
  CHECK_FALSE(dropped_ran);
  releaser.join();
}

}  // namespace stdchk
