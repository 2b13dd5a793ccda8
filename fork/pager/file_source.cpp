#include "fork/pager/file_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "core/base/whole_io.h"

namespace stdchk::pager {

Result<std::shared_ptr<FileSource>> FileSource::create(Descriptor file, std::string name) {
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return fail_errno("pager.source");
  const int flags = ::fcntl(file.get(), F_GETFL);
  if (!S_ISREG(found.st_mode) || flags < 0 || (flags & O_ACCMODE) == O_WRONLY ||
      (flags & O_PATH) != 0) {
    return fail(Code::kInvalidArgument, "pager.source: not a regular file open for reading");
  }
  const auto size = static_cast<std::uint64_t>(found.st_size);
  std::string key = fmt::format("file:{}:{}:{}:{}.{}", found.st_dev, found.st_ino, size,
                                found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
  return std::shared_ptr<FileSource>(
      new FileSource(std::move(file), std::move(name), size, std::move(key)));
}

Status FileSource::read(std::uint64_t offset, MutableByteSpan out) {
  const ssize_t got = read_at(file_.get(), offset, out);
  if (got < 0) return fail_errno("pager.source");
  if (got < std::ssize(out)) {
    return fail(Code::kCorrupt, "pager.source: the file has become shorter");
  }
  return {};
}

bool FileSource::is_hole(std::uint64_t offset, std::uint64_t bytes) {
  const off_t data = ::lseek(file_.get(), static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0) return errno == ENXIO;  // no data follows
  return static_cast<std::uint64_t>(data) >= offset + bytes;
}

}  // namespace stdchk::pager
