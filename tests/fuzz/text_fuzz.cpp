// Feeds arbitrary bytes to the parsers of people's and files' texts; the first byte chooses the
// parser. Values that can be written must be read back equal.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "benefactor/drain/drain_paths.h"
#include "core/base/assert.h"
#include "core/base/host_port.h"
#include "core/base/limits.h"
#include "core/base/units.h"
#include "core/files/drain_directory.h"
#include "core/files/drain_manifest.h"
#include "core/files/lease_text.h"
#include "core/files/mount_table.h"
#include "core/files/pool_files.h"
#include "core/messages/messages.h"
#include "core/policy/folder_settings.h"
#include "core/policy/image_name.h"
#include "core/policy/policy.h"
#include "core/policy/redundancy.h"
#include "core/policy/topology.h"
#include "core/runtime/options.h"
#include "metrics/listen_address.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/temporary_folder.h"
#include "tools/base/hosts.h"
#include "tools/drained/undrained_file.h"
#include "tools/pool/members.h"
#include "transport/socket_address.h"

using namespace stdchk;

namespace {

void check_policy(const std::string& text) {
  const auto policy = parse_policy(text);
  if (!policy) return;
  std::string written;
  for (const PolicySetting& setting : policy->settings) {
    STDCHK_ASSERT(!policy_name(setting.key).empty());
    written += std::string(policy_name(setting.key)) + "=" + format_value(setting) + " ";
  }
  const auto again = parse_policy(written);
  STDCHK_ASSERT(again.has_value() && *again == *policy);
}

void check_topology(const std::string& text) {
  const auto topology = Topology::parse(text);
  if (!topology || topology->empty()) return;
  const std::size_t first = text.find_first_not_of(" \t\n\v\f\r");
  const std::string name = text.substr(first, text.find_first_of(" \t\n\v\f\r#", first) - first);
  STDCHK_ASSERT(name.empty() || name[0] == '#' || topology->find(name) != nullptr);
}

void check_hosts(const std::string& text) {
  const auto hosts = tools::read_hosts(fuzz::folder().write("hosts", text), 1, 2);
  if (!hosts) return;
  std::string written;
  for (const tools::Host& host : *hosts) {
    STDCHK_ASSERT(!host.name.empty() && host.name[0] != '-' && host.memory_bytes > 0);
    STDCHK_ASSERT(host.name.find_first_of("/ ;'\"$`\\\n") == std::string::npos);
    STDCHK_ASSERT(host.address.find_first_of("/ ;'\"$`\\\n") == std::string::npos);
    written += host.name;
    if (!host.address.empty()) written += " address=" + host.address;
    written += " memory=" + std::to_string(host.memory_bytes) +
               " benefactors=" + std::to_string(host.benefactors) + "\n";
  }
  const auto again = tools::read_hosts(fuzz::folder().write("hosts", written), 1, 2);
  STDCHK_ASSERT(again.has_value() && again->size() == hosts->size());
  for (std::size_t i = 0; i < hosts->size(); ++i) {
    const tools::Host& one = (*hosts)[i];
    const tools::Host& two = (*again)[i];
    STDCHK_ASSERT(one.name == two.name && one.address == two.address);
    STDCHK_ASSERT(one.memory_bytes == two.memory_bytes && one.benefactors == two.benefactors);
  }
}

void check_redundancy(const std::string& text) {
  const auto redundancy = parse_redundancy(text);
  if (!redundancy) return;
  STDCHK_ASSERT(redundancy_of(redundancy->number()) == redundancy);
  STDCHK_ASSERT(parse_redundancy(redundancy_text(*redundancy)) == redundancy);
}

void check_units(const std::string& text) {
  if (const auto bytes = parse_bytes(text)) {
    STDCHK_ASSERT(*bytes >> 63 == 0);
    STDCHK_ASSERT(parse_bytes(std::to_string(*bytes)).value() == *bytes);
    STDCHK_ASSERT(parse_rate(text + "/s").value() == *bytes);
    STDCHK_ASSERT(!format_bytes(*bytes).empty());
  }
  if (const auto seconds = parse_seconds(text)) {
    STDCHK_ASSERT(*seconds >> 63 == 0);
    STDCHK_ASSERT(parse_seconds(format_seconds(*seconds)).value() == *seconds);
  }
}

void check_image(const std::string& text) {
  if (const auto image = parse_image_name(text)) {
    const std::string name = image->application + ".N" + std::to_string(image->node) + ".T" +
                             std::to_string(image->timestep);
    STDCHK_ASSERT(parse_image_name(name) == image);
    const auto set = parse_set_name(text);
    STDCHK_ASSERT(set && set->timestep == image->timestep);
  }
  if (const auto set = parse_set_name(text)) {
    const auto again = parse_set_name(set_name(set->application, set->timestep));
    STDCHK_ASSERT(again && again->application == set->application);
    STDCHK_ASSERT(again->timestep == set->timestep);
  }
}

void check_address(const std::string& text) {
  const auto address = transport::parse_address("tcp:", text);
  if (!address) return;
  const std::string written = transport::address_text("tcp:", *address);
  const auto again = transport::parse_address("tcp:", written);
  STDCHK_ASSERT(again.has_value());
  STDCHK_ASSERT(transport::address_text("tcp:", *again) == written);
  STDCHK_ASSERT(transport::address_bytes(*again) == transport::address_bytes(*address));
}

void check_options(const std::string& text) {
  Options options("stdchk-fuzz", "Is fuzzed.");
  std::string name;
  std::string mode = "fast";
  std::uint64_t size = 4096;
  std::uint64_t rate = 0;
  std::uint32_t count = 1;
  std::uint32_t chunk = 1 << 20;
  std::uint32_t copies = 1;
  bool on = false;
  bool flag = false;
  options.text("--name", name, "NAME", "A name.");
  options.choice("--mode", mode, {"fast", "slow"}, "How.");
  options.size("--size", size, 4096, 1 << 30, "A size.");
  options.rate("--rate", rate, "A rate.");
  options.count("--count", count, 1, 64, "A number.");
  options.chunk_size("--chunk-size", chunk, "A chunk.");
  options.redundancy("--copies", copies, "Copies.");
  options.on_off("--on", on, "On or off.");
  options.flag("--flag", flag, "There or not.");
  OptionsSources sources;
  sources.environment = [](const std::string&) { return std::optional<std::string>(); };
  sources.config_files = {fuzz::folder().write("stdchk.toml", text)};
  const OptionsOutcome outcome = options.parse({}, sources);
  STDCHK_ASSERT(outcome.run != !outcome.message.empty());
  STDCHK_ASSERT(outcome.run || outcome.exit_status == 2);
  if (!outcome.run) return;
  STDCHK_ASSERT(mode == "fast" || mode == "slow");
  STDCHK_ASSERT(size >= 4096 && size <= 1 << 30 && count >= 1 && count <= 64);
  STDCHK_ASSERT(chunk > 0 && (chunk & (chunk - 1)) == 0 && chunk <= limits::kChunkBytesMax);
  STDCHK_ASSERT(redundancy_of(copies).has_value());
}

void check_secret(const std::string& text) {
  const std::string path = fuzz::folder().write("secret", text);
  ::chmod(path.c_str(), 0600);
  const auto secret = read_secret_file(path);
  STDCHK_ASSERT(secret.has_value() || !secret.error().text.empty());
  STDCHK_ASSERT(!secret || text.size() == 32 || text.size() == 33);
}

void check_path(const std::string& text) {
  const auto parts = benefactor::split_path(text);
  if (!parts) return;
  std::string joined;
  for (const std::string& part : *parts) {
    STDCHK_ASSERT(!part.empty() && part != "." && part != ".." &&
                  part.find_first_of(std::string("/\0", 2)) == std::string::npos);
    joined += (joined.empty() ? "" : "/") + part;
  }
  STDCHK_ASSERT(joined == text && (*parts)[0] != msg::kTemporaryFolder);
}

void check_undrained(const std::string& text) {
  const tools::Undrained one = tools::load_undrained(fuzz::folder().write("undrained", text));
  for (const tools::Undrained::Entry& entry : one.entries) {
    STDCHK_ASSERT(entry.missing <= entry.files && !entry.path.empty());
  }
  const std::string written = fuzz::folder().path() + "/undrained.again";
  STDCHK_ASSERT(tools::save_undrained(one, written).has_value());
  const tools::Undrained again = tools::load_undrained(written);
  STDCHK_ASSERT(again.entries == one.entries);
  STDCHK_ASSERT(one.entries.empty() || again.when == one.when);
}

/// Parses the text of a lease in the drain directory.
void check_lease(const std::string& text) {
  const LeaseHolder holder = parse_lease(text);
  (void)holder.may_be_running();
  if (holder == LeaseHolder{}) return;
  STDCHK_ASSERT(parse_lease(lease_text(holder, text.size())) == holder);
}

/// Reads a folder's policy from the target of a link in the drain directory.
void check_policy_link(const std::string& text) {
  const std::string link = fuzz::folder().path() + "/" + kPolicyLinkName;
  const std::string target = text.substr(0, text.find('\0'));
  ::unlink(link.c_str());
  if (::symlink(target.c_str(), link.c_str()) != 0) return;
  const auto folder = DrainDirectory(fuzz::folder().path()).open();
  STDCHK_ASSERT(folder.has_value());
  const auto read = read_policy_text(*folder);
  STDCHK_ASSERT(read.has_value() && *read == target);
  const auto settings = parse_folder_settings(*read);
  if (!settings) return;
  std::string rules;
  for (const auto& [key, value] : settings->rules) {
    rules += key + "=" + (value.empty() ? "inherit" : value) + " ";
  }
  const auto again = parse_folder_settings(rules);
  STDCHK_ASSERT(again.has_value() && again->rules == settings->rules);
}

/// Parses another host's report on the processes started there.
void check_start_report(const std::string& text) {
  std::vector<tools::Job> jobs(2);
  jobs[0].name = "benefactor.0";
  jobs[0].role = "benefactor";
  jobs[1].name = "mount.0";
  jobs[1].role = "mount";
  const tools::StartReport report = tools::read_start_report(text, jobs);
  for (const tools::Member& member : report.started) {
    STDCHK_ASSERT(member.process.pid > 1 && member.boot_id == report.boot);
    STDCHK_ASSERT(member.log == "benefactor.0.log" || member.log == "mount.0.log");
    STDCHK_ASSERT(member.role == member.log.substr(0, member.role.size()));
  }
  const std::string words = tools::last_words(fuzz::folder().write("log", text));
  STDCHK_ASSERT(!words.empty() || !text.empty());
  STDCHK_ASSERT(words.size() <= 1004);
}

/// Parses any mount table. A directory must be found in a table as the kernel would write it.
void check_mounts(const std::string& text) {
  (void)find_mount("/mnt/pool", fuzz::folder().write("mounts", text));
  const std::string directory = text.substr(0, text.find('\0'));
  std::string point;
  for (const char one : directory) {
    const bool blank =
        // the kernel does not escape them, and the parser ends a word there
        one == '\v' || one == '\f' || one == '\r';
    if (blank) return;
    const std::size_t special = std::string(" \t\n\\").find(one);
    static constexpr const char* kWritten[] = {"\\040", "\\011", "\\012", "\\134"};
    point += special == std::string::npos ? std::string(1, one) : kWritten[special];
  }
  if (point.empty()) return;
  const auto found = find_mount(
      directory, fuzz::folder().write("mounts", "1 2 0:77 / " + point + " rw shared:1 - fuse a\n"));
  STDCHK_ASSERT(found && found->minor == 77 && found->type == "fuse" && found->source == "a");
}

void check_listen_address(const std::string& text) {
  if (const auto where = parse_host_port(text)) {
    STDCHK_ASSERT(!where->host.empty() && where->host.find_first_of("[]") == std::string::npos);
    const auto again = parse_host_port(fmt::format("[{}]:{}", where->host, where->port));
    STDCHK_ASSERT(again && again->host == where->host && again->port == where->port);
  }
  const auto address = metrics::ListenAddress::parse(text);
  STDCHK_ASSERT(address.has_value() || !address.error().text.empty());
  if (!address) return;
  const auto again = metrics::ListenAddress::parse(address->text());
  STDCHK_ASSERT(again && again->host == address->host && again->port == address->port);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using Check = void (*)(const std::string&);
  static constexpr Check kChecks[] = {
      check_policy, check_topology,       check_hosts,     check_redundancy,
      check_units,  check_image,          check_address,   check_options,
      check_secret, check_path,           check_undrained, check_start_report,
      check_mounts, check_listen_address, check_lease,     check_policy_link};
  fuzz::Choices choices({reinterpret_cast<const std::byte*>(data), size});
  const Check check = kChecks[choices.below(std::size(kChecks))];
  check(fuzz::text_of(choices.rest()));
  return 0;
}
