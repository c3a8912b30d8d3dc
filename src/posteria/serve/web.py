"""The application: who may ask, how much, and how long it may take; what is asked is answered in one thread."""

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.requests import ClientDisconnect

from posteria import __version__
from posteria.errors import PosteriaError
from posteria.serve import openapi
from posteria.serve.answering import Answering
from posteria.serve.bodies import ARROW, CSV, JSON, TooManyRows, Unreadable
from posteria.serve.live_page import PAGE
from posteria.serve.openapi import REFUSALS
from posteria.serve.served import Served
from posteria.serve.watching import Watch
from posteria.tree import Json

OPEN = ("/", "/health", "/ready")  # they say nothing of the model
READERS = 4  # times as many requests may be sending their bodies as may be waiting for answers


@dataclass(frozen=True)
class Limits:
    most_bytes: int = 8 * 2**20  # of a body
    most_rows: int = 1024
    seconds: float = 30.0  # to send a body, and again to be answered
    most_waiting: int = 64  # requests


class Refused(Exception):
    def __init__(self, status: int, got: str, wanted: str = "", fix: str = "") -> None:
        self.status, self.told = status, {"error": got, "wanted": wanted, "fix": fix}


class Gate:
    """Around the application: 401 without the token, whatever is asked for; and every answer is counted."""

    def __init__(self, app: Any, token: str | None, watch: Watch, paths: set[str]) -> None:
        self.app, self.token, self.watch, self.paths = app, token, watch, paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, statuses = time.perf_counter(), [499]  # if nothing is sent: the client went away

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses[0] = message["status"]
            await send(message)

        self.watch.begun += 1
        self.watch.in_flight += 1
        try:
            if scope["path"] not in OPEN and not self._is_known(scope):
                told = {"error": "no token, or another", "wanted": "Authorization: Bearer TOKEN", "fix": ""}
                headers = {"WWW-Authenticate": "Bearer"}
                await JSONResponse(told, 401, headers)(scope, receive, counted)
            else:
                await self.app(scope, receive, counted)
        finally:
            self.watch.in_flight -= 1
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.watch.saw_request(path, statuses[0], time.perf_counter() - began)

    def _is_known(self, scope: Any) -> bool:
        if self.token is None:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, b"Bearer " + self.token.encode())


def build(
    served: Served,
    token: str | None,
    limits: Limits | None = None,
    level: float = 0.9,
    say: Callable[[str], None] = lambda line: None,
) -> FastAPI:
    """The application; `token` None lets everybody in. `level` is that of the intervals whose coverage is watched."""
    limits = limits or Limits()
    watch = Watch(level)
    answering = Answering(served, watch, limits.most_rows)
    worker = ThreadPoolExecutor(1, "posteria-predict")
    reading, waiting = [0], [0]

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        shapes = await asyncio.get_running_loop().run_in_executor(worker, served.warm, limits.most_rows)
        say(f"ready: {shapes} sizes of requests compiled, up to {limits.most_rows:,} rows")
        yield
        worker.shutdown(wait=True)
        say(f"ended: {watch.begun} requests begun, {watch.answered} answered")

    app = FastAPI(title="posteria serve", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.watch = watch

    async def body_of(request: Request) -> bytes:
        too_large = Refused(413, "a body that is too large", f"at most {limits.most_bytes:,} bytes", "send it in parts")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limits.most_bytes:
            raise too_large
        if reading[0] >= READERS * limits.most_waiting:
            raise Refused(429, "too many requests at once", "", "try again in a second")
        reading[0] += 1
        content = bytearray()
        try:
            async with asyncio.timeout(limits.seconds):
                async for part in request.stream():
                    content += part
                    if len(content) > limits.most_bytes:
                        raise too_large
        except TimeoutError:
            raise Refused(408, "the body did not come", f"all of it in {limits.seconds:g} s", "") from None
        except ClientDisconnect:
            raise Refused(400, "the body ended early") from None
        finally:
            reading[0] -= 1
        return bytes(content)

    async def answered(request: Request, work: Callable[..., bytes]) -> Response:
        kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        content = await body_of(request)
        if waiting[0] >= limits.most_waiting:
            raise Refused(429, "too many requests at once", f"at most {limits.most_waiting}", "try again in a second")
        waiting[0] += 1
        loop = asyncio.get_running_loop()
        future = worker.submit(work, content, kind, dict(request.query_params))
        # what waits is counted until it is done or will never begin, not until its client gives up
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(leave))
        try:
            async with asyncio.timeout(limits.seconds):
                return Response(await asyncio.wrap_future(future), media_type=JSON)
        except TimeoutError:
            raise Refused(408, "the answer took too long", f"{limits.seconds:g} s", "send fewer rows") from None
        except TooManyRows as error:
            raise Refused(413, error.got, error.wanted, error.fix) from None
        except Unreadable:
            kinds = f"{JSON}, {CSV}, or {ARROW} where pyarrow is installed"
            raise Refused(415, f"a body of type {kind[:80]!r}", kinds, "set Content-Type") from None
        except PosteriaError as error:
            raise Refused(422, error.got, error.wanted, error.fix) from None

    def leave() -> None:
        waiting[0] -= 1

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Any) -> Response:
        headers = {"Retry-After": "1"} if error.status == 429 else None
        return JSONResponse(error.told, error.status, headers)

    example = {"rows": [served.example()], "intervals": [0.9]}
    truth = served.preparation.class_names[0] if served.is_classes else _one_target(served)

    @app.post("/predict", responses=REFUSALS, openapi_extra=openapi.predict_body(served, example, limits.most_rows))
    async def predict(request: Request) -> Response:
        """Mean, std, intervals and quantiles, or probabilities of classes; draws on request."""
        return await answered(request, answering.predict)

    outcome = {"rows": example["rows"], "outcomes": [truth]}

    @app.post("/outcomes", responses=REFUSALS, openapi_extra=openapi.outcomes_body(served, outcome, limits.most_rows))
    async def outcomes(request: Request) -> Response:
        """What came of rows: coverage so far, and whether it is less than promised."""
        return await answered(request, answering.outcomes)

    def get(path: str, told: Callable[[], Any], kind: type[Response] = JSONResponse) -> None:
        async def endpoint() -> Response:
            return kind(told())

        named: Callable[[], Awaitable[Response]] = endpoint
        responses: dict[int | str, Any] = {} if path in OPEN else {401: REFUSALS[401]}
        app.get(path, response_class=kind, responses=responses, name=path.strip("/") or "page")(named)

    get("/", lambda: PAGE, HTMLResponse)
    get("/health", lambda: {"status": "alive"})
    get("/ready", lambda: {"status": "ready"})  # shapes are compiled before the port is open
    get("/schema", lambda: _schema(served, limits, level))
    get("/watch", watch.told)
    get("/metrics", watch.metrics, PlainTextResponse)
    paths = {str(getattr(route, "path", "")) for route in app.routes}
    app.add_middleware(Gate, token=token, watch=watch, paths=paths)
    return app


def _one_target(served: Served) -> Any:
    scale = served.preparation.y
    return 0.0 if scale is None else scale.invert(scale.mean * 0.0).tolist()


def _schema(served: Served, limits: Limits, level: float) -> Json:
    preparation = served.preparation
    return {
        "kind": preparation.kind,
        "target": preparation.target,
        "classes": list(preparation.class_names),
        "columns": served.columns(),
        "shape_of_a_row": None if preparation.encoder else list(served.raw_shape),
        "example": {"rows": [served.example()]},
        "has_draws": served.can_draw,
        "calibrated_by_groups_of": served.groups,
        "watched_level": level,
        "limits": {
            "bytes": limits.most_bytes,
            "rows": limits.most_rows,
            "seconds": limits.seconds,
            "waiting": limits.most_waiting,
        },
    }
