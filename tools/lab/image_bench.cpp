#include "tools/lab/image_bench.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "core/base/units.h"
#include "tools/base/exit_status.h"
#include "tools/base/process.h"
#include "tools/base/share_out.h"

namespace stdchk::tools {
namespace {

using Clock = std::chrono::steady_clock;

/// Every page has a stamp, so that all pages of all images differ.
constexpr std::size_t kPage = 4096;

Problem system_problem(const char* what, const std::string& path) {
  return Problem{{}, fmt::format("{} {}: {}", what, path, std::strerror(errno))};
}

/// An open file. The destructor closes it without a check if close() was not called.
class OpenedFile {
 public:
  OpenedFile(const std::string& path, int flags) : fd_(::open(path.c_str(), flags, 0600)) {}
  ~OpenedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  int fd() const { return fd_; }
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

}  // namespace

Outcome<std::unique_ptr<Scratch>> Scratch::make_in(const std::string& directory) {
  std::string path = directory + "/stdchk-bench.XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return problem(system_problem("cannot make a folder in", directory));
  }
  return std::unique_ptr<Scratch>(new Scratch(std::move(path)));
}

Scratch::~Scratch() {
  std::error_code code;
  std::filesystem::remove_all(path_, code);
  if (code) (void)complain(fmt::format("{} stays: {}", path_, code.message()));
}

Outcome<void> check_room(const std::string& directory, std::uint64_t wanted,
                         const std::string& remedy) {
  struct statvfs space {};
  if (::statvfs(directory.c_str(), &space) != 0) {
    return problem(system_problem("cannot look at", directory));
  }
  const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
  if (free >= wanted) return {};
  return problem("{} has {} free, and {} are needed; {}", directory, format_bytes(free),
                 format_bytes(wanted), remedy);
}

ImageBench::ImageBench(const ImageLoad& load) : load_(load) {
  std::mt19937_64 random{std::random_device{}()};
  for (std::uint32_t i = 0; i < load.ranks; ++i) {
    Rank& rank = ranks_.emplace_back();
    rank.number = i;
    rank.block.resize(load.block_bytes);
    for (std::size_t at = 0; at + 8 <= rank.block.size(); at += 8) {
      const std::uint64_t word = random();
      std::memcpy(rank.block.data() + at, &word, sizeof word);
    }
  }
}

template <class Work>
Outcome<void> ImageBench::do_all(const Work& work) {
  share_out(ranks_, ranks_.size(), [&] { return [&](Rank& rank) { rank.done = work(rank); }; });
  for (const Rank& rank : ranks_) {
    if (!rank.done) return problem(rank.done.error());
  }
  return {};
}

Outcome<ImageBench::WriteRates> ImageBench::write(const std::string& directory,
                                                  std::uint32_t round) {
  round_ = round;
  for (Rank& rank : ranks_)
    rank.path = fmt::format("{}/bench.N{}.T{}", directory, rank.number, round);
  WriteRates rates;
  const auto began = Clock::now();
  if (auto done = do_all([&](Rank& rank) { return write_image(rank); }); !done) {
    return problem(done.error());
  }
  rates.closed = bytes() / seconds_since(began);
  if (auto done = do_all(store_image); !done) return problem(done.error());
  rates.stored = bytes() / seconds_since(began);
  return rates;
}

Outcome<double> ImageBench::read() {
  const auto began = Clock::now();
  if (auto done = do_all([&](Rank& rank) { return read_image(rank); }); !done) {
    return problem(done.error());
  }
  return bytes() / seconds_since(began);
}

void ImageBench::remove() {
  for (const Rank& rank : ranks_) ::unlink(rank.path.c_str());
}

Outcome<void> ImageBench::write_image(Rank& rank) {
  OpenedFile file(rank.path, O_WRONLY | O_CREAT | O_EXCL);
  if (file.fd() < 0) return problem(system_problem("cannot create", rank.path));
  for (std::uint64_t at = 0; at < load_.image_bytes;) {
    if (asked_to_end()) return problem("ended by a signal");
    const std::size_t bytes = block_at(at);
    for (std::size_t page = 0; page + sizeof(Stamp) <= bytes; page += kPage) {
      const Stamp mark = stamp(rank, (at + page) / kPage);
      std::memcpy(rank.block.data() + page, mark.data(), sizeof mark);
    }
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t count = ::write(file.fd(), rank.block.data() + done, bytes - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return problem(system_problem("cannot write", rank.path));
      done += static_cast<std::size_t>(count);
    }
    at += bytes;
  }
  if (!file.close()) return problem(system_problem("cannot close", rank.path));
  return {};
}

/// Makes sure that the image is stored. A mount with early close stores it before the next open;
/// other file systems at fsync.
Outcome<void> ImageBench::store_image(Rank& rank) {
  const OpenedFile file(rank.path, O_RDONLY);
  if (file.fd() < 0) return problem(system_problem("cannot open", rank.path));
  if (::fsync(file.fd()) != 0) return problem(system_problem("cannot sync", rank.path));
  // The next read should bypass this machine's page cache.
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
  return {};
}

Outcome<void> ImageBench::read_image(Rank& rank) {
  const OpenedFile file(rank.path, O_RDONLY);
  if (file.fd() < 0) return problem(system_problem("cannot open", rank.path));
  for (std::uint64_t at = 0; at < load_.image_bytes;) {
    if (asked_to_end()) return problem("ended by a signal");
    const std::size_t bytes = block_at(at);
    for (std::size_t done = 0; done < bytes;) {
      const ssize_t count = ::read(file.fd(), rank.block.data() + done, bytes - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return problem(system_problem("cannot read", rank.path));
      if (count == 0) return problem("{} is too short: it ends at {}", rank.path, at + done);
      done += static_cast<std::size_t>(count);
    }
    for (std::size_t page = 0; page + sizeof(Stamp) <= bytes; page += kPage) {
      const Stamp mark = stamp(rank, (at + page) / kPage);
      if (std::memcmp(rank.block.data() + page, mark.data(), sizeof mark) != 0) {
        return problem("{} has other bytes at {} than were written", rank.path, at + page);
      }
    }
    at += bytes;
  }
  return {};
}

std::size_t ImageBench::block_at(std::uint64_t at) const {
  return static_cast<std::size_t>(std::min(load_.block_bytes, load_.image_bytes - at));
}

}  // namespace stdchk::tools
