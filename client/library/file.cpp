// Open files of the C interface.
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <span>
#include <string>

#include "client/library/errors.h"
#include "client/library/objects.h"
#include "client/library/paths.h"
#include "core/base/mutex.h"

using namespace stdchk::client::library;
using stdchk::ByteSpan;
using stdchk::Code;
using stdchk::MutexLock;
using stdchk::Result;

namespace {

Result<std::unique_ptr<stdchk::client::File>> open_file(stdchk::client::Filesystem& filesystem,
                                                        const char* path, int flags, mode_t mode) {
  stdchk::client::OpenFlags open;
  const int access = flags & O_ACCMODE;
  open.read = access == O_RDONLY || access == O_RDWR;
  open.write = access == O_WRONLY || access == O_RDWR;
  open.create = (flags & O_CREAT) != 0;
  open.exclusive = (flags & O_EXCL) != 0 && open.create;
  open.truncate = (flags & O_TRUNC) != 0 && open.write;
  open.append = (flags & O_APPEND) != 0 && open.write;
  const bool stays = open.exclusive || (flags & O_NOFOLLOW) != 0;
  STDCHK_ASSIGN(const Place place,
                walk(filesystem, path, stays ? LastLink::kStay : LastLink::kFollow));
  if (!place.attributes && !open.create) return stdchk::fail(Code::kNotFound, "stdchk_open");
  if (place.attributes && open.exclusive) return stdchk::fail(Code::kExists, "stdchk_open");
  if (place.attributes && place.attributes->type == stdchk::FileType::kDirectory) {
    return stdchk::fail(Code::kIsDirectory, "stdchk_open");
  }
  if (place.attributes && place.attributes->type == stdchk::FileType::kSymlink) {
    return stdchk::fail(Code::kSystem, "stdchk_open", ELOOP);
  }
  if (open.create) {
    return filesystem.create(place.parent, place.name, open,
                             stdchk::client::Owner{mode & 07777, ::getuid(), ::getgid()});
  }
  return filesystem.open(place.attributes->id, open);
}

int failed_reserved(const char* call) {
  return failed(Code::kBusy, std::string(call) +
                                 ": a reservation of this file was not submitted yet; submit it, "
                                 "or 0 bytes of it.");
}

int failed_count(const char* call) {
  return failed(Code::kInvalidArgument, std::string(call) + ": `count` is 0 to 1024 buffers.");
}

ByteSpan bytes_of(const void* bytes, size_t count) {
  return {static_cast<const std::byte*>(bytes), count};
}

}  // namespace

extern "C" {

stdchk_file* stdchk_open(stdchk_pool* pool, const char* path, int flags, mode_t mode) {
  auto file = open_file(*pool->filesystem, path, flags, mode);
  if (!file.has_value()) {
    failed(file.error());
    return nullptr;
  }
  auto* opened = new stdchk_file;
  opened->file = std::move(*file);
  opened->append = (flags & O_APPEND) != 0;
  return opened;
}

ssize_t stdchk_pwrite(stdchk_file* file, const void* bytes, size_t count, uint64_t offset) {
  const auto status = file->file->write(offset, bytes_of(bytes, count));
  return status.has_value() ? static_cast<ssize_t>(count) : failed(status.error());
}

ssize_t stdchk_write(stdchk_file* file, const void* bytes, size_t count) {
  const MutexLock lock(file->mutex);
  if (file->reserved > 0) return failed_reserved("stdchk_write");
  const ssize_t written = stdchk_pwrite(file, bytes, count, file->position);
  if (written < 0) return written;
  file->position += count;
  if (file->append) file->position = file->file->attributes().size_bytes;
  return written;
}

ssize_t stdchk_pread(stdchk_file* file, void* bytes, size_t count, uint64_t offset) {
  const auto got = file->file->read(offset, {static_cast<std::byte*>(bytes), count});
  return got.has_value() ? static_cast<ssize_t>(*got) : failed(got.error());
}

ssize_t stdchk_read(stdchk_file* file, void* bytes, size_t count) {
  const MutexLock lock(file->mutex);
  if (file->reserved > 0) return failed_reserved("stdchk_read");
  const ssize_t got = stdchk_pread(file, bytes, count, file->position);
  if (got > 0) file->position += static_cast<std::uint64_t>(got);
  return got;
}

ssize_t stdchk_pwritev(stdchk_file* file, const struct iovec* buffers, int count, uint64_t offset) {
  if (count < 0 || count > IOV_MAX) return failed_count("stdchk_pwritev");
  std::size_t done = 0;
  for (const iovec& each : std::span(buffers, static_cast<std::size_t>(count))) {
    if (stdchk_pwrite(file, each.iov_base, each.iov_len, offset + done) < 0) return -1;
    done += each.iov_len;
  }
  return static_cast<ssize_t>(done);
}

ssize_t stdchk_preadv(stdchk_file* file, const struct iovec* buffers, int count, uint64_t offset) {
  if (count < 0 || count > IOV_MAX) return failed_count("stdchk_preadv");
  std::size_t done = 0;
  for (const iovec& each : std::span(buffers, static_cast<std::size_t>(count))) {
    const ssize_t got = stdchk_pread(file, each.iov_base, each.iov_len, offset + done);
    if (got < 0) return -1;
    done += static_cast<std::size_t>(got);
    if (static_cast<std::size_t>(got) < each.iov_len) break;
  }
  return static_cast<ssize_t>(done);
}

int stdchk_truncate(stdchk_file* file, uint64_t size) {
  const auto status = file->file->truncate(size);
  return ended(status);
}

void* stdchk_reserve(stdchk_file* file, size_t* count) {
  const MutexLock lock(file->mutex);
  if (file->reserved > 0) {
    failed_reserved("stdchk_reserve");
    return nullptr;
  }
  if (file->append) file->position = file->file->attributes().size_bytes;
  const auto span = file->file->reserve(file->position, *count);
  if (!span.has_value()) {
    failed(span.error());
    return nullptr;
  }
  file->reserved = *count = span->size();
  return span->data();
}

int stdchk_submit(stdchk_file* file, size_t count) {
  const MutexLock lock(file->mutex);
  if (file->reserved == 0)
    return failed(Code::kInvalidArgument, "stdchk_submit: nothing is reserved.");
  if (count > file->reserved) {
    return failed(Code::kInvalidArgument, "stdchk_submit: only " + std::to_string(file->reserved) +
                                              " bytes are reserved, and still are.");
  }
  const auto status = file->file->submit(file->position, count);
  // A submit() that fails has returned the buffer to the library, too.
  file->reserved = 0;
  if (!status.has_value()) return failed(status.error());
  file->position += count;
  return 0;
}

int stdchk_sync(stdchk_file* file) {
  {
    const MutexLock lock(file->mutex);
    if (file->reserved > 0) return failed_reserved("stdchk_sync");
  }
  const auto status = file->file->sync();
  return ended(status);
}

int stdchk_close(stdchk_file* file) {
  const auto status = file->file->close();
  delete file;
  return ended(status);
}

void stdchk_abort(stdchk_file* file) {
  file->file->abort();
  delete file;
}

}  // extern "C"
