#include "shims/veloc/region_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace stdchk::shims {
namespace {

constexpr char kMagic[] = "STDCHKV1";
constexpr std::uint64_t kMagicBytes = 8, kRegionsMax = 1u << 20;
// A call of write(2) or read(2) moves at most 2 GiB less a page.
constexpr std::size_t kTransferMax = std::size_t{1} << 30;

// A Descriptor closes a file at the end of its scope.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  // Returns false when the file could not be committed.
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

std::string failure(const char* what, const std::string& path) {
  return std::string("cannot ") + what + " " + path + ": " + std::strerror(errno);
}

bool write_all(int fd, const void* bytes, std::size_t count) {
  const char* next = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = ::write(fd, next, std::min(count, kTransferMax));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    next += done;
    count -= static_cast<std::size_t>(done);
  }
  return true;
}

bool read_all(int fd, void* bytes, std::size_t count, std::uint64_t offset) {
  char* next = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t done =
        ::pread(fd, next, std::min(count, kTransferMax), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = EIO;  // the file is shorter than its header says
    if (done <= 0) return false;
    next += done;
    offset += static_cast<std::uint64_t>(done);
    count -= static_cast<std::size_t>(done);
  }
  return true;
}

}  // namespace

std::string write_regions(const std::string& path, const std::map<int, Region>& regions) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (file.get() < 0) return failure("write", path);
  std::vector<std::int64_t> header = {static_cast<std::int64_t>(regions.size())};
  for (const auto& [id, region] : regions) {
    header.push_back(id);
    header.push_back(static_cast<std::int64_t>(region.bytes));
  }
  bool is_good = write_all(file.get(), kMagic, kMagicBytes) &&
                 write_all(file.get(), header.data(), header.size() * 8);
  for (const auto& [id, region] : regions) {
    is_good = is_good && write_all(file.get(), region.first, region.bytes);
  }
  if (!is_good || !file.close()) return failure("write", path);
  return "";
}

std::string read_places(const std::string& path, std::map<int, RegionPlace>* places) {
  Descriptor file(path, O_RDONLY);
  struct stat attributes {};
  if (file.get() < 0 || ::fstat(file.get(), &attributes) != 0) return failure("read", path);
  const auto size = static_cast<std::uint64_t>(attributes.st_size);
  char magic[kMagicBytes];
  std::uint64_t count = 0;
  if (size < kMagicBytes + 8 || !read_all(file.get(), magic, kMagicBytes, 0) ||
      std::memcmp(magic, kMagic, kMagicBytes) != 0 ||
      !read_all(file.get(), &count, 8, kMagicBytes) || count > kRegionsMax ||
      size < kMagicBytes + 8 + count * 16) {
    return path + " is not a file of protected regions";
  }
  std::vector<std::int64_t> header(count * 2);
  if (!read_all(file.get(), header.data(), header.size() * 8, kMagicBytes + 8))
    return failure("read", path);
  std::uint64_t offset = kMagicBytes + 8 + count * 16;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bytes = static_cast<std::uint64_t>(header[2 * i + 1]);
    if (bytes > size - offset) return path + " is shorter than its header says";
    (*places)[static_cast<int>(header[2 * i])] = {offset, bytes};
    offset += bytes;
  }
  return "";
}

std::string read_regions(const std::string& path, const std::vector<int>& ids,
                         const std::map<int, Region>& regions) {
  std::map<int, RegionPlace> places;
  if (auto problem = read_places(path, &places); !problem.empty()) return problem;
  Descriptor file(path, O_RDONLY);
  if (file.get() < 0) return failure("read", path);
  for (const int id : ids) {
    const auto place = places.find(id);
    const auto region = regions.find(id);
    const std::string name = "the region " + std::to_string(id);
    if (place == places.end()) return name + " is not in " + path;
    if (region == regions.end()) return name + " is not protected";
    if (region->second.bytes < place->second.bytes)
      return name + " is smaller than in the checkpoint";
    if (!read_all(file.get(), region->second.first, place->second.bytes, place->second.offset)) {
      return failure("read", path);
    }
  }
  return "";
}

}  // namespace stdchk::shims
