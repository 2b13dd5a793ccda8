"""Client processes (pool_writer.c). Tests start, stop and continue them, and check their files."""

import contextlib
import subprocess

from processes import BIN

WRITER = (BIN / "stdchk").resolve().parents[1] / "tests" / "integration" / "pool-writer"


class Writers:
    """Client processes of one pool; `prefix` is a command that runs each process, for example in another
    namespace."""

    def __init__(self, pool, transport, prefix=()):
        record = pool.record
        self.transport = transport
        self.prefix = prefix
        self.environment = pool.environment | {
            "STDCHK_MANAGER": record["manager_address"], "STDCHK_SECRET_FILE": record["secret_file"]}

    def start(self, *words):
        return subprocess.Popen([*self.prefix, WRITER, self.transport, *map(str, words)], text=True,
                                env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, *words):
        """Returns the last printed line, and the exit status."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=120)
        return said.splitlines()[-1], process.returncode

    @contextlib.contextmanager
    def paused(self, *words):
        """A writer that has stored its first part and waits for a line."""
        process = self.start("write", *words)
        try:
            assert process.stdout.readline() == "paused\n"
            yield process
        finally:
            process.kill()
            process.wait(10)


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()
