// The C interface: translates calls to client::Filesystem and decides nothing itself.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>

#include "client/api/filesystem.h"
#include "client/api/stdchk.h"
#include "core/base/limits.h"
#include "core/files/pool_files.h"
#include "transport/secure/key_file.h"

using stdchk::ByteSpan;
using stdchk::Code;
using stdchk::Error;
using stdchk::MutableByteSpan;
using stdchk::Result;

struct stdchk_pool {
  std::unique_ptr<stdchk::client::Filesystem> filesystem;
};

struct stdchk_file {
  std::unique_ptr<stdchk::client::File> file;
  bool append = false;
  std::mutex mutex;  ///< guards the position and the reservation
  std::uint64_t position = 0;
  std::size_t reserved = 0;  ///< reserved bytes, from `position`; 0: none
};

namespace {

thread_local std::string last_error;

int failed(const Error& error) {
  last_error = stdchk::describe(error);
  errno = stdchk::to_errno(error);
  return -1;
}

int failed(const std::string& text, int code) {
  last_error = text;
  errno = code;
  return -1;
}

/// Returns the first line of a file, without white space at its end.
std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0)
    line.pop_back();
  return line;
}

std::string text_or_environment(const char* text, const char* variable) {
  if (text != nullptr) return text;
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string() : std::string(value);
}

/// Splits a path into the id of its directory and the name behind the last slash.
Result<std::pair<stdchk::FileId, std::string>> split(stdchk::client::Filesystem& filesystem,
                                                     std::string_view path) {
  while (!path.empty() && path.front() == '/') path.remove_prefix(1);
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return std::pair(stdchk::kRootFile, std::string(path));
  STDCHK_ASSIGN(const auto directory, filesystem.resolve(path.substr(0, slash)));
  if (directory.type != stdchk::FileType::kDirectory) {
    return stdchk::fail(Code::kNotDirectory, "stdchk_open");
  }
  return std::pair(directory.id, std::string(path.substr(slash + 1)));
}

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
  STDCHK_ASSIGN(const auto place, split(filesystem, path));
  const auto& [parent, name] = place;
  if (open.create) {
    return filesystem.create(parent, name, open,
                             stdchk::client::Owner{mode & 07777, ::getuid(), ::getgid()});
  }
  STDCHK_ASSIGN(const auto attributes, filesystem.lookup_fresh(parent, name));
  if (attributes.type == stdchk::FileType::kDirectory) {
    return stdchk::fail(Code::kIsDirectory, "stdchk_open");
  }
  return filesystem.open(attributes.id, open);
}

/// Reads the key, if there is a path. Returns false after it has recorded an error.
bool read_key(const std::string& path, std::optional<stdchk::Secret>& key) {
  if (path.empty()) return true;
  const auto secret = stdchk::read_secret_file(path);
  if (!secret) {
    failed("stdchk_connect: " + secret.error() + ".", EACCES);
    return false;
  }
  key = *secret;
  return true;
}

int failed_reserved(const char* call) {
  return failed(std::string(call) +
                    ": a reservation of this file was not submitted yet; submit it, or 0 bytes of "
                    "it.",
                EBUSY);
}

ByteSpan bytes_of(const void* bytes, size_t count) {
  return {static_cast<const std::byte*>(bytes), count};
}

}  // namespace

extern "C" {

void stdchk_options_init(struct stdchk_options* options) {
  std::memset(options, 0, sizeof(*options));
  options->size = sizeof(*options);
  options->naming = -1;
  options->content_cuts = -1;
}

stdchk_pool* stdchk_connect(const struct stdchk_options* given) {
  struct stdchk_options options;
  stdchk_options_init(&options);
  if (given != nullptr) std::memcpy(&options, given, std::min(given->size, sizeof(options)));
  stdchk::client::Options to;
  to.manager_address = text_or_environment(options.manager, "STDCHK_MANAGER");
  if (!to.manager_address.empty() && to.manager_address.find(':') == std::string::npos) {
    to.manager_address = first_line(to.manager_address);
  }
  if (to.manager_address.empty()) {
    failed("stdchk_connect: no manager is named; give its address or set STDCHK_MANAGER.", EINVAL);
    return nullptr;
  }
  const std::string secret_file = text_or_environment(options.secret_file, "STDCHK_SECRET_FILE");
  auto keyring = stdchk::transport::secure::read_keyring(secret_file,
                                                         stdchk::transport::secure::Role::kClient);
  if (!keyring) {
    failed("stdchk_connect: " + keyring.error() + ".", EACCES);
    return nullptr;
  }
  to.keyring = std::move(*keyring);
  if (!read_key(text_or_environment(options.key_file, "STDCHK_KEY_FILE"), to.key)) return nullptr;
  to.encrypts = options.encrypt != 0;
  if (to.encrypts && !to.key.has_value()) {
    failed("stdchk_connect: encrypting needs the pool's key; give key_file or set STDCHK_KEY_FILE.",
           EINVAL);
    return nullptr;
  }
  if (options.transport != nullptr) to.transport = options.transport;
  to.window_bytes = options.window_bytes;
  to.cache_bytes = options.cache_bytes;
  if (options.naming >= 0) {
    to.naming = options.naming == 0   ? stdchk::Naming::kOff
                : options.naming == 1 ? stdchk::Naming::kOn
                                      : stdchk::Naming::kAuto;
  }
  if (options.content_cuts >= 0) to.content_cuts = options.content_cuts != 0;
  if (options.close_early != 0) to.close_mode = stdchk::client::CloseMode::kEarly;
  auto filesystem = stdchk::client::Filesystem::connect(to);
  if (!filesystem.has_value()) {
    failed(filesystem.error());
    return nullptr;
  }
  return new stdchk_pool{std::move(*filesystem)};
}

void stdchk_disconnect(stdchk_pool* pool) { delete pool; }

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
  const std::lock_guard lock(file->mutex);
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
  const std::lock_guard lock(file->mutex);
  if (file->reserved > 0) return failed_reserved("stdchk_read");
  const ssize_t got = stdchk_pread(file, bytes, count, file->position);
  if (got > 0) file->position += static_cast<std::uint64_t>(got);
  return got;
}

int stdchk_truncate(stdchk_file* file, uint64_t size) {
  const auto status = file->file->truncate(size);
  return status.has_value() ? 0 : failed(status.error());
}

void* stdchk_reserve(stdchk_file* file, size_t* count) {
  const std::lock_guard lock(file->mutex);
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
  const std::lock_guard lock(file->mutex);
  if (file->reserved == 0) return failed("stdchk_submit: nothing is reserved.", EINVAL);
  if (count > file->reserved) {
    return failed("stdchk_submit: only " + std::to_string(file->reserved) +
                      " bytes are reserved, and still are.",
                  EINVAL);
  }
  const auto status = file->file->submit(file->position, count);
  // A refused call (EINVAL) takes no bytes. Any other error returns the buffer to the library.
  if (!status.has_value() && status.error().code == Code::kInvalidArgument) {
    return failed(status.error());
  }
  file->reserved = 0;
  if (!status.has_value()) return failed(status.error());
  file->position += count;
  return 0;
}

int stdchk_sync(stdchk_file* file) {
  {
    const std::lock_guard lock(file->mutex);
    if (file->reserved > 0) return failed_reserved("stdchk_sync");
  }
  const auto status = file->file->sync();
  return status.has_value() ? 0 : failed(status.error());
}

int stdchk_close(stdchk_file* file) {
  const auto status = file->file->close();
  delete file;
  return status.has_value() ? 0 : failed(status.error());
}

void stdchk_abort(stdchk_file* file) {
  file->file->abort();
  delete file;
}

const char* stdchk_error(void) { return last_error.c_str(); }

}  // extern "C"
