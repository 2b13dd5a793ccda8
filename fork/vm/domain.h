#pragma once

#include <string>
#include <vector>

#include "core/base/problem.h"

namespace stdchk::fork::vm {

/// Asks virsh for the command line of a domain of libvirt. `domain` is its name, or a file with its
/// XML, whose name ends with ".xml". Errors: a sentence; virsh may be absent.
Outcome<std::vector<std::string>> command_of_domain(const std::string& domain);

/// Turns the text that `virsh domxml-to-native qemu-argv` prints into a command line that a
/// QemuCommand takes:
/// - block nodes of files become drives;
/// - libvirt's own monitor, secrets, memory, sandbox and start in a pause are left out;
/// - what clones cannot share is left out, with the devices that use it: sockets, VNC, SPICE, and
///   networks but QEMU's user networks.
///
/// Errors: a sentence about what cannot be translated.
Outcome<std::vector<std::string>> translate_domain(const std::string& text);

/// Splits a text into words as a shell does, without expansions: quotes, backslashes, and lines that
/// go on behind a backslash. Errors: a quote without its end.
Outcome<std::vector<std::string>> shell_words(const std::string& text);

}  // namespace stdchk::fork::vm
