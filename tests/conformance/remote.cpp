#include "tests/conformance/remote.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/base/assert.h"
#include "tests/conformance/watch.h"

namespace stdchk::conformance {

namespace {

void set_text(std::array<char, 512>& to, const std::string& text) {
  STDCHK_ASSERT(text.size() < to.size());
  to.fill('\0');
  std::copy(text.begin(), text.end(), to.begin());
}

/// A Servant is the remote party's program.
class Servant final : public EventSource {
 public:
  Servant(Party& party, int control_fd) : party_(party), control_fd_(control_fd) {
    party_.reactor().add(*this);
    party_.when_accepted = [this](Contact& contact) { prepare(contact); };
  }
  ~Servant() override { party_.reactor().remove(*this); }
  Servant(const Servant&) = delete;
  Servant& operator=(const Servant&) = delete;

  void run() {
    while (!quit_) {
      if (paused_) {
        pollfd wait{control_fd_, POLLIN, 0};
        ::poll(&wait, 1, -1);
        poll();
      } else {
        party_.reactor().run_once(std::chrono::milliseconds(replies_.empty() ? 50 : 1));
        send_replies();
      }
    }
  }

  bool poll() override {
    Command command;
    const auto got = ::recv(control_fd_, &command, sizeof(command), MSG_DONTWAIT);
    if (got == 0) quit_ = true;
    if (got != sizeof(command)) return false;
    if (command.verb == Verb::kQuit) {
      quit_ = true;
      return true;
    }
    const Answer answer = obey(command);
    ::send(control_fd_, &answer, sizeof(answer), MSG_NOSIGNAL);
    return true;
  }
  int fd() const override { return control_fd_; }
  bool may_sleep() override { return true; }

 private:
  void prepare(Contact& contact) {
    contact.when_message = [this, &contact](ByteSpan message) {
      ++messages_;
      if (mode_ == Mode::kKeep) return true;
      std::vector<std::byte> reply(message.begin(), message.end());
      if (mode_ == Mode::kVerify) reply = {verify(message)};
      replies_.emplace_back(&contact, std::move(reply));
      send_replies();
      return true;
    };
  }

  std::byte verify(ByteSpan message) {
    Probe probe;
    if (message.size() != sizeof(probe)) return std::byte{0};
    std::memcpy(&probe, message.data(), sizeof(probe));
    const bool right =
        first_mismatch(party_.memory().subspan(probe.offset, probe.length), probe.seed) < 0;
    return std::byte{right};
  }

  void send_replies() {
    while (!replies_.empty()) {
      auto& [contact, reply] = replies_.front();
      if (contact->link != nullptr) {
        const Status sent = contact->link->send(reply);
        if (!sent.has_value() && sent.error().code == Code::kWouldBlock) return;
      }
      replies_.pop_front();
    }
  }

  Answer obey(const Command& command);
  bool connect(const std::string& address);
  void write_for_ever(const Command& command);
  void restart(std::size_t index);

  Party& party_;
  const int control_fd_;
  bool quit_ = false;
  bool paused_ = false;
  Mode mode_ = Mode::kKeep;
  std::int64_t messages_ = 0;
  std::deque<std::pair<Contact*, std::vector<std::byte>>> replies_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
  std::int64_t started_ = 0;
  std::int64_t succeeded_ = 0;
  transport::RemoteKey target_;
  std::size_t write_bytes_ = 0;
};

void Servant::restart(std::size_t index) {
  Transfer& transfer = *transfers_[index];
  if (transfer.completions > 0 && transfer.succeeded()) ++succeeded_;
  if (transfer.completions > 0 && !transfer.succeeded()) return;
  transfer.completions = 0;
  const std::array pieces{party_.piece(index * write_bytes_, write_bytes_)};
  Contact& contact = *party_.contacts().back();
  if (contact.link == nullptr) return;
  if (party_.write(contact, pieces, target_, index * write_bytes_, transfer).has_value()) {
    ++started_;
  }
}

void Servant::write_for_ever(const Command& command) {
  target_ = {command.numbers[2], command.numbers[3], command.numbers[4]};
  write_bytes_ = command.numbers[1];
  for (std::size_t i = 0; i < command.numbers[0]; ++i) {
    transfers_.push_back(std::make_unique<Transfer>());
    transfers_.back()->then = [this, i] { restart(i); };
    restart(i);
  }
}

bool Servant::connect(const std::string& address) {
  Contact* const contact = party_.connect(address, std::chrono::seconds(5));
  if (contact == nullptr) return false;
  prepare(*contact);
  // run_until() cannot be used within poll() of the reactor, so poll the endpoint directly.
  const Time give_up = party_.reactor().clock().now() + std::chrono::seconds(5);
  while (contact->connected == 0 && contact->closed == 0) {
    if (party_.reactor().clock().now() > give_up) return false;
    party_.endpoint().poll();
    ::usleep(200);
  }
  return contact->connected == 1;
}

Answer Servant::obey(const Command& command) {
  Answer answer;
  auto& out = answer.numbers;
  const auto& in = command.numbers;
  const std::string text(command.text.data());
  switch (command.verb) {
    case Verb::kListen:
      out[0] = party_.listen().has_value();
      set_text(answer.text, party_.endpoint().address());
      break;
    case Verb::kKey: {
      const transport::RemoteKey key = party_.share_with_newest();
      out = {static_cast<std::int64_t>(key.key), static_cast<std::int64_t>(key.base),
             static_cast<std::int64_t>(key.length), 0};
      break;
    }
    case Verb::kFill:
      fill_pattern(party_.memory().subspan(in[0], in[1]), in[2]);
      break;
    case Verb::kMismatch:
      out[0] = first_mismatch(party_.memory().subspan(in[0], in[1]), in[2]);
      break;
    case Verb::kPause:
    case Verb::kResume:
      paused_ = command.verb == Verb::kPause;
      break;
    case Verb::kMode:
      mode_ = static_cast<Mode>(in[0]);
      break;
    case Verb::kStats:
      out[0] = static_cast<std::int64_t>(party_.accepted());
      out[1] = messages_;
      for (const auto& contact : party_.contacts()) {
        out[2] += contact->closed;
        out[3] += contact->link != nullptr && contact->link->connected();
      }
      break;
    case Verb::kFence:
      out[0] = party_.contacts().back()->link->fence();
      break;
    case Verb::kClose:
      for (const auto& contact : party_.contacts()) contact->link.reset();
      break;
    case Verb::kConnect:
      out[0] = connect(text);
      break;
    case Verb::kWrite:
      write_for_ever(command);
      break;
    case Verb::kTransfers:
      out[0] = started_;
      out[2] = succeeded_;
      for (const auto& transfer : transfers_) out[1] += !transfer->in_flight();
      break;
    case Verb::kWatch:
      watch(party_.memory());
      break;
    case Verb::kWriter:
      out[0] = static_cast<std::int64_t>(end_watch());
      break;
    case Verb::kQuit:
      break;
  }
  return answer;
}

}  // namespace

void run_party(const Subject& subject, int control_fd) {
  auto party = Party::open(subject);
  Answer hello;
  hello.numbers[0] = party.has_value();
  if (!party.has_value()) set_text(hello.text, describe(party.error()));
  ::send(control_fd, &hello, sizeof(hello), MSG_NOSIGNAL);
  if (party.has_value()) {
    // The transfers belong to the servant, so the links must end before it does.
    Servant servant(**party, control_fd);
    servant.run();
    for (const auto& contact : (*party)->contacts()) contact->link.reset();
  }
  party = fail(Code::kCancelled, "party");
  ::close(control_fd);
}

std::unique_ptr<Remote> Remote::start(const Subject& subject, bool process) {
  std::unique_ptr<Remote> remote(new Remote);
  int fds[2];
  STDCHK_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0);
  remote->control_fd_ = fds[0];
  if (process) {
    // Starts a new program, because fabrics do not survive a fork.
    const std::string fd_text = fmt::format("{}", fds[1]);
    const pid_t parent = ::getpid();
    remote->pid_ = ::fork();
    STDCHK_ASSERT(remote->pid_ >= 0);
    if (remote->pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::fcntl(fds[1], F_SETFD, 0);
      ::execl("/proc/self/exe", "conformance", "--party", subject.name.c_str(), fd_text.c_str(),
              static_cast<char*>(nullptr));
      ::_exit(127);
    }
    ::close(fds[1]);
  } else {
    remote->thread_ = std::thread([&subject, fd = fds[1]] { run_party(subject, fd); });
  }
  Answer hello;
  const auto got = ::recv(remote->control_fd_, &hello, sizeof(hello), 0);
  if (got != sizeof(hello) || hello.numbers[0] == 0) {
    fmt::print("  the remote party did not start: {}\n", hello.text.data());
    remote->alive_ = false;
    return nullptr;
  }
  return remote;
}

Remote::~Remote() {
  if (alive_ && pid_ > 0) ::kill(pid_, SIGCONT);
  const Command quit{};
  ::send(control_fd_, &quit, sizeof(quit), MSG_NOSIGNAL);
  ::close(control_fd_);
  if (thread_.joinable()) thread_.join();
  if (pid_ > 0 && alive_) ::waitpid(pid_, nullptr, 0);
}

Answer Remote::ask(Verb verb, std::array<std::uint64_t, 5> numbers, const std::string& text) {
  Command command{.verb = verb, .numbers = numbers};
  set_text(command.text, text);
  Answer answer;
  answer.numbers.fill(-1000);
  if (!alive_) return answer;
  if (::send(control_fd_, &command, sizeof(command), MSG_NOSIGNAL) != sizeof(command)) {
    return answer;
  }
  ::recv(control_fd_, &answer, sizeof(answer), 0);
  return answer;
}

std::string Remote::listen() { return ask(Verb::kListen).text.data(); }

transport::RemoteKey Remote::key() {
  const Answer answer = ask(Verb::kKey);
  return {static_cast<std::uint64_t>(answer.numbers[0]),
          static_cast<std::uint64_t>(answer.numbers[1]),
          static_cast<std::uint64_t>(answer.numbers[2])};
}

void Remote::signal(int number) {
  STDCHK_ASSERT(pid_ > 0 && alive_);
  ::kill(pid_, number);
}

void Remote::kill() {
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  alive_ = false;
}

}  // namespace stdchk::conformance
