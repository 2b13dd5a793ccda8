#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/descriptor.h"
#include "fork/process/clone_table.h"
#include "fork/process/watches.h"
#include "fork/ticket/allocator.h"
#include "fork/ticket/image_parts.h"

namespace stdchk::fork::vm {

/// How clones get to other hosts. Without a folder of images all clones stay on this host.
struct RemoteParts {
  std::string shell;                  ///< words; a host and a program follow them
  std::string program = "stdchk-vm";  ///< on the other hosts
  ImageParts image;                   ///< without a page server, memory is read whole
  std::string network;                ///< subnet of the machines' networks; empty: they have none
};

/// A RemoteMachines is a family's clones on other hosts. A stdchk-vm on the other host starts each
/// clone from an image. Its standard input stays open as long as this object wants the clone.
/// fork/vm/guest_protocol.md has the lines of its output.
///
/// Owns: the remote shells, and the images. The destructor ends all.
/// Threads: the reactor's. wait_running() waits for the other hosts.
/// Errors: a clone that cannot be started, or whose host is lost, has ended with End::kFailed.
class RemoteMachines {
 public:
  using Ended = std::function<void(std::uint64_t ticket, std::uint32_t id, End end, int status,
                                   const std::string& value)>;
  struct Wanted {
    std::string name;  ///< as the user sees it
    std::string host;
    std::uint64_t ticket = 0;
    std::uint32_t id = 0;
    std::uint32_t count = 0;  ///< of the ticket's clones
  };
  struct Listed {
    std::string name;
    std::string host;
    std::uint32_t id = 0;
    std::uint64_t ticket = 0;
  };

  RemoteMachines(Watches& watches, RemoteParts parts, Ended ended);
  ~RemoteMachines();
  RemoteMachines(const RemoteMachines&) = delete;
  RemoteMachines& operator=(const RemoteMachines&) = delete;

  /// The folder for the image of a ticket.
  std::string image_folder(const std::string& name, std::uint64_t ticket) const;
  void start(const Wanted& wanted, const std::string& image);
  /// Waits until each clone of the ticket runs or has failed, 120 s at most. Returns the first
  /// problem, or an empty text.
  std::string wait_running(std::uint64_t ticket);
  /// Ends a clone. False: there is none of that name.
  bool kill(const std::string& name);
  /// Ends all clones of a ticket and removes its image.
  void drop(std::uint64_t ticket);
  std::vector<Listed> list() const;

 private:
  enum class State : std::uint8_t { kStarting, kRunning, kEnded };
  struct Clone {
    Wanted wanted;
    pid_t shell = -1;
    Descriptor in;   ///< closing this descriptor ends the clone
    Descriptor out;  ///< what the other host says
    std::string heard;
    std::string problem;
    State state = State::kStarting;
  };
  void on_words(const std::string& name);
  void on_line(Clone& clone, const std::string& line);
  void end(Clone& clone, End how, int status, const std::string& value);

  Watches& watches_;
  const RemoteParts parts_;
  const Ended ended_;
  std::map<std::string, Clone> clones_;
  std::map<std::uint64_t, std::string> images_;  ///< by ticket
};

}  // namespace stdchk::fork::vm
