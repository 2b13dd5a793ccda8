#include "fork/library/guest_calls.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "fork/library/daemon_call.h"

namespace stdchk::fork::guest {
namespace {

constexpr char kPortName[] = "stdchk.fork.0";
constexpr std::size_t kLineBytesMax = 2 * SF_VALUE_BYTES_MAX + 64;
constexpr int kAnswerSecondsMax = 60;
constexpr int kWhoTriesMax = 12;
constexpr int kCloneSecondsMax = 600;
/// How long another program of the guest may use the port before this one.
constexpr int kOpenSecondsMax = 10;
/// The first half of the hardware addresses in networks of families (fork/vm/machine_network.h).
constexpr unsigned char kFamilyMark[] = {0x02, 0x5f, 0x01};

/// Finds the device by the name in sysfs: udev's link may be absent in a small guest.
bool find_port(char* path, std::size_t bytes) {
  DIR* ports = ::opendir("/sys/class/virtio-ports");
  if (ports == nullptr) return false;
  bool found = false;
  while (const dirent* entry = ::readdir(ports)) {
    if (entry->d_name[0] == '.') continue;
    char file[300], name[64] = {};
    std::snprintf(file, sizeof(file), "/sys/class/virtio-ports/%s/name", entry->d_name);
    const int fd = ::open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    const ssize_t n = ::read(fd, name, sizeof(name) - 1);
    ::close(fd);
    if (n > 0 && std::strncmp(name, kPortName, sizeof(kPortName) - 1) == 0) {
      std::snprintf(path, bytes, "/dev/%s", entry->d_name);
      found = true;
      break;
    }
  }
  ::closedir(ports);
  return found;
}

class Port {
 public:
  Port() {
    char path[300];
    if (!find_port(path, sizeof(path))) return;
    for (int tries = 0; tries < kOpenSecondsMax * 100; tries++) {
      fd_ = ::open(path, O_RDWR | O_CLOEXEC);
      if (fd_ >= 0 || errno != EBUSY) return;
      ::usleep(10'000);
    }
  }
  ~Port() {
    if (fd_ >= 0) ::close(fd_);
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  bool say(const char* line) {
    const std::size_t bytes = std::strlen(line);
    std::size_t done = 0;
    while (done < bytes) {
      const ssize_t n = ::write(fd_, line + done, bytes - done);
      if (n < 0 && errno != EINTR) return false;
      if (n > 0) done += static_cast<std::size_t>(n);
    }
    return true;
  }

  /// Reads the answer to a request, one line without its end. Drops lines that say who this machine
  /// is, unless the request is for the one that begins with `wanted`. The host says them without a
  /// request when it has cloned this machine.
  int read_answer(char* line, int seconds_max, const char* wanted = "") {
    for (;;) {
      if (const int error = read_line(line, seconds_max); error != 0) return error;
      bool is_news = false;
      for (const char* news : {"forked ", "id ", "you "}) {
        is_news = is_news || (std::strncmp(line, news, std::strlen(news)) == 0 &&
                              std::strcmp(news, wanted) != 0);
      }
      if (!is_news) return 0;
    }
  }

 private:
  /// Reads one line without its end. Returns 0 or an errno. Time that passes while the machine is
  /// frozen does not count: the guest's clock stands still.
  int read_line(char* line, int seconds_max) {
    std::size_t have = 0;
    timespec begun{}, now{};
    ::clock_gettime(CLOCK_MONOTONIC, &begun);
    while (have + 1 < kLineBytesMax) {
      const ssize_t n = ::read(fd_, line + have, 1);
      if (n == 1 && line[have] == '\n') {
        line[have] = '\0';
        return 0;
      }
      if (n == 1) {
        have++;
        continue;
      }
      if (n < 0 && errno != EINTR && errno != EAGAIN) return errno;
      ::clock_gettime(CLOCK_MONOTONIC, &now);
      if (now.tv_sec - begun.tv_sec > seconds_max) return ETIMEDOUT;
      ::usleep(1000);  // the host is not there yet
    }
    return EPROTO;
  }

  int fd_ = -1;
};

/// Turns "error ERRNO TEXT" into a negative errno, and any other line into -EPROTO.
int refusal(const char* line) {
  int error = 0, at = 0;
  if (std::sscanf(line, "error %d %n", &error, &at) == 1 && error > 0) {
    set_error(line + at);
    return -error;
  }
  set_error("The host said something that this build of stdchk does not know.");
  return -EPROTO;
}

int lost(int error) {
  set_error("The host of this machine does not answer at the port stdchk.fork.0.");
  return -(error != 0 ? error : EIO);
}

/// Names the interface of the family's network; eth0 if there is none.
void find_interface(int s, ifreq& request) {
  struct if_nameindex* const all = ::if_nameindex();
  for (const auto* each = all; each != nullptr && each->if_index != 0; each++) {
    std::snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", each->if_name);
    if (::ioctl(s, SIOCGIFHWADDR, &request) == 0 &&
        std::memcmp(request.ifr_hwaddr.sa_data, kFamilyMark, sizeof(kFamilyMark)) == 0) {
      ::if_freenameindex(all);
      return;
    }
  }
  if (all != nullptr) ::if_freenameindex(all);
  std::strcpy(request.ifr_name, "eth0");
}

/// Whether the interface is up afterwards is `up`.
void set_up(int s, ifreq request, bool up) {
  if (::ioctl(s, SIOCGIFFLAGS, &request) != 0) return;
  request.ifr_flags =
      static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  ::ioctl(s, SIOCSIFFLAGS, &request);
}

bool set_address(int s, ifreq request, unsigned long call, in_addr_t ip) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ip;
  std::memcpy(&request.ifr_addr, &address, sizeof(address));
  return ::ioctl(s, call, &request) == 0;
}

bool has_addresses(int s, ifreq request, const char (&hardware)[6], in_addr_t ip) {
  sockaddr_in own{};
  const bool is_same = ::ioctl(s, SIOCGIFHWADDR, &request) == 0 &&
                       std::memcmp(request.ifr_hwaddr.sa_data, hardware, sizeof(hardware)) == 0 &&
                       ::ioctl(s, SIOCGIFADDR, &request) == 0;
  std::memcpy(&own, &request.ifr_addr, sizeof(own));
  return is_same && own.sin_addr.s_addr == ip && ::ioctl(s, SIOCGIFFLAGS, &request) == 0 &&
         (request.ifr_flags & IFF_UP) != 0;
}

/// Sets the hardware address "02:5f:01:5a:00:03" and the address "10.90.0.3/24". "-" and an empty
/// text stand for an absent address. A machine without such an interface needs none.
void set_addresses(const char* hardware, const char* address) {
  unsigned part[6], byte[4], prefix = 0;
  if (std::sscanf(hardware, "%x:%x:%x:%x:%x:%x", part, part + 1, part + 2, part + 3, part + 4,
                  part + 5) != 6)
    return;
  const bool has_address =
      std::sscanf(address, "%u.%u.%u.%u/%u", byte, byte + 1, byte + 2, byte + 3, &prefix) == 5 &&
      prefix > 0 && prefix <= 32;
  const in_addr_t ip =
      has_address ? htonl(byte[0] << 24 | byte[1] << 16 | byte[2] << 8 | byte[3]) : 0;
  char wanted[6];
  for (int i = 0; i < 6; i++) wanted[i] = static_cast<char>(part[i]);
  const int s = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  find_interface(s, request);
  if (has_address && has_addresses(s, request, wanted, ip)) {
    ::close(s);
    return;
  }
  // Down meanwhile: no packet of the parent's connections leaves under the new hardware address.
  if (has_address) set_up(s, request, false);
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  std::memcpy(request.ifr_hwaddr.sa_data, wanted, sizeof(wanted));
  ::ioctl(s, SIOCSIFHWADDR, &request);
  if (has_address) {
    set_address(s, request, SIOCSIFADDR, ip);
    set_address(s, request, SIOCSIFNETMASK, htonl(~std::uint32_t{0} << (32 - prefix)));
    set_up(s, request, true);
  }
  ::close(s);
}

void read_hex(const char* hex, sf_result& to) {
  const std::size_t digits = std::strcmp(hex, "-") == 0 ? 0 : std::strlen(hex);
  to.value_bytes = static_cast<uint32_t>(std::min<std::size_t>(digits / 2, SF_VALUE_BYTES_MAX));
  for (uint32_t i = 0; i < to.value_bytes; i++) {
    unsigned byte = 0;
    std::sscanf(hex + 2 * i, "%2x", &byte);
    to.value[i] = static_cast<char>(byte);
  }
}

}  // namespace

bool is_guest() {
  char path[300];
  return find_port(path, sizeof(path));
}

int request_ticket(uint32_t n, sf_ticket* ticket) {
  Port port;
  char line[kLineBytesMax];
  std::snprintf(line, sizeof(line), "ticket %" PRIu32 "\n", n);
  if (!port.say(line)) return lost(errno);
  if (const int error = port.read_answer(line, kAnswerSecondsMax); error != 0) return lost(error);
  if (std::sscanf(line, "ticket %" SCNu64 " %" SCNu32, &ticket->number, &ticket->count) == 2)
    return 0;
  return refusal(line);
}

int clone(const sf_ticket* ticket) {
  Port port;
  char line[kLineBytesMax], hardware[32] = {}, address[32] = {};
  std::snprintf(line, sizeof(line), "clone %" PRIu64 "\n", ticket->number);
  if (!port.say(line)) return lost(errno);
  // The machine is frozen here. Parent and clones go on from here.
  if (const int error = port.read_answer(line, kCloneSecondsMax, "id "); error != 0)
    return lost(error);
  int id = 0;
  unsigned count = 0;
  if (std::sscanf(line, "id %d %u %31s %31s", &id, &count, hardware, address) < 3)
    return refusal(line);
  if (id > 0) set_addresses(hardware, address);
  return id;
}

int identify() {
  Port port;
  char line[kLineBytesMax], hardware[32] = {}, address[32] = {};
  // A question is lost when the host clones this machine before it has answered.
  int error = ETIMEDOUT;
  for (int tries = 0; tries < kWhoTriesMax && error == ETIMEDOUT; tries++) {
    if (!port.say("who\n")) return lost(errno);
    error = port.read_answer(line, kAnswerSecondsMax / kWhoTriesMax, "you ");
  }
  if (error != 0) return lost(error);
  int id = 0;
  unsigned count = 0;
  if (std::sscanf(line, "you %d %u %31s %31s", &id, &count, hardware, address) < 3)
    return refusal(line);
  set_addresses(hardware, address);
  return id;
}

void exit_with(int status, const void* value, size_t bytes) {
  Port port;
  char line[kLineBytesMax];
  int at = std::snprintf(line, sizeof(line), "exit %d ", status);
  const auto* from = static_cast<const unsigned char*>(value);
  for (size_t i = 0; i < std::min<size_t>(bytes, SF_VALUE_BYTES_MAX); i++) {
    at += std::snprintf(line + at, sizeof(line) - static_cast<std::size_t>(at), "%02x", from[i]);
  }
  std::snprintf(line + at, sizeof(line) - static_cast<std::size_t>(at), "%s\n",
                bytes == 0 ? "-" : "");
  if (port.say(line)) port.read_answer(line, kAnswerSecondsMax);
}

int join(const sf_ticket* ticket, sf_result* results) {
  Port port;
  char line[kLineBytesMax], value[kLineBytesMax];
  std::snprintf(line, sizeof(line), "join %" PRIu64 "\n", ticket->number);
  if (!port.say(line)) return lost(errno);
  int bad = 0;
  for (;;) {
    // Clones may take as long as they like.
    const int error = port.read_answer(line, kAnswerSecondsMax);
    if (error == ETIMEDOUT) continue;
    if (error != 0) return lost(error);
    if (std::strcmp(line, "done") == 0) return bad;
    unsigned id = 0, end = 0;
    int status = 0;
    if (std::sscanf(line, "result %u %u %d %8192s", &id, &end, &status, value) != 4)
      return refusal(line);
    if (end != SF_EXITED || status != 0) bad++;
    if (results == nullptr || id == 0 || id > ticket->count) continue;
    sf_result& to = results[id - 1];
    to.id = id;
    to.end = static_cast<sf_end>(end);
    to.status = status;
    read_hex(value, to);
  }
}

int kill(const sf_ticket* ticket) {
  Port port;
  char line[kLineBytesMax];
  std::snprintf(line, sizeof(line), "kill %" PRIu64 "\n", ticket->number);
  if (!port.say(line)) return lost(errno);
  if (const int error = port.read_answer(line, kAnswerSecondsMax); error != 0) return lost(error);
  return std::strcmp(line, "done") == 0 ? 0 : refusal(line);
}

}  // namespace stdchk::fork::guest
