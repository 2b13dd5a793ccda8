#include "tests/conformance/subjects.h"

#include <fmt/core.h>

#include <atomic>

#include "core/base/limits.h"
#include "tests/conformance/cheat.h"
#include "transport/choice/factory.h"
#include "transport/fault/fault.h"
#include "transport/mem/mem.h"
#include "transport/tcp/tcp.h"

namespace stdchk::conformance {

namespace {

Result<std::unique_ptr<transport::Endpoint>> open_mem(Clock& clock) {
  static transport::mem::Fabric fabric;  // connects the parties of this process
  static std::atomic<int> count{0};
  return fabric.make_endpoint(fmt::format("party{}", ++count), clock);
}

Subject mem() { return {.name = "mem", .open = open_mem}; }

/// The fault-injecting decorator keeps all rules, with and without delays.
Subject fault(std::string name, std::uint32_t delay_ppm) {
  return {.name = std::move(name),
          .open = [delay_ppm](Clock& clock) -> Result<std::unique_ptr<transport::Endpoint>> {
            STDCHK_ASSIGN(auto inner, open_mem(clock));
            auto made =
                std::make_unique<transport::fault::FaultEndpoint>(std::move(inner), clock, 1);
            made->plan().delay_ppm = delay_ppm;
            made->plan().delay_max = std::chrono::milliseconds(1);
            return made;
          }};
}

Subject fabric(const char* kind, bool needs_device = false) {
  return {.name = kind,
          .open =
              [kind](Clock& clock) {
                return transport::open_endpoint(kind, transport::EndpointOptions{.clock = &clock});
              },
          .processes = true,
          .needs_device = needs_device};
}

/// Parties connect to each other in both directions, as managers may.
std::shared_ptr<transport::secure::Keyring> keyring() {
  using namespace transport::secure;
  return std::make_shared<Keyring>(Keyring::of_root({}, new_member(Role::kManager)));
}

/// The transport itself authenticates its peers.
Subject tcp(const char* name, const transport::tcp::Settings& settings = {}) {
  return {.name = name,
          .open =
              [settings](Clock& clock) {
                return transport::tcp::open_tcp(clock, "127.0.0.1", 0, keyring(), settings);
              },
          .processes = true};
}

/// The same rules hold behind the handshake.
Subject secure(const char* kind, bool needs_device = false) {
  return {.name = fmt::format("secure-{}", kind),
          .open =
              [kind](Clock& clock) {
                return transport::open_endpoint(kind, {.clock = &clock, .identity = keyring()});
              },
          .processes = true,
          .needs_device = needs_device};
}

Subject secure_mem() {
  return {.name = "secure-mem",
          .open = [](Clock& clock) -> Result<std::unique_ptr<transport::Endpoint>> {
            STDCHK_ASSIGN(auto inner, open_mem(clock));
            return std::make_unique<transport::secure::SecureEndpoint>(std::move(inner), clock,
                                                                       keyring());
          },
          .open_stranger = open_mem};
}

Result<std::unique_ptr<transport::Endpoint>> open_verbs(Clock& clock) {
  return transport::open_endpoint("verbs", {.clock = &clock});
}

Subject secure_verbs() {
  Subject subject = secure("verbs", true);
  subject.open_stranger = open_verbs;
  return subject;
}

/// Registers every region longer than 2 MiB in parts.
Result<std::unique_ptr<transport::Endpoint>> open_verbs_in_parts(Clock& clock) {
  return transport::verbs::open_verbs(clock, "127.0.0.1", 0, 2 * limits::kMiB);
}

Subject verbs_in_parts() {
  return {
      .name = "verbs-parts", .open = open_verbs_in_parts, .processes = true, .needs_device = true};
}

Subject secure_verbs_in_parts() {
  return {.name = "secure-verbs-parts",
          .open = [](Clock& clock) -> Result<std::unique_ptr<transport::Endpoint>> {
            STDCHK_ASSIGN(auto inner, open_verbs_in_parts(clock));
            return std::make_unique<transport::secure::SecureEndpoint>(std::move(inner), clock,
                                                                       keyring());
          },
          .open_stranger = open_verbs,
          .in_parts = true,
          .processes = true,
          .needs_device = true};
}

/// Makes writes messages that the target's code copies, and falsely claims one_sided.
Subject cheat(std::string name, bool target_must_progress, std::vector<std::string> must_fail) {
  return {
      .name = std::move(name),
      .open = [target_must_progress](Clock& clock) -> Result<std::unique_ptr<transport::Endpoint>> {
        STDCHK_ASSIGN(auto inner, open_mem(clock));
        return make_cheat(std::move(inner), target_must_progress);
      },
      .must_fail = std::move(must_fail)};
}

}  // namespace

const std::vector<Subject>& subjects() {
  constexpr const char* kProgress =
      "progress: what is said of completion and of the target's part holds";
  constexpr const char* kOneSided = "one-sided: the target's own code does not move the bytes";
  static const std::vector<Subject> all{
      mem(),
      fault("fault", 0),
      fault("fault-delays", 50000),
      tcp("tcp"),
      fabric("shm"),
      fabric("verbs", true),
      fabric("ofi:verbs", true),
      secure_mem(),
      tcp("tcp-short-keys", {.records_max = 10}),
      tcp("tcp-trusted", {.trusted_network = true}),
      secure("shm"),
      secure_verbs(),
      verbs_in_parts(),
      secure_verbs_in_parts(),
      // Add a new transport here.
      cheat("cheat", false, {kProgress, kOneSided}),
      cheat("cheat-with-progress", true, {kOneSided}),
  };
  return all;
}

}  // namespace stdchk::conformance
