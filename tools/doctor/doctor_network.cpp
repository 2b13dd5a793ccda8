#include "tools/doctor/doctor_network.h"

#include <algorithm>
#include <chrono>

#include "client/blocking/probe.h"
#include "core/base/clock.h"
#include "core/base/limits.h"
#include "transport/choice/factory.h"
#include "transport/secure/key_file.h"

namespace stdchk::tools {
namespace {

using Kind = Finding::Kind;
using Json = nlohmann::json;

/// memory that a client pins
constexpr std::uint64_t kClientBytes = 2 * limits::kWindowBytesDefault;

Finding port_finding(const transport::verbs::Port& port) {
  Finding finding;
  finding.what = fmt::format("RDMA {} port {}", port.device, port.number);
  std::string addresses;
  for (const auto& each : port.addresses) addresses += (addresses.empty() ? "" : ", ") + each;
  finding.found = fmt::format("{}, {}, MTU {}, GID {}, {}{}", port.kind, port.state, port.mtu_bytes,
                              port.gid, addresses.empty() ? "no address" : "address " + addresses,
                              port.firmware.empty() ? "" : ", firmware " + port.firmware);
  if (!port.active) {
    finding.kind = Kind::kNote;
    finding.remedy =
        "it is not used until the port is active: cable, switch, `ip link set INTERFACE up`, for "
        "InfiniBand a subnet manager";
  } else if (port.addresses.empty()) {
    finding.kind = Kind::kNote;
    finding.remedy = "connections need an IP address on the interface above it";
  }
  finding.figures = Json{{"device", port.device},
                         {"port", port.number},
                         {"kind", port.kind},
                         {"state", port.state},
                         {"mtu_bytes", port.mtu_bytes},
                         {"gid", port.gid},
                         {"addresses", port.addresses},
                         {"firmware", port.firmware},
                         {"region_bytes_max", port.region_bytes_max}};
  return finding;
}

/// Why the transport does not work; empty: it works.
std::string trouble_of(const std::string& kind) {
  SystemClock clock;
  Secret secret;  // of no pool
  fill_random(secret.bytes);
  using transport::secure::Keyring;
  const transport::EndpointOptions options{
      .clock = &clock,
      .identity = std::make_shared<Keyring>(Keyring::of_root(
          secret, transport::secure::new_member(transport::secure::Role::kClient)))};
  auto endpoint = transport::open_endpoint(kind, options);
  if (!endpoint) return describe(endpoint.error());
  if (!kind.ends_with("verbs")) return "";
  const Status lockable = transport::verbs::check_lockable(kClientBytes);
  return lockable ? "" : describe(lockable.error());
}

Finding transport_finding(const std::string& kind, const std::string& trouble, bool needed) {
  Finding finding;
  finding.what = "transport " + kind;
  finding.found = trouble.empty() ? "works" : "does not work here: " + trouble;
  const std::string version = transport::provider_version(kind);
  if (!version.empty()) finding.found += "; " + version;
  finding.figures = Json{{"works", trouble.empty()}, {"provider", version}};
  if (trouble.empty()) return finding;
  finding.kind = needed ? Kind::kBad : Kind::kNote;
  if (kind == "tcp") finding.remedy = "`openssl ciphers -s -tls1_3` lists what OpenSSL offers";
  if (kind.ends_with("verbs")) finding.remedy = "ibv_devices and rdma link list the devices";
  return finding;
}

/// The choice of "auto", with the reason.
Finding choice_finding(const std::string& shm_trouble, const std::string& verbs_trouble) {
  Finding finding;
  finding.what = "transport auto";
  const char* const near = shm_trouble.empty() ? "shm" : verbs_trouble.empty() ? "verbs" : "tcp";
  const char* const far = verbs_trouble.empty() ? "verbs" : "tcp";
  const char* const why = verbs_trouble.empty() ? "a device has an active port; tcp to hosts "
                                                  "that it does not reach"
                                                : "verbs does not work here";
  finding.found =
      fmt::format("takes {} to benefactors of this host, {} to others ({})", near, far, why);
  finding.figures = Json{{"same_host", near}, {"other_hosts", far}};
  return finding;
}

double microseconds(Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

/// The chosen transport, such as "shm", and the ones tried before.
std::string chosen_text(const client::Probed& probed) {
  std::string used;
  std::string failed;
  std::size_t rails = 0;
  for (const auto& rail : probed.rails) {
    if (rail.used) {
      ++rails;
      used = rail.transport;
    } else if (rail.why_not.code != Code::kWouldBlock) {
      failed += fmt::format("; {} does not work: {}", rail.address, describe(rail.why_not));
    }
  }
  if (used.empty()) return "not reached" + failed;
  const std::string many = rails > 1 ? fmt::format(" on {} rails", rails) : "";
  return fmt::format("by {}{}, the best that both have{}", used, many, failed);
}

Json rails_json(const client::Probed& probed) {
  Json rails = Json::array();
  for (const auto& rail : probed.rails) {
    Json one{{"address", rail.address}, {"transport", rail.transport}, {"used", rail.used}};
    if (!rail.used && rail.why_not.code != Code::kWouldBlock) {
      one["why_not"] = describe(rail.why_not);
    }
    rails.push_back(one);
  }
  return rails;
}

Finding benefactor_finding(const client::Probed& probed) {
  const auto& info = probed.benefactor;
  Finding finding;
  finding.what = fmt::format("benefactor b{} on {}", info.id.value, info.host_name);
  finding.figures =
      Json{{"benefactor", info.id.value}, {"host", info.host_name}, {"rails", rails_json(probed)}};
  if (!probed.status) {
    finding.kind = probed.status.error().code == Code::kNoSpace ? Kind::kNote : Kind::kBad;
    finding.found = "writes could not be measured: " + describe(probed.status.error());
    if (finding.kind == Kind::kBad) finding.found += "; " + chosen_text(probed);
    finding.remedy = finding.kind == Kind::kBad ? "see `stdchk status`, and its log" : "";
    return finding;
  }
  finding.found =
      fmt::format("{}; {:.2f} GB/s, 4 KiB in {:.0f} us (99 % in {:.0f} us)", chosen_text(probed),
                  probed.bytes_per_s / 1e9, microseconds(probed.latency_median),
                  microseconds(probed.latency_p99));
  finding.figures["write_bytes_per_s"] = probed.bytes_per_s;
  finding.figures["write_4k_us_median"] = microseconds(probed.latency_median);
  finding.figures["write_4k_us_p99"] = microseconds(probed.latency_p99);
  return finding;
}

}  // namespace

std::vector<Finding> examine_network() {
  std::vector<Finding> findings;
  for (const auto& port : transport::rdma_ports()) findings.push_back(port_finding(port));
  const std::string shm = trouble_of("shm");
  const std::string verbs = trouble_of("verbs");
  findings.push_back(transport_finding("shm", shm, false));
  findings.push_back(transport_finding("verbs", verbs, false));
  findings.push_back(transport_finding("ofi:verbs", trouble_of("ofi:verbs"), false));
  findings.push_back(transport_finding("tcp", trouble_of("tcp"), true));
  findings.push_back(choice_finding(shm, verbs));
  return findings;
}

std::vector<Finding> examine_pool(const PoolRecord& pool) {
  const auto bad = [&](const std::string& why) {
    return std::vector<Finding>{{Kind::kBad, "pool " + pool.mount, why, "see `stdchk status`", {}}};
  };
  const auto keyring =
      transport::secure::read_keyring(pool.secret_file(), transport::secure::Role::kClient);
  if (!keyring) return bad(keyring.error().text);
  client::Options options;
  options.manager_address = pool.manager_address;
  options.keyring = *keyring;
  options.role = "tool";
  options.transport = pool.transport;
  const auto probed = client::probe(options);
  if (!probed) return bad(describe(probed.error()));
  std::vector<Finding> findings;
  for (const auto& one : *probed) findings.push_back(benefactor_finding(one));
  return findings;
}

}  // namespace stdchk::tools
