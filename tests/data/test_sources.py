"""Rows larger than memory: what is a source, and a fit of one is the fit of its rows."""

import jax
import numpy as np
import pytest

import posteria as po
from posteria.data import sources
from posteria.errors import DataError, TooLargeError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5] + 0.3 * RNG.normal(size=300)).astype(np.float32)
MODEL = po.Model(po.nn.mlp((4,), outputs=1))
BATCH = 32


class Lazy:
    """An array as HDF5 has it: slices, and increasing lists of rows; counts what it was asked for."""

    def __init__(self, values):
        self._values, self.shape, self.asked = values, values.shape, []

    def __len__(self):
        return len(self._values)

    def __getitem__(self, key):
        self.asked.append(key)
        if not isinstance(key, slice):
            assert (np.diff(key) > 0).all(), "HDF5 wants increasing rows"
        return self._values[key]


class Pairs:
    """A data set of torch's: a pair a row."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return X[i], Y[i]


def saved(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    return tmp_path / "x.npy", tmp_path / "y.npy"


def every_source(tmp_path):
    class Named(Pairs):
        def __getitem__(self, i):
            return {"in": X[i], "out": Y[i]}

    class Several(Pairs):
        def __getitems__(self, numbers):
            return [(X[i], Y[i]) for i in numbers]

    class Columns:
        column_names = ("in", "out")

        def __len__(self):
            return len(X)

        def __getitem__(self, numbers):
            return {"in": X[numbers].tolist(), "out": Y[numbers].tolist()}

    files = saved(tmp_path)
    return {
        "files": po.data.source(*files),
        "maps": sources.as_source(tuple(np.load(file, mmap_mode="r") for file in files)),
        "lazy": sources.as_source((Lazy(X), Lazy(Y))),
        "one lazy": sources.as_source((Lazy(X), Y)),
        "pairs": sources.as_source(Pairs()),
        "named": po.data.source(Named(), x="in", y="out"),
        "several": po.data.source(Several()),
        "columns": po.data.source(Columns(), x="in", y="out"),
    }


def test_any_rows_are_read_in_the_order_asked(tmp_path):
    numbers = np.array([5, 2, 299, 2, 0])
    for name, source in every_source(tmp_path).items():
        x, y = source.read_rows(numbers)
        np.testing.assert_allclose(x, X[numbers], rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(y, Y[numbers], rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(source.read_rows(slice(10, 20))[0], X[10:20], rtol=1e-6)
        assert len(source) == 300
    fingerprints = {source.fingerprint() for name, source in every_source(tmp_path).items() if name != "columns"}
    assert len(fingerprints) == 1  # Hugging Face's columns are lists, whose numbers have 64 bits


def test_stretches_are_asked_for_as_slices():
    lazy = Lazy(X)
    source = sources.as_source((lazy, Y))
    lazy.asked.clear()
    source.read_rows(np.arange(100, 200))
    assert lazy.asked == [slice(100, 200)]


def test_tensorstore_is_a_source(tmp_path):
    ts = pytest.importorskip("tensorstore")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path / "x")}}
    array = ts.open(spec, create=True, dtype=ts.float32, shape=X.shape).result()
    array.write(X).result()
    source = sources.as_source((array, Y))
    np.testing.assert_array_equal(source.read_rows(np.array([7, 3]))[0], X[[7, 3]])


def test_parquet_is_laid_out_once_and_images_are_read_from_folders(tmp_path, monkeypatch):
    pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    monkeypatch.setenv("POSTERIA_DATA", str(tmp_path / "cache"))
    for part in (0, 1):
        rows = slice(150 * part, 150 * (part + 1))
        columns = {"a": X[rows, 0], "b": X[rows, 1], "c": X[rows, 2], "y": Y[rows]}
        pq.write_table(pa.table(columns), tmp_path / f"{part}.parquet")
    source = po.data.source(str(tmp_path / "*.parquet"), y="y")
    np.testing.assert_array_equal(source.read_rows(np.array([299, 0]))[0], X[[299, 0]])
    monkeypatch.setattr("posteria.data.row_files._lay_out", None)  # not again
    assert po.data.source(str(tmp_path / "*.parquet"), y="y").fingerprint() == source.fingerprint()
    with pytest.raises(DataError, match="one of its columns"):
        po.data.source(str(tmp_path / "*.parquet"))
    from PIL import Image

    for label, name in enumerate(("cat", "dog")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(np.full((4, 5, 3), 40 * label + i, np.uint8)).save(tmp_path / "images" / name / f"{i}.png")
    source = po.data.source(tmp_path / "images", size=(2, 2))
    x, y = source.read_rows(np.array([5, 0]))
    assert x.shape == (2, 2, 2, 3) and list(y) == [1, 0] and list(x[:, 0, 0, 0]) == [42, 0]
    assert source.class_names == ("cat", "dog")


def test_what_can_be_walked_through_once_is_refused_with_a_way_out():
    for once in ((row for row in X), iter(X), zip(X, Y), (x for x in zip(X, Y))):
        with pytest.raises(DataError, match=r"only once.*__getitem__"):
            po.fit(MODEL, once, po.MAP(batch_size=BATCH), progress=False)
        with pytest.raises(DataError, match="only once"):
            po.fit(MODEL, (once, Y), po.MAP(batch_size=BATCH), progress=False)
    with pytest.raises(DataError, match="different lengths"):
        po.fit(MODEL, (Lazy(X), Y[:9]), po.MAP(batch_size=BATCH), progress=False)
    bad = X.copy()
    bad[77, 1] = np.nan
    with pytest.raises(DataError, match="NaN"):
        po.fit(MODEL, (Lazy(bad), Y), po.MAP(num_epochs=2, batch_size=BATCH), progress=False)


METHODS = {
    "map": po.MAP(num_epochs=4, batch_size=BATCH, validation=0.1),
    "sghmc": po.SGHMC(num_chains=2, num_draws=4, num_warmup=10, thinning=7, batch_size=BATCH, start="prior"),
    "mean-field": po.MeanField(num_epochs=3, batch_size=BATCH),
    "swag": po.SWAG(po.MAP(num_epochs=2, batch_size=BATCH), num_snapshots=3, rank=2, batch_size=BATCH),
    "mc-dropout": po.MCDropout(num_epochs=3, batch_size=BATCH),
    "laplace": po.Laplace(map=po.MAP(num_epochs=3, batch_size=BATCH, polish=False), structure="kron", subset="last"),
}


QUICK = ("map", "sghmc")  # the rest share their code


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
def test_a_fit_of_a_source_is_the_fit_of_its_rows(name, monkeypatch):
    """The same rows in every step: what is left is how a compiled gather rounds."""
    monkeypatch.setattr("posteria.engine.streaming.MOST_STEPS", 3)  # blocks end within rows, and rows within blocks
    method = METHODS[name]
    held = po.fit(MODEL, (X, Y), method, progress=False)
    streamed = po.fit(MODEL, (Lazy(X), Lazy(Y)), method, progress=False)
    np.testing.assert_allclose(streamed.predict(X).mean, held.predict(X).mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(streamed.predict(X).std, held.predict(X).std, rtol=1e-3, atol=1e-4)
    assert streamed.facts["gradients"] == held.facts["gradients"]
    if held.history:
        np.testing.assert_allclose(streamed.history["objective"], held.history["objective"], rtol=1e-4)


def test_a_source_is_predicted_and_scored_in_blocks():
    posterior = po.fit(MODEL, (X, Y), po.MAP(num_epochs=2, batch_size=BATCH), progress=False)
    p, lazy = posterior.predict(X), posterior.predict(Lazy(X))
    np.testing.assert_array_equal(lazy.mean, p.mean)
    np.testing.assert_array_equal(lazy.log_prob(Lazy(Y)), p.log_prob(Y))
    with pytest.raises(DataError, match="rows of"):
        posterior.predict(Lazy(X[:, :2]))


def test_what_needs_all_rows_says_how_much_that_would_be(monkeypatch):
    chains = po.HMC(num_chains=1, num_draws=2, num_warmup=2, num_leapfrog=2, start="prior")
    assert po.fit(MODEL, (Lazy(X), Y), chains, progress=False).facts["num_data"] == 300  # few enough: they are read
    monkeypatch.setattr("posteria.data.sources.available_memory", lambda: 1000.0)
    for method in (chains, po.MAP(), po.SGHMC(variance_reduction="svrg"), po.Laplace()):
        with pytest.raises(TooLargeError, match=r"all 300 rows.*4.8 KB.*batch_size"):
            po.fit(MODEL, (Lazy(X), Y), method, progress=False)


def test_a_resumed_fit_sees_the_same_rows(tmp_path):
    source = (Lazy(X), Lazy(Y))
    method = po.SGHMC(num_chains=2, num_draws=6, num_warmup=20, thinning=5, batch_size=BATCH, start="prior")
    whole = po.fit(MODEL, source, method, progress=False, out=tmp_path / "whole")
    seen = []

    def interrupted(entry):
        seen.append(entry)
        if entry["stage"] == "draws" and entry["draw"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        po.fit(MODEL, source, method, progress=False, out=tmp_path / "cut", on_log=interrupted)
    resumed = po.resume(tmp_path / "cut", source, progress=False)
    for a, b in zip(jax.tree.leaves(whole.sample(0, 12)), jax.tree.leaves(resumed.sample(0, 12))):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(po.errors.StoreError, match="data"):
        po.resume(tmp_path / "whole", (Lazy(X + 1), Lazy(Y)), progress=False)


def test_pages_of_a_map_are_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAPPED_BYTES", 1000)
    reader = sources.reader(np.load(saved(tmp_path)[0], mmap_mode="r"))
    for _ in range(3):  # what was read stays right
        np.testing.assert_array_equal(reader(np.array([4, 1, 200])), X[[4, 1, 200]])


def test_rows_of_a_map_stand_where_jax_takes_them_as_they_are(tmp_path):
    reader = sources.reader(np.load(saved(tmp_path)[0], mmap_mode="r"))
    for numbers in (np.array([4, 1, 200]), np.arange(3, 9)):
        rows = reader(numbers)
        assert rows.ctypes.data % sources.ALIGNMENT == 0 and rows.flags.c_contiguous
    assert reader(np.array([], int)).shape == (0, X.shape[1])
    for wrong in (np.array([0, 300]), np.array([5, -1])):
        with pytest.raises(IndexError, match="of 300"):
            reader(wrong)


def test_rows_of_a_map_in_another_order_are_read_alone(tmp_path):
    """`np.take` of what is not contiguous would copy the whole file for every block."""
    import tracemalloc

    values = np.asfortranarray(RNG.normal(size=(20_000, 8)))
    np.save(tmp_path / "x.npy", values)
    reader = sources._MappedReader(np.load(tmp_path / "x.npy", mmap_mode="r"))
    numbers = RNG.integers(0, 20_000, 64)
    tracemalloc.start()
    rows = reader(numbers)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(rows, values[numbers])
    assert peak < values.nbytes / 10
