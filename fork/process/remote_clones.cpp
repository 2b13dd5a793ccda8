#include "fork/process/remote_clones.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <utility>

#include "core/base/log.h"
#include "core/base/units.h"
#include "core/files/log_end.h"
#include "fork/process/image_file.h"
#include "fork/ticket/program.h"

namespace stdchk::fork {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::uint64_t kPagesBytesMax = std::uint64_t{1} << 20;
constexpr std::uint64_t kPage = 4096;

/// Reads a list of ranges, as the copy for other hosts sends it.
std::vector<MemoryPart> ranges_of(std::string_view text) {
  std::vector<MemoryPart> ranges;
  for (MemoryPart range; take_value(text, range);) ranges.push_back(range);
  return valid_ranges(std::move(ranges));
}

Population population_of(const ProcessHandle& frozen, std::string_view ranges) {
  const Descriptor pagemap = frozen.open_pagemap();
  return find_population(
      ranges_of(ranges), [&](std::uint64_t address, std::span<std::uint64_t> entries) {
        const auto offset = static_cast<off_t>(address / kPage * sizeof(std::uint64_t));
        const ssize_t n = ::pread(pagemap.get(), entries.data(), entries.size_bytes(), offset);
        return n == static_cast<ssize_t>(entries.size_bytes());
      });
}

std::string last_lines(const std::string& path) { return end_of_log(path, 400); }

}  // namespace

RemoteClones::RemoteClones(Reactor& reactor, Watches& watches, RemoteParts parts,
                           std::string folder, Calls calls)
    : reactor_(reactor),
      watches_(watches),
      parts_(std::move(parts)),
      folder_(std::move(folder)),
      calls_(std::move(calls)) {}

RemoteClones::~RemoteClones() {
  if (dump_) watches_.remove(dump_->pidfd());
  writer_.reset();
  if (!image_path_.empty()) remove_image(image_path_);
  for (const auto& host : hosts_) {
    host->channel.reset();  // the other daemon ends when its input does
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Outcome<void> RemoteClones::start(Host& host) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return problem("no pipe");
  const Descriptor their_in(in[0]);
  Descriptor our_out(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return problem("no pipe");
  Descriptor our_in(out[0]);
  const Descriptor their_out(out[1]);
  std::vector<std::string> words = split(parts_.remote_shell, ' ');
  words.push_back(host.name);
  // Word by word: a remote shell joins them, a batch system's command does not split them.
  for (std::string& word : split(parts_.program, ' ')) words.push_back(std::move(word));
  words.emplace_back("--serve-ticket");
  host.shell = spawn(words, their_in.get(), their_out.get());
  if (host.shell < 0)
    return problem(fmt::format("{}: {}", parts_.remote_shell, std::strerror(errno)));
  host.channel = std::make_unique<HostChannel>(
      watches_, std::move(our_in), std::move(our_out),
      HostChannel::Calls{
          [this, &host](HostWord word, std::string_view frame) { on_frame(host, word, frame); },
          [this, &host] { on_lost(host, fmt::format("The host {} was lost.", host.name)); }});
  return {};
}

void RemoteClones::prepare(HostTicket ticket, const std::vector<Placement>& placements,
                           const std::vector<HostNetwork>& networks) {
  ticket_ = ticket;
  std::uint32_t next = ticket.first_id;
  for (const Placement& placement : placements) {
    auto host = std::make_unique<Host>();
    host->name = placement.host;
    host->first_id = next;
    host->count = placement.count;
    next += placement.count;
    hosts_.push_back(std::move(host));
  }
  missing_ = hosts_.size();
  for (std::size_t i = 0; i < hosts_.size(); i++) {
    Host& host = *hosts_[i];
    ticket.first_id = host.first_id;
    ticket.count = host.count;
    if (auto started = start(host); !started) return on_lost(host, started.error().text);
    if (!host.channel->send_value(HostWord::kPrepare, ticket, encode(networks[i])))
      on_lost(host, host.name + " does not answer.");
  }
}

void RemoteClones::on_lost(Host& host, const std::string& why) {
  if (host.is_lost) return;
  host.is_lost = true;
  if (!host.is_prepared) {
    return calls_.on_prepared(fmt::format("The host {} is not ready: {}", host.name, why));
  }
  log::warning("{}", why);
  for (std::uint32_t i = 0; i < host.count; i++)
    calls_.on_ended(host.first_id + i, End::kFailed, 0, why);
}

void RemoteClones::fail_all(const std::string& why) {
  for (const auto& host : hosts_) {
    for (std::uint32_t i = 0; i < host->count; i++)
      calls_.on_ended(host->first_id + i, End::kFailed, 0, why);
  }
}

void RemoteClones::on_frame(Host& host, HostWord word, std::string_view frame) {
  if (host.is_lost) return;
  if (word == HostWord::kPrepared) {
    if (!frame.empty()) return on_lost(host, std::string(frame));
    if (host.is_prepared) return;
    host.is_prepared = true;
    if (--missing_ == 0) calls_.on_prepared("");
    return;
  }
  if (word == HostWord::kImageOpen) return image_opened(host, frame);
  if (word == HostWord::kPagesWanted) {
    PageRange range;
    if (take_value(frame, range)) give_pages(host, range);
    return;
  }
  CloneEnd clone;
  if (!take_value(frame, clone) || clone.id < host.first_id ||
      clone.id >= host.first_id + host.count)
    return;
  if (word == HostWord::kRunning) return calls_.on_running(clone.id);
  if (word == HostWord::kEnded && clone.end <= static_cast<std::uint32_t>(End::kFailed)) {
    calls_.on_ended(clone.id, static_cast<End>(clone.end), clone.status, std::string(frame));
  }
}

void RemoteClones::give_pages(Host& host, const PageRange& range) {
  if (range.bytes > kPagesBytesMax || range.bytes % kPage != 0 || range.address % kPage != 0)
    return;
  std::string pages(range.bytes, '\0');
  const auto copy = [&](std::uint64_t at, std::size_t bytes) {
    const ssize_t n = frozen_ ? frozen_->read(pages.data() + at, range.address + at, bytes) : 0;
    return n < 0 ? -errno : n;
  };
  ssize_t copied = copy(0, pages.size());
  // The block may reach beyond the end of the parent's memory. Then copy page by page; absent pages
  // stay zero.
  if (copied != static_cast<ssize_t>(pages.size())) {
    for (std::uint64_t at = 0; copied != -ESRCH && at < pages.size(); at += kPage) {
      copied = copy(at, kPage);
    }
  }
  if (!frozen_ || copied == -ESRCH) {
    return on_lost(host, "The frozen copy of the parent has ended.");
  }
  if (!host.channel->send_value(HostWord::kPages, range, pages))
    on_lost(host, host.name + " does not take pages.");
}

void RemoteClones::distribute(const std::array<std::uint64_t, 2>& token, Process copy,
                              Process frozen, std::string_view ranges) {
  ticket_.token[0] = token[0];
  ticket_.token[1] = token[1];
  copy_ = std::move(copy);
  frozen_ = std::move(frozen);
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  // CRIU knows its process by the pid only. The copy waits for it, and ends at its hands.
  if (!copy_->is_alive()) return fail_all("The copy for other hosts has ended.");
  // In the copy's mount namespace, because this daemon has its own.
  const pid_t dump_pid = spawn({"nsenter", "--mount", fmt::format("--target={}", copy_->pid()),
                                "--", parts_.criu, "dump", "-t", std::to_string(copy_->pid()), "-D",
                                folder_, "-o", "dump.log", "-v3", "--manage-cgroups=ignore"},
                               -1, -1);
  if (dump_pid < 0)
    return fail_all(fmt::format("nsenter(1) cannot be started: {}.", std::strerror(errno)));
  dump_.emplace(dump_pid);
  // CRIU works meanwhile.
  population_ = frozen_ ? population_of(*frozen_, ranges) : Population{ranges_of(ranges), {}};
  watches_.add(dump_->pidfd(), [this] {
    int status = 0;
    watches_.remove(dump_->pidfd());
    dump_.reset();
    // The daemon has reaped it, or will: CRIU's log tells the result.
    if (last_lines(folder_ + "/dump.log").find("Dumping finished successfully") ==
        std::string::npos)
      status = 1;
    dumped(status);
  });
}

void RemoteClones::dumped(int status) {
  if (status != 0) {
    copy_->kill();
    return fail_all("CRIU cannot dump the copy for other hosts: " +
                    last_lines(folder_ + "/dump.log"));
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.size() >= kFileNameBytes || !name.ends_with(".img")) continue;
    char field[kFileNameBytes] = {};
    name.copy(field, name.size());
    std::ifstream in(entry.path(), std::ios::binary);
    std::string piece(kPieceBytes, '\0');
    do {
      in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      const std::string_view bytes(piece.data(), static_cast<std::size_t>(in.gcount()));
      for (const auto& host : hosts_) {
        if (!host->is_lost &&
            !host->channel->send(HostWord::kFile, {field, sizeof(field)}, bytes)) {
          on_lost(*host, host->name + " does not take the image.");
        }
      }
    } while (in);
  }
  const std::string_view parts(reinterpret_cast<const char*>(population_.parts.data()),
                               population_.parts.size() * sizeof(MemoryPart));
  for (const auto& host : hosts_) {
    if (!host->is_lost && !host->channel->send_value(HostWord::kRestore, ticket_, parts)) {
      on_lost(*host, host->name + " does not take the image.");
    }
  }
}

void RemoteClones::keep_image() {
  if (parts_.image.folder.empty() || writer_ || !frozen_) return;
  char host[65] = {};
  ::gethostname(host, sizeof(host) - 1);
  const std::string name = fmt::format("{}.{}.{}", host, ::getpid(), ticket_.number);
  image_path_ = parts_.image.folder + "/" + name;
  writer_ =
      std::make_unique<ImageWriter>(reactor_, frozen_, image_of(population_.parts), image_path_,
                                    [this](const Outcome<void>& written) { send_image(written); });
}

void RemoteClones::send_image(const Outcome<void>& written) {
  if (!written) {
    log::warning(
        "ticket {}: the parent's memory is not in the pool, and clones on other hosts need its "
        "copy: {}",
        ticket_.number, written.error().text);
    return;
  }
  ImagePlace place;
  const std::string name = image_path_.substr(image_path_.rfind('/'));
  std::snprintf(place.path, sizeof(place.path), "%s", image_path_.c_str());
  std::snprintf(place.pool_path, sizeof(place.pool_path), "%s",
                (parts_.image.pool_path + name).c_str());
  std::snprintf(place.pager, sizeof(place.pager), "%s", parts_.image.pager.c_str());
  std::string segments;
  for (const ImageSegment& segment : image_of(population_.parts)) {
    segments.append(reinterpret_cast<const char*>(&segment), sizeof(segment));
  }
  for (const auto& host : hosts_) {
    if (!host->is_lost && !host->channel->send_value(HostWord::kImage, place, segments)) {
      on_lost(*host, host->name + " does not answer.");
    }
  }
}

void RemoteClones::image_opened(Host& host, std::string_view problem) {
  if (!problem.empty()) {
    log::warning("ticket {}: {} does not read the parent's memory from the pool: {}",
                 ticket_.number, host.name, problem);
    return;
  }
  host.has_image = true;
  has_image_ = std::all_of(hosts_.begin(), hosts_.end(),
                           [](const auto& each) { return each->has_image || each->is_lost; });
  if (!has_image_) return;
  log::info("ticket {}: the parent's memory is in {}; its copy is no longer needed", ticket_.number,
            image_path_);
  calls_.on_image();
}

void RemoteClones::kill(std::uint32_t id) {
  CloneEnd clone;
  clone.id = id;
  for (const auto& host : hosts_) {
    const bool has = id >= host->first_id && id < host->first_id + host->count;
    if (has && !host->is_lost) host->channel->send_value(HostWord::kKill, clone);
  }
}

}  // namespace stdchk::fork
