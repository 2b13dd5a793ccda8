#include "tools/pool/meeting.h"

#include <filesystem>
#include <thread>

#include "tests/support/catch.h"

using namespace stdchk::tools;
namespace fs = std::filesystem;

namespace {

/// A temporary folder; the destructor removes it.
struct Folder {
  std::string path = fs::temp_directory_path() / fmt::format("stdchk-meeting-{}", ::getpid());
  Folder() {
    fs::create_directory(path);
    fs::permissions(path, fs::perms::owner_all);
  }
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
  REQUIRE(meeting.publish_manager("10.0.0.1:7000"));
  CHECK(meeting.manager() == "10.0.0.1:7000");
  REQUIRE(meeting.publish_ready("n1"));
  CHECK(!meeting.has_failed("n2"));
  REQUIRE(meeting.publish_failure("n2", "no memory"));
  CHECK(meeting.has_failed("n2"));
  CHECK(meeting.answers().ready == 1);
  CHECK(meeting.answers().failures == "n2: no memory");
}

TEST_CASE("who waits for all parts and removes the folder removes no word that is still written") {
  for (int i = 0; i < 500; ++i) {
    const Folder folder;
    const Meeting meeting(folder.path);
    REQUIRE(meeting.publish_ready("n1"));
    bool told = false;
    std::thread other([&] { told = meeting.publish_ready("n2").has_value(); });
    while (meeting.answers().ready < 2) std::this_thread::yield();
    fs::remove_all(folder.path);
    other.join();
    REQUIRE(told);
  }
}

TEST_CASE("a meeting in a folder that is gone is told with its path") {
  const Meeting meeting("/nonexistent/meeting");
  const auto told = meeting.publish_ready("n1");
  REQUIRE(!told);
  CHECK(told.error().text.starts_with("/nonexistent/meeting/ready.n1 cannot be written"));
  CHECK(meeting.answers().ready == 0);
}

TEST_CASE("what others can write in is no meeting, and links in one lead nowhere") {
  const Folder folder;
  const Meeting meeting(folder.path);
  REQUIRE(meeting.publish_manager("10.0.0.1:7000"));
  REQUIRE(meeting.hand_over("secret", "text"));
  CHECK(!meeting.hand_over("secret", "again"));
  CHECK(meeting.take("secret") == std::string("text"));
  fs::create_symlink("/etc/passwd", folder.path + "/failed.n1");
  fs::create_symlink(folder.path + "/secret", folder.path + "/ready.n1");
  CHECK(meeting.answers().failures == "n1: ");
  CHECK(!meeting.take("ready.n1"));
  REQUIRE(meeting.publish_ready("n1"));
  CHECK(meeting.take("secret") == std::string("text"));
  fs::permissions(folder.path, fs::perms::all);
  CHECK(!meeting.manager());
  CHECK(!meeting.check());
  CHECK(!meeting.publish_ready("n2"));
  CHECK(!meeting.take("secret"));
  CHECK(Meeting(folder.path + "/absent").check());
}

TEST_CASE("a word of a meeting has a length that is bounded, and nothing invisible") {
  const Folder folder;
  const Meeting meeting(folder.path);
  REQUIRE(meeting.publish_failure("n1", "red\x1b[31m\tx"));
  CHECK(meeting.answers().failures == "n1: red?[31m?x");
  REQUIRE(meeting.publish_failure("n1", std::string(2 * Meeting::kWordBytesMax, 'x')));
  CHECK(meeting.answers().failures.size() < Meeting::kWordBytesMax + 4);
  REQUIRE(meeting.publish_manager(std::string(2 * Meeting::kWordBytesMax, 'x')));
  CHECK(!meeting.manager());
}
