"""A step that still holds XLA's convolution is a compiled call of its own, with the same numbers."""

import jax
import numpy as np
from flax import nnx

import posteria as po
from posteria.engine import chunks

IMAGES = np.random.default_rng(0).normal(size=(12, 4, 4, 1)).astype(np.float32)
LABELS = np.arange(12) % 2


class Upsampled(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.ConvTranspose(1, 2, (3, 3), strides=(2, 2), rngs=rngs)
        self.out = nnx.Linear(128, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.up(x)).reshape(len(x), -1))


def test_a_transposed_convolution_trains_step_by_step_to_the_same_weights(monkeypatch):
    model = po.Model(po.network(lambda key: Upsampled(nnx.Rngs(key))), po.likelihoods.Categorical())
    method = po.Ensemble(po.MAP(num_epochs=7, batch_size=6), 2)
    calls = []
    chunk_of_calls = chunks._chunk_of_calls
    monkeypatch.setattr(chunks, "_chunk_of_calls", lambda *args: calls.append(1) or chunk_of_calls(*args))
    stepped = po.fit(model, (IMAGES, LABELS), method, progress=False)
    assert calls
    traced_row = chunks._traced_row
    monkeypatch.setattr(chunks, "_traced_row", lambda *args: traced_row(*args)._replace(holds_convolution=False))
    looped = po.fit(model, (IMAGES, LABELS), method, progress=False)
    assert len(calls) == 1
    np.testing.assert_allclose(stepped.stored.flat, looped.stored.flat, atol=1e-4)
    np.testing.assert_allclose(stepped.info["log_density"], looped.info["log_density"], rtol=1e-3)
