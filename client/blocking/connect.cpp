// Filesystem::connect(): opens the transports and connects over them.
#include "client/blocking/blocking_filesystem.h"
#include "core/base/clock.h"
#include "core/base/limits.h"
#include "transport/choice/factory.h"

namespace stdchk::client {
namespace {

/// describe() appends this text to the error, so the text also says what to do.
constexpr Error kDrains{
    Code::kConfig, 0,
    "client.connect: encrypted images cannot be written to a pool with a drain directory, because "
    "the benefactors, which drain, have no key. Start the pool without --drain, and copy images "
    "out through a mount"};

SystemClock& system_clock() {
  static SystemClock clock;  // has no state, so sharing it is safe
  return clock;
}

}  // namespace

Result<std::unique_ptr<Filesystem>> Filesystem::connect(const Options& options) {
  if (options.keyring == nullptr) return fail(Code::kInvalidArgument, "client.connect");
  SystemClock& clock = system_clock();
  const std::uint64_t window =
      options.window_bytes != 0 ? options.window_bytes : limits::kWindowBytesDefault;
  const std::uint64_t cache = options.cache_bytes != 0 ? options.cache_bytes : window / 4;
  const std::uint64_t headers = window / 8;  // an upper bound
  STDCHK_ASSIGN(auto endpoints,
                transport::open_endpoints(options.transport, options.manager_address,
                                          {.clock = &clock,
                                           .identity = options.keyring,
                                           .pinned_bytes = window + headers + cache}));
  BlockingFilesystem::Parts parts;
  parts.endpoints = std::move(endpoints.data);
  parts.control = endpoints.control;
  parts.control_only = std::move(endpoints.control_only);
  parts.host_token = transport::host_token();
  STDCHK_ASSIGN(auto filesystem,
                BlockingFilesystem::connect_over(options, clock, std::move(parts)));
  if (options.encrypts && !filesystem->config().drain_directory.empty()) return fail(kDrains);
  return filesystem;
}

}  // namespace stdchk::client
