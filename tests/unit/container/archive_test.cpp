// Tests in which folders the images of containers are written and read.
#include "container/layers/archive.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/catch.h"

namespace stdchk::container {
namespace {

namespace fs = std::filesystem;
constexpr auto kDeadline = std::chrono::seconds(20);
constexpr uid_t kOther = 64712;

/// Three folders: images of a container, archives, unpacked images.
class Place {
 public:
  Place() {
    char pattern[] = "/tmp/stdchk-archive-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    for (const char* const name : {"images", "set", "out"}) {
      fs::create_directory(folder_ / name);
      ::chmod((folder_ / name).c_str(), 0755);
    }
    std::ofstream(folder_ / "images" / "pages-1.img") << "memory";
  }
  ~Place() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string set() const { return folder_ / "set"; }
  std::string archive() const { return folder_ / "set" / "job.N1.T1"; }
  Outcome<std::uint64_t> pack() const {
    const std::atomic<bool> cancelled = false;
    return pack_image(folder_ / "images", archive(), kDeadline, cancelled);
  }
  Outcome<void> unpack() const { return unpack_image(archive(), folder_ / "out", kDeadline); }
  std::string unpacked() const {
    std::ifstream file(folder_ / "out" / "pages-1.img");
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  fs::path folder_;
};

}  // namespace

TEST_CASE("an image of a container is read as it was written") {
  const Place place;
  const auto bytes = place.pack();
  REQUIRE(bytes);
  CHECK(*bytes > 0);
  REQUIRE(place.unpack());
  CHECK(place.unpacked() == "memory");
}

TEST_CASE("images of containers lie in no folder that another user can change") {
  const Place place;
  const bool writes = GENERATE(true, false);
  if (!writes) REQUIRE(place.pack());
  SECTION("everybody may write there") { REQUIRE(::chmod(place.set().c_str(), 0777) == 0); }
  SECTION("another user has made it where the pool is not mounted") {
    if (::geteuid() != 0) return;  // only root can give it away
    REQUIRE(::chown(place.set().c_str(), kOther, kOther) == 0);
  }
  SECTION("a link in its place") {
    fs::rename(place.set(), place.set() + ".theirs");
    fs::create_symlink("set.theirs", place.set());
  }
  const std::string why = writes ? place.pack().error().text : place.unpack().error().text;
  CHECK(why.find("the folder of the job's images") != std::string::npos);
  if (writes) CHECK_FALSE(fs::exists(place.archive()));
  CHECK(place.unpacked().empty());
}

}  // namespace stdchk::container
