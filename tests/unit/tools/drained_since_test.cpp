#include "tools/drained/drained_since.h"

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/catch.h"

using namespace stdchk;
using namespace stdchk::tools;

namespace {

/// A folder with three images of app.*.T1, and another set.
class Folder {
 public:
  Folder() {
    path_ = ::mkdtemp(name_.data());
    for (const char* name : {"app.N0.T1", "app.N1.T1", "app.N2.T1", "app.N0.T2", "latest"}) {
      std::ofstream(path_ + "/" + name) << "image";
    }
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  std::uint64_t since(const std::string& when) const {
    return drained_since(path_, "", *parse_set_name("app.*.T1"), when);
  }

 private:
  std::string name_ = "/tmp/stdchk-drained-XXXXXX";
  std::string path_;
};

}  // namespace

TEST_CASE("images count that came after a time") {
  CHECK(Folder().since("2008-06-17 10:00:00 +0200") == 3);
  CHECK(Folder().since("2908-06-17 10:00:00 +0200") == 0);
}

TEST_CASE("images count that came after a time, in its second too") {
  const Folder earlier;
  const std::string now = text_of_now();
  CHECK(earlier.since(now) == 0);
  // File systems take their times from a clock that ticks every few milliseconds.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(Folder().since(now) == 3);
}

TEST_CASE("a time without a fraction is the end of its second") {
  const Folder folder;  // in this second or the previous second
  std::string now = text_of_now();
  CHECK(folder.since(now.erase(now.find('.'), std::string("123456789").size() + 1)) == 0);
}

TEST_CASE("a time says where it is meant") {
  // The zones of the earth are 26 hours apart at most.
  const std::string now = text_of_now();
  REQUIRE(now.size() == std::string("2008-06-17 10:00:00.123456789 +0200").size());
  const std::string here = now.substr(0, now.rfind(' ') + 1);
  CHECK(Folder().since(here + "+5900") == 3);
  CHECK(Folder().since(here + "-5900") == 0);
}

TEST_CASE("nothing came after what is no time") {
  for (const char* when : {"", "yesterday", "2008-06-17", "2008-06-17 10:00:00 +0200 or so",
                           "2008-06-17 10:00:00.5"}) {
    CHECK(Folder().since(when) == 0);
  }
}

TEST_CASE("nothing came into a folder that is not there") {
  CHECK(drained_since("/absent", "", *parse_set_name("app.*.T1"), "2008-06-17 10:00:00 +0200") ==
        0);
}
