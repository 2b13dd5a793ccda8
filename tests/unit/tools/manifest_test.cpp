#include "tools/manifest.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tools/pool_record.h"

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

/// The one file of a manifest that says this of it.
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
  REQUIRE(forget_in_manifest(folder.path(), {"b"}));
  CHECK(manifest_entries(folder.path()).size() == 1);
}

TEST_CASE("a manifest speaks of no file outside its folder") {
  for (const char* name : {"../a", "/etc/passwd", "b/a", "..", ""}) {
    INFO(name);
    CHECK(only_file(name, kGood).damaged);
  }
}

TEST_CASE("files are taken out of a manifest, which goes with the last") {
  const Folder folder;
  folder.write(R"({"format":1,"files":{"a":3,"b":)" + std::string(kGood) + "}}");
  REQUIRE(forget_in_manifest(folder.path(), {"a", "x"}));
  CHECK(manifest_entries(folder.path()).size() == 1);
  REQUIRE(forget_in_manifest(folder.path(), {"b"}));
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

}  // namespace stdchk::tools
