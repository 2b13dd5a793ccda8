#pragma once

#include "core/result.h"

/// What the kernel refuses a daemon from its start on, so that whoever takes the daemon over gets
/// little: seccomp(2), no_new_privs (prctl(2)) and capabilities(7).
namespace stdchk {

/// What a daemon needs beyond files, sockets, memory and threads.
struct Needs {
  bool programs = false;  ///< it starts other programs, such as Lustre's `lfs`
};

/// Confines the calling process, all its threads and all its children, for good:
///
/// | what                    | effect                                                             |
/// |-------------------------|--------------------------------------------------------------------|
/// | no_new_privs            | set-user-ID programs and file capabilities give nothing            |
/// | capabilities            | those that no daemon needs leave every set, also the bounding set  |
/// | system calls            | mounting, name spaces, tracing, modules, clocks, keys, bpf, ...    |
/// |                         | fail with EPERM; likewise starting programs without Needs::programs
/// | | sockets                 | only Unix, IPv4, IPv6 and netlink ones |
///
/// The first refused call of each number is logged, with the option that lifts the filter.
/// Call this before the process starts threads.
///
/// Errors: kSystem from the kernel. A program that was built without libseccomp, or with a
///   sanitizer, has no filter of system calls; it logs that, and the rest holds.
Status confine(const Needs& needs);

/// Of the daemons' option --unconfined.
inline constexpr const char* kUnconfinedHelp =
    "let the kernel allow this daemon all that its user may do: no filter of system calls";

/// False: this program was built without libseccomp, or with a sanitizer.
bool filters_system_calls();

}  // namespace stdchk
