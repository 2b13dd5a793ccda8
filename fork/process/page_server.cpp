#include "fork/process/page_server.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

namespace stdchk::fork {
namespace {

constexpr std::uint64_t kPage = 4096;

/// Puts bytes or zeros (`from` is nullptr) into missing pages. Returns 0 or an errno; sets `done` to
/// the number of bytes that were put there.
int put_once(int faults, const uffdio_range& to, const char* from, std::uint64_t& done) {
  std::int64_t put = 0;
  int error = 0;
  if (from != nullptr) {
    uffdio_copy copy{};
    copy.dst = to.start;
    copy.src = reinterpret_cast<std::uint64_t>(from);
    copy.len = to.len;
    if (::ioctl(faults, UFFDIO_COPY, &copy) != 0) error = errno;
    put = copy.copy;
  } else {
    uffdio_zeropage zero{};
    zero.range = to;
    if (::ioctl(faults, UFFDIO_ZEROPAGE, &zero) != 0) error = errno;
    put = zero.zeropage;
  }
  done = put > 0 ? static_cast<std::uint64_t>(put) : 0;
  return error;
}

void wake(int faults, std::uint64_t page) {
  uffdio_range range{page, kPage};
  ::ioctl(faults, UFFDIO_WAKE, &range);
}

}  // namespace

void put_pages(int faults, std::uint64_t to, std::uint64_t bytes, const char* from) {
  std::uint64_t most = bytes;
  for (std::uint64_t done = 0; done < bytes;) {
    const uffdio_range range{to + done, std::min(most, bytes - done)};
    std::uint64_t put = 0;
    const int error = put_once(faults, range, from == nullptr ? nullptr : from + done, put);
    done += put;
    if (error == 0 || put > 0) continue;
    if (error == EEXIST) {
      done += kPage;
    } else if (error == ENOENT) {
      // The range reaches over the border of a mapping, or a page's memory is gone. The kernel has
      // put no page.
      if (range.len == kPage) done += kPage;
      most = kPage;
    } else {
      return;  // EAGAIN: an event comes first, and the fault again after it. ESRCH: the process is
               // gone
    }
  }
}

void take_out(std::vector<PageServer::Segment>& segments, std::uint64_t begin, std::uint64_t end) {
  std::vector<PageServer::Segment> left;
  for (const PageServer::Segment& s : segments) {
    if (end <= s.begin || s.end <= begin) {
      left.push_back(s);
      continue;
    }
    if (s.begin < begin) left.push_back({s.begin, begin, s.source});
    if (end < s.end) left.push_back({end, s.end, s.source + (end - s.begin)});
  }
  segments = std::move(left);
}

MemoryPart block_without(const std::vector<PageServer::Segment>& segments, std::uint64_t address) {
  const std::uint64_t block = address & ~(PageServer::kBlockBytes - 1);
  MemoryPart part{block, block + PageServer::kBlockBytes};
  for (const PageServer::Segment& s : segments) {
    if (s.end <= address) part.begin = std::max(part.begin, s.end);
    if (address < s.begin) part.end = std::min(part.end, s.begin);
  }
  return part;
}

PageServer::PageServer(Watches& watches, std::vector<Segment> segments, Fetch fetch)
    : watches_(watches), first_(std::move(segments)), fetch_(std::move(fetch)) {}

PageServer::~PageServer() {
  for (const auto& [fd, memory] : memories_) watches_.remove(fd);
}

void PageServer::serve(Descriptor faults) { serve(std::move(faults), first_); }

void PageServer::serve(Descriptor faults, std::vector<Segment> segments) {
  const int fd = faults.get();
  memories_[fd] = {std::move(faults), std::move(segments)};
  watches_.add(fd, [this, fd] { on_event(fd); });
}

void PageServer::on_event(int fd) {
  Memory& memory = memories_.at(fd);
  std::array<uffd_msg, 16> messages;
  const ssize_t n = ::read(fd, messages.data(), sizeof(messages));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    watches_.remove(fd);
    memories_.erase(fd);
    return;
  }
  const std::span<const uffd_msg> got(messages.data(),
                                      static_cast<std::size_t>(n) / sizeof(uffd_msg));
  // Faults come before events, whatever their order. A fault may be at an address that an event
  // gives to other memory.
  for (const uffd_msg& message : got) follow(memory, message);
  for (const uffd_msg& message : got) {
    if (message.event == UFFD_EVENT_PAGEFAULT) {
      on_fault(memory, message.arg.pagefault.address & ~(kPage - 1));
    }
  }
}

/// Follows fork(2), mremap(2), munmap(2) and madvise(2) of the clone.
void PageServer::follow(Memory& memory, const uffd_msg& message) {
  switch (message.event) {
    case UFFD_EVENT_FORK:
      serve(Descriptor(static_cast<int>(message.arg.fork.ufd)), memory.segments);
      break;
    case UFFD_EVENT_REMAP: {
      const auto& moved = message.arg.remap;
      std::vector<Segment> kept = memory.segments;
      take_out(memory.segments, moved.from, moved.from + moved.len);
      take_out(memory.segments, moved.to, moved.to + moved.len);
      for (const Segment& s : kept) {
        const std::uint64_t begin = std::max<std::uint64_t>(s.begin, moved.from);
        const std::uint64_t end = std::min<std::uint64_t>(s.end, moved.from + moved.len);
        if (begin < end) {
          memory.segments.push_back({begin - moved.from + moved.to, end - moved.from + moved.to,
                                     s.source + (begin - s.begin)});
        }
      }
      break;
    }
    case UFFD_EVENT_REMOVE:
    case UFFD_EVENT_UNMAP:
      take_out(memory.segments, message.arg.remove.start, message.arg.remove.end);
      break;
    default:
      break;
  }
}

void PageServer::on_fault(Memory& memory, std::uint64_t address) {
  const int fd = memory.faults.get();
  const auto found =
      std::find_if(memory.segments.begin(), memory.segments.end(),
                   [&](const Segment& s) { return s.begin <= address && address < s.end; });
  if (found == memory.segments.end()) {
    const MemoryPart zeros = block_without(memory.segments, address);
    put_pages(fd, zeros.begin, zeros.end - zeros.begin, nullptr);
    wake(fd, address);
    return;
  }
  const std::uint64_t block = (found->source + (address - found->begin)) & ~(kBlockBytes - 1);
  if (const auto have = blocks_.find(block); have != blocks_.end()) {
    fill(memory, block, have->second);
    wake(fd, address);
    return;
  }
  auto& waiting = waiting_[block];
  if (waiting.empty()) fetch_(block, kBlockBytes);
  waiting.push_back({fd, address});
}

void PageServer::fetch_again() {
  for (const auto& [block, waiting] : waiting_) fetch_(block, kBlockBytes);
}

void PageServer::on_block(std::uint64_t address, std::string_view bytes) {
  if (bytes.size() != kBlockBytes) return;
  fetched_bytes_ += bytes.size();
  const std::string& block = blocks_[address] = std::string(bytes);
  const auto found = waiting_.find(address);
  if (found == waiting_.end()) return;
  const std::vector<Waiting> waiting = std::move(found->second);
  waiting_.erase(found);
  for (const Waiting& one : waiting) {
    const auto memory = memories_.find(one.faults);
    if (memory == memories_.end()) continue;
    fill(memory->second, address, block);
    wake(one.faults, one.address);  // the process faults again on a page that is still empty
  }
}

/// Copies the block to all its places in the clone's memory. UFFDIO_COPY wakes the threads that
/// wait for these pages.
void PageServer::fill(Memory& memory, std::uint64_t block, const std::string& bytes) {
  for (const Segment& s : memory.segments) {
    const std::uint64_t source_end = s.source + (s.end - s.begin);
    const std::uint64_t begin = std::max(block, s.source),
                        end = std::min(block + bytes.size(), source_end);
    if (begin >= end) continue;
    put_pages(memory.faults.get(), s.begin + (begin - s.source), end - begin,
              bytes.data() + (begin - block));
  }
}

}  // namespace stdchk::fork
