#!/usr/bin/env python3
"""Plants bugs one after the other in a copy of the sources, and runs the simulators until they find each bug.

Each of the rules M1 to M9 (docs/internals/architecture.md) has a bug that breaks it. Take-overs, copies, leaving
benefactors, repeated messages, sets of images and object stores have bugs, too. The script fails when its seeds do not find
a bug, or when a bug's place in the sources has changed.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COPY = ROOT / "build" / "planted"
# The copy lies as deep below its sources as the release build, so that unchanged files are not recompiled.
BUILD = COPY / "build" / "release"
SEED_SECONDS = 900  # a seed that takes longer counts as endless


@dataclasses.dataclass(frozen=True)
class Bug:
    rule: str
    what: str
    file: str
    right: str  # occurs exactly once in the file
    wrong: str
    simulator: str
    complaint: str  # pattern of the simulator's complaint; other complaints do not count


BUGS = (
    Bug("M1", "a copy counts although it is not the chunk", "benefactor/copies/copier.cpp",
        "} else if (!has_expected_content(config_.arena, copies[i])) {",
        "} else if (!has_expected_content(config_.arena, copies[i]) && false) {",
        "pool-sim", "M1: "),
    Bug("M2", "a write that failed counts as stored", "client/write/chunk_writer.cpp",
        "std::erase(copies, write.at);", "",
        "engine-sim", "M1: "),
    Bug("M3", "space that a stopped client may still write to is granted again", "manager/sessions/placement.cpp",
        "const bool quarantine = !clean || record.tainted;",
        "const bool quarantine = (!clean || record.tainted) && false;",
        "pool-sim", "M3: "),
    Bug("M3", "what is being forgotten may be granted meanwhile", "manager/arenas/garbage_collector.cpp",
        "if (!pool_.space().take_exactly(benefactor, range)) continue;", "",
        "pool-sim", "M1: |M7: "),
    Bug("M4", "a chunk answered as there is not held", "manager/sessions/placement.cpp",
        "if (session.holds.insert(found).second) pool_.soft_state().hold(found);", "",
        "pool-sim", "M4: "),
    Bug("M5", "a drain that failed counts as done", "manager/drain/drain_planner.cpp",
        "if (!answer) {\n    if (!is_outcome_unknown(answer)) return fail_job(*job, answer);",
        "if (!answer && is_outcome_unknown(answer)) {",
        "engine-sim", "M5: |sets: the link in the drain directory names"),
    Bug("M6", "a drained file gets its name when a part of it is written", "manager/drain/drain_planner.cpp",
        "if (job.done == job.requests.size()) {", "if (job.done > 0) {",
        "engine-sim", "M6: "),
    Bug("M7", "a removal is not in the journal", "manager/pool/journal_writer.cpp",
        "  const std::uint64_t sequence = ++appended_;",
        "  if (std::holds_alternative<RemoveName>(command)) return done(outcome);\n"
        "  const std::uint64_t sequence = ++appended_;",
        "pool-sim", "M7: |bytes: "),
    Bug("M8", "one record in 50 is not kept by the benefactors", "manager/recovery/log_replicas.cpp",
        "if (replicas_.empty()) return;\n  std::string record;",
        "if (replicas_.empty()) return;\n"
        "  if (sequence % 50 == 0) {\n"
        "    for (auto& each : replicas_) each.second.sequence = sequence;\n"
        "    return;\n"
        "  }\n"
        "  std::string record;",
        "pool-sim", "M8: |M7: |M1: |bytes: "),
    Bug("M9", "a call has no deadline", "transport/rpc.cpp",
        "finish_later(call_id, Code::kDeadline, deadline);",
        "finish_later(call_id, Code::kDeadline, 1000 * deadline);",
        "pool-sim", "M9: "),
    Bug("epochs", "a manager answers what those by whom its standby decides do not have", "manager/recovery/log_replicas.cpp",
        "return quorum.ids.empty() || 2 * static_cast<std::size_t>(have) > quorum.ids.size();",
        "return quorum.ids.empty() || have >= 0;",
        "pool-sim", "epochs: a manager answered|bytes: "),
    Bug("lost", "of a chunk with more copies than wanted the good ones go, and that of a dead benefactor stays",
        "manager/replication/copy_planner.cpp", "std::vector<Extent> out = view.bad;",
        "std::vector<Extent> out = view.bad.empty() ? view.bad : view.good;",
        "pool-sim", "lost: "),
    Bug("lost", "a writer fails when one of a chunk's places is lost", "client/write/session.cpp",
        "if (copies.empty() && chunk->step == OutChunk::Step::kStored) {",
        "if (copies.size() < places() && chunk->step == OutChunk::Step::kStored) {",
        "engine-sim", "lost: .* places has failed after one loss"),
    Bug("leave", "a benefactor may go before what only it has was copied", "manager/replication/copy_planner.cpp",
        "bool CopyPlanner::may_leave(BenefactorId leaving) {", "bool CopyPlanner::may_leave(BenefactorId leaving) {\n  if (leaving) return true;",
        "pool-sim", "leave: "),
    Bug("repeats", "a request that comes twice is done twice", "manager/service/router.cpp",
        "if (!remembered.first_in(client.replies)) return;",
        "",
        "pool-sim", "bytes: |names: "),
    Bug("repeats", "a manager that was restarted makes a change again that was made", "manager/state/completion_records.cpp",
        "return Found::kDone;", "return Found::kNotDone;",
        "pool-sim", "names: |bytes: "),
    Bug("sets", "images of two runs make a set whole", "manager/sets/set_keeper.cpp",
        "const bool is_stale = file->newest.written <= found.begun;",
        "const bool is_stale = false;",
        "pool-sim", "sets: the link names"),
    Bug("sets", "a set that was whole is judged by another number of images", "manager/sets/set_keeper.cpp",
        "const std::uint64_t wanted = set.whole > 0 ? set.whole : policy.get(PolicyKey::kImages);",
        "const std::uint64_t wanted = policy.get(PolicyKey::kImages);",
        "pool-sim", "sets: .* is the newest, and the link says"),
    Bug("sets", "a set by pattern is whole without its base file", "manager/sets/set_keeper.cpp",
        "if (found.words.contains(i)) continue;",
        "if (found.words.contains(i) || true) continue;",
        "pool-sim", "sets: the link names"),
    Bug("directories", "keep removes the directory that the pointer names", "manager/sets/set_keeper.cpp",
        "if (set.pinned || set.is_named) continue;",
        "if (set.pinned) continue;",
        "pool-sim", "directories: the pointer names"),
    Bug("directories", "the drain takes a marker before the files of its directory", "manager/sets/directory_sets.cpp",
        "return marker_waits_for(file.id, folder.id, NamePatterns(rules.marker));", "return {};",
        "engine-sim", "directories: .* was drained with its marker, and without shard"),
    Bug("directories", "a marker that is renamed gets its name in the drain directory at once",
        "manager/service/name_service.cpp", "                 must_wait(request)},", "                 false},",
        "engine-sim", "directories: .* was drained with its marker, and without shard|directories: the drained pointer"),
    Bug("leases", "a request is answered while another client holds the directory", "manager/sessions/lease_service.cpp",
        "waits |= (holder && !is_own) || ending_.contains(directory);",
        "waits |= ending_.contains(directory);",
        "pool-sim", "leases: a listing was answered"),
    Bug("leases", "a batch that comes twice is applied twice", "manager/sessions/lease_service.cpp",
        "if (request.number <= newest) {", "if (request.number < newest) {",
        "pool-sim", "leases: a batch does not fit"),
    Bug("leases", "a restarted manager forgets who holds a directory", "manager/state/name_leases.cpp",
        "if (exists(directory)) emit(", "if (exists(directory) && false) emit(",
        "pool-sim", "leases: "),
    Bug("leases", "a client goes on with the names of a directory that it has returned", "client/names/directory_leases.cpp",
        "names_.drop(directory);\n    returning_.erase(directory);", "returning_.erase(directory);",
        "engine-sim", "held: "),
    Bug("objects", "the store gets a marker before the files of its directory", "manager/sets/directory_sets.cpp",
        "return marker_waits_for(file.id, folder.id, NamePatterns(rules.marker));", "return {};",
        "objects-sim", "directories: .* was drained with its marker, and without shard"),
    Bug("objects", "an attempt that is dropped leaves its upload", "benefactor/drain/object_assembly.cpp",
        "if (auto ended = store.abort_upload(**upload, deadline); !ended) return ended;", "",
        "objects-sim", "uploads: the note of an upload is gone"),
    Bug("objects", "a later manager does not look for uploads that a crash has left", "benefactor/drain/object_mirror.cpp",
        "  return end_unknown_uploads(deadline);", "  return {};",
        "objects-sim", "uploads: an upload stays"),
    Bug("objects", "a file whose object could not be made counts as drained", "benefactor/drain/object_drainer.cpp",
        "      return store_problem(made.error());\n    }\n    note_finished", "      return {};\n    }\n    note_finished",
        "objects-sim", "safe: .* counts as drained|directories: "),
    Bug("sets", "the link in the drain directory stays on a set that is replaced", "manager/state/version_commands.cpp",
        "links_.leave_drained(*file, file->newest.written);", "",
        "engine-sim", "sets: the link in the drain directory names"),
)


def copy_sources():
    """Copies the files that git knows. Unchanged files keep their time, so that they are not recompiled."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout
    names = {pathlib.Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        to = COPY / name
        if to.exists() and to.read_bytes() == (ROOT / name).read_bytes():
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, to)


def build():
    environment = os.environ | {"CCACHE_DEPEND": "1", "CCACHE_NOHASHDIR": "1", "CCACHE_BASEDIR": str(COPY),
                                "CCACHE_SLOPPINESS": "pch_defines,time_macros"}
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["meson", "setup", "-Dbuildtype=release", BUILD, COPY], check=True, env=environment,
                       stdout=subprocess.DEVNULL)
    done = subprocess.run(["ninja", "-C", BUILD, "tests/sim/pool-sim", "tests/sim/engine-sim", "tests/sim/objects-sim"], env=environment,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"planted.py: the sources do not compile:\n{done.stdout[-4000:]}")


def find(bug, seeds):
    """Tells whether the simulator finds the bug."""
    place = COPY / bug.file
    source = place.read_text()
    if source.count(bug.right) != 1:
        print(f"{bug.rule}: {bug.file} does not have once what the bug stands in for: {bug.right}")
        return False
    began = time.monotonic()
    others = []
    try:
        place.write_text(source.replace(bug.right, bug.wrong))
        build()
        for seed in range(1, seeds + 1):
            output = simulate(bug, seed)
            complaint = re.search(f"at [0-9.]+ s: ({bug.complaint}).*", output)
            if complaint is not None:
                print(f"{bug.rule}: found by {bug.simulator} with seed {seed} in {time.monotonic() - began:.0f} s: "
                      f"{bug.what}\n    {complaint.group(0)}", flush=True)
                return True
            if output:
                others.append(output)
    finally:
        place.write_text(source)
    print(f"{bug.rule}: NOT FOUND in {time.monotonic() - began:.0f} s: {bug.what}\n{''.join(others)[-4000:]}")
    return False


def simulate(bug, seed):
    """Returns the simulator's complaint about a seed, or nothing if the seed passes."""
    try:
        done = subprocess.run([BUILD / "tests" / "sim" / bug.simulator, "--seed", str(seed)],
                              capture_output=True, text=True, check=False, timeout=SEED_SECONDS)
    except subprocess.TimeoutExpired:
        return f"seed {seed}: no end within {SEED_SECONDS} s\n"
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", action="append", help="only these")
    parser.add_argument("--seeds", type=int, default=200, help="at most, for each bug")
    options = parser.parse_args()
    copy_sources()
    build()
    found = [find(bug, options.seeds) for bug in BUGS if options.rule is None or bug.rule in options.rule]
    print(f"{sum(found)} of {len(found)} planted bugs are found")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
