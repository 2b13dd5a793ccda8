#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/problem.h"

namespace stdchk::fork::vm {

/// How a machine gets its memory.
enum class Memory : std::uint8_t {
  kShared,   ///< it writes to the memory file: the machine can be forked fast
  kPrivate,  ///< it reads the memory file; its changes stay its own
};

/// A Port is a machine's connection to the network of its family.
struct Port {
  std::string name;              ///< of the tap device, in the network's namespace
  std::string hardware_address;  ///< of the machine's interface
  int tap = -1;                  ///< QEMU inherits it; -1: the machine has no such interface
};

/// A Place describes a machine: files, kind of memory, id.
struct Place {
  std::string folder;  ///< for the sockets "qmp" and "agent"
  std::string memory_file;
  Memory memory = Memory::kShared;
  bool waits_for_state = false;     ///< it begins with the state of another machine
  std::uint32_t id = 0;             ///< replaces "{id}" in each word
  std::vector<std::string> drives;  ///< files that replace the command's drives, in order
  /// Environment of QEMU beside this process's own, as NAME=VALUE.
  std::vector<std::string> environment;
  Port port;
};

/// A QemuCommand is a user's command line of QEMU. It makes the command lines of the machine's
/// forks from it.
///
/// A balloon device of the user gets the property free-page-reporting=on, unless its words say
/// otherwise. Then the guest's kernel gives up its free pages, and clones do not fetch these.
///
/// Errors: sentences for people.
class QemuCommand {
 public:
  /// `words`: the program and its options. Refuses options that a fork cannot keep apart.
  static Outcome<QemuCommand> parse(std::vector<std::string> words);

  std::uint64_t memory_bytes() const { return memory_bytes_; }
  /// Files of writable -drive options, in order.
  const std::vector<std::string>& drives() const { return drives_; }
  const std::vector<std::string>& words() const { return words_; }
  /// The guest may give up pages while it runs.
  bool has_balloon() const { return has_balloon_; }
  /// Adds a balloon device, if there is none.
  void add_balloon();
  std::vector<std::string> at(const Place& place) const;

 private:
  std::vector<std::string> words_;
  std::uint64_t memory_bytes_ = std::uint64_t{128} << 20;  // QEMU's own default
  std::vector<std::string> drives_;
  bool has_balloon_ = false;
};

}  // namespace stdchk::fork::vm
