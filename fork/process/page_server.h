#pragma once

#include <linux/userfaultfd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/descriptor.h"
#include "fork/process/population.h"
#include "fork/process/watches.h"

namespace stdchk::fork {

/// A PageServer fills the memory of clones on this host page by page, from the frozen copy on the
/// parent's host. It keeps each block that has come, so that a block is fetched once for all clones
/// of the host.
///
/// It follows the clones' memory by the events of userfaultfd(2). A fork's child is served, too.
/// Moved memory keeps its source. Memory that a clone has released (MADV_DONTNEED, munmap) reads as
/// zeros afterwards. Memory without pages in the parent has no segment and reads as zeros, too. The
/// clone keeps this memory registered with the userfaultfd: mremap(2) fails over a split mapping.
///
/// Owns: the userfaultfds. Threads: the reactor's.
class PageServer {
 public:
  static constexpr std::uint64_t kBlockBytes = 64 * 1024;
  struct Segment {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t source = 0;  ///< address of `begin` in the frozen copy
  };
  /// Asks for a block of the frozen copy; on_block() brings it.
  using Fetch = std::function<void(std::uint64_t address, std::uint64_t bytes)>;

  PageServer(Watches& watches, std::vector<Segment> segments, Fetch fetch);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  /// Serves the process that has registered its memory with this userfaultfd.
  void serve(Descriptor faults);
  void on_block(std::uint64_t address, std::string_view bytes);
  /// Requests all missing blocks again.
  void fetch_again();
  std::uint64_t fetched_bytes() const { return fetched_bytes_; }

 private:
  struct Memory {
    Descriptor faults;
    std::vector<Segment> segments;
  };
  void serve(Descriptor faults, std::vector<Segment> segments);
  void on_event(int fd);
  void follow(Memory& memory, const uffd_msg& message);
  void on_fault(Memory& memory, std::uint64_t address);
  static void fill(Memory& memory, std::uint64_t block, const std::string& bytes);

  Watches& watches_;
  const std::vector<Segment> first_;
  const Fetch fetch_;
  std::map<int, Memory> memories_;
  std::map<std::uint64_t, std::string> blocks_;  ///< by address in the frozen copy
  struct Waiting {
    int faults = -1;
    std::uint64_t address = 0;
  };
  std::map<std::uint64_t, std::vector<Waiting>> waiting_;  ///< by the block that they wait for
  std::uint64_t fetched_bytes_ = 0;
};

/// Puts bytes where pages are missing, or zeros when `from` is nullptr. Pages that are there stay.
/// The range may reach over borders of mappings, and over memory that is gone.
void put_pages(int faults, std::uint64_t to, std::uint64_t bytes, const char* from);
/// The part of the block at `address` that belongs to no segment. `address` belongs to none.
MemoryPart block_without(const std::vector<PageServer::Segment>& segments, std::uint64_t address);
/// Removes a range from segments.
void take_out(std::vector<PageServer::Segment>& segments, std::uint64_t begin, std::uint64_t end);

}  // namespace stdchk::fork
