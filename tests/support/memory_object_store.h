#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/objects/object_store.h"

namespace stdchk {

/// A MemoryObjectStore is an ObjectStore in this process: for tests and simulators.
///
/// `fail`, if set, is asked before each call, with the name of the call and the key. It returns an
/// errno that the call fails with; 0: the call works. With `after`, the call works and then fails, as
/// if its answer was lost.
///
/// Threads: any.
class MemoryObjectStore : public ObjectStore {
 public:
  struct Object {
    std::vector<std::byte> bytes;
    ObjectMetadata metadata;
    std::string etag;
  };
  struct Fault {
    int number = 0;
    bool after = false;
    Code code = Code::kSystem;
  };
  using Fail = std::function<Fault(const std::string& call, const std::string& key)>;
  Fail fail;

  std::map<std::string, Object> objects() const {
    const MutexLock lock(mutex_);
    return objects_;
  }
  /// Calls `visit(key, object)` for each object. It must not call the store.
  template <class Visit>
  void visit(Visit visit) const {
    const MutexLock lock(mutex_);
    for (const auto& [key, object] : objects_) visit(key, object);
  }
  std::optional<Object> object(const std::string& key) const {
    const MutexLock lock(mutex_);
    const auto there = objects_.find(key);
    return there == objects_.end() ? std::nullopt : std::optional(there->second);
  }
  std::optional<std::uint64_t> size_of(const std::string& key) const {
    const MutexLock lock(mutex_);
    const auto there = objects_.find(key);
    if (there == objects_.end()) return std::nullopt;
    return there->second.bytes.size();
  }
  bool has_upload(const std::string& id) const {
    const MutexLock lock(mutex_);
    return uploads_.contains(id);
  }
  std::size_t upload_count() const {
    const MutexLock lock(mutex_);
    return uploads_.size();
  }

  Outcome<std::string> put(const std::string& key, ByteSpan bytes, const ObjectMetadata& metadata,
                           const Condition& condition, Time) override {
    return run<std::string>("put", key, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<std::string> {
      const auto there = objects_.find(key);
      const bool absent = there == objects_.end();
      if (condition.is_absent && !absent) return refused("put", EEXIST);
      if (!condition.etag.empty() && absent) return refused("put", ENOENT);
      if (!condition.etag.empty() && there->second.etag != condition.etag) {
        return refused("put", EEXIST);
      }
      objects_[key] = {{bytes.begin(), bytes.end()}, metadata, next_etag()};
      return objects_[key].etag;
    });
  }
  Outcome<void> get(const std::string& key, const Range& range, Time) override {
    return run<void>("get", key, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<void> {
      const auto there = objects_.find(key);
      if (there == objects_.end()) return refused("get", ENOENT);
      if (!range.etag.empty() && there->second.etag != range.etag) return refused("get", EEXIST);
      const auto& bytes = there->second.bytes;
      if (range.offset > bytes.size() || range.to.size() > bytes.size() - range.offset) {
        return refused("get", EIO);
      }
      std::memcpy(range.to.data(), bytes.data() + range.offset, range.to.size());
      return {};
    });
  }
  Outcome<Found> find(const std::string& key, Time) override {
    return run<Found>("find", key, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<Found> {
      const auto there = objects_.find(key);
      if (there == objects_.end()) return refused("find", ENOENT);
      return Found{there->second.bytes.size(), there->second.etag, 0, there->second.metadata};
    });
  }
  Outcome<void> remove(const std::string& key, Time) override {
    return run<void>("remove", key, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<void> {
      objects_.erase(key);
      return {};
    });
  }
  /// Pages of 3 objects, so that short lists have several.
  Outcome<Page> list(const std::string& prefix, const std::string& from, Time) override {
    return run<Page>("list", prefix, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<Page> {
      Page page;
      const auto first = from.empty() ? objects_.lower_bound(prefix) : objects_.upper_bound(from);
      for (auto at = first; at != objects_.end() && at->first.starts_with(prefix); ++at) {
        if (page.objects.size() == 3) {
          page.next = page.objects.back().key;
          break;
        }
        page.objects.push_back({at->first, at->second.bytes.size()});
      }
      return page;
    });
  }
  Outcome<void> copy(const std::string& from, const std::string& to,
                     const std::optional<ObjectMetadata>& metadata, Time) override {
    return run<void>("copy", to, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<void> {
      const auto there = objects_.find(from);
      if (there == objects_.end()) return refused("copy", ENOENT);
      Object copied{there->second.bytes, metadata.value_or(there->second.metadata), next_etag()};
      objects_[to] = std::move(copied);
      return {};
    });
  }
  Outcome<std::string> begin_upload(const std::string& key, const ObjectMetadata& metadata,
                                    Time) override {
    return run<std::string>("begin", key, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<std::string> {
      const std::string id = next_etag();
      uploads_[id] = {key, metadata, {}};
      return id;
    });
  }
  Outcome<Part> upload_part(const Upload& upload, std::uint32_t number, ByteSpan bytes,
                            Time) override {
    return run<Part>("part", upload.key, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<Part> {
      const auto open = uploads_.find(upload.id);
      if (open == uploads_.end()) return refused("part", ESTALE);
      open->second.parts[number] = {bytes.begin(), bytes.end()};
      return Part{number, std::to_string(number), bytes.size(), {}};
    });
  }
  Outcome<void> complete_upload(const Upload& upload, const std::vector<Part>& parts,
                                Time) override {
    return run<void>("complete", upload.key, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<void> {
      const auto open = uploads_.find(upload.id);
      if (open == uploads_.end()) return refused("complete", ESTALE);
      std::vector<std::byte> bytes;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto part = open->second.parts.find(parts[i].number);
        if (part == open->second.parts.end()) return refused("complete", EINVAL);
        const bool is_last = i + 1 == parts.size();
        if (!is_last && part->second.size() < kPartBytesMin) return refused("complete", EINVAL);
        bytes.insert(bytes.end(), part->second.begin(), part->second.end());
      }
      objects_[upload.key] = {std::move(bytes), open->second.metadata, next_etag()};
      uploads_.erase(open);
      return {};
    });
  }
  Outcome<void> abort_upload(const Upload& upload, Time) override {
    return run<void>("abort", upload.key, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<void> {
      uploads_.erase(upload.id);
      return {};
    });
  }
  Outcome<std::vector<Upload>> uploads(const std::string& prefix, Time) override {
    using Uploads = std::vector<Upload>;
    return run<Uploads>("uploads", prefix, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<Uploads> {
      Uploads out;
      for (const auto& [id, upload] : uploads_) {
        if (upload.key.starts_with(prefix)) out.push_back({upload.key, id});
      }
      return out;
    });
  }
  Outcome<std::vector<Part>> parts(const Upload& upload, Time) override {
    using Parts = std::vector<Part>;
    return run<Parts>("parts", upload.key, [&]() STDCHK_REQUIRES(mutex_) -> Outcome<Parts> {
      const auto open = uploads_.find(upload.id);
      if (open == uploads_.end()) return refused("parts", ESTALE);
      Parts out;
      for (const auto& [number, bytes] : open->second.parts) {
        out.push_back({number, std::to_string(number), bytes.size(), {}});
      }
      return out;
    });
  }

 private:
  struct Open {
    std::string key;
    ObjectMetadata metadata;
    std::map<std::uint32_t, std::vector<std::byte>> parts;
  };

  static tl::unexpected<Problem> refused(const std::string& call, int number) {
    return problem(Code::kSystem, "memory_object_store", number,
                   fmt::format("{}: {}", call, std::strerror(number)));
  }
  std::string next_etag() STDCHK_REQUIRES(mutex_) { return fmt::format("e{}", ++made_); }

  template <class T, class Work>
  Outcome<T> run(const char* call, const std::string& key, Work work) {
    const Fault fault = fail ? fail(call, key) : Fault{};
    if (fault.number != 0 && !fault.after) return failed(call, fault);
    auto done = [&] {
      const MutexLock lock(mutex_);
      return work();
    }();
    if (fault.number != 0) return failed(call, fault);
    return done;
  }
  static tl::unexpected<Problem> failed(const std::string& call, const Fault& fault) {
    auto out = refused(call, fault.number);
    out.value().error.code = fault.code;
    return out;
  }

  mutable Mutex mutex_;
  std::map<std::string, Object> objects_ STDCHK_GUARDED_BY(mutex_);
  std::map<std::string, Open> uploads_ STDCHK_GUARDED_BY(mutex_);
  std::uint64_t made_ STDCHK_GUARDED_BY(mutex_) = 0;
};

}  // namespace stdchk
