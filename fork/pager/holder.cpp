#include "fork/pager/holder.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "core/base/log.h"
#include "core/base/mutex.h"
#include "fork/pager/passing.h"

namespace stdchk::pager {
namespace {

using Timer = std::chrono::steady_clock;
constexpr auto kSoon = std::chrono::seconds(1);
constexpr unsigned kSoonEndsMax = 3;

/// The head of a message of the server. The record follows it.
struct MessageHead {
  KeptKind kind = KeptKind::kListener;
  std::uint32_t keeps = 0;  ///< 0: drop
  std::uint64_t id = 0;
};
struct Message {
  MessageHead head;
  std::array<char, kRecordBytesMax> record{};
};

sigset_t signals_of_holder() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

/// A Shelf holds the files and records that the holder keeps for the next server.
class Shelf {
 public:
  explicit Shelf(std::vector<Kept> kept) : kept_(std::move(kept)) {}

  /// Takes one message. Returns false when the server has closed its end.
  bool take(int socket) {
    Message message;
    Received got = receive_message(socket, &message, sizeof(message), MSG_DONTWAIT);
    if (got.error == EAGAIN) return true;
    if (got.error != 0 || got.length < sizeof(MessageHead)) {
      got.close_all();
      return got.error == EPROTO;
    }
    std::erase_if(kept_, [&](const Kept& each) {
      return each.kind == message.head.kind && each.id == message.head.id;
    });
    if (message.head.keeps != 0) {
      Kept& added = kept_.emplace_back();
      added.kind = message.head.kind;
      added.id = message.head.id;
      added.record.assign(message.record.data(), got.length - sizeof(MessageHead));
      for (std::size_t i = 0; i < kFilesMax && got.files[i] >= 0; ++i) {
        added.files.emplace_back(got.take(i));
      }
    }
    got.close_all();
    return true;
  }
  /// In the child, which becomes their owner.
  std::vector<Kept> release() { return std::move(kept_); }

 private:
  std::vector<Kept> kept_;
};

/// Waits for the end of the child, and returns its wait status.
int watch(pid_t child, int socket, int signals, Shelf& shelf, bool& end_requested) {
  bool open = true;
  for (;;) {
    pollfd ready[2] = {{signals, POLLIN, 0}, {open ? socket : -1, POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0) continue;
    // Messages of the server come first, because the server may be dead already.
    if (open && ready[1].revents != 0) {
      open = shelf.take(socket);
      continue;
    }
    signalfd_siginfo signal{};
    if (ready[0].revents == 0 || ::read(signals, &signal, sizeof(signal)) != sizeof(signal)) {
      continue;
    }
    if (signal.ssi_signo != SIGCHLD) {
      end_requested = true;
      ::kill(child, SIGTERM);
      continue;
    }
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) != child) continue;
    while (open) {
      pollfd last{socket, POLLIN, 0};
      if (::poll(&last, 1, 0) <= 0) break;
      open = shelf.take(socket);
    }
    return status;
  }
}

}  // namespace

Status HolderLink::store(KeptKind kind, std::uint64_t id, const std::string& record,
                         std::initializer_list<int> files) {
  if (record.size() > kRecordBytesMax) return fail(Code::kTooLarge, "pager.keep");
  Message message;
  message.head = {kind, 1, id};
  std::memcpy(message.record.data(), record.data(), record.size());
  const MutexLock lock(mutex_);
  const int error =
      send_message(socket_.get(), &message, sizeof(MessageHead) + record.size(), files);
  if (error != 0) return fail(Code::kSystem, "pager.keep", error);
  return {};
}

void HolderLink::drop(KeptKind kind, std::uint64_t id) {
  const MessageHead head{kind, 0, id};
  const MutexLock lock(mutex_);
  static_cast<void>(send_message(socket_.get(), &head, sizeof(head)));
}

int hold(std::vector<Kept> kept, const ServeKept& serve) {
  sigset_t before;
  const sigset_t mine = signals_of_holder();
  ::sigprocmask(SIG_BLOCK, &mine, &before);
  const Descriptor signals(::signalfd(-1, &mine, SFD_CLOEXEC));
  Shelf shelf(std::move(kept));
  for (unsigned soon_ends = 0;;) {
    int ends[2];
    if (!signals || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      log::error("The holder of stdchk-pager cannot start: {}", std::strerror(errno));
      return EXIT_FAILURE;
    }
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      HolderLink link{Descriptor(ends[1])};
      return serve(link, shelf.release());
    }
    ::close(ends[1]);
    const Descriptor socket(ends[0]);
    if (child < 0) {
      log::error("The page server cannot start: {}", std::strerror(errno));
      return EXIT_FAILURE;
    }
    ::prctl(PR_SET_NAME, "stdchk-holder");
    const auto began = Timer::now();
    bool end_requested = false;
    const int status = watch(child, socket.get(), signals.get(), shelf, end_requested);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    soon_ends = Timer::now() - began < kSoon ? soon_ends + 1 : 0;
    const bool gives_up = end_requested || soon_ends >= kSoonEndsMax;
    log::error("The page server {} was ended by signal {}{}", child, WTERMSIG(status),
               gives_up ? "; clones wait for absent pages until they are killed."
                        : "; another one takes its place.");
    if (gives_up) return EXIT_FAILURE;
  }
}

}  // namespace stdchk::pager
