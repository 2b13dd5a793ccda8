#include "fork/pager/image.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/base/mutex.h"
#include "core/base/whole_io.h"

namespace stdchk::pager {
namespace {

/// Ranges of a recorded order that are fetched ahead of a clone.
constexpr std::size_t kOrderAhead = 16;
/// The library gives up a read after 30 s; a fetch of several pieces may wait for others'.
constexpr auto kFetchTime = std::chrono::seconds(35);
constexpr int kFetchTriesMax = 3;

std::uint64_t whole_blocks(std::uint64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

}  // namespace

Image::Image(std::uint64_t id, std::shared_ptr<Source> source, Descriptor memory,
             Descriptor readable, Host host)
    : id_(id),
      source_(std::move(source)),
      size_bytes_(source_->size_bytes()),
      memory_(std::move(memory)),
      readable_(std::move(readable)),
      host_(std::move(host)),
      table_(size_bytes_) {}

Image::~Image() { host_.counts.bytes_present -= table_.present_count() * kBlockBytes; }

Result<std::shared_ptr<Image>> Image::make(std::uint64_t id, std::shared_ptr<Source> source,
                                           Descriptor memory, Host host) {
  const std::string path = "/proc/self/fd/" + std::to_string(memory.get());
  Descriptor readable(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!readable) return fail_errno("pager.memory");
  return std::shared_ptr<Image>(
      new Image(id, std::move(source), std::move(memory), std::move(readable), std::move(host)));
}

Result<std::shared_ptr<Image>> Image::create(std::uint64_t id, std::shared_ptr<Source> source,
                                             Host host) {
  const std::uint64_t bytes = source->size_bytes();
  if (bytes == 0) return fail(Code::kInvalidArgument, "pager.image of no bytes");
  if (bytes > kImageBytesMax) return fail(Code::kTooLarge, "pager.image");
  Descriptor memory(::memfd_create("stdchk-image", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return fail_errno("pager.memory");
  if (::ftruncate(memory.get(), static_cast<off_t>(whole_blocks(bytes))) != 0) {
    return fail_errno("pager.memory");
  }
  // A clone that gets the file cannot cut it under others.
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return fail_errno("pager.memory");
  }
  return make(id, std::move(source), std::move(memory), std::move(host));
}

Result<std::shared_ptr<Image>> Image::adopt(std::uint64_t id, std::shared_ptr<Source> source,
                                            Descriptor memory, Host host) {
  STDCHK_ASSIGN(auto image, make(id, std::move(source), std::move(memory), std::move(host)));
  STDCHK_TRY(image->adopt_present());
  return image;
}

/// Finds the blocks that the memory file has. A page gets into the file whole, by pwrite, so a
/// block is present when all its pages are.
Status Image::adopt_present() {
  const auto end = static_cast<off_t>(whole_blocks(size_bytes_));
  off_t at = 0;
  while (at < end) {
    const off_t data = ::lseek(memory_.get(), at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return {};
    if (data < 0) return fail_errno("pager.adopt");
    const off_t hole = ::lseek(memory_.get(), data, SEEK_HOLE);
    if (hole < 0) return fail_errno("pager.adopt");
    const std::uint64_t first = (static_cast<std::uint64_t>(data) + kBlockBytes - 1) / kBlockBytes;
    const std::uint64_t behind = static_cast<std::uint64_t>(hole) / kBlockBytes;
    if (behind > first) {
      const MutexLock lock(mutex_);
      table_.adopt({first, behind - first});
      host_.counts.bytes_present += (behind - first) * kBlockBytes;
    }
    at = hole;
  }
  return {};
}

void Image::fault(const Waiter& waiter, std::uint64_t offset, std::uint32_t ahead, Piece& piece) {
  const std::uint64_t block = offset / kBlockBytes;
  host_.counts.faults.fetch_add(1, std::memory_order_relaxed);
  BlockRange claimed{block, 0};
  {
    const MutexLock lock(mutex_);
    const auto state = table_.request(block, waiter);
    // A clone that jumps waits for one block only. The rest of the window follows behind it.
    const std::uint64_t first_piece = ahead <= kPieceBlocks / 2 ? 1 : kPieceBlocks;
    if (state == BlockTable::State::kAbsent) {
      claimed = table_.claim(block, std::min<std::uint64_t>(ahead, first_piece));
      touched_.record({block, std::min<std::uint64_t>(ahead, table_.block_count() - block)});
    }
    if (state == BlockTable::State::kPresent) ahead = 0;
  }
  if (ahead == 0) {
    host_.counts.faults_present.fetch_add(1, std::memory_order_relaxed);
    host_.wake(waiter);
    return;
  }
  // In a run, other threads fetch the following pieces while this thread fetches the first piece.
  if (claimed.count != 1) plan_ahead(block, claimed.end(), block + ahead);
  if (claimed.count > 0) static_cast<void>(fill(claimed, false, piece));
  if (claimed.count == 1) plan_ahead(block, claimed.end(), block + ahead);
}

void Image::plan_ahead(std::uint64_t block, std::uint64_t from, std::uint64_t until) {
  std::vector<BlockRange> recorded;
  {
    const MutexLock lock(mutex_);
    recorded = recorded_.following(block, kOrderAhead);
    until = std::min(until, table_.block_count());
    const auto is_absent = [&](const BlockRange& range) STDCHK_REQUIRES(mutex_) {
      return table_.state(range.first) == BlockTable::State::kAbsent;
    };
    std::erase_if(recorded, [&](const BlockRange& range)
                                STDCHK_REQUIRES(mutex_) { return !is_absent(range); });
  }
  for (; from < until; from += kPieceBlocks) {
    host_.later(*this, {from, std::min(kPieceBlocks, until - from)});
  }
  for (const BlockRange& range : recorded) host_.later(*this, range);
}

void Image::fetch_ahead(const BlockRange& range, Piece& piece) {
  for (std::uint64_t at = range.first; at < range.end();) {
    BlockRange claimed{at, 0};
    {
      const MutexLock lock(mutex_);
      if (at >= table_.block_count()) return;
      claimed = table_.claim(at, std::min(kPieceBlocks, range.end() - at));
    }
    if (claimed.count > 0 && !fill(claimed, true, piece)) return;
    at += std::max<std::uint64_t>(claimed.count, 1);
  }
}

Status Image::fetch(const BlockRange& range, Piece& piece) {
  const auto until = std::chrono::steady_clock::now() + kFetchTime;
  int tries = 0;
  for (std::uint64_t at = range.first; at < range.end();) {
    BlockRange claimed{at, 0};
    {
      MutexLock lock(mutex_);
      if (table_.state(at) == BlockTable::State::kFetching) {
        const bool ended = changed_.wait_until(lock, until, [&]() STDCHK_REQUIRES(mutex_) {
          return table_.state(at) != BlockTable::State::kFetching;
        });
        if (!ended) return fail(Code::kDeadline, "pager.fetch");
      }
      if (table_.state(at) == BlockTable::State::kPresent) {
        ++at;
        tries = 0;
        continue;
      }
      claimed = table_.claim(at, std::min(kPieceBlocks, range.end() - at));
    }
    const Status filled = fill(claimed, true, piece);
    if (filled) {
      at = claimed.end();
      tries = 0;
    } else if (++tries >= kFetchTriesMax || std::chrono::steady_clock::now() > until) {
      return filled;
    }
  }
  return {};
}

/// Fetches blocks that this thread has claimed, and notifies their waiters.
Status Image::fill(const BlockRange& range, bool ahead, Piece& piece) {
  bool is_hole = false;
  const Status status = read(range, is_hole, piece);
  if (!status && range.count > 1) {
    // A lost chunk must not deny its neighbour's blocks, so each wanted block is fetched again
    // alone.
    for (std::uint64_t block = range.first; block < range.end(); ++block) {
      MutexLock lock(mutex_);
      const bool wanted = table_.is_wanted(block);
      std::vector<Waiter> none;
      if (!wanted) table_.failed({block, 1}, none);
      lock.unlock();
      if (wanted) static_cast<void>(fill({block, 1}, ahead, piece));
    }
    changed_.notify_all();
    return status;
  }
  std::vector<Waiter> waiters;
  {
    const MutexLock lock(mutex_);
    if (status) {
      table_.filled(range, waiters);
    } else {
      table_.failed(range, waiters);
    }
  }
  changed_.notify_all();
  if (status) {
    const std::uint64_t bytes = range.count * kBlockBytes;
    host_.counts.bytes_present += bytes;
    if (is_hole) {
      host_.counts.bytes_holes += bytes;
    } else {
      (ahead ? host_.counts.bytes_ahead : host_.counts.bytes_wanted) += bytes;
    }
  } else {
    ++host_.counts.failures;
  }
  for (const Waiter& waiter : waiters) {
    if (status) {
      host_.wake(waiter);
    } else {
      host_.deny(*this, waiter, range.first, status.error());  // a failed range is one block
    }
  }
  return status;
}

/// Reads from the source and writes to the memory file. Here pwrite(2) makes a page visible whole.
/// A shared mapping would show half a page to clones. A hole is not read: its zeros are made here.
Status Image::read(const BlockRange& range, bool& is_hole, Piece& piece) {
  const std::uint64_t offset = range.first * kBlockBytes;
  const std::uint64_t room = range.count * kBlockBytes;
  const std::uint64_t bytes = std::min(room, size_bytes_ - offset);
  is_hole = source_->is_hole(offset, bytes);
  const std::uint64_t filled = is_hole ? 0 : bytes;
  if (!is_hole) STDCHK_TRY(source_->read(offset, MutableByteSpan(piece).first(bytes)));
  std::memset(piece.data() + filled, 0, room - filled);
  const bool done = write_at(memory_.get(), offset, ByteSpan(piece).first(room));
  return done ? Status() : fail_errno("pager.memory");
}

void Image::forget(std::uint64_t clone) {
  const MutexLock lock(mutex_);
  table_.forget(clone);
}

std::uint64_t Image::evict_oldest() {
  const MutexLock lock(mutex_);
  const BlockRange range = table_.evict_oldest();
  if (range.count == 0) return 0;
  const std::uint64_t bytes = range.count * kBlockBytes;
  // Pages that a clone has written are its own and stay.
  static_cast<void>(::fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(range.first * kBlockBytes),
                                static_cast<off_t>(bytes)));
  host_.counts.bytes_present -= bytes;
  host_.counts.bytes_evicted += bytes;
  return bytes;
}

std::uint64_t Image::present_bytes() const {
  const MutexLock lock(mutex_);
  return table_.present_count() * kBlockBytes;
}

void Image::visit_absent(const std::function<void(const BlockRange&)>& visit) const {
  const MutexLock lock(mutex_);
  for (std::uint64_t at = 0; at < table_.block_count();) {
    BlockRange range{at, 0};
    while (range.end() < table_.block_count() &&
           table_.state(range.end()) != BlockTable::State::kPresent) {
      ++range.count;
    }
    if (range.count > 0) visit(range);
    at = range.end() + 1;
  }
}

void Image::use_order(std::string_view text) {
  const MutexLock lock(mutex_);
  auto order = TouchOrder::decode(text, table_.block_count());
  if (!order) return;
  recorded_ = std::move(*order);
}

std::string Image::new_order() const {
  const MutexLock lock(mutex_);
  return touched_.size() > recorded_.size() ? touched_.encode() : std::string();
}

}  // namespace stdchk::pager
