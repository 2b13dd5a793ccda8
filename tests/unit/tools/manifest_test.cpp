#include "tools/drained/manifest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "core/files/drain_directory.h"
#include "tests/support/catch.h"
#include "tools/base/pool_record.h"
#include "tools/drained/manifest_change.h"

namespace stdchk::tools {
namespace {

class Folder {
 public:
  Folder() { path_ = ::mkdtemp(name_.data()); }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string write(const std::string& manifest) const {
    std::ofstream(path_ + "/" + kManifestName) << manifest;
    return path_;
  }

 private:
  std::string name_ = "/tmp/stdchk-manifest-XXXXXX";
  std::string path_;
};

/// As the tools open a folder of a drain directory.
DrainFolder open(const Folder& folder) {
  auto opened = DrainDirectory(folder.path()).open();
  REQUIRE(opened);
  return std::move(*opened);
}

Outcome<void> change(const Folder& folder,
                     const std::function<void(nlohmann::json& entries)>& how) {
  const auto until = std::chrono::steady_clock::now() + kManifestPatience;
  return change_manifest(*DrainDirectory(folder.path()).open(), folder.path(), how, until);
}

/// Returns the only file of a manifest with this entry.
ManifestFile only_file(const std::string& name, const std::string& entry) {
  const Folder folder;
  const auto files =
      read_manifests(folder.write(R"({"format":1,"files":{")" + name + "\":" + entry + "}}"));
  REQUIRE(files);
  REQUIRE(files->size() == 1);
  return files->front();
}

constexpr const char* kGood = R"({"size":9,"pieces":[{"offset":2,"length":7,"crc32c":5}]})";

}  // namespace

TEST_CASE("an entry that is not as it was written is damaged") {
  const ManifestFile good = only_file("a", kGood);
  CHECK_FALSE(good.damaged);
  CHECK(good.pieces.at(0).length == 7);
  for (const char* entry :
       {"3", "{}", R"({"size":-1,"pieces":[]})", R"({"size":1e300,"pieces":[]})",
        R"({"size":9,"pieces":[{"offset":3,"length":7,"crc32c":5}]})",
        R"({"size":9,"pieces":[{"offset":2,"length":7,"crc32c":4294967296}]})"}) {
    INFO(entry);
    CHECK(only_file("a", entry).damaged);
  }
}

TEST_CASE("a manifest that is nested very deeply is read and written") {
  constexpr std::size_t kDepth = 200'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  CHECK(only_file("a", deep).damaged);
  const Folder folder;
  folder.write(R"({"format":1,"files":{"a":)" + deep + R"(,"b":3}})");
  REQUIRE(forget_in_manifest(open(folder), folder.path(), {"b"}));
  CHECK(manifest_entries(open(folder)).size() == 1);
}

TEST_CASE("a name of any bytes has a key of its own in a manifest, which is UTF-8") {
  using namespace std::string_literals;
  CHECK(manifest_key("caf\xc3\xa9") == "caf\xc3\xa9");
  CHECK(manifest_key("caf\xe9") == "caf\0e9"s);
  CHECK(manifest_key("\xff\xc3(") == "\0ff\0c3("s);
  for (const char* name : {"a", "caf\xe9", "\xff\xc3(", "\xed\xa0\x80", "\xf0\x9f\x98\x80"}) {
    CHECK(name_of_key(manifest_key(name)) == name);
    CHECK(nlohmann::json::parse(nlohmann::json(manifest_key(name)).dump()) == manifest_key(name));
  }
  // Other keys name no file: two entries of one file would contradict each other.
  for (const auto& key : {"a\0"s, "a\0f"s, "a\0fg"s, "a\0FF"s, "\00061"s, "\0002f"s, "caf\xe9"s}) {
    CHECK_FALSE(name_of_key(key));
  }
}

TEST_CASE("a manifest speaks of no file outside its folder") {
  for (const char* name : {"../a", "/etc/passwd", "b/a", "..", ""}) {
    INFO(name);
    CHECK(only_file(name, kGood).damaged);
  }
}

TEST_CASE("several change one manifest at once, and no entry is lost") {
  constexpr int kWriters = 6;
  constexpr int kEach = 20;
  const Folder folder;
  std::vector<std::thread> writers;
  writers.reserve(kWriters);
  std::atomic<int> failed{0};
  std::atomic<bool> over{false};
  // Readers see a complete manifest at any time.
  std::atomic<int> damaged{0};
  std::thread reader([&] {
    while (!over) {
      if (!read_manifests(folder.path())) ++damaged;
    }
  });
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < kEach; ++i) {
        const std::string name = std::to_string(writer) + "." + std::to_string(i);
        const auto add = [&](nlohmann::json& entries) { entries[name] = i; };
        if (!change(folder, add)) ++failed;
      }
    });
  }
  for (auto& writer : writers) writer.join();
  over = true;
  reader.join();
  CHECK(failed == 0);
  CHECK(damaged == 0);
  CHECK(manifest_entries(open(folder)).size() == kWriters * kEach);
  // Nothing else is left.
  const std::filesystem::directory_iterator files(folder.path());
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("a lock that is never given back holds a change up until its time is over") {
  const Folder folder;
  folder.write(R"({"format":1,"files":{"a":1}})");
  const Descriptor held(::open((folder.path() + "/" + kManifestName).c_str(), O_RDONLY));
  REQUIRE(::flock(held.get(), LOCK_EX) == 0);
  const auto began = std::chrono::steady_clock::now();
  const auto until = began + std::chrono::milliseconds(200);
  const auto add = [](nlohmann::json& entries) { entries["b"] = 2; };
  CHECK(change_manifest(*DrainDirectory(folder.path()).open(), folder.path(), add, until));
  const auto took = std::chrono::steady_clock::now() - began;
  CHECK(took >= std::chrono::milliseconds(200));
  CHECK(took < std::chrono::seconds(10));
  CHECK(manifest_entries(open(folder)).size() == 2);
}

TEST_CASE("what a killed writer has left is no file of the folder, and is removed when it is old") {
  const Folder folder;
  const auto beside = [&](const char* name) {
    std::string path = folder.path() + "/" + kManifestName + name;
    std::ofstream(path) << "{";
    return path;
  };
  const std::string old = beside(".7.0badcafe");
  const std::string fresh = beside(".8.0badcafe");
  std::filesystem::last_write_time(
      old, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(11));
  CHECK(read_manifests(folder.path())->empty());
  REQUIRE(change(folder, [](nlohmann::json& entries) { entries["a"] = 1; }));
  CHECK_FALSE(std::filesystem::exists(old));
  CHECK(std::filesystem::exists(fresh));
  CHECK(read_manifests(folder.path())->size() == 1);
}

TEST_CASE("files that no manifest speaks of come behind those of the manifests") {
  const Folder folder;
  folder.write(R"({"format":1,"files":{"b":)" + std::string(kGood) + "}}");
  for (const char* name : {"a", "b"}) std::ofstream(folder.path() + "/" + name) << "12345";
  std::filesystem::create_symlink("app.*.T1", folder.path() + "/latest");
  std::filesystem::create_directory(folder.path() + "/.stdchk-drain");
  std::ofstream(folder.path() + "/.stdchk-drain/1.2") << "part";
  const auto files = read_manifests(folder.path());
  REQUIRE(files);
  REQUIRE(files->size() == 2);
  CHECK(files->at(0).path.ends_with("/b"));
  CHECK_FALSE(files->at(0).unlisted);
  CHECK(files->at(1).path.ends_with("/a"));
  CHECK(files->at(1).unlisted);
  CHECK(files->at(1).size_bytes == 5);
}

TEST_CASE("files are taken out of a manifest, which goes with the last") {
  const Folder folder;
  folder.write(R"({"format":1,"files":{"a":3,"b":)" + std::string(kGood) + "}}");
  REQUIRE(forget_in_manifest(open(folder), folder.path(), {"a", "x"}));
  CHECK(manifest_entries(open(folder)).size() == 1);
  REQUIRE(forget_in_manifest(open(folder), folder.path(), {"b"}));
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/" + kManifestName));
}

TEST_CASE("a pool whose paths are no text is not recorded") {
  const Folder folder;
  PoolRecord record;
  record.directory = folder.path();
  record.mount = "/tmp/caf\xe9";
  CHECK_FALSE(save(record));
  record.mount = "/tmp/cafe";
  CHECK(save(record));
}

TEST_CASE(
    "a lock on a manifest that is never given back holds a command up for its patience only") {
  const Folder folder;
  folder.write(R"({"format":1,"files":{"a":)" + std::string(kGood) + "}}");
  const int other = ::open((folder.path() + "/" + kManifestName).c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(other >= 0);
  REQUIRE(::flock(other, LOCK_EX) == 0);
  const auto began = std::chrono::steady_clock::now();
  const auto add = [](nlohmann::json& entries) { entries["b"] = nlohmann::json::parse(kGood); };
  // The owner of the folder has the lock, and may lock each file that takes the place of this one.
  const DrainFolder opened = open(folder);
  CHECK(change_manifest(opened, folder.path(), add, began + std::chrono::milliseconds(300)));
  const auto took = std::chrono::steady_clock::now() - began;
  CHECK(took >= std::chrono::milliseconds(300));
  CHECK(took < std::chrono::seconds(10));
  CHECK(read_manifests(folder.path())->size() == 2);
  ::close(other);
}

}  // namespace stdchk::tools
