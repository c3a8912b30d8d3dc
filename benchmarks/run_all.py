"""Run every benchmark and keep what it printed in docs/results, with the command, the versions and the cores."""

import os
import platform
import subprocess
import sys
from importlib import metadata

from measure import ROOT

SCRIPTS = (
    "leapfrog",
    "chains",
    "steps",
    "overhead",
    "memory",
    "defaults",
    "uci_hmc",
    "sgmcmc",
    "mclmc",
    "variational",
    "laplace_torch",
    "laplace_memory",
    "estimators",
    "table_prior",
    "torch_bridge",
)
PACKAGES = (
    "posteria",
    "jax",
    "jaxlib",
    "numpy",
    "flax",
    "optax",
    "blackjax",
    "numpyro",
    "torch",
    "posteriors",
    "bayesian-torch",
    "laplace-torch",
    "scikit-learn",
)


def main() -> None:
    names = sys.argv[1:] or SCRIPTS
    if unknown := set(names) - set(SCRIPTS):
        sys.exit(f"no benchmark {', '.join(sorted(unknown))}: one of {', '.join(SCRIPTS)}")
    results = ROOT / "docs" / "results"
    results.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py")]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        print(done.stdout, flush=True)
        if done.returncode:
            failed.append(name)
        else:
            (results / f"{name}.txt").write_text(header(name) + done.stdout.rstrip() + "\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def header(name: str) -> str:
    versions = [f"python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} absent")
    cores = f"{len(os.sched_getaffinity(0))} cores, {platform.machine()}"
    return f"$ python benchmarks/{name}.py\n{cores}; {', '.join(versions)}\n\n"


if __name__ == "__main__":
    main()
