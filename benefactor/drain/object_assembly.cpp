#include "benefactor/drain/object_assembly.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>

#include "core/base/limits.h"
#include "core/chunk/crc_joined.h"
#include "core/chunk/naming.h"
#include "core/crypto/secret.h"
#include "core/objects/in_parallel.h"

namespace stdchk::benefactor {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kRunBytesMax = 16 * limits::kMiB;
constexpr int kReadsMax = 3;  ///< of a range whose bytes differ from their checksum
constexpr std::size_t kNoteBytesMax = 4096;
/// No part, and no completion, begins later than this before the deadline: an object store goes on
/// with a request whose caller has left.
constexpr Duration kEnough = 2s;

/// Returns crc32c() of `length` zeros.
std::uint32_t crc_of_zeros(std::uint32_t length) {
  constexpr std::byte kZero{};
  std::uint32_t power = crc32c(0, ByteSpan(&kZero, 1));
  std::uint32_t all = 0;
  std::uint32_t done = 0;
  for (std::uint32_t bytes = 1; length >= bytes && bytes != 0; bytes *= 2) {
    if ((length & bytes) != 0) {
      all = done == 0 ? power : crc32c_joined(all, power, bytes);
      done += bytes;
    }
    if (bytes > length / 2) break;
    power = crc32c_joined(power, power, bytes);
  }
  return all;
}

/// A RangeCrc computes the checksum of a range, piece by piece.
struct RangeCrc {
  std::uint32_t crc = 0;
  std::uint64_t length = 0;

  void add(std::uint32_t next, std::uint64_t bytes) {
    crc = length == 0 ? next : crc32c_joined(crc, next, static_cast<std::uint32_t>(bytes));
    length += bytes;
  }
  void add_zeros(std::uint64_t bytes) {
    constexpr std::uint64_t kOnce = std::uint64_t{1} << 30;
    for (; bytes > 0; bytes -= std::min(bytes, kOnce)) {
      const auto once = static_cast<std::uint32_t>(std::min(bytes, kOnce));
      add(crc_of_zeros(once), once);
    }
  }
};

std::string upload_key(const std::string& staging) { return staging + "upload"; }
std::string note_key(const std::string& staging) { return staging + "attempt"; }

std::string hex_of(ByteSpan bytes) {
  std::string out;
  for (const std::byte byte : bytes) out += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return out;
}

tl::unexpected<Problem> no_time(const std::string& key) {
  return problem(Code::kDeadline, "benefactor.assembly", 0,
                 fmt::format("The object {} is not complete yet.", key));
}

}  // namespace

/// A part of the file in memory.
struct ObjectAssembly::Window {
  std::uint64_t begin = 0;
  std::vector<std::byte> bytes;
  std::vector<std::byte> run;  ///< bytes of a source
  std::uint64_t end() const { return begin + bytes.size(); }
};

std::uint64_t ObjectAssembly::part_bytes_of(std::uint64_t size_bytes) {
  const std::uint64_t least = (size_bytes + ObjectStore::kPartsMax - 1) / ObjectStore::kPartsMax;
  return std::max(kPartBytes, (least + limits::kMiB - 1) / limits::kMiB * limits::kMiB);
}

Outcome<void> ObjectAssembly::run(const Means& means, Time deadline) {
  if (goal_.size_bytes > ObjectStore::kObjectBytesMax) {
    return problem(Code::kTooLarge, "benefactor.assembly", EFBIG,
                   fmt::format("{} is larger than 5 TiB, the limit of an object.", goal_.key));
  }
  if (!loaded_) {
    if (auto loaded = load(means, deadline); !loaded) return loaded;
    loaded_ = true;
  }
  if (goal_.size_bytes <= kPartBytes) {
    Window window{0, std::vector<std::byte>(goal_.size_bytes), {}};
    if (auto filled = fill(means, window, deadline); !filled) return filled;
    if (means.clock.now() + kEnough > deadline) return no_time(goal_.key);
    const auto put = means.store.put(goal_.key, window.bytes, metadata(), {}, deadline);
    return put ? Outcome<void>() : problem(put.error());
  }
  if (auto begun = begin(means, deadline); !begun) return begun;
  if (auto uploaded = upload(means, deadline); !uploaded) return uploaded;
  if (auto completed = complete(means, deadline); !completed) return completed;
  end_other_uploads(means, deadline);
  return {};
}

/// Ends uploads whose begin was answered too late, or not at all: this process began another one.
void ObjectAssembly::end_other_uploads(const Means& means, Time deadline) const {
  const auto uploads = means.store.uploads(goal_.key, deadline);
  if (!uploads) return;  // the next manager ends them
  for (const ObjectStore::Upload& upload : *uploads) {
    if (upload.key == goal_.key) (void)means.store.abort_upload(upload, deadline);
  }
}

Outcome<void> ObjectAssembly::load(const Means& means, Time deadline) {
  attributes_ = goal_.attributes;
  if (!goal_.source.empty()) return load_copy();
  std::vector<ObjectStore::Listed> objects;
  const std::string upload = upload_key(goal_.staging);
  const std::string attempt = note_key(goal_.staging);
  auto listed = each_object(means.store, goal_.staging, deadline, [&](const auto& object) {
    if (object.key != upload && object.key != attempt) objects.push_back(object);
    return true;
  });
  if (!listed) return listed;
  if (objects.empty()) {
    return problem(Code::kDrainFailed, "benefactor.assembly", ENOENT,
                   fmt::format("No pieces of {} are in the object store.", goal_.key));
  }
  if (auto noted = note(means, objects.size(), deadline); !noted) return noted;
  std::vector<std::vector<StagedPiece>> lists(objects.size());
  auto read = in_parallel(objects.size(), means.threads, [&](std::size_t i) -> Outcome<void> {
    auto list = read_staged_list(means.store, objects[i], static_cast<std::uint32_t>(i), deadline);
    if (!list) return problem(list.error());
    lists[i] = std::move(*list);
    return {};
  });
  if (!read) return read;
  pieces_.clear();
  sources_.clear();
  for (const auto& object : objects) sources_.push_back(object.key);
  for (const auto& list : lists) pieces_.insert(pieces_.end(), list.begin(), list.end());
  if (auto sorted = sort_pieces(); !sorted) return sorted;
  compute_crcs();
  return {};
}

/// Uses the attempt's note, or makes it.
Outcome<void> ObjectAssembly::note(const Means& means, std::size_t staged_count, Time deadline) {
  std::array<std::byte, 8> random{};
  fill_random(random);
  const std::string text = fmt::format("{} {}", hex_of(random), staged_count);
  const auto bytes = std::as_bytes(std::span(text));
  auto there = read_note(means.store, goal_.staging, deadline);
  if (there && !*there) {
    // Two benefactors may write the note concurrently; the condition picks a winner.
    const auto put = means.store.put(note_key(goal_.staging), bytes, {}, {true, ""}, deadline);
    const bool is_settled = put || put.error().error.os_errno == EEXIST;
    const bool has_no_conditions = !put && put.error().error.os_errno == ENOSYS;
    if (has_no_conditions) {
      const auto again = means.store.put(note_key(goal_.staging), bytes, {}, {}, deadline);
      if (!again) return problem(again.error());
    } else if (!is_settled) {
      return problem(put.error());
    }
    there = read_note(means.store, goal_.staging, deadline);
  }
  if (!there) return problem(there.error());
  if (!*there || (*there)->staged_count != staged_count) {
    return problem(Code::kDrainFailed, "benefactor.assembly", EIO,
                   fmt::format("Pieces of {} are missing in the object store.", goal_.key));
  }
  attributes_.attempt = attempt_name(goal_.attributes.attempt, (*there)->nonce);
  return {};
}

bool ObjectAssembly::Goal::is_same(const Goal& other) const {
  return key == other.key && size_bytes == other.size_bytes && source == other.source &&
         source_etag == other.source_etag && metadata == other.metadata &&
         attributes.metadata() == other.attributes.metadata();
}

ObjectMetadata ObjectAssembly::metadata() const {
  return goal_.source.empty() ? attributes_.metadata() : goal_.metadata;
}

/// The pieces of a copy have no known checksums. Its attributes have.
Outcome<void> ObjectAssembly::load_copy() {
  sources_ = {goal_.source};
  // A piece that lies in two parts is read twice.
  const std::uint64_t longest = std::min(kRunBytesMax, part_bytes_of(goal_.size_bytes));
  for (std::uint64_t at = 0; at < goal_.size_bytes; at += longest) {
    const auto length = static_cast<std::uint32_t>(std::min(longest, goal_.size_bytes - at));
    by_source_.push_back(pieces_.size());
    pieces_.push_back({at, length, 0, 0, at});
  }
  return {};
}

/// A request that was repeated, or planned again in part, leaves the same piece twice.
Outcome<void> ObjectAssembly::sort_pieces() {
  std::ranges::sort(pieces_, {}, &StagedPiece::offset);
  const auto is_same = [](const StagedPiece& a, const StagedPiece& b) {
    return a.offset == b.offset && a.length == b.length && a.crc == b.crc;
  };
  // Clang 14 does not compile std::ranges::unique of GCC 12's library.
  pieces_.erase(std::unique(pieces_.begin(), pieces_.end(), is_same), pieces_.end());
  std::uint64_t end = 0;
  for (const StagedPiece& piece : pieces_) {
    if (piece.offset < end || piece.offset + piece.length > goal_.size_bytes) {
      return problem(Code::kDrainFailed, "benefactor.assembly", EIO,
                     fmt::format("The pieces of {} do not fit together.", goal_.key));
    }
    end = piece.offset + piece.length;
  }
  by_source_.resize(pieces_.size());
  for (std::size_t i = 0; i < by_source_.size(); ++i) by_source_[i] = i;
  std::ranges::sort(by_source_, {},
                    [&](std::size_t i) { return std::pair(pieces_[i].source, pieces_[i].at); });
  return {};
}

void ObjectAssembly::compute_crcs() {
  const std::uint64_t range = ObjectAttributes::range_bytes_of(goal_.size_bytes);
  attributes_.range_bytes = range;
  attributes_.crcs.clear();
  auto piece = pieces_.begin();
  for (std::uint64_t begin = 0; begin < goal_.size_bytes; begin += range) {
    const std::uint64_t end = std::min(begin + range, goal_.size_bytes);
    RangeCrc crc;
    for (; piece != pieces_.end() && piece->offset < end; ++piece) {
      crc.add_zeros(piece->offset - begin - crc.length);
      crc.add(piece->crc, piece->length);
    }
    crc.add_zeros(end - begin - crc.length);
    attributes_.crcs.push_back(crc.crc);
  }
}

/// Finds the upload that was begun before. Returns false when there is none.
Outcome<bool> ObjectAssembly::resume(const Means& means, Time deadline) {
  const auto noted = read_upload(means.store, goal_.staging, deadline);
  if (!noted) return problem(noted.error());
  if (!*noted) return false;
  const ObjectStore::Upload& upload = **noted;
  if (upload.key != goal_.key) {
    // The file has another name since.
    if (auto ended = means.store.abort_upload(upload, deadline); !ended) {
      return problem(ended.error());
    }
    return false;
  }
  const auto parts = means.store.parts(upload, deadline);
  if (!parts && (parts.error().error.os_errno == ESTALE || is_absent(parts.error()))) return false;
  if (!parts) return problem(parts.error());
  const std::uint64_t part_bytes = part_bytes_of(goal_.size_bytes);
  const MutexLock lock(mutex_);
  for (const ObjectStore::Part& part : *parts) {
    const std::uint64_t begin = (std::uint64_t{part.number} - 1) * part_bytes;
    if (part.number == 0 || begin >= goal_.size_bytes) continue;
    // A part is whole or absent. Parts of another size belong to another version of this program.
    if (part.size_bytes != std::min(part_bytes, goal_.size_bytes - begin)) continue;
    parts_[part.number] = part;
  }
  upload_ = upload;
  return true;
}

Outcome<void> ObjectAssembly::begin(const Means& means, Time deadline) {
  if (upload_) return {};
  const auto resumed = resume(means, deadline);
  if (!resumed) return problem(resumed.error());
  if (*resumed) return {};
  auto id = means.store.begin_upload(goal_.key, metadata(), deadline);
  if (!id) return problem(id.error());
  const ObjectStore::Upload upload{goal_.key, std::move(*id)};
  const std::string note = upload.id + "\n" + upload.key;
  const auto noted =
      means.store.put(upload_key(goal_.staging), std::as_bytes(std::span(note)), {}, {}, deadline);
  if (!noted) {
    (void)means.store.abort_upload(upload, deadline);
    return problem(noted.error());
  }
  upload_ = upload;
  return {};
}

Outcome<void> ObjectAssembly::upload(const Means& means, Time deadline) {
  const std::uint64_t part_bytes = part_bytes_of(goal_.size_bytes);
  const std::uint64_t count = (goal_.size_bytes + part_bytes - 1) / part_bytes;
  std::vector<std::uint32_t> missing;
  {
    const MutexLock lock(mutex_);
    for (std::uint32_t number = 1; number <= count; ++number) {
      if (!parts_.contains(number)) missing.push_back(number);
    }
  }
  const std::size_t at_once = std::clamp<std::size_t>(kBufferBytes / part_bytes, 1, means.threads);
  auto done = in_parallel(missing.size(), at_once,
                          [&](std::size_t i) { return upload_part(means, missing[i], deadline); });
  if (!done && done.error().error.os_errno == ESTALE) upload_.reset();
  return done;
}

Outcome<void> ObjectAssembly::upload_part(const Means& means, std::uint32_t number, Time deadline) {
  if (means.stop.requested()) {
    return problem(Code::kCancelled, "benefactor.assembly", 0, "The benefactor ends.");
  }
  const std::uint64_t part_bytes = part_bytes_of(goal_.size_bytes);
  const std::uint64_t begin = (std::uint64_t{number} - 1) * part_bytes;
  const std::uint64_t length = std::min(part_bytes, goal_.size_bytes - begin);
  const Duration wait = means.limiter.reserve(length, means.clock.now());
  if (wait > Duration::zero()) means.stop.sleep(std::min(wait, deadline - means.clock.now()));
  if (means.clock.now() + kEnough > deadline) return no_time(goal_.key);
  Window window{begin, std::vector<std::byte>(length), {}};
  if (auto filled = fill(means, window, deadline); !filled) return filled;
  auto part = means.store.upload_part(*upload_, number, window.bytes, deadline);
  if (!part) return problem(part.error());
  const MutexLock lock(mutex_);
  parts_[number] = std::move(*part);
  return {};
}

Outcome<void> ObjectAssembly::complete(const Means& means, Time deadline) {
  if (means.clock.now() + kEnough > deadline) return no_time(goal_.key);
  std::vector<ObjectStore::Part> parts;
  {
    const MutexLock lock(mutex_);
    for (const auto& [number, part] : parts_) parts.push_back(part);
  }
  auto completed = means.store.complete_upload(*upload_, parts, deadline);
  if (completed || completed.error().error.os_errno != ESTALE) return completed;
  // The upload is gone. An earlier completion, whose answer was lost, may have made the object.
  const auto found = means.store.find(goal_.key, deadline);
  const auto there = found ? ObjectAttributes::parse(found->metadata) : std::nullopt;
  if (there && there->attempt == attributes_.attempt && found->size_bytes == goal_.size_bytes) {
    return {};
  }
  upload_.reset();
  return completed;
}

/// Reads the pieces that overlap the window. Pieces that lie together in a source are one request.
Outcome<void> ObjectAssembly::fill(const Means& means, Window& window, Time deadline) const {
  const auto is_inside = [&](const StagedPiece& piece) {
    return piece.offset < window.end() && piece.offset + piece.length > window.begin;
  };
  for (std::size_t i = 0; i < by_source_.size();) {
    const StagedPiece& first = pieces_[by_source_[i]];
    if (!is_inside(first)) {
      ++i;
      continue;
    }
    std::uint64_t bytes = first.length;
    std::size_t end = i + 1;
    for (; end < by_source_.size(); ++end) {
      const StagedPiece& next = pieces_[by_source_[end]];
      const bool is_behind = next.source == first.source && next.at == first.at + bytes;
      if (!is_behind || !is_inside(next) || bytes + next.length > kRunBytesMax) break;
      bytes += next.length;
    }
    if (auto read = read_run(means, i, end, window, deadline); !read) return read;
    i = end;
  }
  return {};
}

Outcome<void> ObjectAssembly::read_run(const Means& means, std::size_t first, std::size_t end,
                                       Window& window, Time deadline) const {
  const StagedPiece& begin = pieces_[by_source_[first]];
  const StagedPiece& last = pieces_[by_source_[end - 1]];
  window.run.resize(last.at + last.length - begin.at);
  const std::string& source = sources_[begin.source];
  const auto piece_bytes = [&](const StagedPiece& piece) {
    return ByteSpan(window.run).subspan(piece.at - begin.at, piece.length);
  };
  for (int reads = 1;; ++reads) {
    auto got = means.store.get(source, {begin.at, window.run, goal_.source_etag}, deadline);
    if (!got) return got;
    bool right = true;
    for (std::size_t i = first; i < end && goal_.source.empty(); ++i) {
      const StagedPiece& piece = pieces_[by_source_[i]];
      right = right && crc32c(0, piece_bytes(piece)) == piece.crc;
    }
    if (right) break;
    if (reads == kReadsMax) {
      return problem(
          Code::kDrainFailed, "benefactor.assembly", EILSEQ,
          fmt::format("The object store returns other bytes of {} than were stored.", source));
    }
  }
  for (std::size_t i = first; i < end; ++i) {
    const StagedPiece& piece = pieces_[by_source_[i]];
    const std::uint64_t from = std::max(piece.offset, window.begin);
    const std::uint64_t to = std::min(piece.offset + piece.length, window.end());
    std::memcpy(window.bytes.data() + (from - window.begin),
                piece_bytes(piece).data() + (from - piece.offset), to - from);
  }
  return {};
}

std::string attempt_name(const std::string& file_and_number, const std::string& nonce) {
  return fmt::format("{}.{}", file_and_number, nonce);
}

Outcome<std::optional<StagingNote>> read_note(ObjectStore& store, const std::string& staging,
                                              Time deadline) {
  using Read = std::optional<StagingNote>;
  const auto text = get_text(store, note_key(staging), kNoteBytesMax, deadline);
  if (!text && is_absent(text.error())) return Read();
  if (!text) return problem(text.error());
  StagingNote note;
  const std::size_t blank = text->find(' ');
  note.nonce = text->substr(0, blank);
  if (blank == std::string::npos ||
      std::from_chars(text->data() + blank + 1, text->data() + text->size(), note.staged_count)
              .ec != std::errc()) {
    return problem(Code::kMalformed, "benefactor.assembly", EPROTO,
                   fmt::format("The object {} is no note of a drain.", note_key(staging)));
  }
  return Read(std::move(note));
}

Outcome<std::optional<ObjectStore::Upload>> read_upload(ObjectStore& store,
                                                        const std::string& staging, Time deadline) {
  using Found = std::optional<ObjectStore::Upload>;
  auto note = get_text(store, upload_key(staging), kNoteBytesMax, deadline);
  if (!note && is_absent(note.error())) return Found();
  if (!note) return problem(note.error());
  const std::size_t end = note->find('\n');
  // A damaged note names no upload. The sweep of uploads without a note ends the upload.
  if (end == std::string::npos) return Found();
  return Found(ObjectStore::Upload{note->substr(end + 1), note->substr(0, end)});
}

Outcome<void> drop_staged(ObjectStore& store, const std::string& staging, std::size_t threads,
                          Time deadline) {
  std::vector<std::string> keys;
  auto listed = each_object(store, staging, deadline, [&](const auto& object) {
    keys.push_back(object.key);
    return true;
  });
  if (!listed) return listed;
  std::erase(keys, upload_key(staging));
  std::erase(keys, note_key(staging));
  auto removed = in_parallel(keys.size(), threads,
                             [&](std::size_t i) { return store.remove(keys[i], deadline); });
  if (!removed) return removed;
  if (auto gone = store.remove(upload_key(staging), deadline); !gone) return gone;
  // Last: it says that the rest is no whole file.
  return store.remove(note_key(staging), deadline);
}

Outcome<void> abandon_staged(ObjectStore& store, const std::string& staging, std::size_t threads,
                             Time deadline) {
  const auto upload = read_upload(store, staging, deadline);
  if (!upload) return problem(upload.error());
  if (*upload) {
    if (auto ended = store.abort_upload(**upload, deadline); !ended) return ended;
  }
  return drop_staged(store, staging, threads, deadline);
}

}  // namespace stdchk::benefactor
