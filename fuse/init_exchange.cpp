#include "fuse/init_exchange.h"

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "fuse/receive_buffer.h"

namespace stdchk::mount {
namespace {

// Defined here because old kernel headers lack them; see linux/fuse.h.
constexpr std::uint64_t kHandleKillPrivV2 = std::uint64_t{1} << 28;
constexpr std::uint64_t kInitExtended = std::uint64_t{1} << 30;
constexpr std::uint64_t kDirectIoAllowMmap = std::uint64_t{1} << 36;
constexpr std::uint32_t kTmpfile = 51;  // FUSE_TMPFILE
constexpr unsigned kHighWord = 32;
constexpr std::uint32_t kOpenKills = 1U << 0;      // FUSE_OPEN_KILL_SUIDGID
constexpr std::uint32_t kWriteKills = 1U << 2;     // FUSE_WRITE_KILL_SUIDGID
constexpr std::uint32_t kSetAttrKills = 1U << 11;  // FATTR_KILL_SUIDGID

thread_local bool t_kills = false;

/// The 32-bit word at `offset` of the request's body; 0 where there is none.
std::uint32_t word(const std::byte* bytes, std::size_t size, std::size_t offset) {
  std::uint32_t value = 0;
  const std::size_t at = sizeof(fuse_in_header) + offset;
  if (at + sizeof(value) <= size) std::memcpy(&value, bytes + at, sizeof(value));
  return value;
}

/// libfuse 3.14 does not pass these flags on.
bool kills(const std::byte* bytes, std::size_t size) {
  fuse_in_header header;
  if (size < sizeof(header)) return false;
  std::memcpy(&header, bytes, sizeof(header));
  switch (header.opcode) {
    case FUSE_WRITE:
      return (word(bytes, size, offsetof(fuse_write_in, write_flags)) & kWriteKills) != 0;
    case FUSE_SETATTR:
      return (word(bytes, size, offsetof(fuse_setattr_in, valid)) & kSetAttrKills) != 0;
    case FUSE_OPEN:
      return (word(bytes, size, sizeof(std::uint32_t)) & kOpenKills) != 0;
    case FUSE_CREATE:
      return (word(bytes, size, 3 * sizeof(std::uint32_t)) & kOpenKills) != 0;
    default:
      return false;
  }
}

// libfuse's hooks are plain functions, so all mounts of a process share this one.
std::atomic<InitExchange::Find> g_find{nullptr};

/// Makes FUSE_CREATE of FUSE_TMPFILE, which libfuse 3.14 refuses. Body and answer of the two are equal. The
/// kernel names the file kUnnamed, which no other file is named.
void accept_tmpfile(std::byte* bytes, std::size_t size) {
  fuse_in_header header;
  if (size < sizeof(header)) return;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.opcode != kTmpfile) return;
  header.opcode = FUSE_CREATE;
  std::memcpy(bytes, &header, sizeof(header));
}

ssize_t read_from_kernel(int fd, void* buffer, std::size_t size, void* user) {
  if (ReceiveBuffer* own = ReceiveBuffer::of_this_thread()) size = std::min(size, own->capacity());
  ssize_t count = ::read(fd, buffer, size);
  if (count > 0) accept_tmpfile(static_cast<std::byte*>(buffer), static_cast<std::size_t>(count));
  InitExchange& exchange = g_find.load(std::memory_order_relaxed)(user);
  t_kills =
      count > 0 && kills(static_cast<const std::byte*>(buffer), static_cast<std::size_t>(count));
  if (count > 0 && !exchange.over()) {
    exchange.received(static_cast<const std::byte*>(buffer), static_cast<std::size_t>(count));
  }
  return count;
}

ssize_t write_to_kernel(int fd, iovec* parts, int count, void* user) {
  InitExchange& exchange = g_find.load(std::memory_order_relaxed)(user);
  if (exchange.over() || count != 2) return ::writev(fd, parts, count);
  std::array<std::byte, InitExchange::kReplyBytesMax> patched;
  std::array<iovec, 2> changed{parts[0], parts[1]};
  if (exchange.answering(static_cast<const std::byte*>(parts[0].iov_base),
                         static_cast<const std::byte*>(parts[1].iov_base), parts[1].iov_len,
                         patched.data())) {
    changed[1].iov_base = patched.data();
  }
  return ::writev(fd, changed.data(), 2);
}

}  // namespace

bool InitExchange::install(fuse_session* session, Find find) {
  g_find.store(find, std::memory_order_relaxed);
  fuse_custom_io hooks{};
  hooks.read = read_from_kernel;
  hooks.writev = write_to_kernel;
  return fuse_session_custom_io(session, &hooks, fuse_session_fd(session)) == 0;
}

std::optional<bool> InitExchange::kills_set_id() const {
  if (!tells_kills_.load(std::memory_order_relaxed)) return std::nullopt;
  return t_kills;
}

void InitExchange::received(const std::byte* bytes, std::size_t size) {
  fuse_in_header header;
  fuse_init_in init{};
  if (size < sizeof(header)) return;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.opcode != FUSE_INIT) return;
  // Older kernels send a shorter message. Missing flags stay 0: not offered.
  std::memcpy(&init, bytes + sizeof(header), std::min(size - sizeof(header), sizeof(init)));
  offered_ = init.flags;
  if ((offered_ & kInitExtended) != 0) {
    offered_ |= static_cast<std::uint64_t>(init.flags2) << kHighWord;
  }
  unique_ = header.unique;
}

bool InitExchange::answering(const std::byte* header_bytes, const std::byte* body,
                             std::size_t body_size, std::byte* patched) {
  fuse_out_header header;
  fuse_init_out init;
  std::memcpy(&header, header_bytes, sizeof(header));
  if (unique_ == 0 || header.unique != unique_) return false;
  if (header.error != 0 || body_size < sizeof(init) || body_size > kReplyBytesMax) return false;
  std::memcpy(&init, body, sizeof(init));
  // The kernel will ask again with another version.
  if (init.major != FUSE_KERNEL_VERSION) return false;
  over_ = true;
  std::uint64_t taken = offered_ & kHandleKillPrivV2;
  if ((offered_ & kInitExtended) != 0) taken |= kInitExtended | (offered_ & kDirectIoAllowMmap);
  init.flags |= static_cast<std::uint32_t>(taken);
  init.flags2 |= static_cast<std::uint32_t>(taken >> kHighWord);
  tells_kills_ = (taken & kHandleKillPrivV2) != 0;
  allows_mmap_ = (taken & kDirectIoAllowMmap) != 0;
  std::memcpy(patched, body, body_size);
  std::memcpy(patched, &init, sizeof(init));
  return true;
}

}  // namespace stdchk::mount
