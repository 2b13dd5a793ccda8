#include "tools/drained/object_source.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/base/file_time.h"
#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "core/files/drain_manifest.h"
#include "core/messages/messages.h"
#include "core/objects/in_parallel.h"
#include "core/objects/object_attributes.h"
#include "core/objects/s3_store.h"

namespace stdchk::tools {
namespace {

/// Longest time of a request with its repeats.
constexpr Duration kPatience = std::chrono::seconds(60);
/// A read of more bytes is several requests at once.
constexpr std::uint64_t kRequestBytes = 4 * limits::kMiB;
constexpr std::uint64_t kReadBytes = 16 * limits::kMiB;
constexpr int kReadsMax = 3;
constexpr std::size_t kPolicyBytesMax = limits::kSymlinkBytesMax;

tl::unexpected<Problem> absent(const std::string& path) {
  return problem(Code::kSystem, "tools.objects", ENOENT, fmt::format("{} is absent", path));
}

/// An Entry is an object of the listing, with its metadata.
struct Entry {
  std::string key;
  ObjectStore::Found found;  ///< without its metadata
  std::optional<ObjectAttributes> attributes;
  bool is_damaged = false;         ///< a pool's metadata cannot be understood
  std::string target;              ///< of a symbolic link
  std::optional<Problem> refusal;  ///< why that target is unknown

  ObjectKind kind() const { return attributes ? attributes->kind : ObjectKind::kFile; }
  struct stat status() const {
    struct stat out {};
    const auto type = [this]() -> mode_t {
      switch (kind()) {
        case ObjectKind::kFile:
          return S_IFREG;
        case ObjectKind::kDirectory:
          return S_IFDIR;
        case ObjectKind::kSymlink:
          return S_IFLNK;
        case ObjectKind::kFifo:
          return S_IFIFO;
        case ObjectKind::kSocket:
          return S_IFSOCK;
      }
      return 0;
    };
    out.st_mode = type() | (attributes ? attributes->mode : 0644);
    out.st_uid = attributes ? attributes->uid : ::geteuid();
    out.st_gid = attributes ? attributes->gid : ::getegid();
    out.st_size = static_cast<off_t>(found.size_bytes);
    out.st_mtim = attributes ? to_timespec(attributes->mtime_ns) : timespec{found.changed_s, 0};
    return out;
  }
};

/// A StoreLine asks the store for a source and its open files. Suppose that a request waits in vain for its
/// whole time, and the store answers no other request meanwhile. Then the store is lost, and later
/// requests fail at once: a load of many files must not wait for each.
///
/// Threads: any.
class StoreLine {
 public:
  StoreLine(std::shared_ptr<ObjectStore> store, std::shared_ptr<const Clock> clock,
            std::uint32_t requests)
      : clock_(std::move(clock)), store_(std::move(store)), requests_(std::max(1U, requests)) {}

  std::uint32_t requests() const { return requests_; }

  /// Returns request(store, deadline).
  template <class Request>
  auto ask(const Request& request) -> decltype(request(std::declval<ObjectStore&>(), Time())) {
    const Time begun = clock_->now();
    {
      const MutexLock lock(mutex_);
      if (lost_) return problem(*lost_);
    }
    auto answer = request(*store_, begun + kPatience);
    const bool is_silent = !answer && answer.error().error.code == Code::kDeadline;
    const MutexLock lock(mutex_);
    if (!is_silent) {
      answered_ = clock_->now();
    } else if (!answered_ || *answered_ < begun) {
      lost_ = answer.error();
    }
    return answer;
  }

  std::atomic<std::uint32_t> open_files{0};  ///< share the requests

 private:
  const std::shared_ptr<const Clock> clock_;  // outlives the store
  const std::shared_ptr<ObjectStore> store_;
  const std::uint32_t requests_;
  Mutex mutex_;
  std::optional<Time> answered_ STDCHK_GUARDED_BY(mutex_);  ///< time of the newest answer
  std::optional<Problem> lost_ STDCHK_GUARDED_BY(mutex_);
};

class ObjectFile final : public SourceFile {
 public:
  ObjectFile(std::shared_ptr<StoreLine> line, const Entry& entry)
      : line_(std::move(line)), entry_(entry), status_(entry.status()) {
    ++line_->open_files;
  }
  ~ObjectFile() override { --line_->open_files; }
  ObjectFile(const ObjectFile&) = delete;
  ObjectFile& operator=(const ObjectFile&) = delete;

  const struct stat& status() const override { return status_; }
  Outcome<std::vector<std::byte>> read(std::uint64_t offset, std::size_t length) const override;
  std::optional<DataRange> next_data(std::uint64_t from, std::uint64_t to) const override {
    if (from >= to) return std::nullopt;
    return DataRange{from, to};
  }
  Outcome<bool> is_unchanged() const override;

 private:
  const std::shared_ptr<StoreLine> line_;
  const Entry entry_;
  const struct stat status_;
};

Outcome<std::vector<std::byte>> ObjectFile::read(std::uint64_t offset, std::size_t length) const {
  const std::uint64_t size = entry_.found.size_bytes;
  std::vector<std::byte> bytes(std::min<std::uint64_t>(length, size - std::min(size, offset)));
  const std::uint64_t count = (bytes.size() + kRequestBytes - 1) / kRequestBytes;
  const std::uint32_t at_once =
      std::max(1U, line_->requests() / std::max(1U, line_->open_files.load()));
  const auto read_part = [&](std::size_t i) -> Outcome<void> {
    const std::uint64_t begin = i * kRequestBytes;
    const auto part =
        std::span(bytes).subspan(begin, std::min(kRequestBytes, bytes.size() - begin));
    return line_->ask([&](ObjectStore& store, Time deadline) {
      return store.get(entry_.key, {offset + begin, part, entry_.found.etag}, deadline);
    });
  };
  if (auto done = in_parallel(count, at_once, read_part); !done) {
    Problem why = done.error();
    if (why.error.os_errno == EEXIST || is_absent(why)) why.error.os_errno = ESTALE;
    return problem(std::move(why));
  }
  return bytes;
}

Outcome<bool> ObjectFile::is_unchanged() const {
  const auto now = line_->ask(
      [this](ObjectStore& store, Time deadline) { return store.find(entry_.key, deadline); });
  if (!now && is_absent(now.error())) return false;
  if (!now) return problem(now.error());
  return now->etag == entry_.found.etag && now->size_bytes == entry_.found.size_bytes;
}

class ObjectSource final : public DrainedSource {
 public:
  ObjectSource(ObjectPlace place, std::shared_ptr<ObjectStore> store,
               std::shared_ptr<const Clock> clock, std::uint32_t requests)
      : place_(std::move(place)),
        line_(std::make_shared<StoreLine>(std::move(store), std::move(clock), requests)) {}
  /// Lists the objects, and looks at each.
  Outcome<void> load();

  const Traits& traits() const override { return traits_; }
  Outcome<DrainedTree> tree() const override;
  Outcome<struct stat> status(const std::string& path) const override {
    const Entry* const folder = find(folders_, path);
    const Entry* const entry = folder != nullptr ? folder : find(files_, path);
    if (entry == nullptr) return absent(path);
    return entry->status();
  }
  Outcome<FoundLink> link(const std::string& path) const override {
    const Entry* const entry = find(files_, path);
    if (entry == nullptr || entry->kind() != ObjectKind::kSymlink) return absent(path);
    if (entry->refusal) return problem(*entry->refusal);
    return FoundLink{entry->target, entry->status()};
  }
  Outcome<std::unique_ptr<SourceFile>> open(const std::string& path) const override {
    const Entry* const entry = find(files_, path);
    if (entry == nullptr || entry->kind() != ObjectKind::kFile) return absent(path);
    return std::make_unique<ObjectFile>(line_, *entry);
  }
  Outcome<std::string> policy_text(const std::string& folder) const override {
    auto found = link(folder.empty() ? kPolicyLinkName : folder + "/" + kPolicyLinkName);
    if (!found) return problem(found.error());
    return std::move(found->target);
  }
  std::vector<std::string> policies_above() const override;
  std::string place_in(const std::string& drain) const override {
    const auto of = drain_of(drain);
    const std::string below = of ? of->key_of("") : std::string();
    if (!of || !place_.prefix.starts_with(below)) return {};
    return place_.prefix.substr(below.size());
  }
  bool is_drained_as(const std::string& path, const std::string& drain,
                     const std::string& drained) const override {
    const auto of = drain_of(drain);
    return of && of->key_of(drained) == place_.key_of(path);
  }

 private:
  using Entries = std::map<std::string, Entry>;
  static const Entry* find(const Entries& in, const std::string& path) {
    const auto found = in.find(path);
    return found == in.end() ? nullptr : &found->second;
  }
  /// Returns the place of a drain directory that is in the same store.
  std::optional<ObjectPlace> drain_of(const std::string& drain) const {
    if (!is_object_store(drain)) return std::nullopt;
    auto of = ObjectPlace::parse(drain);
    const bool is_same = of && of->bucket == place_.bucket && of->endpoint == place_.endpoint;
    return is_same ? std::optional(std::move(*of)) : std::nullopt;
  }
  Outcome<void> list(std::vector<std::pair<std::string, Entry>>& to) const;
  Outcome<void> look(Entry& entry) const;
  ManifestFile described(const std::string& path, const Entry& entry) const;
  bool is_left_out(const std::string& path) const;

  const ObjectPlace place_;
  const std::shared_ptr<StoreLine> line_;
  const Traits traits_{kReadBytes, true, true, kReadsMax, "its metadata", "are of no pool"};
  Entries files_;    ///< also links, FIFOs and sockets
  Entries folders_;  ///< folders with an object; the empty path is the prefix itself
  std::set<std::string> all_folders_;  ///< also those without an object
};

Outcome<void> ObjectSource::list(std::vector<std::pair<std::string, Entry>>& to) const {
  const std::string below = place_.prefix.empty() ? "" : place_.prefix + "/";
  const std::string temporary = std::string(msg::kTemporaryFolder) + "/";
  std::string from;
  do {
    const auto page = line_->ask(
        [&](ObjectStore& store, Time deadline) { return store.list(below, from, deadline); });
    if (!page) return problem(page.error());
    for (const ObjectStore::Listed& object : page->objects) {
      const std::string path = object.key.substr(below.size());
      if (path.starts_with(temporary)) continue;
      const std::string plain = path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
      if (!plain.empty() && !is_file_path(plain)) {
        fmt::print(stderr, "stdchk: an object below {} is left out: its key is no path\n",
                   place_.name());
        continue;
      }
      Entry entry;
      entry.key = object.key;
      to.emplace_back(path, std::move(entry));
    }
    from = page->next;
  } while (!from.empty());
  return {};
}

Outcome<void> ObjectSource::look(Entry& entry) const {
  auto found = line_->ask(
      [&](ObjectStore& store, Time deadline) { return store.find(entry.key, deadline); });
  if (!found && is_absent(found.error())) {
    entry.key.clear();  // was removed meanwhile
    return {};
  }
  if (!found) return problem(found.error());
  entry.found = std::move(*found);
  entry.attributes = ObjectAttributes::parse(entry.found.metadata);
  entry.is_damaged = entry.attributes ? entry.attributes->crcs.empty() &&
                                            entry.found.metadata.contains("stdchk-crc32c")
                                      : entry.found.metadata.contains("stdchk-kind");
  entry.found.metadata.clear();  // many objects: it is 2 KiB of each
  if (entry.kind() != ObjectKind::kSymlink) return {};
  auto text = line_->ask([&](ObjectStore& store, Time deadline) {
    return get_text(store, entry.key, limits::kSymlinkBytesMax, deadline);
  });
  if (text) {
    entry.target = std::move(*text);
  } else if (text.error().error.code == Code::kDeadline) {
    return problem(text.error());
  } else {
    entry.refusal = text.error();
  }
  return {};
}

Outcome<void> ObjectSource::load() {
  std::vector<std::pair<std::string, Entry>> all;
  if (auto listed = list(all); !listed) return listed;
  auto looked = in_parallel(all.size(), line_->requests(),
                            [&](std::size_t i) { return look(all[i].second); });
  if (!looked) return looked;
  for (auto& [path, entry] : all) {
    if (entry.key.empty()) continue;
    const bool is_folder = path.empty() || path.ends_with('/');
    std::string plain = path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
    for (std::size_t slash = plain.rfind('/'); slash != std::string::npos && slash > 0;
         slash = plain.rfind('/', slash - 1)) {
      all_folders_.insert(plain.substr(0, slash));
    }
    if (is_folder && !plain.empty()) all_folders_.insert(plain);
    if (!is_folder) {
      files_.emplace(std::move(plain), std::move(entry));
    } else if (entry.attributes) {
      folders_.emplace(std::move(plain), std::move(entry));
    }
  }
  return {};
}

/// Returns true for a file whose name a folder has: a pool can show only the folder.
bool ObjectSource::is_left_out(const std::string& path) const {
  if (!all_folders_.contains(path)) return false;
  fmt::print(stderr, "stdchk: an object below {} is left out: a folder has its name\n",
             place_.name());
  return true;
}

/// Describes a file by its metadata, as a manifest does.
ManifestFile ObjectSource::described(const std::string& path, const Entry& entry) const {
  ManifestFile out;
  out.path = place_.name() + "/" + path;
  out.below = path;
  out.size_bytes = entry.found.size_bytes;
  out.damaged = entry.is_damaged || out.size_bytes > ObjectStore::kObjectBytesMax;
  if (out.damaged) return out;
  out.unlisted = !entry.attributes || (entry.attributes->crcs.empty() && out.size_bytes > 0);
  if (out.unlisted || entry.attributes->crcs.empty()) return out;
  const std::uint64_t range = entry.attributes->range_bytes;
  const std::uint64_t count = out.size_bytes / range + (out.size_bytes % range == 0 ? 0 : 1);
  out.damaged = entry.attributes->crcs.size() != count;
  for (std::uint64_t i = 0; i < count && !out.damaged; ++i) {
    const std::uint64_t begin = i * range;
    out.pieces.push_back(
        {begin, std::min(range, out.size_bytes - begin), entry.attributes->crcs[i], std::string()});
  }
  return out;
}

Outcome<DrainedTree> ObjectSource::tree() const {
  DrainedTree out;
  for (const auto& [path, entry] : files_) {
    const std::string name = path.substr(path.rfind('/') + 1);
    if (is_pool_file(name) || is_left_out(path)) continue;
    if (entry.kind() == ObjectKind::kFile) out.files.push_back(described(path, entry));
    if (entry.kind() == ObjectKind::kSymlink) out.links.push_back(path);
  }
  // In the order of the paths, an outer folder precedes its inner folders.
  out.folders.assign(all_folders_.begin(), all_folders_.end());
  return out;
}

std::vector<std::string> ObjectSource::policies_above() const {
  std::vector<std::string> out;
  std::size_t end = 0;
  for (std::string above; !place_.prefix.empty();) {
    const std::string key = above.empty() ? kPolicyLinkName : above + "/" + kPolicyLinkName;
    auto text = line_->ask([&](ObjectStore& store, Time deadline) {
      return get_text(store, key, kPolicyBytesMax, deadline);
    });
    if (text) out.push_back(std::move(*text));
    end = place_.prefix.find('/', end == 0 ? 0 : end + 1);
    if (end == std::string::npos) break;
    above = place_.prefix.substr(0, end);
  }
  return out;
}

}  // namespace

Outcome<std::unique_ptr<DrainedSource>> open_object_source(ObjectPlace place,
                                                           std::shared_ptr<ObjectStore> store,
                                                           std::shared_ptr<const Clock> clock,
                                                           std::uint32_t requests) {
  auto source = std::make_unique<ObjectSource>(std::move(place), std::move(store), std::move(clock),
                                               requests);
  if (auto loaded = source->load(); !loaded) return problem(loaded.error());
  return std::unique_ptr<DrainedSource>(std::move(source));
}

Outcome<std::unique_ptr<DrainedSource>> open_object_source(const std::string& path,
                                                           const std::string& endpoint,
                                                           std::uint32_t requests) {
  auto place = ObjectPlace::with_endpoint(path, endpoint);
  if (!place) return problem(place.error());
  auto clock = std::make_shared<SystemClock>();
  auto store = open_object_store(*place, *clock);
  if (!store) return problem(store.error());
  return open_object_source(std::move(*place), std::move(*store), std::move(clock), requests);
}

}  // namespace stdchk::tools
