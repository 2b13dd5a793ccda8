#!/usr/bin/env python3
"""Runs a list of tests of an LTP that is installed in DIR, in a folder of the pool.

Usage: ltp.py DIR LIST FOLDER RESULTS --other FOLDER [--deadline SECONDS] [--test NAME]...

LIST is fs or syscalls, and FOLDER is on the pool. Each test has the deadline. Tests that fail run again in the folder
--other, which is on ext4. Tests that are not about files, or that would change the machine, are left out: see EXCLUDED.
"""
import argparse
import os
import pathlib
import re
import sys
import tempfile

from results import FAIL, HANG, NOT_RUN, PASS, Results, run_before

# Reasons to leave tests out, with patterns of names without numbers. The first match counts.
EXCLUDED = (
    ("changes the machine's clock", r"adjtimex|clock_(adjtime|settime)|leapsec|settimeofday|stime"),
    ("loads or removes kernel modules, or starts the machine anew", r"(delete|init|finit)_module|reboot"),
    ("changes swap, accounting or settings of the whole machine",
     r"swapo(n|ff)|acct|sysctl|syslog|quotactl|quota_remount_test|binfmt_misc|vhangup|ioctl_sg|perf_event_open"),
    ("is about devices and the files of the kernel", r"proc|read_all_(dev|proc|sys)|isofs|squashfs"),
    ("fills memory or the machine's disk", r"fork1[34]|fs_fill|mallo.*|mallinfo.*|set_mempolicy|mlock.*|munlock.*"),
    ("is about processes", r"abort|alarm|clone|clone3\w*|exit|exit_group|fork|vfork|wait\w*|pause|kill|tkill|tgkill|kcmp|ptrace|prctl|"
     r"personality|pidfd_\w+|process_(vm_\w+|madvise)|seccomp|ulimit|unshare|setns|getcontext|profil|arch_prctl|"
     r"set_(robust_list|thread_area|tid_address)|get_robust_list|membarrier|modify_ldt|iopl|ioperm|ioprio_\w+|switch|syscall|cacheflush|"
     r"bpf_\w+|capget|capset|lsm_\w+|nice|[gs]etpriority|[gs]etrlimit|getrusage|getcpu|sched_\w+|uname|newuname|sysconf|sysinfo|"
     r"[gs]et(host|domain)name|gethost\w+|getpagesize|getrandom|confstr|string|fmtmsg|ioctl_(ns|pidfd)"),
    ("is about users and groups of processes", r"[gs]et(e|re|res|fs|p|s)?[ug]?id|[gs]et(pgrp|groups|ppid|sid|pgid|tid|regid|reuid|resgid|resuid)|"
     r"setf?s[ug]id|gettid"),
    ("is about signals and time", r"sig\w+|rt_\w+|s[gs]etmask|signal|clock_\w+|nanosleep|time|times|timer\w+|timerfd\w*|gettimeofday|[gs]etitimer"),
    ("is about memory", r"brk|sbrk|mem(cmp|cpy|set)|mbind|migrate_pages|move_pages|mprotect|mremap|mseal|pkey|get_mempolicy|madvise|"
     r"userfaultfd|remap_file_pages|dirtyc0w_shmem|memfd_create"),
    ("is about sockets, pipes and messages between processes", r"accept4?|bind|connect|listen|socket\w*|sockioctl|send|sendm\w+|sendto|recv\w*|shutdown|"
     r"[gs]etsockopt|getsockname|getpeername|(msg|sem|shm)(at|ctl|dt|get|op|rcv|snd|stress)|mq_\w+|pipe2?|pipeio|futex\w*|poll|ppoll|"
     r"p?select|epoll\w+|eventfd2?|signalfd4?|add_key|keyctl|request_key"),
)
NUMBER = re.compile(r"_?\d+(_(16|64))?$")
STATUSES = {0: PASS, 32: NOT_RUN}  # tst_res_flags.h: 1 is a failure, 2 broken, 4 a warning, 32 not configured


def excluded(test):
    bare = NUMBER.sub("", test)
    for reason, names in EXCLUDED:
        if re.fullmatch(names, bare) or re.fullmatch(names, test):
            return reason
    return None


def tests_of(file):
    """Returns the names and commands of a list of tests."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [line.split(None, 1) for line in lines if line and not line.startswith("#") and len(line.split()) > 1]


def why(out):
    """Returns the lines that say what failed, or what the test lacks."""
    lines = [line for line in out.splitlines() if re.search(r"\b(TFAIL|TBROK|TCONF|TWARN)\b", line)]
    return " / ".join(re.sub(r"\x1b\[[0-9;]*m", "", line) for line in (lines or out.splitlines()[-3:])[:3])


def run_test(top, command, folder, deadline_s):
    """Runs a command of LTP in an empty folder. Returns the result and the reason."""
    place = tempfile.mkdtemp(prefix="ltp.", dir=folder)
    os.chmod(place, 0o777)
    programs = top / "testcases" / "bin"
    environment = {**os.environ, "TMPDIR": place, "LTPROOT": str(top), "PATH": f"{programs}:{os.environ['PATH']}",
                   "LTP_COLORIZE_OUTPUT": "n", "LTP_SINGLE_FS_TYPE": "ext4", "LTP_DEV_FS_TYPE": "ext4"}
    # The shell stays process 1: LTP takes the parent 1 for a sign that the test has lost its main process. Some tests
    # open as many files as they may, so the limit is that of most systems.
    status, out = run_before(deadline_s, ["bash", "-c", f"ulimit -Sn 1024\n{command}\nexit $?"], cwd=place, env=environment)
    run_before(deadline_s, ["rm", "-rf", place])
    if status is None:
        return HANG, f"it ran longer than {deadline_s} s: {why(out)}"
    if status == 127 or status == 126:
        return NOT_RUN, "this LTP was built without it"
    # Tests that give one result in many parts add the flags.
    result = STATUSES.get(status, FAIL)
    return result, "" if result == PASS else why(out) or f"it ended with status {status}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("list")
    parser.add_argument("folder")
    parser.add_argument("results")
    parser.add_argument("--other", required=True)
    parser.add_argument("--deadline", type=int, default=150)
    parser.add_argument("--test", action="append", default=[])
    asked = parser.parse_args()
    results, other = Results(asked.results), Results(asked.results + ".other")
    for name, command in tests_of(asked.dir / "runtest" / asked.list):
        if asked.test and name not in asked.test:
            continue
        reason = excluded(name)
        if reason:
            results.add(name, NOT_RUN, f"left out: {reason}")
            continue
        results.add(name, *run_test(asked.dir, command, asked.folder, asked.deadline))
        if name in results.failed():
            other.add(name, *run_test(asked.dir, command, asked.other, asked.deadline))
    results.compare(other)
    print(*results.counts())


if __name__ == "__main__":
    sys.exit(main())
