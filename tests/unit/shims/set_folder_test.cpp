// Tests where the shims put no checkpoints: in folders that another user can change.
#include "shims/set_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/catch.h"

namespace stdchk::shims {
namespace {

namespace fs = std::filesystem;
constexpr uid_t kOther = 64712;

/// A folder of a project with the folder of a program's checkpoints.
class Project {
 public:
  Project() {
    char pattern[] = "/tmp/stdchk-shims-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    ::chmod(folder_.c_str(), 0755);
    fs::create_directories(base() + "/checkpoints");
  }
  ~Project() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string folder() const { return folder_; }
  std::string base() const { return folder_ / "scr.job"; }
  std::string made() const { return SetFolder(base() + "/checkpoints", "set.").create(); }

 private:
  fs::path folder_;
};

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("checkpoints go to no folder that another user has made or can replace") {
  const Project project;
  SECTION("another user's folder") {
    if (::geteuid() != 0) return;  // only root can give it away
    const std::string place = GENERATE("", "/checkpoints");
    REQUIRE(::chown((project.base() + place).c_str(), kOther, kOther) == 0);
    CHECK(has(project.made(), "belongs to another user"));
  }
  SECTION("another user's link") {
    if (::geteuid() != 0) return;  // only root can give it away
    fs::rename(project.base(), project.folder() + "/own");
    fs::create_symlink("own", project.base());
    REQUIRE(::lchown(project.base().c_str(), kOther, kOther) == 0);
    CHECK(has(project.made(), "belongs to another user"));
  }
  SECTION("a folder above, in which all may write") {
    REQUIRE(::chmod(project.folder().c_str(), 0777) == 0);
    CHECK(has(project.made(), "all users can write in " + project.folder()));
  }
}

TEST_CASE("checkpoints go to a folder of the user, also below a sticky folder or by his own link") {
  const Project project;
  SECTION("own") {}
  SECTION("sticky") { REQUIRE(::chmod(project.folder().c_str(), 01777) == 0); }
  SECTION("shared with a group") { REQUIRE(::chmod(project.base().c_str(), 02775) == 0); }
  SECTION("link") {
    fs::rename(project.base(), project.folder() + "/own");
    fs::create_symlink("own", project.base());
  }
  const std::string problem = project.made();
  // Only the attributes of the sets may fail: not every file system below /tmp has them.
  CHECK((problem.empty() || has(problem, "cannot set user.stdchk.rule.")));
}

}  // namespace stdchk::shims
