"""What objects show in a notebook: every word of them escaped, nothing that runs, colours that any page can carry."""

import re
import sys
import types
from html.parser import HTMLParser

import numpy as np
import pytest

import posteria as po
from posteria.cards import Card, Remark, Table
from posteria.engine.progress import NotebookBars, Progress, in_notebook
from posteria.posteriors import telling

EVIL = "<script>alert('x')</script>\"&'"


class Seen(HTMLParser):
    """Tags, their attributes, and the text between them."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.words, self.open = [], [], "", []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes += [(name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data + " "


def checked(source: str) -> Seen:
    """A card that is safe: known tags, all of them closed, styles alone, no colour but a translucent or a bar's own."""
    seen = Seen(source)
    assert not seen.open
    assert set(seen.tags) <= {"div", "table", "tr", "th", "td", "pre", "caption", "p"}
    assert {name for name, _ in seen.attributes} <= {"style", "title"}
    for style in (value for name, value in seen.attributes if name == "style"):
        assert "url" not in style and "expression" not in style
        for name, value in re.findall(r"(?:^|;)(color|background):([^;]+)", style):
            assert value in ("inherit", "transparent"), (name, value)
    return seen


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2)).astype(np.float32)
    return x, (x[:, 0] + 0.1 * random.normal(size=60)).astype(np.float32)


@pytest.fixture(scope="module")
def chains(rows):
    method = po.MetropolisHastings(num_chains=2, num_draws=30, num_warmup=30)
    return po.fit(po.Model(po.nn.mlp((3,), outputs=1)), rows, method, key=0)


def test_every_word_of_a_card_is_escaped():
    card = Card(EVIL, [(EVIL, EVIL)], [Remark(EVIL, "bad")], Table((EVIL, EVIL), [(EVIL, EVIL)]))
    seen = checked(card.html())
    assert "script" not in seen.tags and seen.words.count(EVIL) == 8
    assert card.text().count(EVIL) == 8


def test_a_posterior_says_who_made_it_and_what_was_noted(chains):
    chains.facts["notes"] = [EVIL]
    seen = checked(chains._repr_html_())
    for word in ("metropolis-hastings", "mlp(hidden=[3]", "2 x 30", "60", "diagnose", EVIL[1:]):
        assert word in seen.words
        assert word in repr(chains)
    chains.facts["notes"] = []


def test_a_verdict_is_in_words_not_in_colour_alone(chains, rows):
    diagnosis = chains.diagnose(rows[0])
    assert not diagnosis.has_converged
    seen = checked(diagnosis._repr_html_())
    assert "NOT CONVERGED" in seen.words and "R-hat" in seen.words and "ESS tail" in seen.words


def test_a_prediction_shows_its_first_rows_and_computes_none_of_many(chains, rows, monkeypatch):
    predictive = chains.predict(rows[0])
    seen = checked(predictive._repr_html_())
    assert f"{predictive.mean[4, 0]:.4g}" in seen.words and "55 more" in seen.words
    shown = telling.prediction_card(predictive).table
    assert shown.head == ("row", "mean", "std", "of it not noise") and {len(row) for row in shown.rows} == {4}
    monkeypatch.setattr(telling, "MOST_COMPUTED", 10)
    many = chains.predict(rows[0])
    many.forward = None  # computing would fail
    assert "60 rows" in checked(many._repr_html_()).words and "interval(0.9)" in repr(many)


def test_classes_show_probabilities():
    x = np.random.default_rng(1).normal(size=(40, 2)).astype(np.float32)
    model = po.Model(po.nn.mlp((3,), outputs=3), po.likelihoods.Categorical())
    predictive = po.fit(model, (x, np.arange(40) % 3), po.MAP(num_epochs=5), key=0).predict(x[:3])
    seen = checked(predictive._repr_html_())
    assert f"{predictive.probs[1].max():.3f}" in seen.words and "p(2)" in seen.words and "3 rows" in seen.words


def test_models_plans_and_comparisons_show_themselves(chains, rows):
    words = checked(chains.model._repr_html_()).words
    assert "Gaussian(noise=infer" in words and "scales learnt" not in words
    planned = po.plan(chains.model, rows, po.MAP(num_epochs=5), rehearse=False)
    assert "60 rows" in checked(planned._repr_html_()).words
    comparison = po.grade({EVIL: chains}, data=rows)
    assert EVIL in checked(comparison._repr_html_()).words
    frame = __import__("pandas").DataFrame({EVIL: rows[0][:, 0], "y": rows[1]})
    from posteria.data.table_plan import plan_table

    assert EVIL in checked(plan_table(frame, "y")._repr_html_()).words


class FakeIPython(types.ModuleType):
    """As much of IPython as a kernel shows of itself."""

    def __init__(self):
        super().__init__("IPython")
        self.shown, self.updates = [], []
        self.display = types.ModuleType("IPython.display")
        self.display.display = self._display
        self.shell = types.SimpleNamespace(kernel=object())

    def get_ipython(self):
        return self.shell

    def _display(self, data, raw=False, display_id=None):
        assert raw and display_id is True
        self.shown.append(data)
        return types.SimpleNamespace(update=lambda data, raw: self.updates.append(data))


def test_in_a_notebook_progress_is_one_output_that_changes(monkeypatch):
    fake = FakeIPython()
    assert not in_notebook() or "IPython" in sys.modules
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setitem(sys.modules, "IPython.display", fake.display)
    monkeypatch.setattr("posteria.engine.progress.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("posteria.engine.progress.NOTEBOOK_SECONDS", 0.0)
    assert in_notebook()
    progress = Progress(True)
    for stage, done in (("warm-up", 5), ("warm-up", 10), ("draws", 3), ("draws", 20)):
        progress.update(stage, done, 20, "accepted <80 %")
    progress.close()
    assert len(fake.shown) == 1 and len(fake.updates) == 4  # three updates and the end
    seen = checked(fake.updates[-1]["text/html"])
    assert "10 of 20" in seen.words and "20 of 20" in seen.words and "accepted <80 %" in seen.words
    fake.shell = object()  # IPython at a terminal
    assert not in_notebook()


def test_the_time_left_is_that_of_the_steps_seen(monkeypatch):
    bars = NotebookBars()
    clock = iter([100.0, 110.0])
    monkeypatch.setattr("posteria.engine.progress.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(bars, "show", lambda: None)
    bars.update("draws", 10, 50, "")
    bars.update("draws", 20, 50, "")
    assert "30 s left" in bars._bars["draws"].words(110.0)  # 1 a second, 30 to come


@pytest.mark.slow
def test_a_real_kernel_shows_one_bar_and_cards(tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    code = """
import numpy as np, posteria as po
x = np.random.default_rng(0).normal(size=(50, 2)); y = x[:, 0]
method = po.HMC(num_chains=2, num_draws=400, num_warmup=200)
posterior = po.fit(po.Model(po.nn.mlp((20,), outputs=1)), (x, y), method, key=0, progress=True)
"""
    cells = [nbformat.v4.new_code_cell(source) for source in (code, "posterior", "posterior.predict(x)")]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    bars = [out for out in book.cells[0].outputs if out.output_type == "display_data"]
    assert len(bars) == 1 and "of" in bars[0].data["text/plain"] and not bars[0].data["text/plain"].count("\n") > 5
    assert not [out for out in book.cells[0].outputs if out.output_type == "stream" and "of 4" in out.text]
    for cell, word in zip(book.cells[1:], ("hmc(", "mean")):
        checked(cell.outputs[0].data["text/html"])
        assert word in cell.outputs[0].data["text/plain"]
