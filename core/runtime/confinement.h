#pragma once

#include "core/base/result.h"

/// Limits what the kernel allows a daemon, so that an attacker who takes the daemon over gains
/// little. Uses seccomp(2), no_new_privs (prctl(2)) and capabilities(7).
namespace stdchk {

/// The needs of a daemon beyond files, sockets, memory and threads.
struct Needs {
  bool programs = false;  ///< it starts other programs, such as Lustre's `lfs`
  bool unmounts = false;  ///< it unmounts its own mount; only root can, by CAP_SYS_ADMIN
};

/// Confines the calling process, all its threads and all its children, for good:
///
/// | what         | effect                                                                      |
/// |--------------|-----------------------------------------------------------------------------|
/// | no_new_privs | set-user-ID programs and file capabilities give no privileges               |
/// | capabilities | those that no daemon needs leave every set, including the bounding set      |
/// | system calls | mounts, name spaces, tracing, modules, clocks, keys, bpf and others give    |
/// |              | EPERM; so does starting programs without Needs::programs                    |
/// | clone3(2)    | gives ENOSYS, so the C library uses clone(2), whose flags the filter reads  |
/// | sockets      | only Unix, IPv4, IPv6 and netlink sockets                                   |
///
/// The first refused call of each number is logged, with the option that lifts the filter.
/// Call this before the process starts threads.
///
/// Errors: kSystem from the kernel. A program built without libseccomp, or with a sanitizer, has no
/// filter of system calls. It logs that; the other limits hold.
Status confine(const Needs& needs);

/// Two steps that do the work of confine(). A daemon mounts its file system between the steps. The
/// first step drops all capabilities except CAP_SYS_ADMIN. Call it before the process starts
/// threads. The second step does the rest, also for running threads. With Needs::unmounts,
/// CAP_SYS_ADMIN stays, and the filter refuses the other calls that it allows, except umount2(2).
Status confine_before_mount();
Status confine_after_mount(const Needs& needs);

/// Help text of the daemons' option --unconfined.
inline constexpr const char* kUnconfinedHelp =
    "keep all rights of the user: no filter of system calls";

/// Returns false when this program was built without libseccomp, or with a sanitizer.
bool filters_system_calls();

}  // namespace stdchk
