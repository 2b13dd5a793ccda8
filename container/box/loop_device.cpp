#include "container/box/loop_device.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace stdchk::container {
namespace {

/// Other processes may take the free device first.
constexpr int kTriesMax = 64;

}  // namespace

Outcome<LoopDevice> LoopDevice::make(const std::string& file, std::uint64_t offset,
                                     std::uint64_t bytes) {
  const Descriptor control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (!control) return problem(errno_text("loop devices, for memory on demand"));
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!opened) return problem(errno_text(file));
  loop_config config{};
  config.fd = static_cast<__u32>(opened.get());
  config.info.lo_offset = offset;
  config.info.lo_sizelimit = bytes;
  config.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) break;
    const std::string path = fmt::format("/dev/loop{}", number);
    Descriptor device(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (device && ::ioctl(device.get(), LOOP_CONFIGURE, &config) == 0) {
      return LoopDevice(std::move(device));
    }
    if (errno != EBUSY) break;
  }
  return problem(errno_text("a loop device for " + file));
}

Outcome<void> LoopDevice::make_node(const std::string& path) const {
  struct stat facts {};
  if (::fstat(device_.get(), &facts) != 0 ||
      ::mknod(path.c_str(), S_IFBLK | S_IRUSR, facts.st_rdev) != 0) {
    return problem(errno_text(path));
  }
  return {};
}

}  // namespace stdchk::container
