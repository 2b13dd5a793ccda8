#include "client/read/drained_reader.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/crc_joined.h"
#include "core/chunk/naming.h"

namespace stdchk::client {
namespace {

constexpr Duration kSayAgain = std::chrono::seconds(1);

/// Computes the CRC of each part of the chunk, and checks them by the CRC of the whole chunk. Reads
/// through `room`.
Result<std::vector<std::uint32_t>> part_crcs(const DrainedBytes& from, const DrainedChunk& chunk,
                                             MutableByteSpan room) {
  std::vector<std::uint32_t> parts;
  std::uint32_t all = 0;
  for (std::uint32_t at = 0; at < chunk.length;) {
    const auto length = static_cast<std::uint32_t>(
        std::min<std::size_t>(limits::kDrainedPartBytes, chunk.length - at));
    const MutableByteSpan part = room.first(length);
    STDCHK_TRY(from.read(chunk.offset + at, part));
    parts.push_back(crc32c(0, part));
    all = crc32c_joined(all, parts.back(), length);
    at += length;
  }
  if (all != chunk.crc) return fail(Code::kCorrupt, "client.drained file");
  return parts;
}

/// Reads a part of the chunk into `out`. kCorrupt: the file has other bytes than those that were
/// drained.
Status read_part(const DrainedBytes& from, DrainedChunk& chunk, std::uint64_t offset,
                 MutableByteSpan out) {
  std::uint32_t crc = 0;
  {
    const MutexLock lock(chunk.mutex);
    if (chunk.part_crcs.empty()) {
      std::vector<std::byte> room(limits::kDrainedPartBytes);
      STDCHK_ASSIGN(chunk.part_crcs, part_crcs(from, chunk, room));
    }
    crc = chunk.part_crcs[(offset - chunk.offset) / limits::kDrainedPartBytes];
  }
  STDCHK_TRY(from.read(offset, out));
  return crc32c(0, out) == crc ? Status{} : fail(Code::kCorrupt, "client.drained file");
}

}  // namespace

/// A Read is one use of a file. `outcome` belongs to its thread until the delivery, then to the
/// DrainedReader.
struct DrainedReader::Read {
  std::uint32_t owner = 0;
  Done done STDCHK_GUARDED_BY(engine_lock);  ///< empty: dropped
  Time asked{};
  std::atomic<Time> began{Time{}};  ///< set by its thread; Time{}: not yet
  Outcome outcome;
};

DrainedReader::DrainedReader(Host host)
    : host_(std::move(host)), storage_(make_drained_storage(host_.directory)) {}

DrainedReader::ReadPtr DrainedReader::begin(std::uint32_t owner, Done done) {
  auto read = std::make_shared<Read>();
  read->owner = owner;
  read->done = std::move(done);
  read->asked = host_.clock.now();
  reads_.push_back(read);
  return read;
}

std::function<void()> DrainedReader::delivery(const ReadPtr& read) {
  return [this, read] {
    Lock lock(host_.shared.mutex);
    std::erase(reads_, read);
    if (!read->outcome.refused.empty()) note_refused(read->outcome.refused);
    const Done done = std::exchange(read->done, nullptr);
    if (done) done(lock, read->outcome);
  };
}

DrainedReader::ReadPtr DrainedReader::open(std::uint32_t owner, const std::string& path,
                                           DrainState state, Done done) {
  ReadPtr read = begin(owner, std::move(done));
  const auto open = [read, storage = storage_, &clock = host_.clock, path, state] {
    read->began = clock.now();
    auto opened = storage->open(path, read->owner);
    if (!opened) {
      if (opened.error().error.os_errno != ENOENT) read->outcome.refused = opened.error().text;
    } else {
      read->outcome.opened = std::make_shared<DrainedFile>(std::move(*opened), path, state);
    }
  };
  FileWork work{owner, open, delivery(read)};
  host_.read_later(std::move(work));
  return read;
}

DrainedReader::ReadPtr DrainedReader::read(std::uint32_t owner, std::shared_ptr<DrainedFile> file,
                                           const Range& range,
                                           std::shared_ptr<DrainedChunk> part_of, Done done) {
  ReadPtr read = begin(owner, std::move(done));
  const auto move = [read, &clock = host_.clock, file = std::move(file), of = std::move(part_of),
                     range] {
    read->began = clock.now();
    read->outcome.bytes.resize(range.length);
    const MutableByteSpan out(read->outcome.bytes);
    const DrainedBytes& from = *file->bytes;
    read->outcome.status =
        of == nullptr ? from.read(range.offset, out) : read_part(from, *of, range.offset, out);
  };
  FileWork work{owner, move, delivery(read)};
  host_.read_later(std::move(work));
  return read;
}

void DrainedReader::drop(Read& read) { read.done = nullptr; }

/// Logs at most once a second: the owner of the file may read it as often as he likes.
void DrainedReader::note_refused(const std::string& why) {
  const Time now = host_.clock.now();
  if (said_refused_ != Time{} && now - said_refused_ < kSayAgain) return;
  said_refused_ = now;
  log::warning("{}", why);
}

bool DrainedReader::hangs(std::uint32_t owner) const {
  const Time now = host_.clock.now();
  return std::ranges::any_of(reads_, [&](const ReadPtr& read) {
    const Time began = read->began;
    return read->owner == owner && began != Time{} && now - began > kHangsAfter;
  });
}

bool DrainedReader::is_late(const Read& read) const {
  const Time began = read.began;
  const Time now = host_.clock.now();
  if (began != Time{}) return now - began > kGivesUpAfter;
  // The read waits for a thread of its user.
  return now - read.asked > kGivesUpAfter && hangs(read.owner);
}

DrainedReader::ReadPtr DrainedReader::find_hanging_read_of_others(std::uint32_t owner) const {
  for (const ReadPtr& read : reads_) {
    if (read->done && read->owner != owner && hangs(read->owner)) return read;
  }
  return nullptr;
}

DrainedReader::Wait::Wait(DrainedReader& reader, std::uint32_t owner)
    : reader_(reader), owner_(owner) {
  ++reader_.waits_[owner_];
  ++reader_.wait_count_;
}

DrainedReader::Wait::~Wait() {
  if (--reader_.waits_[owner_] == 0) reader_.waits_.erase(owner_);
  --reader_.wait_count_;
}

Status DrainedReader::Wait::end(Status status) const {
  const bool late = !status && status.error().code == Code::kDeadline;
  if (late && reader_.hangs(owner_)) return fail(kDrainedSilent);
  return status;
}

Status DrainedReader::Wait::check() const {
  const bool too_many = reader_.waits_.at(owner_) + reader_.wait_count_ > kWaitsMax;
  if (!too_many || !reader_.hangs(owner_)) return {};
  return fail(kDrainedSilent);
}

}  // namespace stdchk::client
