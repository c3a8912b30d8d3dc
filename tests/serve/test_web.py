"""Requests to the application, in this process: what is answered, what is refused and how, what is watched."""

import asyncio
import json
import threading

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from posteria.cli.fitted import load_posterior  # noqa: E402
from posteria.serve import web  # noqa: E402
from posteria.serve.answering import Answering  # noqa: E402
from posteria.serve.served import Served, ServedExport  # noqa: E402
from posteria.serve.watching import Watch  # noqa: E402
from serve.tables import TOKEN, houses, rows_of, save_classes, save_fit  # noqa: E402

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve") / "fit"
    return save_fit(folder), folder


@pytest.fixture(scope="module")
def served(fit):
    return Served(*load_posterior(fit[1], None, None))


@pytest.fixture(scope="module")
def app(served):
    return web.build(served, TOKEN, web.Limits(most_rows=64, most_bytes=20_000, seconds=20))


def ask(app, path, body=None, headers=BEARER, method=None, **settings):
    async def one():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            if isinstance(body, dict):
                settings["json"] = body
            elif body is not None:
                settings["content"] = body
            return await client.request(
                method or ("POST" if body is not None else "GET"), path, headers=headers, **settings
            )

    return asyncio.run(one())


def test_predictions_equal_those_of_the_estimator(app, fit):
    estimator, rows = fit[0], rows_of(5)
    frame = pd.DataFrame(rows)
    answer = ask(app, "/predict", {"rows": rows, "intervals": [0.9, 0.5], "quantiles": [0.1], "draws": 3})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    mean, std = estimator.predict(frame, return_std=True)
    np.testing.assert_allclose(told["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(told["std"], std, rtol=1e-6)
    for interval in told["intervals"]:
        lower, upper = estimator.interval(frame, interval["level"])
        np.testing.assert_allclose(interval["lower"], lower, rtol=1e-5)  # the search for a quantile stops at 1e-5 std
        np.testing.assert_allclose(interval["upper"], upper, rtol=1e-5)
    np.testing.assert_allclose(told["quantiles"][0]["values"], estimator.quantile(frame, 0.1), rtol=1e-5)
    assert np.shape(told["draws"]) == (3, 5)
    one = ask(app, "/predict", {"rows": rows}).json()["intervals"][0]
    np.testing.assert_allclose(one["lower"], estimator.interval(frame)[0], rtol=1e-6)


def test_csv_says_the_same_as_json(app):
    rows = rows_of(7)
    text = pd.DataFrame(rows).to_csv(index=False).encode()
    by_csv = ask(app, "/predict?intervals=0.5", text, BEARER | {"Content-Type": "text/csv"})
    assert by_csv.status_code == 200, by_csv.text
    assert by_csv.json() == ask(app, "/predict", {"rows": rows, "intervals": [0.5]}).json()


def test_arrow_says_the_same_as_json(app):
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = pa.Table.from_pandas(pd.DataFrame(rows_of(7)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content, kind = sink.getvalue().to_pybytes(), {"Content-Type": "application/vnd.apache.arrow.stream"}
    assert ask(app, "/predict", content, BEARER | kind).json() == ask(app, "/predict", {"rows": rows_of(7)}).json()
    assert ask(app, "/predict", content[:100], BEARER | kind).status_code == 422


def test_without_the_token_nothing_but_401(app):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": b"Bearer \xff"}):
        for path in ("/schema", "/watch", "/metrics", "/openapi.json", "/nothing", "/docs"):
            assert ask(app, path, headers=headers).status_code == 401
        for path in ("/predict", "/outcomes"):
            assert ask(app, path, {"rows": rows_of(1)}, headers=headers).status_code == 401
    for path in ("/", "/health", "/ready"):
        assert ask(app, path, headers={}).status_code == 200  # they say nothing of the model


ODD_BODIES = [
    (b"{", 422),
    (b"[]", 422),
    (b"null", 422),
    (b"{}", 422),
    (b"\xff\xfe", 422),
    (b"[" * 15_000, 422),
    (b'{"rows": []}', 422),
    (b'{"rows": [1]}', 422),
    (b'{"rows": [{"size": NaN, "colour": "red"}]}', 422),
    (b'{"rows": [{"size": [1], "colour": "red"}]}', 422),
    (b'{"rows": [{"size": 1}]}', 422),
    (b'{"rows": [{"size": 1e999, "colour": "red"}]}', 422),
    (b'{"rows": [{"size": 1' + b"0" * 400 + b', "colour": "red"}]}', 422),
    (b'{"rows": [{"size": 1, "colour": "red"}], "intervals": [1.5]}', 422),
    (b'{"rows": [{"size": 1, "colour": "red"}], "intervals": 0.5}', 422),
    (b'{"rows": [{"size": 1, "colour": "red"}], "draws": true}', 422),
    (b'{"rows": [{"size": 1, "colour": "red"}], "draws": 1000000}', 422),
    (b'{"rows": [{"size": 1, "colour": "red"}], "seed": -1}', 422),
    (b'{"rows": [{"size": 1, "colour": "red"}], "model": "x"}', 422),
    (b'{"rows": [{"size": 1, "colour": "\\ud800"}]}', 422),
    (b'{"rows": [{"size": null, "colour": null}]}', 200),
    (b'{"rows": [{"size": 1, "colour": 3}]}', 200),
    (b" " * 30_000, 413),
    (json.dumps({"rows": [{"size": 1, "colour": "red"}] * 65}).encode(), 413),
]


@pytest.mark.parametrize("body, status", ODD_BODIES, ids=[str(body[:60]) for body, _ in ODD_BODIES])
def test_odd_bodies_are_refused_in_words(app, body, status):
    answer = ask(app, "/predict", body)
    assert answer.status_code == status, answer.text
    assert status == 200 or answer.json()["error"]


def test_other_types_and_packed_bodies_are_refused(app):
    assert ask(app, "/predict", b"x", BEARER | {"Content-Type": "image/png"}).status_code == 415
    assert ask(app, "/predict", b"\x1f\x8b" + b"0" * 99, BEARER | {"Content-Type": "text/csv"}).status_code == 422
    assert ask(app, "/predict", b"a,b\n1,2,3\n", BEARER | {"Content-Type": "text/csv"}).status_code == 422
    assert ask(app, "/predict", method="GET").status_code == 405


def test_a_body_that_does_not_come_is_given_up_while_others_are_served(served):
    app = web.build(served, TOKEN, web.Limits(seconds=0.5))

    async def slowly():
        yield b"{"
        await asyncio.sleep(5)

    async def both():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://here", headers=BEARER
        ) as client:
            slow = asyncio.create_task(client.post("/predict", content=slowly()))
            await asyncio.sleep(0.05)
            health = await client.get("/health")
            return (await slow).status_code, health.status_code

    assert asyncio.run(both()) == (408, 200)


class Stuck(Served):
    """Answers when it is let go."""

    def __init__(self, served):
        self.__dict__ |= served.__dict__
        self.go = threading.Event()

    def answer(self, *args):
        self.go.wait(10)
        return super().answer(*args)


def test_too_many_at_once_are_refused_and_the_others_answered(served):
    stuck = Stuck(served)
    app = web.build(stuck, None, web.Limits(most_waiting=3))

    async def many():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            tasks = [asyncio.create_task(client.post("/predict", json={"rows": rows_of(1)})) for _ in range(8)]
            while sum(task.done() for task in tasks) < 5:
                await asyncio.sleep(0.01)
            stuck.go.set()
            return sorted(answer.status_code for answer in await asyncio.gather(*tasks))

    assert asyncio.run(asyncio.wait_for(many(), 20)) == [200] * 3 + [429] * 5


def test_an_answer_that_takes_too_long_is_408(served):
    stuck = Stuck(served)
    app = web.build(stuck, None, web.Limits(seconds=0.3))
    assert ask(app, "/predict", {"rows": rows_of(1)}, {}).status_code == 408
    stuck.go.set()
    assert ask(app, "/predict", {"rows": rows_of(1)}, {}).status_code == 200


def test_nothing_is_compiled_after_the_start(served):
    """In this thread: JAX counts what a thread compiles, and requests are answered in another."""
    import jax
    import jax._src.test_util as counting

    served.warm(16)
    answering = Answering(served, Watch(0.9), most_rows=16)
    with counting.count_jit_and_pmap_lowerings() as count:
        for num_rows in range(1, 17):
            for levels in ([0.9], [0.8], [0.5, 0.9], [0.5, 0.6, 0.7, 0.8, 0.9]):
                body = {"rows": rows_of(num_rows), "intervals": levels, "quantiles": [0.3][: num_rows % 2]}
                answering.predict(json.dumps(body).encode(), "application/json", {})
        assert count() == 0
        jax.jit(lambda x: x + 1)(np.ones(3))
        assert count() == 1  # which shows that it counts here


def test_it_watches_itself(served):
    app = web.build(served, None)
    odd = [{"size": 1e3, "colour": "pink"}, {"size": 0.0, "colour": "red"}]
    answer = ask(app, "/predict", {"rows": odd}, {}).json()
    assert answer["features_outside"] == [2, 0] and "pink" in answer["notes"][0]
    for _ in range(3):
        ask(app, "/predict", {"rows": rows_of(900)}, {})
    told = ask(app, "/watch", headers={}).json()
    assert (told["rows"], told["rows_outside_training_range"]) == (2702, told["rows_outside_training_range"])
    assert told["requests_with_unseen_values"] == {"colour": 1}
    assert told["uncertainty"]["reference_rows"] == told["uncertainty"]["recent_rows"] == 1000
    assert 0.8 < told["uncertainty"]["median_ratio"] < 1.25
    text = ask(app, "/metrics", headers={}).text
    assert 'posteria_requests_total{path="/predict",status="200"} 4.0' in text
    assert 'posteria_unseen_total{column="colour"} 1.0' in text and 'le="+Inf"' in text
    parser = pytest.importorskip("prometheus_client.parser")
    assert len(list(parser.text_string_to_metric_families(text))) >= 12


def test_outcomes_raise_the_alarm_where_intervals_do_not_hold(served):
    rows, holding, failing = houses(300, seed=3), web.build(served, None), web.build(served, None)
    body = {"rows": rows[["size", "colour"]].to_dict("records")}
    predicted = ask(holding, "/predict", body, {}).json()
    told = ask(holding, "/outcomes", body | {"outcomes": predicted["mean"]}, {}).json()
    assert (told["so_far"], told["alarm"], told["outcomes"]) == (1.0, False, 300)
    told = ask(failing, "/outcomes", body | {"outcomes": [0.0] * 300}, {}).json()
    assert (told["so_far"], told["alarm"]) == (0.0, True) and told["alarm_at"] < 20
    assert "posteria_coverage_alarm 1.0" in ask(failing, "/metrics", headers={}).text
    for wrong in ([1.0], ["x"] * 300, [None] * 300, "x", None):
        assert ask(failing, "/outcomes", body | {"outcomes": wrong}, {}).status_code == 422


def test_the_schema_and_the_examples_are_of_the_data(app):
    schema = ask(app, "/schema").json()
    size, colour = schema["columns"]
    assert (size["name"], size["type"], colour["levels"]) == ("size", "number", ["blue", "green", "red"])
    assert size["range"][0] < size["example"] < size["range"][1]
    assert ask(app, "/predict", schema["example"]).status_code == 200
    api = ask(app, "/openapi.json").json()
    for path in ("/predict", "/outcomes"):
        post = api["paths"][path]["post"]
        assert {"401", "408", "413", "415", "422", "429"} <= set(post["responses"])
        example = post["requestBody"]["content"]["application/json"]["example"]
        assert ask(app, path, example).status_code == 200


def test_an_export_says_what_its_fit_says_and_runs_nothing_of_the_folder(fit, app, tmp_path):
    fit[0].export(tmp_path / "export")
    (tmp_path / "export" / "predict.py").write_text("raise SystemExit('was run')")
    exported = web.build(ServedExport(tmp_path / "export"), None)
    body = {"rows": rows_of(5), "intervals": [0.9, 0.5], "quantiles": [0.1, 0.5]}
    one, other = ask(exported, "/predict", body, {}).json(), ask(app, "/predict", body).json()
    np.testing.assert_allclose(one["mean"], other["mean"], rtol=1e-5)
    np.testing.assert_allclose(one["intervals"][1]["lower"], other["intervals"][1]["lower"], rtol=1e-4)
    for mine, theirs in zip(one["quantiles"], other["quantiles"]):
        np.testing.assert_allclose(mine["values"], theirs["values"], rtol=1e-4)
    assert ask(exported, "/predict", body | {"draws": 2}, {}).status_code == 422
    function = tmp_path / "export" / "function.bin"
    function.write_bytes(function.read_bytes()[:-1] + b"x")
    with pytest.raises(OSError, match="damaged"):
        ServedExport(tmp_path / "export")


def test_classes_have_probabilities_and_the_most_probable_is_watched(tmp_path):
    estimator = save_classes(tmp_path / "fit")
    app = web.build(Served(*load_posterior(tmp_path / "fit", None, None)), None)
    body = {"rows": rows_of(9)}
    told = ask(app, "/predict", body | {"draws": 4}, {}).json()
    np.testing.assert_allclose(told["probabilities"], estimator.predict_proba(pd.DataFrame(rows_of(9))), rtol=1e-5)
    assert set(map(len, told["draws"])) == {9} and set(told["predicted"]) <= {"cheap", "dear"}
    coverage = ask(app, "/outcomes", body | {"outcomes": told["predicted"]}, {}).json()
    assert coverage["so_far"] == 1.0 and not coverage["alarm"]
    assert ask(app, "/outcomes", body | {"outcomes": ["else"] * 9}, {}).status_code == 422


def test_a_calibrated_fit_promises_no_more_than_its_rows_can(tmp_path):
    estimator = save_fit(tmp_path / "fit", calibrated=True)
    app = web.build(Served(*load_posterior(tmp_path / "fit", None, None)), None)
    told = ask(app, "/predict", {"rows": rows_of(3)}, {}).json()["intervals"][0]
    np.testing.assert_allclose(told["lower"], estimator.interval(pd.DataFrame(rows_of(3)))[0], rtol=1e-6)
    assert ask(app, "/predict", {"rows": rows_of(3), "intervals": [0.999]}, {}).status_code == 422


def test_what_the_schema_allows_is_answered(app):
    """The example, and rows at every bound that /openapi.json states: nothing that it allows is refused."""
    said = ask(app, "/openapi.json").json()["paths"]
    for path in ("/predict", "/outcomes"):
        body = said[path]["post"]["requestBody"]["content"]["application/json"]
        assert ask(app, path, body["example"]).status_code == 200
    schema = said["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    of = schema["properties"]
    size, colour = (of["rows"]["items"]["properties"][name] for name in ("size", "colour"))
    assert of["rows"]["maxItems"] == 64 and "red" in colour["examples"] and "null" in size["type"]
    shares = of["intervals"]["items"]
    for number in (size["minimum"], size["maximum"], None):
        asked = {"rows": [{"size": number, "colour": "x" * colour["maxLength"]}], "quantiles": [shares["maximum"]]}
        asked |= {"intervals": [shares["minimum"]], "draws": of["draws"]["maximum"], "seed": of["seed"]["maximum"]}
        answer = ask(app, "/predict", asked)
        assert answer.status_code == 200, answer.text


def test_the_schema_of_classes_names_them(tmp_path):
    save_classes(tmp_path / "fit")
    app = web.build(Served(*load_posterior(tmp_path / "fit", None, None)), TOKEN, web.Limits(most_rows=4))
    body = ask(app, "/openapi.json").json()["paths"]["/outcomes"]["post"]["requestBody"]["content"]["application/json"]
    (outcome,) = {str(part["properties"]["outcomes"]["items"]) for part in body["schema"]["anyOf"]}
    assert outcome == str({"enum": ["cheap", "dear"]})
    assert ask(app, "/outcomes", body["example"]).status_code == 200
