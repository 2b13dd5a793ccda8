// libstdchk-map: maps images with faults that stdchk-pager serves. It depends on libc only, because
// it is also loaded into programs that know nothing of stdchk.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "core/base/mutex.h"
#include "fork/pager/faults.h"
#include "fork/pager/messages.h"
#include "fork/pager/passing.h"
#include "fork/pager/stdchk_map.h"

using namespace stdchk::pager;
using stdchk::Mutex;
using stdchk::MutexLock;

namespace {

/// An answer of the page server takes at most the library's deadline for an open (30 s).
constexpr timeval kAnswerTime{40, 0};

thread_local std::string last_error;

int failed(const std::string& text, int code) {
  last_error = text;
  errno = code;
  return -1;
}

int failed_call(const char* what, int code) {
  return failed(std::string(what) + ": " + std::strerror(code), code);
}

/// A File is an open file descriptor that closes itself.
class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(other.release()) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

/// A Mapping is one result of stdchk_map_image().
struct Mapping {
  std::uint64_t length = 0;  ///< whole pages
  std::uint64_t bytes = 0;   ///< of the image
  File socket;               ///< its end tells the server that the mapping is gone
  /// Kept open: without a reader, absent pages would read as zeros if the server vanished.
  File faults;
  Mutex fetching;  ///< one FetchRequest at a time
};

Mutex mappings_mutex;
std::map<std::uintptr_t, std::shared_ptr<Mapping>>& mappings() STDCHK_REQUIRES(mappings_mutex) {
  static auto* all = new std::map<std::uintptr_t, std::shared_ptr<Mapping>>;
  return *all;
}

std::string socket_path(const stdchk_map_options& options) {
  if (options.socket != nullptr) return options.socket;
  if (const char* named = std::getenv("STDCHK_PAGER")) return named;
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  return folder == nullptr ? std::string() : std::string(folder) + "/stdchk-pager.socket";
}

int connect_to(const std::string& path, File& out) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return failed(
        "No socket of stdchk-pager is named: set STDCHK_PAGER to a path of at most 107 bytes.",
        EINVAL);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  File socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return failed_call("socket", errno);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerTime, sizeof(kAnswerTime));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kAnswerTime, sizeof(kAnswerTime));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int code = errno;
    return failed("stdchk-pager does not listen at " + path + ": " + std::strerror(code) +
                      "; start it, or set STDCHK_PAGER.",
                  code);
  }
  // $XDG_RUNTIME_DIR may be another user's, for example after su(1). A server gets a userfaultfd of
  // this process and decides what it reads.
  ucred server{};
  socklen_t bytes = sizeof(server);
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &server, &bytes) != 0) {
    return failed_call("getsockopt", errno);
  }
  if (server.uid != ::geteuid() && server.uid != 0) {
    return failed("The stdchk-pager at " + path + " is of user " + std::to_string(server.uid) +
                      ", and only one of your own is used; set STDCHK_PAGER.",
                  EPERM);
  }
  out = std::move(socket);
  return 0;
}

/// Opens a userfaultfd that reports missing pages of shared memory files.
int open_faults(bool follow_fork, File& out) {
  File faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  if (faults.get() < 0) {
    const File device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
    if (device.get() >= 0) {
      faults = File(::ioctl(device.get(), kNewFromDevice, O_CLOEXEC | O_NONBLOCK));
    }
  }
  if (faults.get() < 0) {
    faults = File(
        static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  }
  if (faults.get() < 0) return failed_call("userfaultfd", errno);
  const std::uint64_t needed = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_EVENT_REMAP |
                               (follow_fork ? UFFD_FEATURE_EVENT_FORK : 0);
  // Kernels before 6.6 lack UFFDIO_POISON. The server then sends SIGBUS.
  for (const std::uint64_t features : {needed | kFeaturePoison, needed}) {
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = features;
    if (::ioctl(faults.get(), UFFDIO_API, &api) == 0) {
      out = std::move(faults);
      return 0;
    }
    if (errno == EPERM) break;
  }
  return failed_call(follow_fork ? "userfaultfd that follows fork(2) (CAP_SYS_PTRACE?)"
                                 : "userfaultfd for shared memory",
                     errno);
}

int request(int socket, const char* image, const stdchk_map_options& options, MapReply& reply,
            File& memory) {
  if (std::strlen(image) >= kImageNameBytesMax)
    return failed("The path is too long.", ENAMETOOLONG);
  MapRequest wanted;
  wanted.offset = options.offset;
  wanted.length = options.length;
  put_text(wanted.image, image);
  wanted.from_file = (options.flags & STDCHK_MAP_FROM_FILE) != 0 ? 1 : 0;
  const int sent = wanted.from_file != 0
                       ? send_message(socket, &wanted, sizeof(wanted), {options.source})
                       : send_message(socket, &wanted, sizeof(wanted));
  if (sent != 0) return failed_call("The request to stdchk-pager", sent);
  Received got = receive_message(socket, &reply, sizeof(reply));
  memory = File(got.take(0));
  got.close_all();
  if (got.error != 0) {
    return failed_call("The answer of stdchk-pager", got.error == EAGAIN ? ETIMEDOUT : got.error);
  }
  if (got.length != sizeof(reply)) return failed_call("The answer of stdchk-pager", EPROTO);
  reply.reason[kReasonBytesMax - 1] = '\0';
  if (reply.error != 0) return failed(reply.reason, reply.error);
  if (memory.get() < 0 || reply.length == 0) {
    return failed_call("The answer of stdchk-pager", EPROTO);
  }
  return 0;
}

/// Maps without access, registers, and allows access when the server serves the faults: so no
/// thread can read a page before that.
int register_range(void* at, std::uint64_t length, const stdchk_map_options& options,
                   Mapping& mapping) {
  const bool follow = (options.flags & STDCHK_MAP_FOLLOW_FORK) != 0;
  if (open_faults(follow, mapping.faults) != 0) return -1;
  uffdio_register range{};
  range.range = {reinterpret_cast<std::uintptr_t>(at), length};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (::ioctl(mapping.faults.get(), UFFDIO_REGISTER, &range) != 0) {
    return failed_call("userfaultfd: register", errno);
  }
  if (!follow && ::madvise(at, length, MADV_DONTFORK) != 0) {
    return failed_call("madvise", errno);
  }
  Registered registered;
  registered.address = range.range.start;
  registered.length = length;
  registered.follows_fork = follow ? 1 : 0;
  Served served;
  int error =
      send_message(mapping.socket.get(), &registered, sizeof(registered), {mapping.faults.get()});
  if (error == 0) error = receive(mapping.socket.get(), served);
  if (error == 0) error = served.error;
  if (error != 0) return failed_call("stdchk-pager did not take the mapping", error);
  if (::mprotect(at, length, options.protection) != 0) return failed_call("mprotect", errno);
  return 0;
}

int fetch_piece(int socket, const FetchRequest& wanted) {
  int error = send_message(socket, &wanted, sizeof(wanted));
  FetchReply reply;
  do {  // an answer to another offset came too late for an earlier call
    if (error == 0) error = receive(socket, reply);
  } while (error == 0 && reply.offset != wanted.offset);
  if (error == EAGAIN) return ETIMEDOUT;
  return error != 0 ? error : reply.error;
}

}  // namespace

extern "C" {

void stdchk_map_options_init(struct stdchk_map_options* options) {
  std::memset(options, 0, sizeof(*options));
  options->size = sizeof(*options);
  options->protection = PROT_READ | PROT_WRITE;
  options->source = -1;
}

void* stdchk_map_image(const char* image, const struct stdchk_map_options* given, size_t* length) {
  struct stdchk_map_options options;
  stdchk_map_options_init(&options);
  if (given != nullptr) std::memcpy(&options, given, std::min(given->size, sizeof(options)));
  if (options.offset % kPageBytes != 0 || (options.protection & ~(PROT_READ | PROT_WRITE)) != 0) {
    failed(
        "stdchk_map_image: the offset is no multiple of the page size, or the protection is not "
        "PROT_READ or PROT_READ | PROT_WRITE.",
        EINVAL);
    return nullptr;
  }
  auto mapping = std::make_shared<Mapping>();
  if (connect_to(socket_path(options), mapping->socket) != 0) return nullptr;
  MapReply reply;
  File memory;
  if (request(mapping->socket.get(), image, options, reply, memory) != 0) return nullptr;
  mapping->bytes = reply.length;
  mapping->length = (reply.length + kPageBytes - 1) / kPageBytes * kPageBytes;
  // By the system call: mmap() itself may have been replaced by a function that calls this one.
  const long mapped =
      ::syscall(SYS_mmap, options.address, mapping->length, PROT_NONE,
                MAP_PRIVATE | MAP_NORESERVE | (options.address != nullptr ? MAP_FIXED : 0),
                memory.get(), static_cast<off_t>(options.offset));
  if (mapped == -1) {
    failed_call("mmap", errno);
    return nullptr;
  }
  void* const at = reinterpret_cast<void*>(mapped);
  if (register_range(at, mapping->length, options, *mapping) != 0) {
    const int code = errno;
    ::munmap(at, mapping->length);
    errno = code;
    return nullptr;
  }
  if (length != nullptr) *length = static_cast<size_t>(reply.length);
  const MutexLock lock(mappings_mutex);
  mappings()[reinterpret_cast<std::uintptr_t>(at)] = std::move(mapping);
  return at;
}

int stdchk_map_fetch(const void* address, size_t length) {
  const auto from = reinterpret_cast<std::uintptr_t>(address);
  std::shared_ptr<Mapping> mapping;
  FetchRequest wanted;
  {
    const MutexLock lock(mappings_mutex);
    auto next = mappings().upper_bound(from);
    if (next == mappings().begin()) return failed("No image is mapped there.", EINVAL);
    --next;
    mapping = next->second;
    wanted.offset = from - next->first;
    wanted.length = length;
  }
  if (wanted.offset > mapping->length || length > mapping->length - wanted.offset) {
    return failed("The range is not within one mapping.", EINVAL);
  }
  const MutexLock one(mapping->fetching);
  const std::uint64_t end = wanted.offset + length;
  for (; wanted.offset < end; wanted.offset += wanted.length) {
    wanted.length = std::min(end - wanted.offset, kFetchBytesMax);
    const int error = fetch_piece(mapping->socket.get(), wanted);
    if (error != 0) return failed_call("stdchk-pager could not fetch the range", error);
  }
  return 0;
}

int stdchk_unmap_image(void* address) {
  std::shared_ptr<Mapping> mapping;
  {
    const MutexLock lock(mappings_mutex);
    const auto found = mappings().find(reinterpret_cast<std::uintptr_t>(address));
    if (found == mappings().end()) return failed("No image is mapped there.", EINVAL);
    mapping = std::move(found->second);
    mappings().erase(found);
  }
  // The memory goes first: afterwards no thread can wait for a page.
  if (::munmap(address, mapping->length) != 0) return failed_call("munmap", errno);
  return 0;
}

const char* stdchk_map_error(void) { return last_error.c_str(); }

}  // extern "C"
