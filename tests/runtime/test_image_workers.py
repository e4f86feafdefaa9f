"""Images decoded beside the engine: nobody waits for an image but its request, and a worker may do what it likes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepinfer.hal.errors import ImageError, InvalidArgumentError
from deepinfer.model.config import load_config
from deepinfer.model.hub import resolve_model
from deepinfer.model.vision.decode import ImageLimits, decode_image, fit_image, image_size
from deepinfer.model.vision.resize import plan_resize
from deepinfer.runtime.async_llm import AsyncLLM, GenerationError
from deepinfer.runtime.image_workers import (
    EncodedImage,
    ImageJob,
    ImageWorkerError,
    ImageWorkers,
    QueueFullError,
    WorkerSettings,
    _receive,
)
from deepinfer.runtime.llm import LLM
from deepinfer.runtime.outputs import RequestFailedError
from deepinfer.runtime.params import SamplingParams
from engines import FREE, alone, bits, build_engine, drain
from fake_images import PLACEHOLDER, FakeReader, FakeWorkers

Image = pytest.importorskip("PIL.Image", reason="needs the images extra")


def picture(seed: int = 0, width: int = 100, height: int = 80) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def encoded(data: bytes, name: str = "image") -> EncodedImage:
    vision = load_config(resolve_model("tiny")).vision
    return EncodedImage(name, data, plan_resize(*image_size(data), vision))


@pytest.fixture
def workers() -> Iterator[ImageWorkers]:
    made = ImageWorkers(ImageLimits(), WorkerSettings(seconds=10.0))
    yield made
    made.close()
    assert not made.pids


def ended(workers: ImageWorkers, job: ImageJob) -> ImageJob:
    deadline = time.monotonic() + 60
    while True:
        if job in workers.take():
            return job
        assert time.monotonic() < deadline
        workers.wait(1.0)


def test_a_worker_makes_what_is_made_without(workers: ImageWorkers) -> None:
    one = encoded(picture())
    job = ended(workers, workers.submit([one, one]))
    want = fit_image(decode_image(one.data), one.plan)
    assert job.images is not None and len(job.images) == 2
    for found in job.images:
        assert np.array_equal(found.pixels, want.pixels) and found.digest == want.digest
    assert (workers.done, workers.failed) == (1, 0)


def test_a_broken_file_fails_by_name_and_its_worker_goes_on(workers: ImageWorkers) -> None:
    good = encoded(picture())
    broken = EncodedImage("multi_modal_data['image_bytes'][1]", good.data[:-40], good.plan)
    job = ended(workers, workers.submit([good, broken]))
    assert isinstance(job.error, ImageError) and "['image_bytes'][1]" in str(job.error) and job.images is None
    (pid,) = workers.pids
    assert ended(workers, workers.submit([good])).images and workers.pids == [pid]


def test_a_worker_that_dies_or_hangs_is_replaced(workers: ImageWorkers) -> None:
    good = encoded(picture())
    ended(workers, workers.submit([good]))
    (pid,) = workers.pids
    os.kill(pid, signal.SIGSTOP)  # it hangs
    workers.settings = WorkerSettings(seconds=0.3)
    job = ended(workers, workers.submit([good]))
    assert isinstance(job.error, ImageWorkerError) and "0.3 s" in str(job.error) and workers.late == 1
    workers.settings = WorkerSettings(seconds=10.0)
    assert ended(workers, workers.submit([good])).images
    (second,) = workers.pids
    assert second != pid
    os.kill(second, signal.SIGSTOP)
    job = workers.submit([good])
    time.sleep(0.2)
    os.kill(second, signal.SIGKILL)  # it dies with a job in its hands
    job = ended(workers, job)
    assert isinstance(job.error, ImageWorkerError) and "died" in str(job.error) and workers.deaths >= 1
    assert ended(workers, workers.submit([good])).images, "the next one has a worker again"


def test_a_worker_that_will_not_die_holds_nobody_up(workers: ImageWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    good = encoded(picture())
    ended(workers, workers.submit([good]))
    (process,) = workers._processes.values()
    wait = process.wait

    def slow(timeout: float | None = None) -> int:
        if timeout is None:
            return wait()
        raise subprocess.TimeoutExpired("worker", timeout)

    monkeypatch.setattr(process, "wait", slow)
    process.send_signal(signal.SIGSTOP)
    workers.settings = WorkerSettings(seconds=0.3)
    job = workers.submit([good])
    assert workers.wait(10.0) and workers.take() == [job] and isinstance(job.error, ImageWorkerError)
    workers.settings = WorkerSettings(seconds=10.0)
    job = workers.submit([good])
    assert workers.wait(20.0) and workers.take() == [job] and job.images, "its keeper goes on"


def test_the_time_limit_holds_while_a_worker_takes_nothing(workers: ImageWorkers) -> None:
    good = encoded(picture())
    ended(workers, workers.submit([good]))
    os.kill(workers.pids[0], signal.SIGSTOP)
    workers.settings = WorkerSettings(seconds=0.3)
    job = workers.submit([EncodedImage("image", bytes(8 << 20), good.plan)])  # more than a socket holds
    assert workers.wait(10.0) and workers.take() == [job]
    assert isinstance(job.error, ImageWorkerError) and "0.3 s" in str(job.error) and workers.late == 1


class Evil:
    """Unpickling one runs a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "answer",
    [
        ["images"],
        ["images", [0, 0, 9, 9], [0, 0, 9, 9]],
        ["images", [-1, 0, 9, 9]],
        ["images", [0, 0, 0, 9]],
        ["images", [0, 0, 1 << 40, 9]],
        ["images", [0, 0, True, 9]],
        ["images", [0, 0, 9.0, 9]],
        ["images", [0, 0, 9, 8]],
        ["error", "a", "b", 3],
        ["error", "a"],
        {"images": []},
        [],
        7,
        None,
    ],
)
def test_no_answer_of_a_worker_is_believed(answer: Any, tmp_path: Path) -> None:
    one = encoded(picture())
    ours, theirs = Pipe()
    with ours, theirs:
        if answer is None:
            theirs.send_bytes(pickle.dumps(Evil(tmp_path / "run")))
        else:
            theirs.send_bytes(json.dumps(answer).encode())
        theirs.send_bytes(bytes(3 * 9 * 9))
        theirs.close()
        with pytest.raises((ImageWorkerError, EOFError, OSError)):
            _receive(ours, [one])
    assert not list(tmp_path.iterdir())


def test_a_full_queue_refuses_and_closing_ends_everything() -> None:
    made = ImageWorkers(ImageLimits(), WorkerSettings(queued=1, seconds=20.0))
    good = encoded(picture())
    ended(made, made.submit([good]))
    os.kill(made.pids[0], signal.SIGSTOP)
    jobs = [made.submit([good])]
    time.sleep(0.2)
    jobs.append(made.submit([good]))
    with pytest.raises(QueueFullError, match="1 requests wait"):
        made.submit([good])
    began = time.monotonic()
    made.close()
    made.close()
    assert time.monotonic() - began < 10 and not made.pids
    assert all(job.error is not None for job in jobs)
    with pytest.raises(ImageWorkerError, match="closed"):
        made.submit([good])
    with pytest.raises(InvalidArgumentError, match="seconds"):
        WorkerSettings(seconds=0)


def test_a_cancelled_job_takes_no_place(workers: ImageWorkers) -> None:
    good = encoded(picture())
    ended(workers, workers.submit([good]))
    workers._jobs.maxsize = 2
    os.kill(workers.pids[0], signal.SIGSTOP)
    held = workers.submit([good])
    time.sleep(0.2)
    kept, dropped = workers.submit([good]), workers.submit([good])
    dropped.cancelled = True
    last = workers.submit([good])
    with pytest.raises(QueueFullError):
        workers.submit([good])
    os.kill(workers.pids[0], signal.SIGCONT)
    found: list[ImageJob] = []
    while len(found) < 4 and workers.wait(10.0):
        found += workers.take()
    assert found == [dropped, held, kept, last] and [job.images is not None for job in found] == [0, 1, 1, 1]


# ---- in the engine


def media(*files: bytes) -> dict[str, Any]:
    return {"image_bytes": list(files)}


PARAMS = SamplingParams(**FREE, max_tokens=4, n=2)


def test_nobody_waits_for_an_image_but_its_request() -> None:
    workers = FakeWorkers()
    engine = build_engine(images=FakeReader(workers))
    engine.add_request(None, "picture", PARAMS, [5, PLACEHOLDER, 7], media(b"cat"))
    engine.add_request(None, "text", SamplingParams(**FREE, max_tokens=3), [5, 6])
    seen = []
    for _ in range(8):
        seen += [output.request_id for output in engine.step()]
    assert seen == ["text"] * 3 and engine.has_unfinished_requests()
    workers.end(workers.jobs[0])
    found = drain(engine)
    for index in range(2):
        one = SamplingParams(**(FREE | {"seq_seed": 3 + index}), max_tokens=4)
        want = alone([5, PLACEHOLDER, PLACEHOLDER, PLACEHOLDER, 7], one)
        assert bits(found["picture", index]) == bits(want)


def test_a_refused_request_draws_no_seed() -> None:
    workers = FakeWorkers()
    engine = build_engine(images=FakeReader(workers), seed=5)
    params = SamplingParams(max_tokens=2)
    workers.full = True
    with pytest.raises(QueueFullError):
        engine.add_request(None, 0, params, [5, PLACEHOLDER, 7], media(b"cat"))
    assert not engine.has_unfinished_requests()
    workers.full = False
    assert engine.add_request(None, 1, params, [5]) == build_engine(seed=5).add_request(None, 1, params, [5])
    drain(engine)


def test_images_that_fail_end_their_request_alone() -> None:
    workers = FakeWorkers()
    engine = build_engine(images=FakeReader(workers))
    for key in range(2):
        engine.add_request(None, key, PARAMS, [5, PLACEHOLDER, 7], media(b"cat"))
    first, second = workers.jobs
    workers.end(first, ImageWorkerError("the worker died"))
    workers.end(second)
    found = drain(engine)
    for index in range(2):
        assert found[0, index][-1].finish_reason == "error"
        assert found[0, index][-1].error == "ImageWorkerError: the worker died"
        assert found[1, index][-1].finish_reason == "length" and len(found[1, index]) == 4


def test_a_request_can_be_aborted_before_its_images_come() -> None:
    workers = FakeWorkers()
    engine = build_engine(images=FakeReader(workers))
    engine.add_request(None, 0, PARAMS, [5, PLACEHOLDER, 7], media(b"cat"))
    (job,) = workers.jobs
    engine.abort_request(0)
    assert job.cancelled
    workers.end(job)
    found = drain(engine)
    assert {outputs[-1].finish_reason for outputs in found.values()} == {"abort"} and len(found) == 2
    engine.add_request(None, 0, PARAMS, [5, PLACEHOLDER, 7], media(b"cat"))
    with pytest.raises(InvalidArgumentError, match="images are decoded"):
        engine.fork_request(0, 1)
    engine.close()


def test_a_step_without_work_waits_a_little_for_images(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = FakeWorkers()
    waits: list[float] = []
    monkeypatch.setattr(workers, "wait", lambda seconds: waits.append(seconds))
    engine = build_engine(images=FakeReader(workers))
    engine.add_request(None, 0, PARAMS, [5, PLACEHOLDER, 7], media(b"cat"))
    for _ in range(3):
        assert engine.step() == []
    assert len(waits) == 3 and all(0 < seconds <= 0.1 for seconds in waits)
    engine.abort_request(0)
    engine.step()
    assert engine.step() == [] and len(waits) == 3, "nobody's images are on their way"
    engine.close()


def test_images_of_the_aborted_end_no_pause_of_others() -> None:
    workers = FakeWorkers()
    engine = build_engine(images=FakeReader(workers))
    engine.add_request(None, 0, PARAMS, [5, PLACEHOLDER, 7], media(b"cat"))
    engine.abort_request(0)
    workers.end(workers.jobs[0])
    engine.add_request(None, 1, SamplingParams(**FREE, max_tokens=1), [5])
    drain(engine)
    assert not workers.ready


def test_a_wait_for_images_can_be_ended() -> None:
    workers = ImageWorkers(ImageLimits())
    began = time.monotonic()
    workers.wake()
    assert workers.wait(10.0) and time.monotonic() - began < 5, "before it began"
    assert not workers.wait(0.01), "once"
    timer = threading.Timer(0.05, workers.wake)
    timer.start()
    assert workers.wait(10.0) and time.monotonic() - began < 5
    timer.join()
    workers.close()


# ---- from the calls


class Words:
    """A tokenizer of one token per character."""

    def encode(self, text: str, bos: bool = True) -> list[int]:
        return [5] * bos + [6] * len(text)


class Working(FakeWorkers):
    """Room for so many jobs, each of which ends while the engine waits; files called b"bad" fail."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.most = 0

    def check_room(self) -> None:
        self.full = len(self.jobs) >= self.room
        super().check_room()

    def take(self) -> list[ImageJob]:
        self.most = max(self.most, len(self.jobs))
        if self.jobs:
            bad = self.jobs[0].encoded[0].data == b"bad"
            self.end(self.jobs[0], ImageWorkerError("cannot be decoded") if bad else None)
        return super().take()


class Unread(FakeReader):
    """Decodes nothing in the process of the caller."""

    def read(self, data: Any, placeholders: int) -> Any:
        raise AssertionError("an image was decoded by the caller")

    def decode(self, images: Any) -> Any:
        raise AssertionError("an image was decoded by the caller")


def test_generate_leaves_images_to_the_workers_and_waits_for_room() -> None:
    workers = Working(2)
    engine = build_engine(images=Unread(workers), seed=5)
    llm = LLM.from_engine(engine, Words(), decode_sequence=False)
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    files = [b"cat", b"bad", b"dog", None, b"cow", b"ewe"]
    ids = [[5, PLACEHOLDER, 7] if one else [5, 7] for one in files]
    data = [media(one) if one else None for one in files]
    with pytest.raises(RequestFailedError) as caught:
        llm.generate(None, params, ids, use_tqdm=False, multi_modal_data=data)
    assert list(caught.value.failures) == [1] and "cannot be decoded" in caught.value.failures[1]
    assert workers.most == 2
    roomy = LLM.from_engine(build_engine(images=FakeReader(), seed=5), Words(), decode_sequence=False)
    want = roomy.generate(None, params, ids, use_tqdm=False, multi_modal_data=data)
    for place, outputs in enumerate(want):
        if place != 1:
            assert bits(caught.value.results[place]) == bits(outputs)


def test_generate_does_not_wait_for_room_that_nobody_makes() -> None:
    workers = FakeWorkers()
    workers.full = True
    llm = LLM.from_engine(build_engine(images=Unread(workers)), Words())
    with pytest.raises(QueueFullError):
        llm.generate(None, PARAMS, [[5, PLACEHOLDER, 7]], use_tqdm=False, multi_modal_data=[media(b"cat")])


def test_a_stream_leaves_images_to_the_workers() -> None:
    async def run() -> list[Any]:
        engine = build_engine(images=Unread(Working(4)))
        async with AsyncLLM.from_engine(engine, Words()) as llm:

            async def one(data: bytes) -> Any:
                params = SamplingParams(**FREE, max_tokens=4)
                ids = [5, PLACEHOLDER, 7]
                return [d async for d in llm.generate(None, params, prompt_token_ids=ids, multi_modal_data=media(data))]

            return await asyncio.gather(one(b"cat"), one(b"bad"), return_exceptions=True)

    good, bad = asyncio.run(run())
    assert sum(len(delta.token_ids) for delta in good) == 4
    assert isinstance(bad, GenerationError) and "cannot be decoded" in str(bad)


class Sleeping(FakeWorkers):
    """Whoever waits for images sleeps until somebody wakes it, for seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = threading.Event()
        self.slept: list[bool] = []

    def wait(self, seconds: float) -> bool:
        self.slept.append(self.woken.wait(5.0))
        self.woken.clear()
        return bool(self.ready)

    def wake(self) -> None:
        self.woken.set()


def test_a_request_does_not_wait_for_the_images_of_others() -> None:
    async def run() -> None:
        workers = Sleeping()
        llm = AsyncLLM.from_engine(build_engine(images=Unread(workers)), Words())
        params = SamplingParams(**FREE, max_tokens=2)

        async def one(key: str, *ids: int, **more: Any) -> list[Any]:
            return [d async for d in llm.generate(None, params, prompt_token_ids=ids, request_id=key, **more)]

        pictures = [
            asyncio.create_task(one(key, 5, PLACEHOLDER, 7, multi_modal_data=media(b"cat"))) for key in ("left", "cut")
        ]
        for task, end in ((None, None), (None, lambda: llm.abort("cut")), (pictures[0], pictures[0].cancel)):
            while len(workers.jobs) < 2 or not workers.woken.is_set() and not workers.slept:
                await asyncio.sleep(0.001)
            if end is not None:
                end()
            if task is None:
                assert len(await one("text", 5, 6)) > 0
        assert (await pictures[1])[-1].finish_reason == "abort"
        await asyncio.gather(pictures[0], return_exceptions=True)
        await llm.shutdown()
        assert all(workers.slept), "a step slept on while there was something to do"

    asyncio.run(run())


def test_streams_that_wait_have_their_turn_when_there_is_room_for_their_images() -> None:
    async def run(ending: str) -> None:
        workers = FakeWorkers()
        engine = build_engine(images=Unread(workers))
        llm = AsyncLLM.from_engine(engine, Words(), max_queued=100)
        params = SamplingParams(**FREE, max_tokens=4, n=2)
        order: list[int] = []

        async def one(key: int, **how: Any) -> list[Any]:
            ids, data = [5, PLACEHOLDER, 7], media(str(key).encode())
            stream = llm.generate(None, params, prompt_token_ids=ids, multi_modal_data=data, request_id=key, **how)
            return [delta async for delta in stream]

        async def until(done: Any) -> None:
            while not done():
                await asyncio.sleep(0.001)

        first = asyncio.create_task(one(0))
        await until(lambda: len(workers.jobs) == 1)
        workers.full = True
        with pytest.raises(QueueFullError):
            await one(99)
        later = []
        for key in range(1, 6):
            later.append(asyncio.create_task(one(key, wait=True)))
            await until(lambda key=key: len(llm._thread._later) == key)
        assert llm.abort(2)
        reasons = [delta.finish_reason for delta in await later[1]]
        assert reasons == ["abort"] * 2 and not workers.jobs[1:]
        later[3].cancel()
        await asyncio.gather(later[3], return_exceptions=True)
        await until(lambda: len(llm._thread._later) == 3)
        if ending == "aborted":
            await llm.shutdown(drain=False)
            found = await asyncio.gather(first, later[0], later[2], later[4])
            assert {delta.finish_reason for deltas in found for delta in deltas} == {"abort"}
            return
        ends = asyncio.create_task(llm.shutdown()) if ending == "drained" else None
        workers.full = False
        await until(lambda: len(workers.jobs) == 4)
        order += [int(job.encoded[0].data) for job in workers.jobs]
        for job in list(workers.jobs):
            workers.end(job)
        for deltas in await asyncio.gather(first, later[0], later[2], later[4]):
            assert sum(len(delta.token_ids) for delta in deltas) == 8
        assert order == [0, 1, 3, 5]
        await (ends or llm.shutdown())

    for ending in ("shut down", "drained", "aborted"):
        asyncio.run(asyncio.wait_for(run(ending), 20))


def test_images_of_an_engine_with_workers_are_decoded_by_one_without() -> None:
    ids, params = [5, PLACEHOLDER, 7], SamplingParams(**FREE, max_tokens=4)
    found = build_engine(images=FakeReader(FakeWorkers())).check_request(params, ids, media(b"cat"))[2]
    assert found.encoded
    engine = build_engine(images=FakeReader())
    engine.add_request(None, 0, params, ids, found)
    assert len(drain(engine)[0, 0]) == 4
