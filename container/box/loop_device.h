#pragma once

#include <cstdint>
#include <string>

#include "container/program/program.h"
#include "core/base/descriptor.h"

namespace stdchk::container {

/// A LoopDevice is a block device, read only, whose bytes are a part of a file (loop(4)).
///
/// Owns: the device. It ends when the last process closes it, so a killed node leaves none.
/// Threads: any. Limits: offset and length are multiples of 512 bytes.
class LoopDevice {
 public:
  /// Errors: the kernel has no loop devices; the file cannot be opened.
  static Outcome<LoopDevice> make(const std::string& file, std::uint64_t offset,
                                  std::uint64_t bytes);
  /// Makes another name of the device. Its file system must allow devices.
  Outcome<void> make_node(const std::string& path) const;

 private:
  explicit LoopDevice(Descriptor device) : device_(std::move(device)) {}

  Descriptor device_;
};

}  // namespace stdchk::container
