"""Calls on files of a pool that run beside the program."""

import atexit
import errno
import os
import threading
import weakref
from concurrent.futures import Future

from stdchk._library import Completion, Memory, failure, lib, os_error

_FETCHED_MAX = 64
_WAIT_MS = 1000


class _Call:
    """A call that a queue has taken. `memory` stays valid until the call has ended."""

    def __init__(self, file, memory=None):
        self.file, self.native, self.memory = file, None, memory
        self.future = Future()
        self.future.set_running_or_notify_cancel()  # a call cannot be cancelled

    def release_memory(self):
        memory, self.memory = self.memory, None
        if memory is not None:
            memory.__exit__()  # does nothing before __enter__()


_alive = weakref.WeakSet()  # all objects of _Calls


@atexit.register
def _end_all():
    for calls in list(_alive):
        calls.end()


class _Calls:
    """The calls of one Queue, and the thread that hands out their results.

    The thread ends when end() was called and no call is left.
    """

    def __init__(self, native, depth):
        self._native, self._pid = native, os.getpid()
        self._free = threading.Semaphore(depth)
        self._changed = threading.Condition()
        self._running, self._next_tag = {}, 1  # tag -> _Call, of the calls that the library has
        self._held = 0  # calls without a result
        self._ends = False
        self._thread = threading.Thread(target=self._collect, name="stdchk-queue", daemon=True)
        _alive.add(self)
        self._thread.start()

    def add(self, function, file, memory=None, *offset):
        """Queues a call. Waits while the queue is full."""
        self._reserve()
        call = _Call(file, memory)
        try:
            if memory is not None:
                memory.__enter__()
            with file._calls_lock:
                call.native = file._native()
                file._pending.add(call)
        except BaseException:
            call.release_memory()
            self._give_back()
            raise
        place = () if memory is None else (memory.address, memory.bytes, *offset)
        self._start(call, function, *place)
        return call.future

    def add_close(self, file):
        """Queues the end of a file. The end begins when all earlier calls on the file have succeeded."""
        self._reserve()
        call = _Call(file)
        try:
            with file._calls_lock:
                call.native, file._file = file._native(), None
                waits = bool(file._pending)
                if waits:
                    file._closing = (self, call)
        except BaseException:
            self._give_back()
            raise
        file._forget()
        if not waits:
            self._close(call)
        return call.future

    def end(self, wait=True):
        """Refuses further calls, and waits for the queued calls. A second end() does nothing."""
        if os.getpid() != self._pid:
            return
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    def _reserve(self):
        if os.getpid() != self._pid:
            raise RuntimeError("this queue was made before os.fork(): make another one in the child")
        # The results' thread must not wait for a place: only this thread makes places free.
        if not self._free.acquire(blocking=threading.current_thread() is not self._thread):
            raise BlockingIOError(errno.EAGAIN, "the queue is full")
        with self._changed:
            if self._ends:
                self._free.release()
                raise ValueError("the queue is closed")
            self._held += 1

    def _give_back(self):
        with self._changed:
            self._held -= 1
            self._changed.notify_all()
        self._free.release()

    def _start(self, call, function, *place):
        with self._changed:
            tag, self._next_tag = self._next_tag, self._next_tag + 1
            self._running[tag] = call
            # The library takes the call at once: a place was reserved.
            started = function(self._native, call.native, *place, tag) == 0
            if not started:
                del self._running[tag]
            self._changed.notify_all()
        if not started:
            self._finish(call, failure(call.file.name), 0)

    def _close(self, call):
        lost = call.file._lost
        if lost is None:
            self._start(call, lib.stdchk_queue_close)
            return
        lib.stdchk_abort(call.native)
        self._finish(call, lost, 0)

    def _finish(self, call, error, result):
        call.release_memory()
        file, closing = call.file, None
        with file._calls_lock:
            if error is not None and file._lost is None:
                file._lost = error
            file._pending.discard(call)
            if not file._pending:
                closing, file._closing = file._closing, None
        if closing is not None:
            queue, end = closing
            queue._close(end)
        self._give_back()
        if error is not None:
            call.future.set_exception(error)
        else:
            call.future.set_result(result)

    def _collect(self):
        completions = (Completion * _FETCHED_MAX)()
        while True:
            with self._changed:
                while not self._running and not (self._ends and self._held == 0):
                    self._changed.wait()
                if not self._running:
                    break
            for number in range(lib.stdchk_queue_wait(self._native, completions, _FETCHED_MAX, _WAIT_MS)):
                done = completions[number]
                with self._changed:
                    call = self._running.pop(done.tag)
                error = None
                if done.result < 0:
                    error = os_error(done.error, done.message, done.code, call.file.name)
                self._finish(call, error, done.result)
        lib.stdchk_queue_destroy(self._native)


class Queue:
    """Runs calls on files of a pool in threads of the library, and returns concurrent.futures.Future objects.

        with stdchk.Queue(pool) as queue, pool.open("run/heat.N0.T1", "wb") as image:
            parts = [queue.pwrite(image, part, offset) for offset, part in ...]
            await asyncio.wrap_future(parts[0])  # in a coroutine

    Calls on one file overlap and end in any order. The program leaves the memory of a call unchanged until the
    future is done. A call of the queue waits while `depth` calls are under way.

    File.close() waits for the calls on its file. After a failed call, the end of the file fails with the same error,
    and its new content is dropped.

    Threads: any; results come in a thread of the queue. This thread also runs the callbacks of the futures, which must
    not wait for other calls. After os.fork() the child makes queues of its own. Errors: OSError, in the future.
    """

    def __init__(self, pool, depth=64, threads=0):
        """`threads`: 1 to 64; 0 takes the number of processors, at most 4."""
        native = lib.stdchk_queue_create(pool.native(), depth, threads)
        if not native:
            raise failure()
        self._calls = _Calls(native, depth)
        # The collector of garbage may hold locks that the queue's thread needs, so it does not wait for the thread.
        weakref.finalize(self, self._calls.end, wait=False).atexit = False
        pool._queues.add(self)

    def pwrite(self, file, memory, offset):
        """Writes all of `memory` at `offset`. The result is the number of bytes."""
        return self._calls.add(lib.stdchk_queue_pwrite, file, Memory(memory), offset)

    def pread_into(self, file, memory, offset):
        """Fills `memory` with the bytes from `offset` on. The result is their number: fewer at the end of the file."""
        return self._calls.add(lib.stdchk_queue_pread, file, Memory(memory, writable=True), offset)

    def sync(self, file):
        """Works as File.sync(), after all earlier calls on the file."""
        return self._calls.add(lib.stdchk_queue_sync, file)

    def close_file(self, file):
        """Works as File.close(), after all earlier calls on the file. No later call may use `file`."""
        return self._calls.add_close(file)

    def close(self):
        """Waits for all calls, and ends the queue."""
        self._calls.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
