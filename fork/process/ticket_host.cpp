#include "fork/process/ticket_host.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/base/exec_words.h"
#include "core/base/log.h"
#include "core/files/log_end.h"
#include "fork/process/image_file.h"
#include "fork/process/sandbox_protocol.h"

namespace stdchk::fork {

TicketHost::TicketHost(Reactor& reactor, Watches& watches, Server& server, Parts parts)
    : reactor_(reactor), watches_(watches), server_(server), parts_(std::move(parts)) {}

TicketHost::~TicketHost() {
  if (pages_) {
    log::info("ticket {}: {} bytes of the parent's memory were fetched", ticket_.number,
              pages_->fetched_bytes());
  }
  if (restore_) watches_.remove(restore_->pidfd());
}

void TicketHost::serve(Descriptor in, Descriptor out) {
  channel_ = std::make_unique<HostChannel>(
      watches_, std::move(in), std::move(out),
      HostChannel::Calls{[this](HostWord word, std::string_view frame) { on_frame(word, frame); },
                         [this] { on_channel_end(); }});
}

/// The parent's host or its daemon is lost.
void TicketHost::on_channel_end() {
  if (!ticket_.outlives || !is_image_open_ || run_->table().all_ended()) return reactor_.stop();
  log::info("the parent's host is lost; the clones go on");
  is_alone_ = true;
  pages_->fetch_again();
}

void TicketHost::open_image(std::string_view frame) {
  ImagePlace place;
  if (image_ || !pages_ || !take_value(frame, place)) return;
  place.path[sizeof(place.path) - 1] = '\0';
  place.pool_path[sizeof(place.pool_path) - 1] = '\0';
  place.pager[sizeof(place.pager) - 1] = '\0';
  std::vector<ImageSegment> segments;
  for (ImageSegment segment; take_value(frame, segment);) {
    if (segment.begin < segment.end) segments.push_back(segment);
  }
  image_path_ = place.path;
  image_ = std::make_unique<ImageReader>(
      reactor_, place, std::move(segments),
      ImageReader::Calls{
          [this](const Outcome<void>& opened) { image_opened(opened); },
          [this](std::uint64_t address, std::string_view bytes) {
            pages_->on_block(address, bytes);
          },
          [this](const Problem& why) { lost("The parent's memory cannot be read: " + why.text); }});
}

void TicketHost::image_opened(const Outcome<void>& opened) {
  is_image_open_ = opened.has_value();
  channel_->send(HostWord::kImageOpen, opened ? std::string() : opened.error().text);
}

void TicketHost::lost(const std::string& why) {
  log::error("{}", why);
  if (run_ == nullptr || !run_->is_prepared()) {
    channel_->send(HostWord::kPrepared, why);
    return;
  }
  for (const Clone& clone : run_->table().clones()) run_->end_clone(clone.id, End::kFailed, 0, why);
}

void TicketHost::on_frame(HostWord word, std::string_view frame) {
  switch (word) {
    case HostWord::kPrepare: {
      HostTicket ticket;
      if (outer_ || !take_value(frame, ticket) || ticket.count == 0 ||
          ticket.count > Server::kClonesMax)
        return;
      auto network = decode_network(frame);
      if (!network) return lost("The parent's host sent a network that is none.");
      return prepare(ticket, std::move(*network));
    }
    case HostWord::kFile:
      return take_file(frame);
    case HostWord::kFormerRestore:
      return lost("The parent's host has another version of stdchk-forkd.");
    case HostWord::kRestore:
      return restore(frame);
    case HostWord::kPages: {
      PageRange range;
      if (take_value(frame, range) && pages_) pages_->on_block(range.address, frame);
      return;
    }
    case HostWord::kImage:
      return open_image(frame);
    case HostWord::kKill: {
      CloneEnd clone;
      if (take_value(frame, clone) && run_ != nullptr && clone.id >= ticket_.first_id) {
        run_->end_clone(clone.id - ticket_.first_id + 1, End::kKilled, 0, "");
      }
      return;
    }
    default:
      return;
  }
}

void TicketHost::prepare(const HostTicket& ticket, HostNetwork network) {
  ticket_ = ticket;
  network_ = std::move(network);
  ticket_.socket[sizeof(ticket_.socket) - 1] = '\0';
  const std::string socket = ticket_.socket;
  Sandbox::Parts parts{parts_.server.init_program, fmt::format("{}/outer", STDCHK_FORK_STATE),
                       parts_.folder, parts_.server.host_name, nullptr};
  parts.sockets_at = socket.substr(0, socket.rfind('/'));
  outer_ = std::make_unique<Sandbox>(
      watches_, std::move(parts),
      Sandbox::Calls{[](Sandbox& sandbox) { sandbox.set_address({}); },
                     [this](Sandbox&) { on_outer_ready(); },
                     [this](Sandbox&, const std::string& why) { lost("No namespaces: " + why); }});
  if (const Status started = outer_->start(); !started) lost(describe(started.error()));
}

/// Makes this host's part of the family's network. nullptr: the clones have only the loopback.
std::shared_ptr<FamilyNetwork> TicketHost::make_network() const {
  if (network_.tunnel == 0) return nullptr;
  auto made = std::make_shared<FamilyNetwork>(
      network_.base, network_.parts,
      network_.has_gateway ? FamilyNetwork::Reach::kOutside : FamilyNetwork::Reach::kFamily);
  auto done = made->start();
  if (done) done = made->add_tunnel({network_.tunnel, network_.own, network_.peers});
  if (done) return made;
  log::warning("clones here have only the loopback network: {}", done.error().text);
  return nullptr;
}

void TicketHost::on_outer_ready() {
  TicketRun::Parts parts{ticket_.number,
                         ticket_.count,
                         ticket_.is_hierarchical != 0,
                         ticket_.outlives != 0,
                         parts_.server.init_program,
                         fmt::format("{}/{}", STDCHK_FORK_STATE, ticket_.number),
                         parts_.folder,
                         parts_.server.host_name,
                         outer_.get(),
                         make_network()};
  parts.first_id = ticket_.first_id;
  const std::string socket = ticket_.socket;
  parts.sockets_at = socket.substr(0, socket.rfind('/'));
  reported_.resize(ticket_.count, CloneState::kReserved);
  run_ = &server_.host_ticket(std::move(parts), {[this](const std::string& problem) {
                                                   channel_->send(HostWord::kPrepared, problem);
                                                 },
                                                 [this] { on_change(); }});
}

void TicketHost::take_file(std::string_view frame) {
  if (frame.size() < kFileNameBytes) return;
  const std::string name(frame.data(), ::strnlen(frame.data(), kFileNameBytes));
  // A name of CRIU's images: letters, digits, "-" and ".".
  if (name.empty() || name[0] == '.' ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") != std::string::npos) {
    return lost("A file of the image has a bad name.");
  }
  const std::string folder = parts_.folder + "/image";
  ::mkdir(folder.c_str(), 0700);
  std::ofstream out(folder + "/" + name, std::ios::binary | std::ios::app);
  frame.remove_prefix(kFileNameBytes);
  out.write(frame.data(), static_cast<std::streamsize>(frame.size()));
  if (!out) lost("The image cannot be written: is there memory?");
}

void TicketHost::restore(std::string_view frame) {
  HostTicket ticket;
  if (run_ == nullptr || !take_value(frame, ticket)) return;
  std::vector<PageServer::Segment> segments;
  for (MemoryPart part; take_value(frame, part);) {
    if (part.begin < part.end) segments.push_back({part.begin, part.end, part.begin});
  }
  pages_ = std::make_unique<PageServer>(
      watches_, std::move(segments), [this](std::uint64_t address, std::uint64_t bytes) {
        if (is_image_open_) return image_->fetch(address, bytes);
        channel_->send_value(HostWord::kPagesWanted, PageRange{address, bytes});
      });
  if (!run_->expect({ticket.token[0], ticket.token[1]},
                    [this](Descriptor faults) { pages_->serve(std::move(faults)); })) {
    return lost("The image came twice.");
  }
  if (!outer_->first_process()->is_alive()) return lost("The namespaces have ended.");
  const std::string socket = ticket_.socket;
  const std::string image = socket.substr(0, socket.rfind('/')) + "/image";
  const std::vector<std::string> words{"nsenter",
                                       fmt::format("--target={}", outer_->first_process()->pid()),
                                       "--mount",
                                       "--pid",
                                       "--ipc",
                                       "--uts",
                                       "--net",
                                       "--",
                                       parts_.criu,
                                       "restore",
                                       "-D",
                                       image,
                                       "-o",
                                       "restore.log",
                                       "-v2",
                                       "--manage-cgroups=ignore",
                                       "--restore-detached",
                                       "--pidfile",
                                       "pid"};
  const std::vector<char*> argv = exec_words(words);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t restore = -1;
  const int error = ::posix_spawnp(&restore, "nsenter", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return lost(fmt::format("nsenter(1) cannot be started: {}.", std::strerror(error)));
  restore_.emplace(restore);
  watches_.add(restore_->pidfd(), [this] {
    watches_.remove(restore_->pidfd());
    // -1: the daemon has reaped it already. CRIU's file tells the result, too.
    siginfo_t ended{};
    const int waited = ::waitid(static_cast<idtype_t>(P_PIDFD),
                                static_cast<id_t>(restore_->pidfd()), &ended, WEXITED | WNOHANG);
    restore_.reset();
    restored(waited == 0 ? ended.si_status : 0);
  });
}

void TicketHost::restored(int status) {
  const std::string image = parts_.folder + "/image";
  if (status != 0 || ::access((image + "/pid").c_str(), F_OK) != 0) {
    return lost("CRIU cannot restore the parent: " + end_of_log(image + "/restore.log", 600));
  }
  // The restored process is still stopped. The file has its pid in its own pid namespace.
  pid_t pid = 0;
  std::ifstream(image + "/pid") >> pid;
  const std::string command = fmt::format("kill -CONT {}", pid);
  const char* argv[] = {"nsenter", nullptr, "--pid",         "--mount", "--",
                        "sh",      "-c",    command.c_str(), nullptr};
  if (!outer_->first_process()->is_alive()) return lost("The namespaces have ended.");
  const std::string target = fmt::format("--target={}", outer_->first_process()->pid());
  argv[1] = target.c_str();
  pid_t helper = -1;
  if (::posix_spawnp(&helper, "nsenter", nullptr, nullptr, const_cast<char**>(argv), environ) ==
      0) {
    ::waitpid(helper, nullptr, 0);
  }
}

/// Tells the parent's host about clones whose state has changed.
void TicketHost::on_change() {
  if (run_ == nullptr) return;
  if (is_alone_) {
    if (!run_->table().all_ended()) return;
    // The parent's host, which would have removed the image, is lost.
    remove_image(image_path_);
    return reactor_.stop();
  }
  for (const Clone& clone : run_->table().clones()) {
    CloneState& reported = reported_[clone.id - 1];
    if (clone.state == reported ||
        (clone.state != CloneState::kRunning && clone.state != CloneState::kEnded))
      continue;
    reported = clone.state;
    CloneEnd word;
    word.id = clone.id + ticket_.first_id - 1;
    if (clone.state == CloneState::kRunning) {
      channel_->send_value(HostWord::kRunning, word);
      continue;
    }
    word.end = static_cast<std::uint32_t>(clone.end);
    word.status = clone.status;
    channel_->send_value(HostWord::kEnded, word, clone.value);
  }
}

}  // namespace stdchk::fork
