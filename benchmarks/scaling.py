"""What devices of a mesh say to each other, counted in the compiled programs: `python benchmarks/scaling.py`.

For 1, 2, 4 and 8 devices that share the rows of each chain: the collectives of a compiled draw, where they stand, the
bytes of each, and the rows whose gradient a device takes. Nothing is timed: it holds on any machine.
"""

import re

import jax

jax.config.update("jax_num_cpu_devices", 8)

import numpy as np  # noqa: E402

import posteria as po  # noqa: E402
from posteria import tree  # noqa: E402
from posteria.engine import chunks  # noqa: E402
from posteria.engine.mesh import Meshed  # noqa: E402
from posteria.methods.chains.hmc import hmc_sampler  # noqa: E402
from posteria.methods.chains.warmup import Tuning, drawing_kernel  # noqa: E402
from posteria.models.coordinates import coordinates  # noqa: E402
from posteria.models.sums import all_rows  # noqa: E402

NUM_ROWS = 4096
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast")
ITEM = {"f32": 4, "f64": 8, "s32": 4, "u32": 4, "pred": 1}


def collectives(hlo: str) -> list[tuple[str, int, int]]:
    """(kind, bytes, loops around it) of each, from the text of a compiled program."""
    loops, inside = {}, []
    computation = ""
    bodies: dict[str, list[tuple[str, bool]]] = {}  # what a computation calls, and whether in a loop
    for line in hlo.splitlines():
        if (start := re.match(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$", line)) is not None:
            computation = start[1]
            bodies[computation] = []
            if line.startswith("ENTRY"):
                loops[computation] = 0
        bodies.get(computation, []).extend(
            (name, word == "body") for word, name in re.findall(r"(body|to_apply|calls)=%?([\w.\-]+)", line)
        )
        kind = re.search(r"= \(?(\w+)\[([\d,]*)\].*? (" + "|".join(COLLECTIVES) + r")(?:-start)?\(", line)
        if kind is not None:
            size = int(np.prod([int(n) for n in kind[2].split(",") if n])) * ITEM[kind[1]]
            inside.append((kind[3], size, computation))
    while len(loops) < len(bodies):
        found = {c: loops[p] + is_loop for p in loops for c, is_loop in bodies.get(p, ()) if c not in loops}
        if not found:
            break
        loops |= found
    return [(kind, size, loops.get(where, -1)) for kind, size, where in inside]


def compiled_draw(num_devices: int) -> tuple[str, int]:
    """The text of a chunk of HMC draws by so many devices, and the number of weights."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(NUM_ROWS, 20)).astype(np.float32), rng.integers(0, 3, NUM_ROWS)
    target = po.Target(po.Model(po.nn.mlp((50, 50), outputs=3), po.likelihoods.Categorical()), (x, y))
    bare = target.without_data()
    flat = coordinates(bare)
    kernel = drawing_kernel(hmc_sampler(10, 0.0, is_in_steps=True), bare)
    position = np.asarray(flat.to_units(target.init(jax.random.key(0))))
    starts = position[None], Tuning(np.full(1, 0.01, np.float32), np.ones((1, len(position)), np.float32))
    layout = Meshed(po.mesh(chains=1, data=num_devices))
    keys = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(1), 1)))
    data = layout.share(all_rows(target.data))
    chains = layout.apply(chunks._initialiser(kernel), layout.split((keys, starts)), data)
    chunk = chunks._chunk(kernel, lambda state: state.inner.position, 1, 10)
    shared = data, *(layout._on_mesh(np.int32(n)) for n in (0, 10))
    text = layout.compiled(chunk, shared).lower(chains, *shared).compile().as_text()
    return text, tree.size(target.structs)


def main() -> None:
    print(f"HMC of a 20-50-50-3 network by {NUM_ROWS:,} rows; one chain")
    print(f"{'devices':>8} {'rows a device':>14} {'collectives':>12}   what, and in how many loops")
    for num_devices in (1, 2, 4, 8):
        text, size = compiled_draw(num_devices)
        found = collectives(text)
        told = "; ".join(f"{kind} of {size:,} bytes in {loops}" for kind, size, loops in found) or "none"
        print(f"{num_devices:8} {NUM_ROWS // num_devices:14,} {len(found):12}   {told}")
    print(f"weights: {size:,}; value and gradient: {4 * (size + 1):,} bytes")


if __name__ == "__main__":
    main()
