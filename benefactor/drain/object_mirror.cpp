#include "benefactor/drain/object_mirror.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "benefactor/drain/drain_paths.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/files/drain_manifest.h"
#include "core/objects/in_parallel.h"

namespace stdchk::benefactor {
namespace {

using namespace std::chrono_literals;

/// A benefactor notes an upload right after it has begun the upload.
constexpr Duration kUntilNoted = 2s;

tl::unexpected<Problem> invalid(std::string what) {
  return problem(Code::kInvalidArgument, "benefactor.mirror", EINVAL, std::move(what));
}

ObjectAttributes attributes_of(const msg::MirrorChange& change, ObjectKind kind) {
  ObjectAttributes out;
  out.kind = kind;
  out.mode = change.mode & 07777;
  out.uid = change.uid;
  out.gid = change.gid;
  out.mtime_ns = change.mtime_ns;
  return out;
}

}  // namespace

std::string ObjectMirror::key_of(const std::string& path) const {
  return parts_.prefix.empty() ? path : parts_.prefix + "/" + path;
}

/// Returns the key of `path`. An empty path means the change's temporary object.
Outcome<std::string> ObjectMirror::place_of(const msg::MirrorChange& change,
                                            const std::string& path) const {
  if (path.empty()) {
    return key_of(fmt::format("{}/{}", msg::kTemporaryFolder,
                              msg::temporary_name(change.file, change.number)));
  }
  if (auto parts = split_path(path); !parts) return problem(parts.error());
  return key_of(path);
}

Outcome<void> ObjectMirror::carry_out(const msg::MirrorChange& change, Time deadline) const {
  switch (change.kind) {
    case msg::MirrorKind::kRename:
      return rename(change, deadline);
    case msg::MirrorKind::kUnlink: {
      const auto key = place_of(change, change.path);
      return key ? store().remove(*key, deadline) : problem(key.error());
    }
    case msg::MirrorKind::kMakeDirectory:
      return put_special(change, ObjectKind::kDirectory, "", deadline);
    case msg::MirrorKind::kRemoveDirectory:
      return remove_folder(change, deadline);
    case msg::MirrorKind::kSymlink:
      if (change.other_path.empty() || change.other_path.size() > limits::kSymlinkBytesMax) {
        return invalid("The target of a symbolic link is not valid.");
      }
      return put_special(change, ObjectKind::kSymlink, change.other_path, deadline);
    case msg::MirrorKind::kAttributes:
      return set_attributes(change, deadline);
    case msg::MirrorKind::kDropTemporary:
      return drop(change, deadline);
    case msg::MirrorKind::kSetAside:
      return set_aside(change, deadline);
    case msg::MirrorKind::kLink:
      return link(change, deadline);
    case msg::MirrorKind::kSpecial: {
      const auto type = static_cast<mode_t>(change.mode) & S_IFMT;
      if (type != S_IFIFO && type != S_IFSOCK) {
        return invalid("Only FIFOs and sockets are made in an object store.");
      }
      return put_special(change, type == S_IFIFO ? ObjectKind::kFifo : ObjectKind::kSocket, "",
                         deadline);
    }
  }
  return invalid("An unknown change.");
}

/// Copies an object with its metadata. Returns false when there is no object.
Outcome<bool> ObjectMirror::copy(const std::string& from, const std::string& to,
                                 const msg::MirrorChange& change, Time deadline) const {
  const auto found = store().find(from, deadline);
  if (!found && is_absent(found.error())) return false;
  if (!found) return problem(found.error());
  if (from == to) return true;
  if (found->size_bytes <= std::min(parts_.copied_at_once, ObjectStore::kCopyBytesMax)) {
    const auto copied = store().copy(from, to, std::nullopt, deadline);
    if (!copied) return problem(copied.error());
    return true;
  }
  ObjectAssembly::Goal goal;
  goal.key = to;
  goal.size_bytes = found->size_bytes;
  // An object of no pool stays one.
  const auto attributes = ObjectAttributes::parse(found->metadata);
  if (attributes) goal.metadata = attributes->metadata();
  // The move of a folder copies several objects under the same change.
  goal.staging = key_of(fmt::format("{}/{}/copy-{:016x}/", msg::kTemporaryFolder,
                                    msg::temporary_name(change.file, change.number),
                                    std::hash<std::string>()(to)));
  goal.source = from;
  goal.source_etag = found->etag;
  if (auto copied = parts_.copy_large(goal); !copied) return problem(copied.error());
  if (auto dropped = drop_staged(store(), goal.staging, 1, deadline); !dropped) {
    return problem(dropped.error());
  }
  return true;
}

Outcome<void> ObjectMirror::rename(const msg::MirrorChange& change, Time deadline) const {
  const auto from = place_of(change, change.path);
  if (!from) return problem(from.error());
  const auto to = place_of(change, change.other_path);
  if (!to) return problem(to.error());
  if (*from == *to) return {};
  const auto copied = copy(*from, *to, change, deadline);
  if (!copied) return problem(copied.error());
  if (*copied) return store().remove(*from, deadline);
  return rename_folder(*from, *to, change, deadline);
}

/// Moves all objects below a folder. The object of the folder itself moves last: a repeated request
/// then finds the rest, and a folder with an object is complete.
Outcome<void> ObjectMirror::rename_folder(const std::string& from, const std::string& to,
                                          const msg::MirrorChange& change, Time deadline) const {
  const std::string below = from + "/";
  std::vector<std::string> keys;
  std::vector<std::string> large;
  auto listed = each_object(store(), below, deadline, [&](const auto& object) {
    const bool is_large = object.size_bytes > parts_.copied_at_once;
    if (object.key != below) (is_large ? large : keys).push_back(object.key);
    return true;
  });
  if (!listed) return listed;
  const auto move = [&](const std::string& key) -> Outcome<void> {
    const auto copied = copy(key, to + key.substr(from.size()), change, deadline);
    if (!copied) return problem(copied.error());
    return *copied ? store().remove(key, deadline) : Outcome<void>();
  };
  auto moved =
      in_parallel(keys.size(), parts_.means.threads, [&](std::size_t i) { return move(keys[i]); });
  if (!moved) return moved;
  // The copy of a large object has several requests under way itself.
  for (const std::string& key : large) {
    if (auto one = move(key); !one) return one;
  }
  return move(below);
}

Outcome<void> ObjectMirror::remove_folder(const msg::MirrorChange& change, Time deadline) const {
  const auto key = place_of(change, change.path);
  if (!key) return problem(key.error());
  const std::string below = *key + "/";
  if (auto removed = store().remove(below + kPolicyLinkName, deadline); !removed) return removed;
  return store().remove(below, deadline);
}

Outcome<void> ObjectMirror::set_attributes(const msg::MirrorChange& change, Time deadline) const {
  const auto key = place_of(change, change.path);
  if (!key) return problem(key.error());
  for (const std::string& at : {*key, *key + "/"}) {
    const auto found = store().find(at, deadline);
    if (!found && is_absent(found.error())) continue;
    if (!found) return problem(found.error());
    auto attributes = ObjectAttributes::parse(found->metadata);
    if (!attributes) {
      log::warning("{} was replaced after the drain, so it keeps its attributes", at);
      return {};
    }
    if (found->size_bytes > ObjectStore::kCopyBytesMax) {
      // A copy onto itself is one request. The next drain of the file sets the attributes.
      log::warning("{} is larger than 5 GiB, so its object keeps the attributes of its drain", at);
      return {};
    }
    attributes->mode = change.mode & 07777;
    attributes->uid = change.uid;
    attributes->gid = change.gid;
    attributes->mtime_ns = change.mtime_ns;
    return store().copy(at, at, attributes->metadata(), deadline);
  }
  return {};
}

Outcome<void> ObjectMirror::put_special(const msg::MirrorChange& change, ObjectKind kind,
                                        const std::string& content, Time deadline) const {
  const auto key = place_of(change, change.path);
  if (!key) return problem(key.error());
  const auto bytes = std::as_bytes(std::span(content));
  const auto put = store().put(kind == ObjectKind::kDirectory ? *key + "/" : *key, bytes,
                               attributes_of(change, kind).metadata(), {}, deadline);
  return put ? Outcome<void>() : problem(put.error());
}

/// Keeps the drained object for its readers, under a temporary name.
Outcome<void> ObjectMirror::set_aside(const msg::MirrorChange& change, Time deadline) const {
  const auto from = place_of(change, change.path);
  if (!from) return problem(from.error());
  const auto to = place_of(change, "");
  const auto there = store().find(*to, deadline);
  if (there) return {};
  if (!is_absent(there.error())) return problem(there.error());
  const auto copied = copy(*from, *to, change, deadline);
  return copied ? Outcome<void>() : problem(copied.error());
}

Outcome<void> ObjectMirror::link(const msg::MirrorChange& change, Time deadline) const {
  const auto from = place_of(change, change.path);
  if (!from) return problem(from.error());
  const auto to = place_of(change, change.other_path);
  if (!to) return problem(to.error());
  const auto copied = copy(*from, *to, change, deadline);
  return copied ? Outcome<void>() : problem(copied.error());
}

Outcome<void> ObjectMirror::drop(const msg::MirrorChange& change, Time deadline) const {
  if (!change.file) return drop_old(change.number, deadline);
  const auto key = place_of(change, "");
  if (auto removed = store().remove(*key, deadline); !removed) return removed;
  return abandon_staged(store(), *key + "/", parts_.means.threads, deadline);
}

/// Removes temporary objects of earlier managers, and ends uploads that a crash has left.
Outcome<void> ObjectMirror::drop_old(std::uint64_t first_used, Time deadline) const {
  const std::string folder = key_of(msg::kTemporaryFolder) + "/";
  std::set<std::string> names;
  auto listed = each_object(store(), folder, deadline, [&](const auto& object) {
    std::string name = object.key.substr(folder.size());
    name.resize(std::min(name.find('/'), name.size()));
    if (is_old_temporary(name, first_used)) names.insert(name);
    return true;
  });
  if (!listed) return listed;
  for (const std::string& name : names) {
    if (auto removed = store().remove(folder + name, deadline); !removed) return removed;
    auto gone = abandon_staged(store(), folder + name + "/", parts_.means.threads, deadline);
    if (!gone) return gone;
  }
  return end_unknown_uploads(deadline);
}

/// Ends uploads below the prefix that no staged objects name: their benefactor was killed between
/// the begin of the upload and its note. Uploads cost space until they are ended.
Outcome<void> ObjectMirror::end_unknown_uploads(Time deadline) const {
  const std::string below = parts_.prefix.empty() ? "" : parts_.prefix + "/";
  const auto uploads = store().uploads(below, deadline);
  if (!uploads && uploads.error().error.os_errno == ENOSYS) return {};
  if (!uploads) return problem(uploads.error());
  if (uploads->empty()) return {};
  if (!parts_.means.stop.sleep(
          std::min<Duration>(kUntilNoted, deadline - parts_.means.clock.now()))) {
    return {};
  }
  const std::string folder = key_of(msg::kTemporaryFolder) + "/";
  std::set<std::string> noted;
  std::vector<std::string> stagings;
  auto listed = each_object(store(), folder, deadline, [&](const auto& object) {
    constexpr std::string_view kNote = "/upload";
    if (object.key.ends_with(kNote)) {
      stagings.push_back(object.key.substr(0, object.key.size() - kNote.size() + 1));
    }
    return true;
  });
  if (!listed) return listed;
  for (const std::string& staging : stagings) {
    const auto upload = read_upload(store(), staging, deadline);
    if (!upload) return problem(upload.error());
    if (*upload) noted.insert((*upload)->id);
  }
  for (const ObjectStore::Upload& upload : *uploads) {
    if (noted.contains(upload.id)) continue;
    log::info("ends the upload of {} that an earlier benefactor has left", upload.key);
    if (auto ended = store().abort_upload(upload, deadline); !ended) return ended;
  }
  return {};
}

}  // namespace stdchk::benefactor
