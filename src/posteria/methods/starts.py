"""Where a method begins: the prior, modes, a fitted posterior, or given weights."""

from typing import Any

import jax

from posteria import tree
from posteria.engine.loop import Run
from posteria.methods.ascent import ascend


def find_starts(
    key: jax.Array, target: Any, start: tree.Params, num: int, run: Run, climber: Any = None
) -> tree.Params:
    """`num` starting points: "prior"; "init", the network's initialiser; "map", modes that are found from there;
    a MAP that finds them; "ascent", a few hundred steps towards them; a fitted posterior; or weights, with or without a
    chain axis.

    `climber` is the MAP that finds modes, where the default would not do. Scales that the prior infers are 1 there,
    and "map" is the mode given that: the mode of scales and weights together is at scales of 0.
    """
    if hasattr(start, "climb"):
        start, climber = "map", start
    if isinstance(start, str) and start == "prior":
        return tree.stack([target.sample_prior(k) for k in jax.random.split(key, num)])
    if isinstance(start, str):
        from posteria.methods.points.map import MAP

        key_init, key_map = (key, key) if start == "init" else jax.random.split(key)
        inits, note = target.several_inits(key_init, num)
        run.note(note)
        if start == "init":
            return inits
        if start == "ascent":
            return ascend(key_map, target, inits, run.stage("ascent", share=0.2))
        stage = run.stage("map", share=0.2)
        return (climber or MAP()).climb(key_map, target.holding("prior"), inits, stage, final_when_late=True).params
    if hasattr(start, "sample_params"):
        return start.sample_params(key, num)
    return target.as_starts(start, num)
