#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <string>
#include <thread>

#include "tests/conformance/party.h"

namespace stdchk::conformance {

/// Commands to a remote party. Arguments are numbers a, b, c, ... and one text.
enum class Verb : std::uint32_t {
  kListen,    ///< text: the address
  kKey,       ///< replies key, base, length of its memory, for the peer of the newest accepted link
  kFill,      ///< fills memory[a, a + b) with pattern c
  kMismatch,  ///< replies the first index in memory[a, a + b) that differs from pattern c; -1: none
  kPause,     ///< no poll() until kResume; commands still work
  kResume,
  kMode,     ///< sets Mode a for later messages
  kStats,    ///< replies numbers: accepted, messages, closed, connected contacts
  kFence,    ///< calls fence() of the newest contact
  kClose,    ///< destroys all links
  kConnect,  ///< connects to the address in text; replies 1 if on_connected came within 5 s
  /// repeats a writes of b bytes each to region {c, d, e}, back to back, until told to end
  kWrite,
  kTransfers,  ///< replies started, completed, succeeded
  kWatch,      ///< makes the memory read-only, to find the first writer (see kWriter)
  kWriter,     ///< replies the Writer since kWatch; makes the memory writable again
  kQuit,
};

enum class Mode : std::uint64_t {
  kKeep = 0,    ///< counts messages
  kEcho = 1,    ///< echoes each message
  kVerify = 2,  ///< a message is a Probe: checks memory at once, replies one byte; 1: right
};

struct Probe {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t seed = 0;
};

/// The first writer into memory that was made read-only.
enum class Writer : std::int64_t {
  kNobodySeen = 0,     ///< no processor fault: written by hardware or the kernel, or not at all
  kOtherThread = 1,    ///< a thread other than the target's
  kFabricLibrary = 2,  ///< the target's thread, in a shared library that poll() called
  kOwnCode = 3,        ///< the target's thread, in the program's own code
};

struct Command {
  Verb verb = Verb::kQuit;
  std::array<std::uint64_t, 5> numbers{};
  std::array<char, 512> text{};
};
struct Answer {
  std::array<std::int64_t, 4> numbers{};
  std::array<char, 512> text{};
};

/// Obeys commands from `control_fd` until kQuit or end of file.
void run_party(const Subject& subject, int control_fd);

/// A Remote is the other party: a thread of this process, or another process.
///
/// Owns: the thread or process. The destructor ends both.
class Remote {
 public:
  static std::unique_ptr<Remote> start(const Subject& subject, bool process);
  ~Remote();
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  Answer ask(Verb verb, std::array<std::uint64_t, 5> numbers = {}, const std::string& text = {});
  bool alive() const { return alive_; }

  std::string listen();
  /// The key for the newest link. No other link may be accepted meanwhile.
  transport::RemoteKey key();
  /// Sends a signal; only for a process.
  void signal(int number);
  /// Sends SIGKILL and waits for the end; only for a process.
  void kill();

 private:
  Remote() = default;
  int control_fd_ = -1;
  pid_t pid_ = -1;
  std::thread thread_;
  bool alive_ = true;
};

}  // namespace stdchk::conformance
