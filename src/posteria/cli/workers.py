"""Rows of a comparison over workers: processes of this machine, a Dask cluster, or SLURM by submitit.

A worker is told the comparison in the command line's own words and makes it ready itself, so that nothing but words
and numbers travels. It writes its row's files into the comparison's folder, which all workers share; the process that
was started writes what tells of all rows, and the page. A row whose worker died is run again, and goes on from its last
checkpoint.
"""

import json
import multiprocessing
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posteria.errors import SettingError
from posteria.tree import Json

if TYPE_CHECKING:
    from posteria.comparison.api import Plan
    from posteria.comparison.run.runner import Elsewhere, Ending, Key

MOST_ATTEMPTS = 3  # of a row whose workers die
LOG = ".workers.txt"  # in the comparison's folder: who began which row
POLL_SECONDS = 2.0  # between looks at SLURM's jobs
MINUTES_OF_A_JOB = 24 * 60

Call = Callable[["Key"], "Ending"]


def check(num_workers: int | None, cluster: str | None) -> None:
    """Before anything is read."""
    if num_workers is not None and num_workers < 1:
        raise SettingError(f"--workers {num_workers}", "at least 1", "leave it out for one process")
    if num_workers is not None and cluster is not None:
        raise SettingError("both --workers and --cluster", "one of them", "--workers are processes of this machine")
    if cluster is not None and cluster != "slurm" and "://" not in cluster:
        raise SettingError(f"--cluster {cluster!r}", "a Dask scheduler's address, or slurm", "as tcp://host:8786")
    if cluster is not None:
        _required("submitit" if cluster == "slurm" else "distributed")


def planned(recipe: Json) -> "Plan":
    """The comparison that a command line asks for."""
    import jax

    from posteria.cli.set_option import with_settings
    from posteria.comparison.api import plan
    from posteria.comparison.enter.entries import default_methods
    from posteria.comparison.tour import tour
    from posteria.data.table_file import is_table
    from posteria.models.priors import Normal

    words = dict(recipe)
    with suppress(RuntimeError):  # JAX is up already
        jax.config.update("jax_num_cpu_devices", words["num_devices"])  # as many everywhere: results are then the same
    del words["num_devices"]
    if words["data"] is None:
        reference = words.pop("reference")
        return tour(words.pop("methods"), None if reference == "nuts" else reference, **_without(words, "data"))
    if settings := words.pop("settings"):
        words["methods"] = with_settings(words["methods"] or default_methods(is_table(Path(words["data"]))), settings)
    prior_std = words.pop("prior_std")
    prior = None if prior_std is None else Normal(prior_std)
    return plan(words.pop("data"), words.pop("target"), prior=prior, **words)


def elsewhere(recipe: Json, out: Path, num_workers: int | None, cluster: str | None) -> "Elsewhere | None":
    """What hands rows to workers; None where this process runs them."""
    call = Row(json.dumps(recipe), str(out.absolute()))
    if num_workers is not None:
        return lambda keys: on_this_machine(num_workers, call, keys)
    if cluster == "slurm":
        return lambda keys: on_slurm(out / ".submitit", call, keys)
    if cluster is not None:
        return lambda keys: on_dask(cluster, call, keys)
    return None


class Row:
    """Runs one row, in a worker; it is made of words, and can travel."""

    def __init__(self, recipe: str, out: str) -> None:
        self.recipe, self.out = recipe, out

    def __call__(self, key: "Key") -> "Ending":
        name, row, seed = key
        with (Path(self.out) / LOG).open("a") as log:
            log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} process {os.getpid()} begins {name}/{row}-{seed}\n")
        return _ready(self.recipe).run_row(self.out, (name, row, seed))


@cache  # a worker has one plan, for as long as it lives
def _ready(recipe: str) -> "Plan":
    return planned(json.loads(recipe))


def on_this_machine(num: int, call: Call, keys: "list[Key]") -> "Iterator[tuple[Key, Ending]]":
    """One pool a worker, so that one that dies takes no other with it."""
    waiting, attempts = deque(keys), Counter[Any]()
    idle = [_pool() for _ in range(min(num, len(keys)))]
    running: dict[Future[Ending], tuple[ProcessPoolExecutor, Key]] = {}
    try:
        while waiting or running:
            while waiting and idle:
                pool, key = idle.pop(), waiting.popleft()
                running[pool.submit(call, key)] = pool, key
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                pool, key = running.pop(future)
                try:
                    ending = future.result()
                except BrokenProcessPool:
                    pool.shutdown(wait=False)
                    idle.append(_pool())
                    attempts[key] += 1
                    if attempts[key] < MOST_ATTEMPTS:
                        waiting.appendleft(key)
                        continue
                    ending = _given_up(attempts[key])
                else:
                    idle.append(pool)
                yield key, ending
    finally:
        for pool in [*idle, *(pool for pool, _ in running.values())]:
            pool.shutdown(wait=False, cancel_futures=True)


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))  # a fork of a process with threads may hang


def on_dask(address: str, call: Call, keys: "list[Key]") -> "Iterator[tuple[Key, Ending]]":
    """The scheduler runs a dead worker's row again by itself."""
    distributed = _required("distributed")
    with distributed.Client(address) as client:
        futures = {client.submit(call, key, pure=False): key for key in keys}
        for future in distributed.as_completed(futures):
            try:
                ending = tuple(future.result())
            except distributed.scheduler.KilledWorker:
                ending = _given_up(MOST_ATTEMPTS)
            yield futures[future], ending


def on_slurm(folder: Path, call: Call, keys: "list[Key]") -> "Iterator[tuple[Key, Ending]]":
    """A job a row; one that ends without an answer is handed in again. What SLURM is told of it stands in `folder`."""
    submitit = _required("submitit")
    executor = submitit.AutoExecutor(folder=folder, cluster=os.environ.get("POSTERIA_SUBMITIT", "slurm"))
    executor.update_parameters(timeout_min=MINUTES_OF_A_JOB, slurm_job_name="posteria")
    running = {executor.submit(call, key): key for key in keys}
    attempts = Counter[Any]()
    while running:
        ended = [job for job in running if job.done()]
        for job in ended:
            key = running.pop(job)
            try:
                ending = tuple(job.result())
            except submitit.core.utils.UncompletedJobError:
                attempts[key] += 1
                if attempts[key] < MOST_ATTEMPTS:
                    running[executor.submit(call, key)] = key
                    continue
                ending = _given_up(attempts[key])
            yield key, ending
        if not ended:
            time.sleep(POLL_SECONDS)


def _given_up(num: int) -> "Ending":
    return "failed", f"its worker died, {num} times"


def _without(words: Json, *names: str) -> Json:
    return {name: value for name, value in words.items() if name not in names}


def _required(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise SettingError(f"{name} is not installed", "it, for --cluster", 'pip install "posteria[cluster]"') from None
