#pragma once

#include <sys/types.h>

#include <array>
#include <memory>
#include <string>
#include <thread>

#include "tests/conformance/party.h"

namespace stdchk::conformance {

/// What a remote party can be told to do. Arguments are numbers a, b, c, ... and one text.
enum class Verb : std::uint32_t {
  kListen,  ///< text: the address
  kKey,   ///< key, base, length of its memory, for the peer of the newest link that it has accepted
  kFill,  ///< memory[a, a + b) becomes pattern c
  kMismatch,  ///< first index in memory[a, a + b) that is not pattern c's; -1
  kPause,     ///< no poll() until kResume; commands are still obeyed
  kResume,
  kMode,     ///< Mode a for messages that arrive from now on
  kStats,    ///< accepted, messages, closed, contacts that are connected
  kFence,    ///< fence() of the newest contact
  kClose,    ///< destroys all links
  kConnect,  ///< to the address in text; 1: on_connected came within 5 s
  kWrite,  ///< a writes of b bytes each to region {c, d, e}, one behind the other, again and again
  kTransfers,  ///< started, completed, succeeded
  kWatch,      ///< makes the memory read-only and reports who writes first (see kWriter)
  kWriter,     ///< Writer, since kWatch; the memory is writable again
  kQuit,
};

enum class Mode : std::uint64_t {
  kKeep = 0,  ///< counts messages
  kEcho = 1,  ///< sends each one back
  kVerify =
      2,  ///< a message is a Probe: looks at the memory at once and answers with one byte, 1: right
};

struct Probe {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t seed = 0;
};

/// Who wrote first into memory that was made read-only.
enum class Writer : std::int64_t {
  kNobodySeen = 0,     ///< no processor fault: hardware, the kernel, or nothing was written
  kOtherThread = 1,    ///< not the target's thread
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

/// Obeys commands from `control_fd` until kQuit or its end.
void run_party(const Subject& subject, int control_fd);

/// A Remote is the other party: a thread of this process, or a process of its own.
///
/// Owns: the thread or process. Both are gone after the destructor.
class Remote {
 public:
  static std::unique_ptr<Remote> start(const Subject& subject, bool process);
  ~Remote();
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  Answer ask(Verb verb, std::array<std::uint64_t, 5> numbers = {}, const std::string& text = {});
  bool alive() const { return alive_; }

  std::string listen();
  /// Of the newest link. Nothing may connect to the party in between.
  transport::RemoteKey key();
  /// Process only.
  void signal(int number);
  /// Process only: SIGKILL, and waits for its end.
  void kill();

 private:
  Remote() = default;
  int control_fd_ = -1;
  pid_t pid_ = -1;
  std::thread thread_;
  bool alive_ = true;
};

}  // namespace stdchk::conformance
