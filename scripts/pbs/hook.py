"""Hook of OpenPBS: runs this folder's prologue and epilogue on every node of a job. PBS itself runs such scripts on the
first node only. Installation, with FOLDER as the path of this folder on the nodes:

    qmgr -c "create hook stdchk event='execjob_begin,execjob_epilogue'"
    qmgr -c "set hook stdchk alarm=345"
    sed 's|^FOLDER = .*|FOLDER = "/opt/stdchk/scripts/pbs"|' hook.py >/tmp/hook.py
    qmgr -c "import hook stdchk application/x-python default /tmp/hook.py"

The hook uses execjob_begin, because a job does not wait for execjob_prologue on its other nodes. The alarm is the
time of the drain and the end (STDCHK_DRAIN_SECONDS + STDCHK_END_SECONDS), here 300 + 45."""

import os
import subprocess

import pbs

FOLDER = os.path.dirname(os.path.abspath(__file__))
event = pbs.event()
begins = event.type == pbs.EXECJOB_BEGIN
environment = {"STDCHK_DRAIN_SECONDS": "300", "STDCHK_END_SECONDS": "45", **os.environ}


def arguments():
    """Returns the arguments of PBS's own scripts. Argument 10 of an epilogue is the exit status, known on the first node only."""
    status = None if begins else getattr(event.job, "Exit_status", None)
    return [event.job.id, event.job.euser] + ([] if status is None else [""] * 7 + [str(status)])


# A hook that raises rejects the event: the job would be requeued.
try:
    subprocess.call(
        [os.path.join(FOLDER, "prologue" if begins else "epilogue"), *arguments()],
        env=environment, stdin=subprocess.DEVNULL)
except Exception as error:
    pbs.logmsg(pbs.LOG_WARNING, f"stdchk, job {event.job.id}: {error}")
event.accept()
