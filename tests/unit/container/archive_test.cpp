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
  Outcome<void> unpack_rest() const {
    return unpack_without_memory(archive(), folder_ / "out", kDeadline);
  }
  void add(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / "images" / name) << text;
  }
  bool has(const std::string& name) const { return fs::exists(folder_ / "out" / name); }
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

TEST_CASE("the memory of an image is found in its archive, and may stay there") {
  const Place place;
  place.add("pages-2.img", std::string(5000, 'x') + "end");
  place.add("core-1.img", "core");
  REQUIRE(place.pack());
  const auto memory = memory_in(place.archive());
  REQUIRE(memory);
  REQUIRE(memory->size() == 2);
  const auto bytes_of = [&](const ArchivedFile& file) {
    std::ifstream archive(place.archive());
    archive.seekg(static_cast<std::streamoff>(file.offset));
    std::string text(file.bytes, '\0');
    archive.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  };
  CHECK(memory->at(0).name == "pages-1.img");
  CHECK(bytes_of(memory->at(0)) == "memory");
  CHECK(memory->at(1).name == "pages-2.img");
  CHECK(bytes_of(memory->at(1)) == std::string(5000, 'x') + "end");
  // Loop devices begin at multiples of 512 bytes.
  for (const ArchivedFile& file : *memory) CHECK(file.offset % 512 == 0);
  REQUIRE(place.unpack_rest());
  CHECK(place.has("core-1.img"));
  CHECK_FALSE(place.has("pages-1.img"));
}

TEST_CASE("a header that names more bytes than the archive has, or another folder, is refused") {
  const Place place;
  REQUIRE(place.pack());
  const auto change = [&](std::streamoff at, const std::string& text) {
    std::fstream archive(place.archive(), std::ios::in | std::ios::out);
    archive.seekp(at);
    archive << text;
  };
  SECTION("bytes") {
    change(124, "77777777777");
    CHECK_FALSE(memory_in(place.archive()));
  }
  SECTION("no number") {
    change(124, "hello");
    CHECK_FALSE(memory_in(place.archive()));
  }
  SECTION("a number of 8 bytes that is too large") {
    change(124, std::string("\x80") + std::string(11, '\xff'));
    CHECK_FALSE(memory_in(place.archive()));
  }
  SECTION("another folder") {
    change(0, "pages-/../../etc");
    CHECK_FALSE(memory_in(place.archive()));
  }
  SECTION("a link") {
    change(156, "2");
    CHECK_FALSE(memory_in(place.archive()));
  }
}

TEST_CASE("an archive that ends early has no memory behind its end") {
  const Place place;
  std::ofstream(place.archive()) << "pages-1.img";
  const auto memory = memory_in(place.archive());
  REQUIRE(memory);
  CHECK(memory->empty());
}

}  // namespace stdchk::container
