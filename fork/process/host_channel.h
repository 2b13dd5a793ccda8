#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/descriptor.h"
#include "fork/process/watches.h"

namespace stdchk::fork {

/// A HostWord is the kind of a record between the daemons of two hosts. Records go over the
/// standard input and output of a remote shell.
enum class HostWord : std::uint32_t {
  kPrepare = 1,   ///< parent's host: HostTicket, HostNetwork; make the namespaces
  kPrepared = 2,  ///< text: empty, or why not
  kFile = 3,      ///< parent's host: a name of 64 bytes, then a piece of that file of CRIU's image
  kFormerRestore = 4,  ///< of earlier builds; refused, because its contents differed among them
  kPagesWanted = 5,    ///< PageRange
  kPages = 6,          ///< parent's host: PageRange, then the bytes; no bytes: they are lost
  kRunning = 7,        ///< CloneEnd with an id
  kEnded = 8,          ///< CloneEnd, then the value
  kKill = 9,           ///< parent's host: CloneEnd with an id
  kImage = 10,         ///< parent's host: ImagePlace, then ImageSegments; the image is committed
  kImageOpen = 11,     ///< text: empty, and no more kPagesWanted follow; or why not
  kRestore = 12,       ///< parent's host: HostTicket, MemoryParts with pages; the files are whole
};

struct HostTicket {
  std::uint64_t number = 0;
  std::uint64_t token[2] = {0, 0};
  std::uint32_t count = 0;
  std::uint32_t first_id = 1;
  std::uint32_t is_hierarchical = 0;
  std::uint32_t outlives = 0;  ///< the clones go on when the channel ends and the image is open
  char socket[108] = {};       ///< where the parent's copy looks for its daemon
};
struct PageRange {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};
struct CloneEnd {
  std::uint32_t id = 0;
  std::uint32_t end = 0;
  std::int32_t status = 0;
};
inline constexpr std::size_t kFileNameBytes = 64;

/// A HostChannel carries frames between two daemons: a length, a HostWord, bytes.
///
/// Owns: both descriptors. Threads: the reactor's. send() waits at most 30 s for a slow peer.
/// Errors: on_end is called once; then nothing more comes.
/// Limits: kFrameBytesMax bytes a frame; a longer one ends the channel.
class HostChannel {
 public:
  static constexpr std::size_t kFrameBytesMax = std::size_t{2} << 20;
  struct Calls {
    std::function<void(HostWord, std::string_view)> on_frame;
    std::function<void()> on_end;
  };
  HostChannel(Watches& watches, Descriptor in, Descriptor out, Calls calls);
  ~HostChannel();
  HostChannel(const HostChannel&) = delete;
  HostChannel& operator=(const HostChannel&) = delete;

  bool send(HostWord word, std::string_view head, std::string_view body = {});
  template <class T>
  bool send_value(HostWord word, const T& value, std::string_view body = {}) {
    return send(word, std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)), body);
  }

 private:
  void on_readable();
  void end();

  Watches& watches_;
  Descriptor in_;
  Descriptor out_;
  const Calls calls_;
  std::string buffer_;
};

/// Reads a structure from the beginning of a frame. False: the frame is too short.
template <class T>
bool take_value(std::string_view& frame, T& value) {
  if (frame.size() < sizeof(value)) return false;
  __builtin_memcpy(&value, frame.data(), sizeof(value));
  frame.remove_prefix(sizeof(value));
  return true;
}

}  // namespace stdchk::fork
