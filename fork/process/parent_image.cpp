#include "fork/process/parent_image.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "core/base/back_off.h"
#include "core/base/log.h"
#include "core/base/whole_io.h"
#include "core/base/zero_bytes.h"
#include "fork/pager/stdchk_map.h"
#include "fork/process/image_file.h"

namespace stdchk::fork {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
/// Number of blocks that are read at the same time.
constexpr std::size_t kReaders = 4;
/// A failed read is repeated this number of times. The pauses are 9.3 s in all. The client library
/// repeats reads, too.
constexpr int kRetriesMax = 5;
constexpr std::chrono::milliseconds kFirstPause{300};
constexpr std::chrono::milliseconds kLongestPause{4800};

/// Reads memory of another process. Pages that are not mapped there read as zeros. Returns 0 or an
/// errno.
int read_memory(const ProcessHandle& process, std::uint64_t address, std::string& out) {
  std::fill(out.begin(), out.end(), '\0');
  for (std::uint64_t done = 0; done < out.size();) {
    const ssize_t n = process.read(out.data() + done, address + done, out.size() - done);
    if (n > 0) {
      done += static_cast<std::uint64_t>(n);
    } else if (errno == EFAULT) {
      done += kPage;
    } else {
      return errno;
    }
  }
  return 0;
}

/// Writes the pages that are not zero, and leaves holes for the others. Returns 0 or an errno.
int write_pages(int file, const std::string& bytes, std::uint64_t offset) {
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t end = at;
    while (end < bytes.size() && !is_zero(std::as_bytes(std::span(bytes).subspan(end, kPage))))
      end += kPage;
    const auto pages = std::as_bytes(std::span(bytes).subspan(at, end - at));
    if (!write_at(file, offset + at, pages)) return errno;
    at = end + kPage;
  }
  return 0;
}

std::string sentence(const std::string& path, int error) {
  return fmt::format("{}: {}", path, std::strerror(error));
}

std::uint64_t size_of(const std::vector<ImageSegment>& segments) {
  return segments.empty() ? 0
                          : segments.back().offset + (segments.back().end - segments.back().begin);
}

}  // namespace

std::vector<ImageSegment> image_of(const std::vector<MemoryPart>& parts) {
  std::vector<ImageSegment> segments;
  std::uint64_t offset = 0;
  for (const MemoryPart& part : parts) {
    segments.push_back({part.begin, part.end, offset});
    offset += part.end - part.begin;
  }
  return segments;
}

ImageWriter::ImageWriter(Reactor& reactor, Process frozen, std::vector<ImageSegment> segments,
                         std::string path, Done done)
    : reactor_(reactor),
      frozen_(std::move(frozen)),
      segments_(std::move(segments)),
      path_(std::move(path)),
      done_(std::move(done)),
      thread_("fork-image", 1) {
  thread_.run([this, watch = lifetime_.watch()] {
    const Status posted = reactor_.post([this, watch, written = write()] {
      if (!watch.expired()) done_(written);
    });
    if (!posted) log::error("{}: {}", path_, describe(posted.error()));
  });
}

ImageWriter::~ImageWriter() { stopped_ = true; }

Outcome<void> ImageWriter::write() const {
  const auto file = make_image(path_);
  if (!file) return problem(file.error());
  for (const ImageSegment& segment : segments_) {
    for (std::uint64_t at = segment.begin; at < segment.end; at += kPieceBytes) {
      if (stopped_) return problem(path_ + ": the write was cancelled");
      std::string piece(std::min(kPieceBytes, segment.end - at), '\0');
      if (const int error = read_memory(*frozen_, at, piece); error != 0) {
        return problem(sentence("the frozen copy's memory", error));
      }
      const int error = write_pages(file->get(), piece, segment.offset + (at - segment.begin));
      if (error != 0) return problem(sentence(path_, error));
    }
  }
  // In a pool, fsync(2) commits the file.
  if (::ftruncate(file->get(), static_cast<off_t>(size_of(segments_))) != 0 ||
      ::fsync(file->get()) != 0) {
    return problem(sentence(path_, errno));
  }
  return {};
}

ImageReader::ImageReader(Reactor& reactor, const ImagePlace& place,
                         std::vector<ImageSegment> segments, Calls calls)
    : reactor_(reactor),
      place_(place),
      segments_(std::move(segments)),
      calls_(std::move(calls)),
      threads_(std::make_unique<ThreadExecutor>("fork-pages", kReaders)) {
  threads_->run([this] { post([this, opened = open()] { calls_.on_open(opened); }); });
}

ImageReader::~ImageReader() {
  stopped_ = true;
  threads_.reset();
  if (mapped_ != nullptr) stdchk_unmap_image(const_cast<char*>(mapped_));
}

void ImageReader::post(std::function<void()> call) {
  const Status posted = reactor_.post([watch = lifetime_.watch(), call = std::move(call)] {
    if (!watch.expired()) call();
  });
  if (!posted) log::error("the image {}: {}", place_.path, describe(posted.error()));
}

Outcome<void> ImageReader::open() {
  // A parent without pages has an image of no bytes, which a page server cannot map.
  if (segments_.empty()) return {};
  if (place_.pager[0] == '\0') {
    auto file = open_image(place_.path, size_of(segments_));
    if (!file) return problem(file.error());
    file_ = std::move(*file);
    ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_RANDOM);
    return {};
  }
  stdchk_map_options options;
  stdchk_map_options_init(&options);
  options.protection = PROT_READ;
  options.socket = place_.pager;
  std::size_t length = 0;
  mapped_ = static_cast<const char*>(stdchk_map_image(place_.pool_path, &options, &length));
  if (mapped_ == nullptr) return problem(stdchk_map_error());
  if (length >= size_of(segments_)) return {};
  return problem(fmt::format("the image {} is shorter than the parent's memory", place_.pool_path));
}

void ImageReader::fetch(std::uint64_t address, std::uint64_t bytes) {
  threads_->run([this, address, bytes] {
    BackOff pauses(kFirstPause, kLongestPause);
    for (int retries = 0; !stopped_; retries++) {
      auto block = read(address, bytes);
      if (block) {
        return post(
            [this, address, block = std::move(*block)] { calls_.on_block(address, block); });
      }
      if (retries == kRetriesMax) {
        return post([this, error = block.error()] {
          calls_.on_lost({error, fmt::format("{}: {}", place_.path, describe(error))});
        });
      }
      std::this_thread::sleep_for(pauses.next());
    }
  });
}

/// Addresses outside all segments read as zeros.
Result<std::string> ImageReader::read(std::uint64_t address, std::uint64_t bytes) const {
  std::string block(bytes, '\0');
  for (const ImageSegment& segment : segments_) {
    const std::uint64_t begin = std::max(address, segment.begin);
    const std::uint64_t end = std::min(address + bytes, segment.end);
    if (begin >= end) continue;
    STDCHK_TRY(read_at(segment.offset + (begin - segment.begin), block.data() + (begin - address),
                       end - begin));
  }
  return block;
}

Status ImageReader::read_at(std::uint64_t offset, char* to, std::size_t bytes) const {
  if (mapped_ != nullptr) {
    if (stdchk_map_fetch(mapped_ + offset, bytes) != 0) return fail_errno("fork.image.fetch");
    // The page server may have evicted the pages meanwhile. If they cannot be fetched again, this
    // call fails. A direct access would end the process by SIGBUS.
    const iovec local{to, bytes};
    const iovec mapped{const_cast<char*>(mapped_ + offset), bytes};
    const ssize_t n = ::process_vm_readv(::getpid(), &local, 1, &mapped, 1, 0);
    return n == static_cast<ssize_t>(bytes) ? Status() : fail_errno("fork.image.mapped");
  }
  const ssize_t n =
      stdchk::read_at(file_.get(), offset, std::as_writable_bytes(std::span(to, bytes)));
  if (n < 0) return fail_errno("fork.image.read");
  if (n < static_cast<ssize_t>(bytes)) {
    return fail(Code::kCorrupt, "fork.image.read: the image is shorter");
  }
  return {};
}

}  // namespace stdchk::fork
