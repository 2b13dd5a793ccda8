// stdchk-cast: sends a file to many hosts at once, and receives it.

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/whole_io.h"
#include "core/chunk/naming.h"
#include "core/files/pool_files.h"
#include "core/runtime/daemon.h"
#include "core/runtime/options.h"
#include "fork/multicast/cast.h"

namespace stdchk::multicast {
namespace {

struct Settings {
  std::string secret_file;
  std::string own;
  std::string group = "239.255.71.0:7100";
  std::string sender;
  std::string root;
  std::string path;
  std::string ready_file;
  std::uint64_t rate_start = 64'000'000;
  std::uint64_t rate_most = 12'000'000'000;
  std::uint64_t most = kImageBytesMax;
  std::uint32_t idle_s = 10;
  std::uint32_t expected = 1;
  std::uint32_t lose_permille = 0;
  bool by_unicast = false;
};

Outcome<Secret> group_of(const Settings& settings) {
  auto secret = read_secret_file(settings.secret_file);
  if (!secret) return problem(secret.error());
  return group_secret(*secret);
}

Status read_all(int file, std::uint64_t offset, MutableByteSpan out) {
  const ssize_t got = read_at(file, offset, out);
  if (got < 0) return fail_errno("read");
  if (got < std::ssize(out)) return fail(Code::kCorrupt, "read: the file has become shorter");
  return {};
}

int send_file(const Settings& settings) {
  const auto group = group_of(settings);
  if (!group) return fail_with(group.error().text);
  const auto own = parse_address(settings.own);
  const auto to = parse_address(settings.group);
  if (!own || !to || !is_multicast(*to)) {
    return fail_with(
        "--own needs an IPv4 address, and --group a multicast address (224.0.0.0/4) with a port");
  }
  const Descriptor file(::open(settings.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found {};
  if (!file || ::fstat(file.get(), &found) != 0 || found.st_size == 0) {
    return fail_with(fmt::format("{} cannot be read, or is empty", settings.path));
  }
  SendOptions options;
  options.group = *group;
  options.own = *own;
  options.to = *to;
  options.rate_start = static_cast<double>(settings.rate_start);
  options.rate_most = static_cast<double>(settings.rate_most);
  options.expected = settings.expected;
  options.idle = std::chrono::seconds(settings.idle_s);
  options.read = [&](std::uint64_t offset, MutableByteSpan out) {
    return read_all(file.get(), offset, out);
  };
  const auto manifest = Manifest::compute(static_cast<std::uint64_t>(found.st_size), options.read);
  if (!manifest) return fail_with(describe(manifest.error()));
  const std::string root = to_hex(manifest->root());
  options.on_ready = [&](const Address& at) {
    const std::string text = fmt::format("{} {}\n", address_text(at), root);
    if (settings.ready_file.empty()) {
      fmt::print("{}", text);
    } else if (!write_file_at_once(settings.ready_file, text)) {
      log::error("The ready file {} cannot be written.", settings.ready_file);
    }
  };
  SystemClock clock;
  const auto report = send(options, *manifest, clock);
  if (!report) return fail_with(describe(report.error()));
  const Sender::Counts& counts = report->counts;
  fmt::print(
      "units {} seconds {:.3f} asked {} in lockstep {} multicast cells {} unicast cells {} loss "
      "reports {} backed off {}\n",
      manifest->all_units(), std::chrono::duration<double>(report->took).count(),
      counts.asked_units, counts.lockstep_units, counts.multicast_cells, counts.unicast_cells,
      counts.loss_reports, counts.backed_off);
  return 0;
}

const char* way_of(const ReceiveReport& report) {
  if (report.by_relay) return "relay";
  return report.by_unicast ? "unicast" : "multicast";
}

int receive_file(const Settings& settings) {
  const auto group = group_of(settings);
  if (!group) return fail_with(group.error().text);
  const auto own = parse_address(settings.own);
  const auto from = parse_address(settings.sender);
  const auto root = parse_root(settings.root);
  if (!own || !from || !root) {
    return fail_with("--own and --sender need IPv4 addresses, and --root 64 hexadecimal digits");
  }
  const Descriptor file(::open(settings.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return fail_with(fmt::format("{} cannot be made, or exists", settings.path));
  ReceiveOptions options;
  options.group = *group;
  options.own = {own->host, 0};
  options.from = *from;
  options.root = *root;
  options.image_bytes_max = settings.most;
  options.patience = std::chrono::seconds(settings.idle_s);
  options.lose_permille = settings.lose_permille;
  options.by_unicast = settings.by_unicast;
  options.begin = [&](std::uint64_t bytes) -> Status {
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0) return {};
    return fail_errno("write");
  };
  options.write = [&](std::uint64_t offset, ByteSpan bytes) -> Status {
    return write_at(file.get(), offset, bytes) ? Status() : fail_errno("write");
  };
  options.read = [&](std::uint64_t offset, MutableByteSpan out) {
    return read_all(file.get(), offset, out);
  };
  SystemClock clock;
  const Time begun = clock.now();
  const auto report = receive(options, clock);
  if (!report) {
    ::unlink(settings.path.c_str());
    if (report.error().code == Code::kTooLarge) {
      return fail_with(fmt::format(
          "The sender offers a file of more than {} bytes. Receive it with a larger --most, if the "
          "sender is right.",
          settings.most));
    }
    return fail_with(describe(report.error()));
  }
  fmt::print("bytes {} seconds {:.3f} {} asks {} lost cells {} twice {} rejected {} passed on {}\n",
             report->image_bytes, std::chrono::duration<double>(clock.now() - begun).count(),
             way_of(*report), report->counts.asks, report->counts.lost_cells,
             report->counts.twice_cells, report->counts.rejected_units, report->relayed_cells);
  return 0;
}

void describe_common(Options& options, Settings& settings) {
  options
      .text("--secret-file", settings.secret_file, "FILE",
            "file with the secret of the group: the same for the sender and all receivers")
      .required();
  options.text("--own", settings.own, "ADDRESS", "IPv4 address of the interface to use").required();
  options.count("--idle", settings.idle_s, 1, 3600, "end after so many seconds of silence");
}

}  // namespace
}  // namespace stdchk::multicast

int main(int argc, char** argv) {
  using namespace stdchk;
  multicast::Settings settings;
  Options options("stdchk-cast",
                  "Sends a file to many hosts at once, by multicast where it works.");
  Options& sends = options.subcommand("send", "Sends a file to all hosts that ask for it.");
  multicast::describe_common(sends, settings);
  sends.text("--group", settings.group, "ADDRESS:PORT", "multicast group to send to");
  sends.size("--rate", settings.rate_start, 1'000'000, 100'000'000'000,
             "begin with this rate, bytes a second");
  sends.size("--rate-most", settings.rate_most, 1'000'000, 100'000'000'000,
             "never exceed this rate, bytes a second");
  sends.count("--expect", settings.expected, 1, multicast::Sender::kReceiversMax,
              "wait for this number of receivers, 2 s at most");
  sends.text("--ready-file", settings.ready_file, "FILE",
             "write the sender's address and the root digest to this file");
  sends.argument("FILE", settings.path, "the file to send").required();
  Options& receives = options.subcommand("receive", "Receives the file of a sender.");
  multicast::describe_common(receives, settings);
  receives.text("--sender", settings.sender, "ADDRESS:PORT", "address of the sender").required();
  receives.text("--root", settings.root, "DIGEST", "root digest that the sender has printed")
      .required();
  receives.size(
      "--most", settings.most, 1, std::uint64_t{2} << 40U,
      "longest file to accept; it costs 1/512 of that in memory before the root is proven");
  receives.flag("--unicast", settings.by_unicast,
                "do not join the multicast group: the sender or another receiver serves this host");
  receives.count("--lose", settings.lose_permille, 0, 500,
                 "drop this number of each 1000 datagrams, for tests");
  receives.argument("FILE", settings.path, "the file to make").required();
  if (auto status = options.parse_or_exit(argc, argv)) return *status;
  signal(SIGPIPE, SIG_IGN);
  let_crashes_end_the_process();
  log::start("stdchk-cast", log::Level::kInfo);
  return options.chosen() == "send" ? multicast::send_file(settings)
                                    : multicast::receive_file(settings);
}
