#include "client/read/drained_storage.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "core/base/clock.h"
#include "core/base/descriptor.h"
#include "core/base/mutex.h"
#include "core/base/whole_io.h"
#include "core/files/drain_directory.h"
#include "core/objects/object_place.h"
#include "core/objects/object_store.h"
#include "core/objects/s3_store.h"

namespace stdchk::client {
namespace {

/// A read of an object may take this long. DrainedReader gives up a little later.
constexpr Duration kObjectPatience = std::chrono::seconds(15);

/// A read that hangs may outlive all else, so the clock never ends.
const Clock& the_clock() {
  static const SystemClock clock;
  return clock;
}

class FileBytes final : public DrainedBytes {
 public:
  explicit FileBytes(Descriptor file) : file_(std::move(file)) {}
  Status read(std::uint64_t offset, MutableByteSpan out) const override {
    const ssize_t got = read_at(file_.get(), offset, out);
    if (got < 0) return fail_errno("client.drained file");
    if (got < std::ssize(out)) return fail(Code::kCorrupt, "client.drained file is short");
    return {};
  }

 private:
  const Descriptor file_;
};

class DirectoryStorage final : public DrainedStorage {
 public:
  explicit DirectoryStorage(const std::string& path) : directory_(path) {}
  Outcome<std::unique_ptr<DrainedBytes>> open(const std::string& path,
                                              std::uint32_t owner) override {
    const auto root = directory_.open();
    if (!root) {
      // An absent directory is no absent file.
      Problem absent = root.error();
      absent.error.os_errno = 0;
      return problem(std::move(absent));
    }
    auto opened = directory_.open_drained(*root, path, owner);
    if (!opened) return problem(opened.error());
    return std::make_unique<FileBytes>(std::move(opened->file));
  }

 private:
  const DrainDirectory directory_;
};

/// Reads only the bytes that had `etag` when the object was opened.
class ObjectBytes final : public DrainedBytes {
 public:
  ObjectBytes(std::shared_ptr<ObjectStore> store, std::string key, std::string etag)
      : store_(std::move(store)), key_(std::move(key)), etag_(std::move(etag)) {}
  Status read(std::uint64_t offset, MutableByteSpan out) const override {
    const auto got = store_->get(key_, {offset, out, etag_}, the_clock().now() + kObjectPatience);
    if (got) return {};
    const int number = got.error().error.os_errno;
    const bool is_short = got.error().error.code == Code::kSystem && number == EIO;
    if (is_short) return fail(Code::kCorrupt, "client.drained object is short");
    return fail(Code::kSystem, "client.drained object", number == 0 ? EIO : number);
  }

 private:
  const std::shared_ptr<ObjectStore> store_;
  const std::string key_;
  const std::string etag_;
};

class ObjectStorage final : public DrainedStorage {
 public:
  explicit ObjectStorage(const std::string& place) : place_(ObjectPlace::parse(place)) {}
  Outcome<std::unique_ptr<DrainedBytes>> open(const std::string& path, std::uint32_t) override {
    const auto opened = store();
    if (!opened) return problem(opened.error());
    const std::string key = place_->key_of(path);
    const auto found = (*opened)->find(key, the_clock().now() + kObjectPatience);
    if (!found) return problem(found.error());
    return std::make_unique<ObjectBytes>(*opened, key, found->etag);
  }

 private:
  Outcome<std::shared_ptr<ObjectStore>> store() {
    if (!place_) return problem(place_.error());
    const MutexLock lock(mutex_);
    if (store_ == nullptr) {
      auto opened = open_object_store(*place_, the_clock());
      if (!opened) return problem(opened.error());
      store_ = std::move(*opened);
    }
    return store_;
  }

  const Outcome<ObjectPlace> place_;
  Mutex mutex_;
  std::shared_ptr<ObjectStore> store_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<DrainedStorage> make_drained_storage(const std::string& drain_directory) {
  if (is_object_store(drain_directory)) return std::make_shared<ObjectStorage>(drain_directory);
  return std::make_shared<DirectoryStorage>(drain_directory);
}

}  // namespace stdchk::client
