"""The curvature of a model's log likelihood at given parameters, block by block over the data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteria import tree
from posteria.compiled import kept
from posteria.curvature.jacobian import FactoredNetwork, factored
from posteria.curvature.kron import Kron, is_factored
from posteria.curvature.lowrank import Tridiagonal, all_directions, leading, low_rank, tridiagonaliser
from posteria.curvature.precision import Diagonal, Full, Precision, Sums, formed_jacobian
from posteria.data.arrays import Data, parts, rows
from posteria.errors import SettingError, TooLargeError
from posteria.machine import available_memory, readable
from posteria.models.target import Target

BLOCK_ELEMENTS = 2**24  # of factors, and of Jacobians where they are formed, held at once
MAX_BLOCK = 4096  # data
ACCUMULATED: dict[str, type[Diagonal | Kron | Full]] = {"diagonal": Diagonal, "kron": Kron, "full": Full}
Structure = Literal["kron", "diagonal", "full", "lowrank"]
Curvature = Literal["ggn", "fisher"]
FULL_SIZE, FULL_WORK = 2048, 2e11  # weights and multiplications up to which the full matrix is a matter of seconds
MULTIPLICATIONS_PER_SECOND = 2e10  # assumed in estimates of time: two CPU cores
EIGENBASIS = 20  # multiplications an entry, times the size: of finding a symmetric matrix' eigenvectors


@dataclass(frozen=True)
class Settings:
    """What is measured: the generalised Gauss-Newton matrix, or the Fisher information from labels that are drawn from
    the model (`num_labels` a datum: one gradient each, where the Gauss-Newton matrix takes one an output)."""

    structure: str = "kron"
    paths: tuple[str, ...] = ()
    curvature: str = "ggn"
    num_labels: int = 1
    rank: int = 100


@dataclass(frozen=True)
class Estimate:
    """Of one measurement, before it is made."""

    bytes: float
    multiplications: float

    @property
    def seconds(self) -> float:
        return self.multiplications / MULTIPLICATIONS_PER_SECOND

    def __str__(self) -> str:
        return f"about {readable(self.bytes)} and {self.seconds:.2g} s"


def estimate(target: Target, settings: Settings) -> Estimate:
    """From the shapes of the layers alone."""
    network = factored(target.without_data(), settings.paths)
    num_cotangents = _num_cotangents(target, settings)
    size, num_data = network.size, target.num_data
    held, work = 3.0 * size, 0.0
    for weight in network.weights:
        forward = weight.positions * weight.size
        work += num_data * (1 + num_cotangents) * forward
        if settings.structure == "kron" and is_factored(weight):
            held += 3 * (weight.rows**2 + weight.columns**2)
            work += num_data * weight.positions * (weight.rows**2 + num_cotangents * weight.columns**2)
            work += EIGENBASIS * (weight.rows**3 + weight.columns**3)
    if settings.structure == "full":
        held, work = held + 3 * size**2, work + num_data * num_cotangents * size**2 + 2 * size**3
    if settings.structure == "lowrank":
        held, work = held + 3 * size * settings.rank, 2 * settings.rank * work + size * settings.rank**2
    block = _elements_per_datum(network, settings, num_cotangents) * block_rows(target, network, settings)
    return Estimate(8 * held + 4 * 3 * block, work)


def check_fits(target: Target, settings: Settings) -> Estimate:
    """The estimate; a TooLargeError, with settings that fit, where the machine has not the memory."""
    own = estimate(target, settings)
    available = available_memory()
    if own.bytes <= available:
        return own
    others = [replace(settings, structure=name) for name in ("kron", "lowrank", "diagonal")]
    if not hasattr(target.model.likelihood, "log_factor"):  # one gradient a datum, not one an output
        others += [replace(other, curvature="fisher") for other in others]
    sizes = {
        f"structure={other.structure!r}"
        + f", curvature={other.curvature!r}" * (other.curvature != settings.curvature): estimate(target, other)
        for other in others
    }
    fitting = [f"{name} ({size})" for name, size in sizes.items() if size.bytes <= available]
    raise TooLargeError(
        f"structure={settings.structure!r} needs {own}",
        f"at most {readable(available)}, as this machine has",
        f"{fitting[0]} fits" if fitting else 'subset="last" is smaller',
    )


def choose_structure(target: Target, paths: tuple[str, ...]) -> str:
    """ "full" where that is a matter of seconds, "kron" elsewhere."""
    size = factored(target.without_data(), paths).size
    work = target.num_data * (target.num_outputs or 1) * size**2
    return "full" if size <= FULL_SIZE and work <= FULL_WORK else "kron"


class Summed(NamedTuple):
    """The data's part of a curvature, before a prior is added: it serves any scale of the prior at the same weights."""

    sums: Any
    total: float  # rows, as they count


def measure(
    target: Target, params: tree.Params, data: Data, settings: Settings, prior: np.ndarray, key: jax.Array
) -> Precision:
    """The precision of the weights at `settings.paths`; `prior` is theirs, in the order of the coordinates."""
    if settings.structure == "lowrank":
        bare = target.without_data()
        return _measure_low_rank(bare, factored(bare, settings.paths), params, data, settings, prior, key)
    return with_prior(target, settings, summed(target, params, data, settings, key), prior)


def summed(target: Target, params: tree.Params, data: Data, settings: Settings, key: jax.Array) -> Summed:
    """Of any structure but "lowrank"."""
    bare = target.without_data()
    network = factored(bare, settings.paths)
    num_data = 0 if data is None else target.num_data
    sums = _compiled_zeros(bare, settings)()
    add = _compiled_block(bare, settings)
    total = 0.0
    if data is not None:
        for number, (block, counts) in enumerate(blocks(data, num_data, block_rows(target, network, settings))):
            sums = add(sums, params, block, counts, jax.random.fold_in(key, number))
            total += float(counts.sum(dtype=np.float64))
    return Summed(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), sums), total)


def solved(settings: Settings, found: Summed) -> Summed:
    """Its eigenvectors found, for many priors."""
    return found._replace(sums=Kron.solved(found.sums)) if settings.structure == "kron" else found


def with_prior(target: Target, settings: Settings, found: Summed, prior: np.ndarray) -> Precision:
    weights = factored(target.without_data(), settings.paths).weights
    return ACCUMULATED[settings.structure].finish(weights, found.sums, np.asarray(prior, np.float64), found.total)


def blocks(data: Data, num_data: int, size: int) -> Iterator[tuple[Data, np.ndarray]]:
    """Pairs (x, y) in blocks of one size, and how often each counts: the last block is filled with its last row, which
    then counts no more."""
    for first in range(0, num_data, size):
        numbers = np.arange(first, first + size)
        x, y, weight = parts(rows(data, np.minimum(numbers, num_data - 1)))
        counts = (numbers < num_data).astype(np.float32)
        yield (x, y), counts if weight is None else counts * np.asarray(weight)


def block_rows(target: Target, network: FactoredNetwork, settings: Settings) -> int:
    """How many data are held at once."""
    elements = _elements_per_datum(network, settings, _num_cotangents(target, settings))
    return int(np.clip(BLOCK_ELEMENTS // elements, 1, min(MAX_BLOCK, max(1, target.num_data))))


def _num_cotangents(target: Target, settings: Settings) -> int:
    return settings.num_labels if settings.curvature == "fisher" else target.num_outputs or 1


def _elements_per_datum(network: FactoredNetwork, settings: Settings, num_cotangents: int) -> int:
    total = num_cotangents**2
    for weight in network.weights:
        total += weight.positions * (weight.rows + 2 * num_cotangents * weight.columns)
        is_formed = settings.structure == "full" or (settings.structure != "kron" and weight.positions > 1)
        total += 2 * num_cotangents * weight.size * is_formed
    return total


# ---- compiled


def _cotangents(
    target: Target, settings: Settings, own: tree.Params, outputs: jax.Array, y: jax.Array, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Cotangents (datum, r, output) and their Hessians (datum, r, r), so that J^T c^T H c J is the curvature."""
    likelihood: Any = target.model.likelihood
    if settings.curvature == "ggn":
        unit = jnp.eye(outputs.shape[-1], dtype=outputs.dtype)
        return jnp.broadcast_to(unit, (len(outputs), *unit.shape)), likelihood.output_hessian(own, outputs, y)

    def scores(key: jax.Array) -> jax.Array:
        drawn = likelihood.sample(key, own, outputs)
        return jax.grad(lambda outputs: likelihood.log_prob(own, outputs, drawn).sum())(outputs)

    drawn = jax.vmap(scores, out_axes=1)(jax.random.split(key, settings.num_labels))
    share = jnp.eye(settings.num_labels, dtype=outputs.dtype) / settings.num_labels
    return drawn, jnp.broadcast_to(share, (len(outputs), *share.shape))


def _block_sums(
    target: Target, settings: Settings, params: tree.Params, batch: Data, counts: jax.Array, key: jax.Array
) -> Sums:
    network, (x, y) = factored(target, settings.paths), batch
    outputs = target.model.outputs(params["network"], x)
    cotangents, hessians = _cotangents(target, settings, params["likelihood"], outputs, y, key)
    jacobian = network.jacobian(params["network"], x, cotangents)
    hessians = hessians * counts[:, None, None]
    return ACCUMULATED[settings.structure].block(network.weights, jacobian, hessians, counts)


@kept
def _compiled_block(target: Target, settings: Settings) -> Callable[..., Sums]:
    def add(sums: Sums, params: tree.Params, batch: Data, counts: jax.Array, key: jax.Array) -> Sums:
        return jax.tree.map(jnp.add, sums, _block_sums(target, settings, params, batch, counts, key))

    return jax.jit(add, donate_argnums=0)


@kept
def _compiled_zeros(target: Target, settings: Settings) -> Callable[[], Sums]:
    """Sums of no data."""
    network = factored(target, settings.paths)
    r = _num_cotangents(target, settings)

    def one() -> Sums:
        params = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), target.structs)
        jacobian = network.jacobian(params["network"], target.blank_input, jnp.zeros((1, r, target.num_outputs or 1)))
        return ACCUMULATED[settings.structure].block(network.weights, jacobian, jnp.zeros((1, r, r)), jnp.zeros(1))

    shapes = jax.eval_shape(one)
    return lambda: jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)


def _measure_low_rank(
    target: Target,
    network: FactoredNetwork,
    params: tree.Params,
    data: Data,
    settings: Settings,
    prior: np.ndarray,
    key: jax.Array,
) -> Precision:
    rank = min(settings.rank, network.size, 0 if data is None else target.num_data * _num_cotangents(target, settings))
    if rank == 0:
        return low_rank(prior, np.zeros(0), np.zeros((0, network.size)))
    key_start, key_labels = jax.random.split(key)
    parts = list(blocks(data, target.num_data, block_rows(target, network, settings)))
    if rank == target.num_data * _num_cotangents(target, settings):  # all there are: no need to look for the leading
        rows_of = _compiled_rows(target, settings)
        keys = (jax.random.fold_in(key_labels, number) for number in range(len(parts)))
        scaled = np.concatenate([rows_of(params, *part, prior, k) for part, k in zip(parts, keys)])
        return low_rank(prior, *all_directions(scaled))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)
    iterate = _compiled_lanczos(target, settings, rank)
    scale = jnp.asarray(prior, tree.ravel(params).dtype)
    start = jax.random.normal(key_start, (network.size,), scale.dtype)
    return low_rank(prior, *leading(*iterate(start, params, stacked, scale, key_labels)))


@kept
def _compiled_rows(target: Target, settings: Settings) -> Callable[..., jax.Array]:
    """(params, batch, counts, prior, key) -> H^(1/2) J prior^(-1/2), whose square is the curvature: (row, size)."""
    network = factored(target, settings.paths)

    @jax.jit
    def rows_of(params: tree.Params, batch: Data, counts: jax.Array, prior: jax.Array, key: jax.Array) -> jax.Array:
        x, y = batch
        outputs = target.model.outputs(params["network"], x)
        cotangents, hessians = _cotangents(target, settings, params["likelihood"], outputs, y, key)
        values, vectors = jnp.linalg.eigh(hessians * counts[:, None, None])
        roots = vectors * jnp.sqrt(values.clip(0))[:, None, :]  # root root^T = H
        formed = formed_jacobian(network.jacobian(params["network"], x, cotangents))
        return jnp.einsum("nrk,nri->nki", roots, formed / jnp.sqrt(prior)).reshape(-1, formed.shape[-1])

    return rows_of


@kept
def _compiled_lanczos(target: Target, settings: Settings, rank: int) -> Callable[..., Tridiagonal]:
    network = factored(target, settings.paths)
    unravel = tree.unraveller(target.structs)

    def multiply(vector: jax.Array, params: tree.Params, stacked: Data, prior: jax.Array, key: jax.Array) -> jax.Array:
        """The likelihood's curvature in units of the prior, times a vector."""
        flat = tree.ravel(params)
        tangent = jnp.zeros_like(flat).at[network.order].set(vector / jnp.sqrt(prior))

        def outputs_of(flat: jax.Array, x: Data) -> jax.Array:
            return target.model.outputs(unravel(flat)["network"], x)

        def add(total: jax.Array, part: tree.Tree) -> tuple[jax.Array, None]:
            ((x, y), counts), number = part
            outputs, along = jax.jvp(lambda flat: outputs_of(flat, x), (flat,), (tangent,))
            key_block = jax.random.fold_in(key, number)
            cotangents, hessians = _cotangents(target, settings, params["likelihood"], outputs, y, key_block)
            picked = jnp.einsum("nro,no->nr", cotangents, along)
            curved = jnp.einsum("nro,nrs,ns->no", cotangents, hessians, picked) * counts[:, None]
            _, pull = jax.vjp(lambda flat: outputs_of(flat, x), flat)
            return total + pull(curved.astype(outputs.dtype))[0], None

        numbers = jnp.arange(jax.tree.leaves(stacked)[0].shape[0])
        total, _ = jax.lax.scan(add, jnp.zeros_like(flat), (stacked, numbers))
        return total[network.order] / jnp.sqrt(prior)

    return tridiagonaliser(multiply, rank)


def check_likelihood(target: Target, settings: Settings) -> None:
    """Refuse a likelihood without the capability that the curvature needs."""
    if settings.curvature == "ggn" and not hasattr(target.model.likelihood, "output_hessian"):
        raise SettingError(
            f"{type(target.model.likelihood).__name__} has no `output_hessian`",
            "the Hessian of -log_prob in the outputs",
            'write it, or take curvature="fisher", which needs only `sample`',
        )
    if settings.curvature == "fisher" and hasattr(target.model.likelihood, "log_factor"):
        raise SettingError(
            f'curvature="fisher" with {type(target.model.likelihood).__name__}',
            "the curvature of what its rows contribute, which drawn labels do not have",
            'take curvature="ggn"',
        )
