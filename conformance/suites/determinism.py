"""Suite `determinism`: the same call gives the same bits.

Repeated; into other memory, full of something else; after calls of other ops and sizes; with scratch memory full of
anything; on other numbers of threads or another queue of the device; captured and replayed, where the backend captures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...hal.catalog import CATALOG
from ...hal.device import Device
from ...hal.graph import Graphs
from ...ops.chosen import repeated
from ...ops.rows import named, restride, written
from ...ops.spec import OpSpec
from ..calls import Unsupported, call, difference, kernel_of, samples, to_target
from ..case import Case, Finding, Outcome, Target, Tier
from ..registry import suite

REPEATS: dict[Tier, int] = {"quick": 2, "full": 5, "deep": 30}
SCRATCH: dict[Tier, tuple[int, ...]] = {"quick": (0xFF,), "full": (0x00, 0xFF, 0x7F), "deep": (0x00, 0xFF, 0x7F)}
"""Bytes that scratch memory and outputs hold before a call."""
THREADS: dict[Tier, tuple[int, ...]] = {"quick": (2,), "full": (1, 2, 3), "deep": (1, 2, 3, 4, 7)}


@suite("determinism", about="the same call gives the same bits: repeated, elsewhere, after others, captured")
def cases(tier: Tier, ops: Sequence[OpSpec]) -> Iterator[Case]:
    """A case per op and sample that has an element; `quick` takes the two largest small ones and one at real widths."""
    for spec in ops:
        for sample in repeated(tier, samples(spec)):
            brief = tier == "quick" and sample.label.startswith("real")
            run = partial(judge_repeats, spec, sample.args, tier, brief)
            yield Case("determinism", spec.name, sample.label, run)


def judge_repeats(spec: OpSpec, sample: tuple[Any, ...], tier: Tier, brief: bool, target: Target) -> Outcome:
    """Hold the same call, made in other circumstances, against its first result; `brief` leaves out other memory."""
    try:
        args = to_target(spec, sample, target)
        world = _Repeats(spec, args, target)
    except Unsupported as error:
        return error.outcome()
    findings: list[Finding] = []
    for number in range(1, REPEATS[tier]):
        findings += world.hold("repeat", f"call {number + 1}")
    for fill in () if brief else SCRATCH[tier]:
        findings += world.hold("memory", f"outputs full of {fill:#x} before", out=world.buffers(fill))
        findings += world.hold("workspace", f"scratch full of {fill:#x}", workspace=world.scratch(fill))
    findings += () if brief else world.after_others()
    findings += world.threads(THREADS[tier])
    findings += world.queue()
    findings += world.captured()
    return Outcome(tuple(findings))


class _Repeats:
    """A call, and what its first run gave."""

    def __init__(self, spec: OpSpec, args: tuple[Any, ...], target: Target) -> None:
        self.spec, self.args, self.target = spec, args, target
        self.kernel = kernel_of(spec, args, target)
        self.want = self._run()
        masks = spec.defined(*args)
        self.defined = [None if m is None else m.expand(o.shape) for m, o in zip(masks, self.want, strict=False)]

    def _fresh(self) -> tuple[Any, ...]:
        """The arguments with new copies of those that the op writes."""
        mutable = set(written(self.spec))
        pairs = zip(self.spec.args, self.args, strict=True)
        return tuple(restride(v) if a.name in mutable and v is not None else v for a, v in pairs)

    def _run(self, out: Any = None, workspace: Any = None) -> tuple[Tensor, ...]:
        """Outputs, then the arguments written."""
        args = self._fresh()
        given = named(self.spec, args)
        outs = call(self.spec, args, self.target, out, workspace)
        return (*(o.clone() for o in outs), *(given[name] for name in written(self.spec) if given[name] is not None))

    def hold(self, check: str, about: str, out: Any = None, workspace: Any = None) -> Iterator[Finding]:
        """One more run against the first."""
        if check == "workspace" and workspace is None or check == "memory" and out is None:
            return
        yield from self._compare(check, about, self._run(out, workspace))

    def _compare(self, check: str, about: str, got: tuple[Tensor, ...]) -> Iterator[Finding]:
        names = [*(o.name for o in self.spec.outs), *written(self.spec)]
        masks = [*self.defined, *[None] * len(names)]
        for name, now, before, mask in zip(names, got, self.want, masks, strict=False):
            wrong = difference(self.spec, name, now, before, mask)
            if wrong:
                yield Finding(check, f"{about}: {wrong}")

    def buffers(self, fill: int) -> Any:
        """Outputs in memory of their own; None for an op without outputs."""
        made = []
        for want in self.want[: len(self.spec.outs)]:
            raw = torch.full((want.numel() * want.element_size(),), fill, dtype=torch.uint8, device=want.device)
            made.append(raw.view(want.dtype).view(want.shape))
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    def scratch(self, fill: int) -> Tensor | None:
        """Scratch memory of the size that the kernel asks for; None where it asks for none."""
        if self.kernel.workspace is None:
            return None
        size = self.kernel.workspace(*self.args)
        return torch.full((size,), fill, dtype=torch.uint8, device=self.target.device)

    def after_others(self) -> Iterator[Finding]:
        """Another call of the op in between, of another size where there is one."""
        for other in samples(self.spec, seed=1):
            if not other.label.startswith("real"):
                try:
                    call(self.spec, to_target(self.spec, other.args, self.target), self.target)
                except Unsupported:
                    continue
                yield from self.hold("after", f"after {other.label!r}")
                return

    def threads(self, counts: Sequence[int]) -> Iterator[Finding]:
        """Other numbers of threads, on the CPU."""
        if self.target.device.type != "cpu":
            return
        before = torch.get_num_threads()
        try:
            for count in counts:
                torch.set_num_threads(count)
                yield from self.hold("threads", f"{count} threads")
        finally:
            torch.set_num_threads(before)

    def queue(self) -> Iterator[Finding]:
        """Another queue of the device, where it has several."""
        if self.target.device.type == "cpu":
            return
        queue = torch.Stream(device=self.target.device)
        torch.accelerator.synchronize()
        with queue:
            got = self._run()
        queue.synchronize()
        yield from self._compare("queue", "on another queue of the device", got)

    def captured(self) -> Iterator[Finding]:
        """Captured once and replayed, where the backend can."""
        graphs = CATALOG.get(self.target.backend).graphs(Device.parse(self.target.device))
        if isinstance(graphs, Graphs) and self.kernel.own:
            yield from self.replayed(graphs)

    def replayed(self, graphs: Graphs) -> Iterator[Finding]:
        """Capture, then replay with outputs and written arguments spoilt in between."""
        args, out = self._fresh(), self.buffers(0x00)
        given, names = named(self.spec, args), written(self.spec)
        before = {name: restride(given[name]) for name in names}
        graph = graphs.capture(partial(_body, self.spec, args, out, self.scratch(0)))
        try:
            for number in (1, 2):
                outs = () if out is None else out if isinstance(out, tuple) else (out,)
                for part in outs:
                    part.view(torch.uint8).fill_(0xA5)
                for name in names:
                    given[name].copy_(before[name])
                graph.replay()
                got = (*(o.clone() for o in outs), *(restride(given[name]) for name in names))
                yield from self._compare("replay", f"replay {number} of a captured call", got)
        finally:
            graph.release()


def _body(spec: OpSpec, args: tuple[Any, ...], out: Any, workspace: Tensor | None) -> Any:
    return spec.run(*args, out) if workspace is None else spec.run(*args, out, workspace)
