#include "tools/meeting.h"

#include <filesystem>
#include <thread>

#include "tests/support/catch.h"

using namespace stdchk::tools;
namespace fs = std::filesystem;

namespace {

/// A folder that is there as long as this.
struct Folder {
  std::string path = fs::temp_directory_path() / fmt::format("stdchk-meeting-{}", ::getpid());
  Folder() { fs::create_directory(path); }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

TEST_CASE("what one part of a job tells, the others read") {
  const Folder folder;
  const Meeting meeting(folder.path);
  CHECK(!meeting.manager());
  REQUIRE(meeting.tell_manager("10.0.0.1:7000"));
  CHECK(meeting.manager() == "10.0.0.1:7000");
  REQUIRE(meeting.tell_ready("n1"));
  CHECK(!meeting.has_failed("n2"));
  REQUIRE(meeting.tell_failure("n2", "no memory"));
  CHECK(meeting.has_failed("n2"));
  CHECK(meeting.answers().ready == 1);
  CHECK(meeting.answers().failures == "n2: no memory");
}

TEST_CASE("who waits for all parts and removes the folder removes no word that is still written") {
  for (int i = 0; i < 500; ++i) {
    const Folder folder;
    const Meeting meeting(folder.path);
    REQUIRE(meeting.tell_ready("n1"));
    bool told = false;
    std::thread other([&] { told = meeting.tell_ready("n2").has_value(); });
    while (meeting.answers().ready < 2) std::this_thread::yield();
    fs::remove_all(folder.path);
    other.join();
    REQUIRE(told);
  }
}

TEST_CASE("a meeting in a folder that is gone is told with its path") {
  const Meeting meeting("/nonexistent/meeting");
  const auto told = meeting.tell_ready("n1");
  REQUIRE(!told);
  CHECK(told.error().text.starts_with("/nonexistent/meeting/ready.n1 cannot be written"));
  CHECK(meeting.answers().ready == 0);
}
