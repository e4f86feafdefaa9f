"""What requests ask for beside their tokens, behind the graphs of a captured step: lists of log-probabilities, biases.

Graphs do the same for every sequence. These are a matter of few, so their rows are gathered and treated by themselves:
biased ones between the backbone and the sampling, those with lists behind the sampling. Nothing waits for the device,
and which rows are whose is known on the device alone. Results are copied to pinned memory, and read with the step's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..hal.stream import Streams
from ..model.decode import DecodeStep
from ..ops import sampling as ops
from ..ops.embed import gather_rows
from .ahead import Fetch
from .execute import Drawn, Work
from .slots import Upload

if TYPE_CHECKING:
    from .sampler import Sampler

SPARE = 1
"""Lines of the buffer of logits behind those of the largest step: places of a sequence that are no rows lead there."""


class Lists:
    """Of one step. False where nobody asks for anything.

    Args:
        sampler: of the executor. work: the step's. streams: of the device.
    """

    def __init__(self, sampler: Sampler, work: Sequence[Work], streams: Streams) -> None:
        params = [item.request.params for item in work]
        self._sampler, self._work, self._streams = sampler, work, streams
        self._lines: dict[str, list[int]] = {
            "bias": [n for n, p in enumerate(params) if p.logit_bias or sampler.config.blacklist],
            "raw": [n for n, p in enumerate(params) if p.logprobs is not None],
            "top": [n for n, p in enumerate(params) if p.top_logprobs],
            "smaller": list(range(len(work))) if sampler.config.sum_smaller else [],
        }
        self._places = {name: {line: at for at, line in enumerate(lines)} for name, lines in self._lines.items()}
        self._fetch = Fetch(streams)
        self._raw: Tensor | None = None
        self._width = 1

    def __bool__(self) -> bool:
        return any(self._lines.values())

    @property
    def kept(self) -> list[Any]:
        """Host memory that must outlive the step."""
        return self._fetch.kept

    def begin(self, step: DecodeStep) -> None:
        """Queue what the host knows; before the step, so that the copies are not behind it."""
        width = self._width = step.shape.width
        arrays = {name: np.array(lines, np.int32) for name, lines in self._lines.items()}
        biased = [self._work[line].request for line in self._lines["bias"] for _ in range(width)]
        self._tables = self._sampler.static_tables(biased) if biased else {}
        arrays |= {name: table.view(np.int32) for name, table in self._tables.items()}
        self._given = Upload(arrays, step.model.device, self._streams)
        self._fetch.kept.append(self._given)

    def behind(self, part: str, step: DecodeStep, logits: Tensor) -> None:
        """Queue what comes behind a part of the step.

        Args:
            logits: f32 [rows of the step or more, and one, V]. The last line is nobody's.
        """
        if part == "backbone":
            if self._lines["raw"]:
                self._raw = gather_rows(logits, self._rows("raw", step, logits))
            if self._lines["bias"]:
                rows = self._rows("bias", step, logits)
                tables = {
                    name: self._given[name].view(torch.float32) if table.dtype == np.float32 else self._given[name]
                    for name, table in self._tables.items()
                }
                logits.index_copy_(0, rows.long(), ops.adjust_logits(gather_rows(logits, rows), **tables))
        elif part == "sample":
            self._report(step, logits)

    def _rows(self, name: str, step: DecodeStep, logits: Tensor) -> Tensor:
        """int32 [lines * width]: the rows of some sequences; places that have none lead to the spare line."""
        begin, count = step.rows_of_sequences()
        lines = self._given[name].long()
        place = torch.arange(self._width, dtype=torch.int32, device=logits.device)
        rows = torch.where(place < count[lines].unsqueeze(1), begin[lines].unsqueeze(1) + place, len(logits) - SPARE)
        return rows.to(torch.int32).flatten()

    def _report(self, step: DecodeStep, logits: Tensor) -> None:
        fetch, work = self._fetch, self._work
        if self._lines["top"]:
            most = max(work[line].request.params.top_logprobs for line in self._lines["top"])
            part, inverse, kept = self._filtered("top", step, logits)
            ids, values = ops.top_logprobs(part, most, inverse, kept)
            fetch.add("top_ids", ids)
            fetch.add("top_values", values)
        if self._raw is not None:
            most = max(work[line].request.params.logprobs or 0 for line in self._lines["raw"])
            fetch.add("raw", ops.token_logprobs(self._raw, self._said("raw", step)))
            if most:
                ids, values = ops.top_logprobs(self._raw, most)
                fetch.add("raw_ids", ids)
                fetch.add("raw_values", values)
        if self._lines["smaller"]:
            part, inverse, kept = self._filtered("smaller", step, logits)
            fetch.add("smaller", ops.smaller_mass(part, inverse, kept, self._said("smaller", step)))
            fetch.add("mass", kept.mass)

    def _said(self, name: str, step: DecodeStep) -> Tensor:
        """int32 [lines * width]: the tokens of these rows."""
        said: Tensor = step.outputs.device["emitted"][self._given[name].long()]
        return said.flatten()

    def _filtered(self, name: str, step: DecodeStep, logits: Tensor) -> tuple[Tensor, Tensor, ops.Filter]:
        """Logits of these rows, inverse temperatures, and what is drawn from: as in the step's own sampling."""
        part = gather_rows(logits, self._rows(name, step, logits))
        lines, given = self._given[name].long(), step.inputs.device
        owner = lines.unsqueeze(1).expand(-1, self._width).flatten()
        inverse = given["inv_temperature"][owner]
        top_k, top_p, min_p = (given[one][owner] for one in ("top_k", "top_p", "min_p"))
        most = self._sampler.config.force_top_k
        return part, inverse, ops.sample_filter(part, inverse, top_k, top_p, min_p, force_top_k=most)

    # ---- results

    def read(self) -> dict[str, list[Any]]:
        """What was fetched, as lists; once the step is done."""
        return self._fetch.read()

    def fill(self, found: dict[str, list[Any]], line: int, place: int, drawn: Drawn) -> None:
        """What was asked about a token.

        Args:
            found: from `read`. line: of its sequence in the step. place: of its row in that.
        """
        p = self._work[line].request.params
        if p.top_logprobs:
            at = self._places["top"][line] * self._width + place
            drawn.top_ids = found["top_ids"][at][: p.top_logprobs]
            drawn.top_logprobs = found["top_values"][at][: p.top_logprobs]
        if p.logprobs is not None:
            at = self._places["raw"][line] * self._width + place
            drawn.raw_logprob = found["raw"][at]
            if p.logprobs:
                drawn.raw_top_ids = found["raw_ids"][at][: p.logprobs]
                drawn.raw_top_logprobs = found["raw_values"][at][: p.logprobs]
        if self._lines["smaller"]:
            at = line * self._width + place
            total = found["mass"][at]
            drawn.sum_smaller = found["smaller"][at] / total if total else -1.0
