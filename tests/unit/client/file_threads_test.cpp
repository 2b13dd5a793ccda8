#include "client/read/file_threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;

/// A Gate holds reads until it opens. Reads share it, and may outlive their test.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  std::size_t waiting = 0;
  std::size_t through = 0;

  void pass() {
    std::unique_lock lock(mutex);
    ++waiting;
    changed.notify_all();
    changed.wait(lock, [this] { return open; });
    ++through;
    changed.notify_all();
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
  bool holds(std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, [&] { return waiting == count; });
  }
  bool has_let_through(std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, [&] { return through == count; });
  }
};

FileWork work_of(
    std::uint32_t owner, std::function<void()> read, std::function<void()> deliver = [] {}) {
  return {owner, std::move(read), std::move(deliver)};
}

}  // namespace

TEST_CASE("what hangs for one user takes a share of the threads, and no thread of others") {
  const auto hangs = std::make_shared<Gate>();
  const auto runs = std::make_shared<Gate>();
  runs->open = true;
  FileThreads threads;
  for (std::size_t i = 0; i < 5 * FileThreads::kThreadsOfOne; ++i) {
    threads.run(work_of(1, [hangs] { hangs->pass(); }));
  }
  REQUIRE(hangs->holds(FileThreads::kThreadsOfOne));
  for (std::uint32_t owner = 2; owner < 50; ++owner) {
    threads.run(work_of(owner, [runs] { runs->pass(); }));
  }
  CHECK(runs->has_let_through(48));
  {
    const std::lock_guard lock(hangs->mutex);
    CHECK(hangs->waiting == FileThreads::kThreadsOfOne);
  }
  hangs->let_go();
  CHECK(hangs->has_let_through(5 * FileThreads::kThreadsOfOne));
}

TEST_CASE("users who together take all threads that any may have leave one to each other user") {
  const auto hangs = std::make_shared<Gate>();
  const auto runs = std::make_shared<Gate>();
  runs->open = true;
  FileThreads threads;
  constexpr std::size_t kUsers = FileThreads::kThreadsForMore / FileThreads::kThreadsOfOne;
  for (std::uint32_t owner = 0; owner < kUsers; ++owner) {
    for (std::size_t i = 0; i < FileThreads::kThreadsOfOne; ++i) {
      threads.run(work_of(owner, [hangs] { hangs->pass(); }));
    }
  }
  REQUIRE(hangs->holds(FileThreads::kThreadsForMore));
  for (int turn = 0; turn < 3; ++turn) threads.run(work_of(1000, [runs] { runs->pass(); }));
  CHECK(runs->has_let_through(3));
  CHECK(threads.thread_count() <= FileThreads::kThreadsForMore + 3);
  hangs->let_go();
}

TEST_CASE("the end waits for no read that hangs, and nothing is delivered after it") {
  const auto hangs = std::make_shared<Gate>();
  const auto delivered = std::make_shared<std::atomic<int>>(0);
  {
    FileThreads threads;
    threads.run(work_of(
        1, [hangs] { hangs->pass(); }, [delivered] { ++*delivered; }));
    threads.run(work_of(
        2, [] {}, [delivered] { ++*delivered; }));
    REQUIRE(hangs->holds(1));
    for (int i = 0; i < 2000 && *delivered == 0; ++i) std::this_thread::sleep_for(10ms);
    CHECK(*delivered == 1);
    for (std::size_t i = 0; i < 2 * FileThreads::kThreadsOfOne; ++i) {
      threads.run(work_of(
          1, [hangs] { hangs->pass(); }, [delivered] { ++*delivered; }));
    }
    REQUIRE(hangs->holds(FileThreads::kThreadsOfOne));
  }
  hangs->let_go();
  CHECK(hangs->has_let_through(FileThreads::kThreadsOfOne));
  std::this_thread::sleep_for(50ms);
  CHECK(*delivered == 1);
}

}  // namespace stdchk::client
