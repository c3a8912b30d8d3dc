"""Memory and time before anything runs: counted where that can be known, rehearsed, and stated for other machines."""

import json
import resource
import subprocess
import sys

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import posteria as po
from posteria.cli import app
from posteria.errors import SettingError
from posteria.planning import MACHINES, Machine

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 8)).astype(np.float32)
Y = RNG.normal(size=64).astype(np.float32)
MODEL = po.Model(po.nn.mlp((16,), outputs=1))


def test_multiplications_are_those_of_the_matrices():
    """A gradient of dense layers: 2 operations a weight and row forward, twice as many back (none to the inputs)."""
    wide = np.zeros((64, 256), np.float32)
    model = po.Model(po.nn.mlp((512,), outputs=1))
    plan = po.plan(model, (wide, Y), po.MAP(num_epochs=10, polish=False), rehearse=False)
    first, second = 256 * 512, 512
    assert plan.flops_a_row == pytest.approx(4 * first + 6 * second, rel=0.1)
    assert plan.gradients == 10 and plan.rows_a_gradient == 64
    assert plan.flops == plan.flops_a_row * 640


def test_another_machine_divides_the_work_and_sums_each_gradient():
    method = po.HMC(num_chains=2, num_draws=10, num_warmup=0, num_leapfrog=5)
    plan = po.plan(MODEL, (X, Y), method, num_data=10_000, rehearse=False)
    one = Machine("m", 1, flops=1e12, memory=1e9, bandwidth=1e9, efficiency=0.5)
    alone, eight = plan.on(one), plan.on(Machine("m", 8, 1e12, 1e9, 1e9, 0.5))
    assert alone.seconds == pytest.approx(plan.flops / 0.5e12)
    sums = plan.gradients / 2 * 2 * 4 * plan.num_weights * (3 / 4) / 1e9  # four devices share the rows of a chain
    assert eight.shards == 4 and eight.seconds == pytest.approx(alone.seconds / 8 + sums)
    assert eight.bytes_a_device < alone.bytes_a_device and eight.fits
    assert "| m | 8 |" in plan.table([Machine("m", 8)])


def test_a_rehearsal_knows_the_steps_and_does_not_take_them():
    method = po.MAP(num_epochs=50_000, batch_size=16)
    plan = po.plan(MODEL, (X, Y), method)
    (stage,) = plan.stages
    assert stage.num_steps == 200_000 and stage.gradients_a_step == 1 and plan.gradients == 200_000
    assert plan.seconds > 200_000 * stage.seconds_a_step > 0 and "200,000 steps" in str(plan)
    assert plan.peak_bytes > 1e8
    with pytest.raises(SettingError, match="rehearse=False"):
        po.plan(MODEL, (X, Y), method, num_data=5)


def test_the_command_line_plans(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(",".join(map(str, [*x, y])) for x, y in zip(X, Y))
    (tmp_path / "t.csv").write_text(",".join("abcdefgh") + f",y\n{rows}\n")
    words = [
        "plan",
        "t.csv",
        "--target",
        "y",
        "--method",
        "map",
        "--no-rehearse",
        "--on",
        "a100*8",
        "--network",
        "mlp:8",
    ]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0 and "| a100 | 8 |" in answer.output, answer.output
    mine = CliRunner().invoke(app, [*words[:-4], "--on", "mine:flops=1e12,memory=1e9,bandwidth=1e9", "--json"])
    assert json.loads(mine.stdout)["elsewhere"][0]["machine"] == "mine"
    wrong = CliRunner().invoke(app, [*words[:-4], "--on", "cray"])
    assert wrong.exit_code == 1 and "tpu-v3" in wrong.output
    assert set(MACHINES) == {"tpu-v3", "a100", "h100"}


FITS = """
import sys, time, resource, json
import numpy as np, posteria as po
what, name, network = sys.argv[1:]
rng = np.random.default_rng(0)
if network == "mlp":
    data = rng.normal(size=(4000, 784)).astype(np.float32), rng.integers(0, 10, 4000)
    net = po.nn.mlp((300, 100), outputs=10)
else:
    data = rng.normal(size=(2000, 28, 28, 1)).astype(np.float32), rng.integers(0, 10, 2000)
    net = po.nn.lenet5(outputs=10)
model = po.Model(net, likelihood=po.likelihoods.Categorical())
method = {
    "map": po.MAP(num_epochs=12, batch_size=128),
    "sghmc": po.SGHMC(num_chains=2, num_draws=20, num_warmup=60, thinning=5, batch_size=128, start="prior"),
    "mean-field": po.MeanField(num_epochs=6, batch_size=128),
}[name]
began, cpu = time.monotonic(), time.process_time()
if what == "plan":
    plan = po.plan(model, data, method)
    answer = {"seconds": plan.seconds, "bytes": plan.peak_bytes}
else:
    po.fit(model, data, method, progress=False)
    answer = {"seconds": time.monotonic() - began, "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
print(json.dumps(answer | {"cpu": time.process_time() - cpu}))
"""


def test_compiling_does_not_count_as_steps():
    """A thousand steps of a tiny network take a few hundredths of a second, far below what compiling them takes."""
    po.clear()
    plan = po.plan(MODEL, (X, Y), po.MAP(num_epochs=1000))
    assert max(stage.seconds_a_step for stage in plan.stages) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp", "lenet5"])
@pytest.mark.parametrize("name", ["map", "sghmc", "mean-field"])
def test_a_plan_is_near_what_is_measured(name, network):
    found = {}
    for what in ("plan", "fit"):
        said = subprocess.run([sys.executable, "-c", FITS, what, name, network], capture_output=True, text=True)
        found[what] = json.loads(said.stdout.splitlines()[-1])
    print(name, network, found)
    assert found["plan"]["seconds"] == pytest.approx(found["fit"]["seconds"], rel=0.3)
    assert found["plan"]["bytes"] == pytest.approx(found["fit"]["bytes"], rel=0.2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss and jax.default_backend()
