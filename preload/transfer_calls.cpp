// Calls that move bytes, and the position.
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "core/base/mutex.h"
#include "preload/open_files.h"
#include "preload/real.h"

using stdchk::MutexLock;
using namespace stdchk::preload;

namespace {

OpenFilePtr find(int fd) { return OpenFiles::all().find(fd); }

/// False, with errno set, when bytes cannot be moved.
bool moves(const OpenFile& file) {
  if (file.is_folder()) errno = EISDIR;
  return !file.is_folder() && file.usable();
}

ssize_t read_at(OpenFile& file, void* bytes, size_t count, std::uint64_t offset) {
  return moves(file) ? stdchk_pread(file.file, bytes, count, offset) : -1;
}

ssize_t write_at(OpenFile& file, const void* bytes, size_t count, std::uint64_t offset) {
  file.preserves_times = false;
  return moves(file) ? stdchk_pwrite(file.file, bytes, count, offset) : -1;
}

ssize_t read_on(OpenFile& file, void* bytes, size_t count) {
  const MutexLock lock(file.mutex);
  const ssize_t got = read_at(file, bytes, count, file.position);
  if (got > 0) file.position += static_cast<std::uint64_t>(got);
  return got;
}

std::uint64_t size_of(OpenFile& file) {
  stdchk_attributes found{};
  stdchk_fstat(file.file, &found);
  return found.size_bytes;
}

ssize_t write_on(OpenFile& file, const void* bytes, size_t count) {
  const MutexLock lock(file.mutex);
  const ssize_t written = write_at(file, bytes, count, file.position);
  if (written < 0) return written;
  file.position += static_cast<std::uint64_t>(written);
  if ((file.flags & O_APPEND) != 0) file.position = size_of(file);
  return written;
}

/// Repeats `move` for each buffer, until one is short. Returns the sum, or -1 when nothing moved.
template <class Move>
ssize_t each_buffer(const iovec* buffers, int count, const Move& move) {
  ssize_t done = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t moved = move(buffers[i], static_cast<std::uint64_t>(done));
    if (moved < 0) return done > 0 ? done : moved;
    done += moved;
    if (static_cast<size_t>(moved) < buffers[i].iov_len) break;
  }
  return done;
}

off_t seek(OpenFile& file, off_t offset, int whence) {
  if (!moves(file)) return -1;
  const MutexLock lock(file.mutex);
  const auto size =
      static_cast<off_t>(whence == SEEK_SET || whence == SEEK_CUR ? 0 : size_of(file));
  // No holes: data reaches from the beginning to the end.
  if ((whence == SEEK_DATA || whence == SEEK_HOLE) && (offset < 0 || offset >= size)) {
    errno = ENXIO;
    return -1;
  }
  off_t at = offset;
  if (whence == SEEK_CUR) at += static_cast<off_t>(file.position);
  if (whence == SEEK_END) at += size;
  if (whence == SEEK_HOLE) at = size;
  if (at < 0) {
    errno = EINVAL;
    return -1;
  }
  file.position = static_cast<std::uint64_t>(at);
  return at;
}

int refuse(int error) {
  errno = error;
  return -1;
}

}  // namespace

extern "C" {

ssize_t read(int fd, void* bytes, size_t count) {
  const OpenFilePtr file = find(fd);
  return file ? read_on(*file, bytes, count) : STDCHK_REAL(read)(fd, bytes, count);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  const OpenFilePtr file = find(fd);
  return file ? write_on(*file, bytes, count) : STDCHK_REAL(write)(fd, bytes, count);
}

ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  const OpenFilePtr file = find(fd);
  return file ? read_at(*file, bytes, count, static_cast<std::uint64_t>(offset))
              : STDCHK_REAL(pread)(fd, bytes, count, offset);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  const OpenFilePtr file = find(fd);
  return file ? write_at(*file, bytes, count, static_cast<std::uint64_t>(offset))
              : STDCHK_REAL(pwrite)(fd, bytes, count, offset);
}

ssize_t readv(int fd, const iovec* buffers, int count) {
  const OpenFilePtr file = find(fd);
  if (file == nullptr) return STDCHK_REAL(readv)(fd, buffers, count);
  return each_buffer(buffers, count, [&](const iovec& each, std::uint64_t) {
    return read_on(*file, each.iov_base, each.iov_len);
  });
}

ssize_t writev(int fd, const iovec* buffers, int count) {
  const OpenFilePtr file = find(fd);
  if (file == nullptr) return STDCHK_REAL(writev)(fd, buffers, count);
  return each_buffer(buffers, count, [&](const iovec& each, std::uint64_t) {
    return write_on(*file, each.iov_base, each.iov_len);
  });
}

ssize_t preadv(int fd, const iovec* buffers, int count, off_t offset) {
  const OpenFilePtr file = find(fd);
  if (file == nullptr) return STDCHK_REAL(preadv)(fd, buffers, count, offset);
  return each_buffer(buffers, count, [&](const iovec& each, std::uint64_t done) {
    return read_at(*file, each.iov_base, each.iov_len, static_cast<std::uint64_t>(offset) + done);
  });
}

ssize_t pwritev(int fd, const iovec* buffers, int count, off_t offset) {
  const OpenFilePtr file = find(fd);
  if (file == nullptr) return STDCHK_REAL(pwritev)(fd, buffers, count, offset);
  return each_buffer(buffers, count, [&](const iovec& each, std::uint64_t done) {
    return write_at(*file, each.iov_base, each.iov_len, static_cast<std::uint64_t>(offset) + done);
  });
}

ssize_t pread64(int fd, void* bytes, size_t count, off_t offset) __attribute__((alias("pread")));
ssize_t pwrite64(int fd, const void* bytes, size_t count, off_t offset)
    __attribute__((alias("pwrite")));
ssize_t preadv64(int fd, const iovec* buffers, int count, off_t offset)
    __attribute__((alias("preadv")));
ssize_t pwritev64(int fd, const iovec* buffers, int count, off_t offset)
    __attribute__((alias("pwritev")));

// Programs that were compiled with _FORTIFY_SOURCE call these.
// NOLINTBEGIN(bugprone-reserved-identifier): the C library names these functions.
ssize_t __read_chk(int fd, void* bytes, size_t count, size_t room) {
  return count <= room ? read(fd, bytes, count) : (std::abort(), -1);
}
ssize_t __pread_chk(int fd, void* bytes, size_t count, off_t offset, size_t room) {
  return count <= room ? pread(fd, bytes, count, offset) : (std::abort(), -1);
}
ssize_t __pread64_chk(int fd, void* bytes, size_t count, off_t offset, size_t room)
    __attribute__((alias("__pread_chk")));
// NOLINTEND(bugprone-reserved-identifier)

off_t lseek(int fd, off_t offset, int whence) noexcept {
  const OpenFilePtr file = find(fd);
  return file ? seek(*file, offset, whence) : STDCHK_REAL(lseek)(fd, offset, whence);
}
off_t lseek64(int fd, off_t offset, int whence) noexcept __attribute__((alias("lseek")));

int fsync(int fd) {
  const OpenFilePtr file = find(fd);
  if (file == nullptr) return STDCHK_REAL(fsync)(fd);
  const bool writes = !file->is_folder() && (file->flags & O_ACCMODE) != O_RDONLY;
  return !writes ? 0 : moves(*file) ? stdchk_sync(file->file) : -1;
}
int fdatasync(int fd) { return find(fd) != nullptr ? fsync(fd) : STDCHK_REAL(fdatasync)(fd); }

int ftruncate(int fd, off_t size) noexcept {
  const OpenFilePtr file = find(fd);
  if (file == nullptr) return STDCHK_REAL(ftruncate)(fd, size);
  if (size < 0) return refuse(EINVAL);
  return moves(*file) ? stdchk_truncate(file->file, static_cast<std::uint64_t>(size)) : -1;
}
int ftruncate64(int fd, off_t size) noexcept __attribute__((alias("ftruncate")));

int posix_fadvise(int fd, off_t offset, off_t bytes, int advice) noexcept {
  return find(fd) != nullptr ? 0 : STDCHK_REAL(posix_fadvise)(fd, offset, bytes, advice);
}
int posix_fadvise64(int fd, off_t offset, off_t bytes, int advice) noexcept
    __attribute__((alias("posix_fadvise")));

// Refused: the kernel would act on the placeholder. Programs then use read() and write().
int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return find(fd) != nullptr ? refuse(EOPNOTSUPP) : STDCHK_REAL(fallocate)(fd, mode, offset, bytes);
}
int fallocate64(int fd, int mode, off_t offset, off_t bytes) __attribute__((alias("fallocate")));
int posix_fallocate(int fd, off_t offset, off_t bytes) {
  return find(fd) != nullptr ? EOPNOTSUPP : STDCHK_REAL(posix_fallocate)(fd, offset, bytes);
}
int posix_fallocate64(int fd, off_t offset, off_t bytes) __attribute__((alias("posix_fallocate")));
ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t count,
                        unsigned flags) {
  if (find(from) != nullptr || find(to) != nullptr) return refuse(EXDEV);
  return STDCHK_REAL(copy_file_range)(from, from_offset, to, to_offset, count, flags);
}
ssize_t sendfile(int to, int from, off_t* offset, size_t count) noexcept {
  if (find(from) != nullptr || find(to) != nullptr) return refuse(EINVAL);
  return STDCHK_REAL(sendfile)(to, from, offset, count);
}
ssize_t sendfile64(int to, int from, off_t* offset, size_t count) noexcept
    __attribute__((alias("sendfile")));
ssize_t splice(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t count,
               unsigned flags) {
  if (find(from) != nullptr || find(to) != nullptr) return refuse(EINVAL);
  return STDCHK_REAL(splice)(from, from_offset, to, to_offset, count, flags);
}

}  // extern "C"
