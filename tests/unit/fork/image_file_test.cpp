#include "fork/process/image_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/catch.h"

namespace stdchk::fork {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBytes = 5;

/// A folder for images below /tmp, removed at the end.
class Scene {
 public:
  Scene() {
    char pattern[] = "/tmp/stdchk-images-XXXXXX";
    folder_ = ::mkdtemp(pattern);
    fs::create_directory(folder_ / "images");
    ::chmod((folder_ / "images").c_str(), 0755);
  }
  ~Scene() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string image() const { return folder_ / "images" / "a"; }
  std::string beside() const { return folder_ / "beside"; }
  fs::path folder() const { return folder_ / "images"; }

  void write(const std::string& path, const std::string& text = "bytes") const {
    const auto file = make_image(path);
    REQUIRE(file);
    REQUIRE(::write(file->get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }

 private:
  fs::path folder_;
};

std::string refusal(const Scene& scene) {
  const auto file = open_image(scene.image(), kBytes);
  return file ? "" : file.error().text;
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE("an image is read as it was written, also when it is made anew") {
  const Scene scene;
  scene.write(scene.image(), "older than a daemon that was killed");
  scene.write(scene.image());
  const auto file = open_image(scene.image(), kBytes);
  REQUIRE(file);
  std::string text(kBytes, '\0');
  CHECK(::read(file->get(), text.data(), kBytes) == ssize_t{kBytes});
  CHECK(text == "bytes");
  remove_image(scene.image());
  CHECK_FALSE(fs::exists(scene.image()));
  remove_image(scene.image());
}

TEST_CASE("a file that is not the image is refused") {
  const Scene scene;
  CHECK(has(refusal(scene), "No such file"));
  scene.write(scene.image(), "more bytes");
  CHECK(has(refusal(scene), "size"));
  fs::remove(scene.image());
  // Without O_NONBLOCK, opening the FIFO would wait for a writer.
  REQUIRE(::mkfifo(scene.image().c_str(), 0600) == 0);
  CHECK(has(refusal(scene), "no plain file"));
  fs::remove(scene.image());
  fs::create_directory(scene.image());
  CHECK(has(refusal(scene), "no plain file"));
  fs::remove(scene.image());
  scene.write(scene.image());
  fs::create_hard_link(scene.image(), scene.beside());
  CHECK(has(refusal(scene), "second name"));
  CHECK(open_image("a", kBytes).error().text.find("absolute") != std::string::npos);
}

TEST_CASE("links lead to no image") {
  const Scene scene;
  fs::rename(scene.folder(), scene.beside());
  scene.write(scene.beside() + "/b");
  fs::create_directory_symlink(scene.beside(), scene.folder());
  CHECK(has(refusal(scene), "it is a link"));
  fs::remove(scene.folder());
  fs::rename(scene.beside(), scene.folder());
  fs::create_symlink(scene.folder() / "b", scene.image());
  CHECK(has(refusal(scene), "symbolic link"));
  remove_image(scene.image());
  CHECK(fs::exists(scene.folder() / "b"));
}

TEST_CASE("an image that another user made or can change is refused") {
  if (::geteuid() != 0) return;  // only root can give files away
  const Scene scene;
  scene.write(scene.image());
  REQUIRE(::chown(scene.image().c_str(), 4242, 4242) == 0);
  CHECK(has(refusal(scene), "another user"));
  REQUIRE(::chown(scene.image().c_str(), 0, 0) == 0);
  REQUIRE(refusal(scene).empty());
  REQUIRE(::chown(scene.folder().c_str(), 4242, 4242) == 0);
  CHECK(has(refusal(scene), "belongs to uid 4242"));
  remove_image(scene.image());
  CHECK(fs::exists(scene.image()));
  REQUIRE(::chown(scene.folder().c_str(), 0, 0) == 0);
  REQUIRE(::chmod(scene.folder().c_str(), 0777) == 0);
  CHECK(has(refusal(scene), "others can write in it"));
}

}  // namespace
}  // namespace stdchk::fork
