"""Inference inside a small affine subspace of the weights: w = centre + directions z. Izmailov et al. 2019.

The inner method sees the posterior's density restricted to the subspace, over z; the likelihood's own parameters stay
beside z. The directions are scaled so that at the centre the density has the curvature of N(0, I).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.data.arrays import Data
from posteria.engine.loop import Run
from posteria.errors import SettingError
from posteria.landscape.connect import DEFAULT as CURVE
from posteria.landscape.connect import bend
from posteria.methods.chains.elliptical_slice import EllipticalSlice
from posteria.methods.costs import Costed, varied_inside
from posteria.methods.ensembles.swag import SWAG
from posteria.models.target import Target
from posteria.posteriors.base import Posterior
from posteria.posteriors.restricted import Plane, SubspacePosterior, restricted
from posteria.settings import AnyMethod, Several, check_settings, refuse_idle

CURVE_RANK = 2  # of the plane of a curve


@dataclass(frozen=True)
class Subspace(Costed):
    """Any method inside a few directions that matter: real posterior sampling for networks too large to sample.

    `basis` is "pca" (the principal directions of the trajectory's snapshots), "random" (as many random ones) or
    "curve" (the plane of a low-loss curve between two modes, which has rank 2). The centre is the trajectory's mean,
    for "curve" the middle of the curve's triangle. Temperature is the model's, as everywhere. A budget is shared by
    `swag` and `method` as their defaults share it. Tuning tries what `swag` tries.
    """

    method: AnyMethod = field(default_factory=EllipticalSlice)
    basis: Literal["pca", "random", "curve"] = "pca"
    rank: Several = 5
    swag: SWAG = field(default_factory=SWAG)

    fidelity: ClassVar[str] = "procedure"  # exact only where the posterior lies in the subspace
    paper: ClassVar[str] = "Izmailov et al. 2019"

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_idle(self, self.basis == "curve" and self.rank != CURVE_RANK, "rank", 'basis="curve"')
        if self.basis == "pca" and self.rank >= self.swag.num_snapshots:
            raise SettingError(
                f"rank is {self.rank} of {self.swag.num_snapshots} snapshots",
                "fewer directions than snapshots",
                "take more snapshots, or a smaller rank",
            )

    def expected_gradients(self, num_data: int) -> float:
        return self._place_gradients(num_data) + float(self._inside().expected_gradients(num_data))

    def with_budget(self, gradients: float, num_data: int) -> "Subspace":
        place, total = self._place_gradients(num_data), self.expected_gradients(num_data)
        curve, num_ends = (CURVE.num_steps, 2) if self.basis == "curve" else (0, 1)
        for_swag = max(1.0, (place - curve) / (total - curve) * (gradients - curve) / num_ends)
        swag = self.swag.with_budget(for_swag, num_data)
        if self.basis == "pca" and swag.num_snapshots <= self.rank:  # an epoch a snapshot is all that can be spared
            swag = swag.with_snapshots(self.rank + 1, 1)
        placed = replace(self, swag=swag)
        rest = max(1.0, gradients - placed._place_gradients(num_data))
        inside = self._inside().with_budget(rest, num_data)
        same = {name: getattr(self.method, name) for name in ("start",) if hasattr(inside, name)}
        return replace(placed, method=replace(inside, **same))

    def trials(self) -> list[Any]:
        return varied_inside(self, "swag")

    def _place_gradients(self, num_data: int) -> float:
        if self.basis == "curve":
            return 2 * self.swag.expected_gradients(num_data) + CURVE.num_steps
        return self.swag.expected_gradients(num_data)

    def _inside(self) -> Any:
        """The method as it is fitted: its start is the centre."""
        is_started = any(each.name == "start" for each in fields(self.method))
        return replace(self.method, start="init") if is_started else self.method

    def fit(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> SubspacePosterior:
        key_place, key_inner = jax.random.split(key)
        centre, directions = self._place(key_place, target, start, run.stage("subspace", share=0.5))
        at_centre = tree.unraveller(target.structs)(centre)
        own, rest = at_centre["likelihood"], {name: at_centre[name] for name in at_centre if name == "prior"}
        is_network = _is_network(target)
        structs = target.structs["network"]
        plane = Plane(structs, centre[is_network], scaled(target, centre, directions)[is_network], rest)
        inner_target = restricted(target, plane, _pair(target))

        starts = {"network": jnp.zeros(plane.rank), "likelihood": own}
        inner: Posterior = self.method.fit(key_inner, inner_target, starts, run)
        return SubspacePosterior(target, inner, plane)

    def _place(self, key: jax.Array, target: Target, start: tree.Params, run: Run) -> tuple[jax.Array, jax.Array]:
        """Centre (size,) and orthonormal directions (size, rank), zero at the likelihood's own parameters."""
        if start is not None and self.basis == "curve":
            raise SettingError("a start was given", "none: the ends of a curve have one each", "leave it out")
        key_follow, key_basis = jax.random.split(key)
        is_network = _is_network(target)
        rank = CURVE_RANK if self.basis == "curve" else min(self.rank, int(is_network.sum()))
        num_ends = 2 if self.basis == "curve" else 1
        snapshots = self.swag.follow(key_follow, target, start, run, num_ends, final_when_late=True)
        if self.basis == "curve":
            ends = snapshots.mean(1)  # (end, size)
            points = np.asarray(bend(key_basis, ends[0], ends[1], target, run.stage("curve")).points)
            centre, columns = points.mean(0), (points[[0, -1]] - points[1]).T
        else:
            centre = snapshots[0].mean(0)
            columns = (snapshots[0] - centre).T
            if self.basis == "random":
                columns = np.asarray(jax.random.normal(key_basis, (len(centre), rank)))
        columns = np.where(is_network[:, None], columns, 0.0)
        directions = np.linalg.svd(columns, full_matrices=False)[0][:, :rank]
        return jnp.asarray(centre, jnp.float32), jnp.asarray(directions, jnp.float32)


def scaled(target: Target, centre: jax.Array, directions: jax.Array) -> jax.Array:
    """Directions along which the density at the centre has unit curvature, and no less than the prior has.

    With H its Hessian in the subspace and A the prior's precision there (in units of the prior), H v = a A v is
    solved, and v is scaled by 1 / sqrt(max(a, 1)).
    """
    hessian = np.asarray(_hessian(target.without_data())(centre, directions, target.data), np.float64)
    units = jax.tree.map(lambda unit, leaf: jnp.full(leaf.shape, unit), target.units, target.structs)
    if target.scales:
        own = tree.unraveller(target.structs)(centre)["prior"]
        units |= {"network": target.scales.scaled(units["network"], own)}
    in_units = np.asarray(directions, np.float64) / np.asarray(tree.ravel(units))[:, None]
    root = np.linalg.inv(np.linalg.cholesky(in_units.T @ in_units / target.temperature)).T  # A^-1 = root root^T
    ratios, vectors = np.linalg.eigh(root.T @ hessian @ root)
    scale = root @ vectors / np.sqrt(np.maximum(ratios, 1.0))
    return directions @ jnp.asarray(scale, jnp.float32)


@kept
def _hessian(target: Target) -> Callable[..., jax.Array]:
    unravel = tree.unraveller(target.structs)

    def hessian(centre: jax.Array, directions: jax.Array, data: Data) -> jax.Array:
        def negative_log_density(z: jax.Array) -> jax.Array:
            return -target.log_density(unravel(centre + directions @ z), data)

        matrix: jax.Array = jax.hessian(negative_log_density)(jnp.zeros(directions.shape[1]))
        return matrix

    return jax.jit(hessian)


def _is_network(target: Target) -> np.ndarray:
    """Which of the flat parameters are the network's: (size,)."""
    flags = {name: jax.tree.map(lambda leaf: np.zeros(leaf.shape, bool), part) for name, part in target.structs.items()}
    flags["network"] = jax.tree.map(np.logical_not, flags["network"])
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(flags)])


def _pair(target: Target) -> Data:
    """Its data, or what gives its shapes."""
    if target.data is not None:
        return target.data
    return None if target.blank_input is None else (target.blank_input, None)
