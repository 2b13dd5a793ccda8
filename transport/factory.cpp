#include "transport/factory.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "transport/ofi/tcp.h"
#include "transport/shm/shm.h"

namespace stdchk::transport {

namespace {

std::string namespace_name(const char* path) {
  std::array<char, 64> text{};
  const auto length = ::readlink(path, text.data(), text.size());
  if (length <= 0) return "?";
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

Result<std::unique_ptr<Endpoint>> open_endpoint(std::string_view kind,
                                                const EndpointOptions& options) {
  if (options.clock == nullptr) return fail(Code::kInvalidArgument, "transport.open");
  if (kind == "ofi:tcp") {
    return ofi::open_tcp(*options.clock, options.listen_host, options.listen_port);
  }
  if (kind == "shm") return shm::open_shm(*options.clock);
  return fail(Code::kInvalidArgument, "transport.open");
}

std::string host_token() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return fmt::format("{}/{}/{}/{}", boot, namespace_name("/proc/self/ns/pid"),
                     namespace_name("/proc/self/ns/user"), namespace_name("/proc/self/ns/net"));
}

std::string fabric_version() { return ofi::library_version(); }

}  // namespace stdchk::transport
