#include "fork/process/view_plan.h"

#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

// Lines of /proc/self/mountinfo of a Debian host.
constexpr const char* kMounts =
    "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
    "23 22 0:21 / /proc rw,nosuid - proc proc rw\n"
    "24 23 0:22 / /proc/sys/fs/binfmt_misc rw - binfmt_misc none rw\n"
    "25 22 0:5 / /dev rw,nosuid - devtmpfs devtmpfs rw,size=4k\n"
    "26 25 0:23 / /dev/shm rw - tmpfs shm rw\n"
    "27 25 0:24 / /dev/mqueue rw - mqueue mqueue rw\n"
    "28 22 0:25 / /data rw shared:7 - xfs /dev/vdb rw\n"
    "29 22 0:26 / /mnt/the\\040pool rw - fuse.stdchk stdchk rw\n"
    "30 22 0:27 / /usr/share ro,relatime - ext4 /dev/vdc ro\n"
    "31 22 0:28 / /run/stdchk-fork/state rw - tmpfs stdchk-forkd rw\n"
    "32 22 0:29 / /run rw - tmpfs tmpfs rw\n";

Showing shown(const std::vector<ViewMount>& plan, const std::string& path) {
  for (const ViewMount& mount : plan) {
    if (mount.path == path) return mount.showing;
  }
  FAIL(path);
  return Showing::kShared;
}

TEST_CASE("a clone changes its own copy of local file systems, and shares the others") {
  const auto plan = plan_view(kMounts, "/run/stdchk-fork/state");
  CHECK(shown(plan, "/") == Showing::kOverlay);
  CHECK(shown(plan, "/data") == Showing::kOverlay);
  CHECK(shown(plan, "/run") == Showing::kOverlay);
  CHECK(shown(plan, "/mnt/the pool") == Showing::kShared);
  CHECK(shown(plan, "/usr/share") == Showing::kShared);
  CHECK(shown(plan, "/dev") == Showing::kShared);
  CHECK(shown(plan, "/proc") == Showing::kProc);
  CHECK(shown(plan, "/dev/mqueue") == Showing::kQueue);
  CHECK(shown(plan, "/dev/shm") == Showing::kMemory);
}

TEST_CASE("mounts below /proc and of the daemon itself are left out") {
  const auto plan = plan_view(kMounts, "/run/stdchk-fork/state");
  CHECK(plan.size() == 9);
  for (const ViewMount& mount : plan) {
    CHECK_FALSE(mount.path.starts_with("/proc/"));
    CHECK_FALSE(mount.path.starts_with("/run/stdchk-fork"));
  }
}

TEST_CASE("a folder is mounted before what is mounted in it") {
  const auto plan = plan_view(
      "2 1 0:1 / /a/b rw - tmpfs t rw\n3 1 0:2 / /a rw - tmpfs t rw\n1 0 0:0 / / rw - ext4 r rw\n",
      "/s");
  CHECK(plan == std::vector<ViewMount>{{"/", Showing::kOverlay},
                                       {"/a", Showing::kOverlay},
                                       {"/a/b", Showing::kOverlay}});
}

TEST_CASE("the last of two mounts at one path counts") {
  const auto plan = plan_view(
      "1 0 0:0 / / rw - ext4 r rw\n2 1 0:1 / /a rw - nfs n rw\n3 1 0:2 / /a rw - tmpfs t rw\n",
      "/s");
  CHECK(plan.size() == 2);
  CHECK(shown(plan, "/a") == Showing::kOverlay);
}

TEST_CASE("lines that are no mounts are ignored") {
  CHECK(plan_view("nonsense\n1 2 3\n", "/s").empty());
}

TEST_CASE("folders of different paths have different names without slashes") {
  CHECK(folder_of("/") == "%");
  CHECK(folder_of("/a/b") == "%a%b");
  CHECK(folder_of("/a%b") != folder_of("/a/b"));
  CHECK(folder_of("/a%25b") != folder_of("/a%b"));
}

TEST_CASE("what separates folders in an overlay's options is escaped") {
  CHECK(overlay_word("/a:b,c\\d") == "/a\\:b\\,c\\\\d");
}

}  // namespace
}  // namespace stdchk::fork
