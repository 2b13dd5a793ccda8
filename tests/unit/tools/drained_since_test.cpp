#include "tools/drained/drained_since.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

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

TEST_CASE("what came in the second of the time does not count") {
  const Folder folder;  // in this second or the previous second
  CHECK(folder.since(text_of_now()) == 0);
}

TEST_CASE("a time says where it is meant") {
  // The zones of the earth are 26 hours apart at most.
  const std::string now = text_of_now();
  REQUIRE(now.size() == std::string("2008-06-17 10:00:00 +0200").size());
  const std::string here = now.substr(0, 20);
  CHECK(Folder().since(here + "+5900") == 3);
  CHECK(Folder().since(here + "-5900") == 0);
}

TEST_CASE("nothing came after what is no time") {
  for (const char* when : {"", "yesterday", "2008-06-17", "2008-06-17 10:00:00 +0200 or so"}) {
    CHECK(Folder().since(when) == 0);
  }
}

TEST_CASE("nothing came into a folder that is not there") {
  CHECK(drained_since("/absent", "", *parse_set_name("app.*.T1"), "2008-06-17 10:00:00 +0200") ==
        0);
}
