#include "core/runtime/confinement.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "core/base/log.h"
#include "core/runtime/sanitized.h"

// The threads of a sanitizer trace the process, which the filter would refuse.
#if STDCHK_HAVE_SECCOMP && !defined(STDCHK_SANITIZED)
#define STDCHK_FILTERS_CALLS 1
#else
#define STDCHK_FILTERS_CALLS 0
#endif

#if STDCHK_FILTERS_CALLS
#include <seccomp.h>
#include <sys/socket.h>
#include <ucontext.h>

#include <memory>
#endif

namespace stdchk {
namespace {

constexpr const char* kWhere = "confine";

/// Capabilities that daemons of root keep: they serve files of other users, pin memory for RDMA,
/// and are reached by shared memory.
constexpr std::array kKeptCapabilities{
    CAP_CHOWN,      CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH,  CAP_FOWNER,
    CAP_FSETID,     CAP_KILL,         CAP_NET_BIND_SERVICE, CAP_IPC_LOCK,
    CAP_SYS_PTRACE, CAP_SYS_NICE,     CAP_SYS_RESOURCE,     CAP_MKNOD,
};

constexpr unsigned kWordBits = 32;

/// `also`: a further capability to keep; -1: none.
Status drop_capabilities(int also) {
  std::array<__user_cap_data_struct, 2> sets{};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return fail_errno(kWhere);
  std::array<std::uint32_t, 2> kept{};
  const auto keep = [&](int capability) {
    const auto number = static_cast<unsigned>(capability);
    kept[number / kWordBits] |= 1U << number % kWordBits;
  };
  for (const int capability : kKeptCapabilities) keep(capability);
  if (also >= 0) keep(also);
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    const auto number = static_cast<unsigned>(capability);
    if ((kept[number / kWordBits] >> number % kWordBits & 1U) != 0) continue;
    // Without CAP_SETPCAP, so without root, the bounding set stays; no_new_privs makes it harmless.
    if (::prctl(PR_CAPBSET_DROP, capability) != 0 && errno != EPERM) return fail_errno(kWhere);
  }
  for (std::size_t word = 0; word < sets.size(); ++word) {
    sets[word].effective &= kept[word];
    sets[word].permitted &= kept[word];
    sets[word].inheritable &= kept[word];
  }
  if (::syscall(SYS_capset, &header, sets.data()) != 0) return fail_errno(kWhere);
  return {};
}

#if STDCHK_FILTERS_CALLS

constexpr std::array kRefused{
    // Other processes and their rights.
    SCMP_SYS(ptrace),
    SCMP_SYS(kcmp),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(personality),
    SCMP_SYS(setns),
    SCMP_SYS(unshare),
    SCMP_SYS(chroot),
    SCMP_SYS(pivot_root),
    // File systems.
    SCMP_SYS(mount),
    SCMP_SYS(move_mount),
    SCMP_SYS(open_tree),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(quotactl),
    SCMP_SYS(quotactl_fd),
    // The kernel.
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(reboot),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(ioperm),
    SCMP_SYS(iopl),
    SCMP_SYS(syslog),
    SCMP_SYS(acct),
    SCMP_SYS(vhangup),
    SCMP_SYS(lookup_dcookie),
    SCMP_SYS(fanotify_init),
    // Clocks, names, keys.
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(clock_settime64),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(keyctl),
    // Users.
    SCMP_SYS(setuid),
    SCMP_SYS(setgid),
    SCMP_SYS(setreuid),
    SCMP_SYS(setregid),
    SCMP_SYS(setresuid),
    SCMP_SYS(setresgid),
    SCMP_SYS(setfsuid),
    SCMP_SYS(setfsgid),
    SCMP_SYS(setgroups),
    SCMP_SYS(capset),
};
/// Flags of clone(2) that make name spaces. A new time name space cannot be asked for there.
constexpr std::array kNameSpaces{CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                 CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
constexpr std::array kUnmounts{SCMP_SYS(umount), SCMP_SYS(umount2)};
constexpr std::array kStartsPrograms{SCMP_SYS(execve), SCMP_SYS(execveat)};
constexpr std::array kSocketFamilies{AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
constexpr int kSocketFamiliesMax = 64;

/// Answers a refused call with EPERM, and logs the first refusal of each number. It is a signal
/// handler, so it uses only calls of signal-safety(7).
void on_refused_call(int, siginfo_t* info, void* context) {
  static std::array<std::atomic<bool>, 512> reported{};
  const auto number = static_cast<unsigned>(info->si_syscall);
  if (number >= reported.size() || !reported[number].exchange(true)) {
    constexpr std::string_view kBefore = "stdchk: confined: system call ";
    constexpr std::string_view kBehind =
        " was refused (EPERM); if this host needs it, start the daemon with --unconfined\n";
    std::array<char, kBefore.size() + kBehind.size() + 12> text{};
    std::size_t length = kBefore.copy(text.data(), kBefore.size());
    std::array<char, 10> digits{};
    std::size_t count = 0;
    for (unsigned rest = number; count == 0 || rest > 0; rest /= 10) {
      digits[count++] = static_cast<char>('0' + rest % 10);
    }
    while (count > 0) text[length++] = digits[--count];
    length += kBehind.copy(text.data() + length, kBehind.size());
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), length);
  }
  auto* const machine = static_cast<ucontext_t*>(context);
#if defined(__x86_64__)
  machine->uc_mcontext.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
  machine->uc_mcontext.regs[0] = static_cast<unsigned long long>(-EPERM);
#else
#error "say where this machine's system calls return their result"
#endif
}

/// Adds the rules that refuse new name spaces, but neither threads nor fork(2). A filter cannot
/// read the flags of clone3(2), because they are in memory. So clone3 answers ENOSYS, as a kernel
/// without it does, and the C library calls clone(2) instead. Returns 0 or an errno.
int refuse_name_spaces(scmp_filter_ctx filter) {
  for (const int flag : kNameSpaces) {
    const auto bit = static_cast<scmp_datum_t>(flag);
    const int result = seccomp_rule_add(filter, SCMP_ACT_TRAP, SCMP_SYS(clone), 1,
                                        SCMP_A0(SCMP_CMP_MASKED_EQ, bit, bit));
    if (result != 0) return -result;
  }
  return -seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

/// With `all_threads` the filter holds for threads that run already, too.
Status filter_system_calls(const Needs& needs, bool all_threads) {
  struct Release {
    void operator()(void* filter) const { seccomp_release(filter); }
  };
  const std::unique_ptr<void, Release> filter(seccomp_init(SCMP_ACT_ALLOW));
  if (filter == nullptr) return fail(Code::kSystem, kWhere, ENOMEM);
  int error = 0;
  const auto refuse = [&](int call) {
    const int result = seccomp_rule_add(filter.get(), SCMP_ACT_TRAP, call, 0);
    // -EDOM: the kernel of this processor lacks the call, so no program can make it.
    if (result != 0 && result != -EDOM && error == 0) error = -result;
  };
  for (const int call : kRefused) refuse(call);
  if (!needs.unmounts) {
    for (const int call : kUnmounts) refuse(call);
  }
  if (!needs.programs) {
    for (const int call : kStartsPrograms) refuse(call);
  }
  if (error == 0) error = refuse_name_spaces(filter.get());
  for (int family = 0; family < kSocketFamiliesMax; ++family) {
    bool allowed = false;
    for (const int each : kSocketFamilies) allowed |= each == family;
    if (allowed) continue;
    const int result = seccomp_rule_add(filter.get(), SCMP_ACT_TRAP, SCMP_SYS(socket), 1,
                                        SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(family)));
    if (result != 0 && error == 0) error = -result;
  }
  struct sigaction tell {};
  tell.sa_sigaction = on_refused_call;
  tell.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (::sigaction(SIGSYS, &tell, nullptr) != 0) return fail_errno(kWhere);
  if (error == 0 && all_threads) {
    error = -seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);
  }
  if (error == 0) error = -seccomp_load(filter.get());
  if (error != 0) return fail(Code::kSystem, kWhere, error);
  return {};
}

#else

Status filter_system_calls(const Needs&, bool) {
  log::info(
      "system calls are not filtered: the program was built without libseccomp, or with a "
      "sanitizer");
  return {};
}

#endif

}  // namespace

bool filters_system_calls() { return STDCHK_FILTERS_CALLS == 1; }

Status confine(const Needs& needs) {
  STDCHK_TRY(drop_capabilities(needs.unmounts ? CAP_SYS_ADMIN : -1));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(kWhere);
  return filter_system_calls(needs, false);
}

Status confine_before_mount() { return drop_capabilities(CAP_SYS_ADMIN); }

Status confine_after_mount(const Needs& needs) {
  // The filter takes this attribute along to the other threads (seccomp(2), TSYNC).
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(kWhere);
  return filter_system_calls(needs, true);
}

}  // namespace stdchk
