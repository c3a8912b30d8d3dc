"""One job of several processes, on one host or on many: joining it, and ending it when one of its processes dies.

JAX's own runtime does the work: every process runs the same program, sees the devices of all, and computes its part
(`posteria.engine.mesh`). When a process dies the others cannot go on, and JAX ends them by a signal that Python does
not see. So each runs under a parent, which has nothing to do but to wait, and to say in one line what happened.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from posteria.errors import SettingError

COORDINATOR, NUM_PROCESSES, PROCESS_ID = "POSTERIA_COORDINATOR", "POSTERIA_NUM_PROCESSES", "POSTERIA_PROCESS_ID"
WATCHED = "POSTERIA_WATCHED"  # set by the parent for the process that it watches
NUMBERED_BY = (PROCESS_ID, "JOB_COMPLETION_INDEX", "SLURM_PROCID")  # ours, Kubernetes', SLURM's
HEARTBEAT_SECONDS = 30  # without a sign of life, after which a process is taken for dead; a pause is shorter
SHUTDOWN_SECONDS = 20  # that the first to end waits for the others
START_SECONDS = 300  # in which all must have joined
LOST = 75  # exit code where another process ended the job: the system's own for "try again"
WORDS_OF_A_LOSS = ("Gloo", "NCCL", "coordination service", "heartbeat")  # of JAX's errors
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux


def distributed(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    watch: bool = True,
) -> None:
    """Join the processes of a job, so that `po.fit` runs over the devices of all; the first thing that a program does.

    Every process runs the same program. Under SLURM (`srun`) nothing need be said. Elsewhere: `coordinator`,
    "host:port" of the first process, how many there are, and which this is, from 0; or the environment's
    POSTERIA_COORDINATOR, POSTERIA_NUM_PROCESSES and POSTERIA_PROCESS_ID (Kubernetes' JOB_COMPLETION_INDEX serves for
    the last). The first process shows progress, and it alone writes `out`; the others need no disk.

    `watch` starts the program again as a child of this process, which waits: when any process of the job dies, all end
    within a minute, each saying so in one line, and the same command resumes with `if_exists="resume"`. What a program
    does before this call is done twice.
    """
    where = _place(coordinator, num_processes, process_id)
    if watch and WATCHED not in os.environ and not _is_interactive():
        raise SystemExit(watch_over([sys.executable, *sys.orig_argv[1:]], _name(where)))
    import jax  # not before: the parent has no use for it

    from posteria import machine

    if machine.are_joined():
        raise SettingError("po.distributed() is called twice", "once", "leave the second out")
    _die_with_parent()
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    try:
        jax.distributed.initialize(
            **where,
            initialization_timeout=START_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=SHUTDOWN_SECONDS,
        )
    except RuntimeError as error:
        if "before any JAX" not in str(error) and "initialize() must be called" not in str(error):
            raise
        raise SettingError(
            "JAX is in use already", "po.distributed() before anything else", "make it the program's first call"
        ) from error
    if machine.are_several():
        sys.excepthook = _lost_or_shown
        if not _is_interactive():
            _keep_output_apart()


def watch_over(command: list[str], name: str) -> int:
    """Run a command as a child, hand signals on to it, and say in one line how it ended where that was not well."""
    child = subprocess.Popen(command, env=os.environ | {WATCHED: "1"})

    def hand_on(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            child.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGINT)}
    code = child.wait()
    for number, handler in before.items():
        signal.signal(number, handler)
    if code:
        print(f"posteria: {name} {ending(code)}", file=sys.stderr, flush=True)
    return 128 - code if code < 0 else code


def ending(code: int) -> str:
    """What an exit code says, and what to do."""
    again = "start the job again with the same command, and it resumes"
    if code in (LOST, -signal.SIGABRT):
        return f"stopped, because another process of the job ended; {again}"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}, and with it the job; {again}"
    return f"ended with exit code {code}, and with it the job; when that is mended, {again}"


def _place(coordinator: str | None, num_processes: int | None, process_id: int | None) -> dict[str, Any]:
    """Arguments for JAX: none under SLURM, where it finds them itself."""
    given = (coordinator, num_processes, process_id)
    if any(value is not None for value in given) and any(value is None for value in given):
        raise SettingError(
            f"coordinator={coordinator!r}, num_processes={num_processes!r}, process_id={process_id!r}",
            "all three or none",
            'as "host:1234", 4 and 0',
        )
    if coordinator is None and COORDINATOR in os.environ:
        coordinator = os.environ[COORDINATOR]
        num_processes = _number(NUM_PROCESSES)
        process_id = _number(*NUMBERED_BY)
    if coordinator is None and "SLURM_JOB_ID" in os.environ:
        return {}
    if coordinator is None or num_processes is None or process_id is None:
        raise SettingError(
            "nothing says which processes belong to the job",
            f"SLURM's environment, or {COORDINATOR}, {NUM_PROCESSES} and {PROCESS_ID}",
            'or po.distributed("host:1234", num_processes=4, process_id=0)',
        )
    if ":" not in coordinator or not 0 <= process_id < num_processes:
        raise SettingError(
            f"coordinator {coordinator!r}, process {process_id} of {num_processes}",
            '"host:port", and a process from 0 to one less than their number',
            "the coordinator is the host of process 0, with a port that is free there",
        )
    return {"coordinator_address": coordinator, "num_processes": num_processes, "process_id": process_id}


def _number(*names: str) -> int:
    for name in names:
        if name in os.environ:
            if os.environ[name].isdecimal():
                return int(os.environ[name])
            raise SettingError(f"{name} is {os.environ[name]!r}", "a whole number", "see `po.distributed`")
    raise SettingError(f"{COORDINATOR} is set, and none of {', '.join(names)}", "both", "see `po.distributed`")


def _name(where: dict[str, Any]) -> str:
    number = where.get("process_id", os.environ.get("SLURM_PROCID", "?"))
    return f"process {number} of {where.get('num_processes', os.environ.get('SLURM_NTASKS', '?'))}"


def _lost_or_shown(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """A collective that fails because its partner is gone is not this program's error: its watcher says so."""
    leave_if_lost(error)
    sys.__excepthook__(kind, error, traceback)
    sys.stderr.flush()
    os._exit(1)


def leave_if_lost(error: BaseException) -> None:
    """End this process, where an error says that another one is gone; JAX's own way out would wait for the dead."""
    if WATCHED in os.environ and any(word in str(error) for word in WORDS_OF_A_LOSS):
        sys.stderr.flush()
        os._exit(LOST)


def _keep_output_apart() -> None:
    """What Gloo prints to the standard output goes to the other one: the first is the program's own, as for JSON."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, buffering=1)


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or "ipykernel" in sys.modules


def _die_with_parent() -> None:
    """The watched process does not outlive its watcher, where the system knows how."""
    if WATCHED in os.environ and sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
