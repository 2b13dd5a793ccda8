#include "fork/process/sandbox.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/exec_words.h"
#include "core/base/log.h"
#include "fork/process/sandbox_protocol.h"

namespace stdchk::fork {
namespace {

constexpr int kControlInChild = 3;

/// Receives one word and its sender. Returns the bytes received.
ssize_t receive_word(int fd, SandboxWord& word, Process& sender) {
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))] = {};
  iovec part{&word, sizeof(word)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  const ssize_t n = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const int error = errno;
  if (n >= 0) sender = take_sender(message);
  errno = error;
  return n;
}

/// New children of this process begin in the pid namespace of `process`, until the object ends.
class ChildrenInside {
 public:
  explicit ChildrenInside(int process) {
    if (process < 0) return;
    own_ = Descriptor(::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
    is_good_ = own_ && ::setns(process, CLONE_NEWPID) == 0;
  }
  ~ChildrenInside() {
    if (own_ && ::setns(own_.get(), CLONE_NEWPID) != 0) std::abort();
  }
  ChildrenInside(const ChildrenInside&) = delete;
  ChildrenInside& operator=(const ChildrenInside&) = delete;
  bool is_good() const { return is_good_; }

 private:
  Descriptor own_;
  bool is_good_ = true;
};

}  // namespace

Sandbox::Sandbox(Watches& watches, Parts parts, Calls calls)
    : watches_(watches), parts_(std::move(parts)), calls_(std::move(calls)) {
  if (parts_.parent != nullptr) parents_ = parts_.parent->folders();
}

Sandbox::~Sandbox() {
  if (control_) watches_.remove(control_.get());
  if (process_) process_->kill();
  std::error_code ignored;  // the daemon's own tmpfs goes with the daemon
  std::filesystem::remove_all(parts_.folder, ignored);
}

std::vector<std::string> Sandbox::folders() const {
  std::vector<std::string> all{parts_.folder};
  all.insert(all.end(), parents_.begin(), parents_.end());
  return all;
}

Status Sandbox::start() {
  if (::mkdir(parts_.folder.c_str(), 0755) != 0) return fail_errno("fork.sandbox.folder");
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return fail_errno("fork.sandbox.socket");
  }
  control_ = Descriptor(pair[0]);
  Descriptor theirs(pair[1]);
  if (!ask_for_senders(pair[0])) return fail_errno("fork.sandbox.socket");
  std::vector<std::string> words{parts_.program,
                                 std::to_string(kControlInChild),
                                 parts_.folder,
                                 parts_.sockets,
                                 parts_.sockets_at.empty() ? parts_.sockets : parts_.sockets_at,
                                 parts_.host_name};
  words.insert(words.end(), parents_.begin(), parents_.end());
  const std::vector<char*> argv = exec_words(words);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kControlInChild);
  pid_t outer = -1;
  int error = EINVAL;
  {
    const ChildrenInside inside(parts_.parent == nullptr ? -1 : parts_.parent->pidfd());
    if (inside.is_good()) {
      error =
          ::posix_spawn(&outer, parts_.program.c_str(), &actions, nullptr, argv.data(), environ);
    }
  }
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return fail(Code::kSystem, "fork.sandbox.start", error);
  watches_.add(control_.get(), [this] { on_word(); });
  return {};
}

void Sandbox::set_address(const Address& address) {
  SandboxWord word;
  word.step = SandboxStep::kAddress;
  word.address = address.ip;
  word.netmask = address.netmask;
  word.gateway = address.gateway;
  if (::send(control_.get(), &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      ssize_t{sizeof(word)}) {
    failed("its first process has ended");
  }
}

void Sandbox::on_word() {
  SandboxWord word;
  Process sender;
  const ssize_t n = receive_word(control_.get(), word, sender);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n != ssize_t{sizeof(word)}) return failed("its first process has ended");
  word.text[sizeof(word.text) - 1] = '\0';
  switch (word.step) {
    case SandboxStep::kHere: {
      process_ = std::move(sender);
      pid_namespace_ = process_ ? process_->pid_namespace() : 0;
      if (pid_namespace_ == 0) return failed("its first process has ended");
      return calls_.on_local_ready(*this);
    }
    case SandboxStep::kReady:
      is_ready_ = true;
      return calls_.on_ready(*this);
    case SandboxStep::kFailed:
      return failed(word.text);
    case SandboxStep::kAddress:
      break;
  }
  failed("its first process said nonsense");
}

void Sandbox::failed(const std::string& why) {
  watches_.remove(control_.get());
  calls_.on_failed(*this, why);
}

}  // namespace stdchk::fork
