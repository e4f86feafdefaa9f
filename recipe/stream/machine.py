"""The automaton of the markers: cuts pieces of output at them and says what may be put out already.

* The marker that is complete first counts; of two complete at the same character, the first of the stage's row. It
  puts out the text before it, piece by piece, and then its own output.
* Text is held while the end may begin a marker: the piece from its last marker on, whole. When nothing lies between
  that marker and the end, the marker's own output is held too, unless the marker began in an earlier piece.
* Newlines before a marker that owns newlines belong to it; with a quirk on, except a first one that broke off a
  beginning of that marker (`</` newline `</think>`).

Positions are counted from the start of the output, so that held pieces can be cut where a marker turns out to begin.
Of the text itself only as much is kept as a short marker can have matched.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, TypeAlias

from ..options import ParsingOptions
from .patterns import SHORT, Patterns, longest
from .stages import DSML, THINK_END, Effect, Marker, Other, Row, Stage, spelled, start, table


class Kind(Enum):
    """What an output is."""

    CONTENT = auto()
    REASONING = auto()
    CALL = auto()  # text: the name
    ARGUMENTS = auto()
    STOP = auto()  # text: the stop sequence


Output: TypeAlias = "tuple[Kind, str, Any]"
"""(what, text, the `source` of the piece that it came from)."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    row: Row
    by_text: Patterns
    by_ids: Patterns


@dataclass(slots=True)
class _Held:
    """A piece, or what is left of it behind its last marker, at positions [start, end)."""

    start: int
    end: int
    text: str
    source: Any


def _compile(options: ParsingOptions) -> dict[Stage, _Compiled]:
    compiled = {}
    for stage, row in table(options).items():
        by_text = Patterns([(spelled(marker.pattern, options), marker) for marker in row.markers])
        compiled[stage] = _Compiled(row, by_text, Patterns([(marker.pattern, marker) for marker in row.markers]))
    return compiled


_compile_cached = lru_cache(maxsize=32)(_compile)


def _tables(options: ParsingOptions) -> dict[Stage, _Compiled]:
    # Long stop sequences are rarely the same twice, and would stay in memory.
    is_small = all(len(stop) <= SHORT for stop in options.stop_sequences)
    return _compile_cached(options) if is_small else _compile(options)


def _may_begin(patterns: list[str], tail: str, text: str) -> bool:
    """Whether one of the patterns begins with all of `tail`, and goes on, or ends, with `text`."""
    length = len(tail)
    return any(
        pattern.startswith(tail + text[: len(pattern) - length]) for pattern in patterns if len(pattern) > length
    )


class Machine:
    """One stream's automaton.

    Attributes:
        finished: a stop sequence came.
    """

    def __init__(self, options: ParsingOptions) -> None:
        self._tables = _tables(options)
        self.finished = False
        self._keeps_broken = options.quirks.depends_on_chunks
        self._by_ids = False
        self._dsml = spelled(DSML, options)
        self._end = 0  # position behind everything fed
        self._origin = 0
        self._outputs: list[Output] = []  # held outputs of a marker; before the held pieces
        self._held: list[_Held] = []
        self._name: list[str] = []
        self._is_string = False
        self._has_parameters = False
        stage, leading = start(options)
        self._enter(stage, leading, 0)

    def _enter(self, stage: Stage | None, leading: bool, position: int) -> None:
        """Go on behind a marker that ends at `position`."""
        if stage is not None:
            self._stage = stage
            self._compiled = self._tables[stage]
            self._other = self._compiled.row.other
        self._leading = leading
        self._restart(position)

    def _restart(self, position: int) -> None:
        self._last = position  # behind the last marker
        # The end of what was fed that a short marker may have begun in, and its position.
        self._tail = ""
        self._base = position
        # Where the newlines directly before `_base` begin, and the markers of which they broke off a beginning.
        self._run: tuple[int, tuple[Marker, ...]] = (position, ())
        self._long = [0] * len(self._compiled.by_text.long)  # characters matched of each long pattern

    def feed(self, text: str, out: list[Output], source: Any = None, by_ids: bool = False, symbol: str = "") -> None:
        """Take one piece; append to `out` what is certain.

        Args:
            text: the piece. An empty one, too, puts out a text, except directly behind a marker.
            source: given back with outputs of the piece.
            by_ids: it was decoded from token ids: special tokens count only as `symbol`.
            symbol: the piece is this special token, one of the characters of `stages`.
        """
        if self._is_over():
            return
        begin = self._end
        if not text and begin == self._last:
            if begin == 0:
                self._held.append(_Held(0, 0, "", source))
            return
        if symbol == DSML and self._keeps_broken and self._goes_on(text):
            by_ids, symbol = False, ""
        self._end = begin + (1 if symbol else len(text))
        if not text:
            by_ids = self._by_ids
        elif by_ids is not self._by_ids:
            self._change_source(by_ids, symbol or text, begin)
        position = begin  # of the first character of this piece that is not dealt with
        if self._leading:
            position = self._skip_newlines(symbol or text, begin, out)
            if self.finished or begin < position == self._end:
                return
        work = self._tail + (symbol or text)[position - begin :]
        base = self._origin = self._base  # position of work[0]
        own = cut = position - base  # indices of this piece, and of what of it is not put out
        search = 0  # index behind the last marker
        mark = -1  # index in `out` of the outputs of the last marker, if it lies wholly in this piece
        known: dict[str, int] = {}
        while found := self._next(work, search, own, by_ids, known):
            marker, first, search = found
            if self._held:
                self._release(base + first, out)
            if first > cut:
                self._put(text if symbol else work[cut:first], source, out)
            mark = len(out) if first >= own else -1
            self._act(marker, source, out)
            self._enter(marker.next, marker.leading, base + search)
            if marker.leading:
                search = self._skip_newlines(work[search:], base + search, out) - base
            if self._is_over():
                return
            cut = search
        if search == len(work) and search:
            return
        hold = self._hold_from(work, search, by_ids)
        if self._held:
            self._release_whole(hold, out)
        rest = text if symbol else work[cut:]
        if hold == self._end:
            self._put(rest, source, out)
            return
        if mark >= 0 and hold == base + cut:
            self._outputs = out[mark:]
            del out[mark:]
        self._held.append(_Held(base + cut, self._end, rest, source))

    def _goes_on(self, spelling: str) -> bool:
        """Whether text ends within a mark, and the original lets the mark that comes as an id end it."""
        if self._by_ids or not self._tail:
            return False
        patterns = [
            [pattern for pattern, _ in table.short] for table in (self._compiled.by_ids, self._compiled.by_text)
        ]
        return not _may_begin(patterns[0], self._tail, DSML) and _may_begin(patterns[1], self._tail, spelling)

    def _change_source(self, by_ids: bool, text: str, position: int) -> None:
        """Text follows ids, or ids text: see to it that no special token is half of one and half of the other."""
        compiled = self._compiled
        before, after = (compiled.by_text, compiled.by_ids) if by_ids else (compiled.by_ids, compiled.by_text)
        self._by_ids = by_ids
        old, new = (self._dsml, DSML) if by_ids else (DSML, self._dsml)
        if old in self._tail:
            # Only what is skipped anyway has the mark in its tail: that positions before it shift does no harm.
            self._tail = self._tail.replace(old, new)
            self._base = position - len(self._tail)
            return
        patterns = [pattern for pattern, marker in after.short if by_ids or marker.pattern != THINK_END]
        dropped = 0
        while dropped < len(self._tail) and not _may_begin(patterns, self._tail[dropped:], text):
            dropped += 1
        if dropped:
            self._origin = self._base
            self._run = self._newlines_before(self._tail + text[:1], dropped, 0, before)
            self._tail = self._tail[dropped:]
            self._base += dropped

    def _is_over(self) -> bool:
        return self.finished or self._stage is Stage.FINISHED

    def finish(self, out: list[Output]) -> None:
        """The output ends: put out what is held."""
        self._release_whole(self._end, out)

    def _skip_newlines(self, text: str, position: int, out: list[Output]) -> int:
        """Drop the newlines that `text`, at `position` of the output, begins with; the position behind them."""
        count = len(text) - len(text.lstrip("\n"))
        stop = next((marker for marker in self._compiled.row.markers if marker.pattern == "\n"), None)
        if count and stop is not None:  # the stop sequence is complete at the same character, and comes first
            self._act(stop, None, out)
            return position
        self._leading = count == len(text)
        if count:
            self._held.clear()  # nothing but empty pieces
            self._restart(position + count)
        return position + count

    def _next(
        self, work: str, search: int, own: int, by_ids: bool, known: dict[str, int]
    ) -> tuple[Marker, int, int] | None:
        """The marker that is complete first in work[search:], and the indices where it begins and ends.

        `known` has where each pattern comes next, so that each piece is searched once for each.
        """
        patterns = self._compiled.by_ids if by_ids else self._compiled.by_text
        best: Marker | None = None
        length, end = 0, len(work) + 1
        for pattern, marker in patterns.short:
            index = known.get(pattern, -1)
            if index < search:
                index = work.find(pattern, search)
                known[pattern] = index = len(work) if index < 0 else index
            if index + len(pattern) < end and index < len(work):
                best, length, end = marker, len(pattern), index + len(pattern)
        if patterns.long:
            limit = min(end, len(work))
            for number, long in enumerate(patterns.long):
                stop, self._long[number] = long.advance(work, max(search, own), limit, self._long[number])
                earlier = stop < end or (best is not None and patterns.rank[long.marker] < patterns.rank[best])
                if stop >= 0 and earlier:
                    best, length, end = long.marker, len(long.pattern), stop
        if best is None:
            return None
        first = end - length
        if best.newlines:
            run, broken = self._newlines_before(work, first, search, patterns)
            if run < self._origin + first:
                first = run - self._origin + (best in broken)
        return best, first, end

    def _newlines_before(
        self, work: str, index: int, search: int, patterns: Patterns
    ) -> tuple[int, tuple[Marker, ...]]:
        """The position where the newlines directly before work[index] begin, and the markers that they broke off.

        Without newlines before, newlines at work[index] are meant.
        """
        base = self._origin
        if index > search and work[index - 1] != "\n" and not work.startswith("\n", index):
            return base + index, ()
        first = search + len(work[search:index].rstrip("\n"))
        if first == search:
            return self._run if search == 0 else (base + first, ())
        if not self._keeps_broken:
            return base + first, ()
        broken = tuple(
            marker for marker, beginnings in patterns.newline_beginnings if longest(work, search, first, beginnings)
        )
        return base + first, broken

    def _hold_from(self, work: str, search: int, by_ids: bool) -> int:
        """The position from which the end of the output may be a marker's beginning; the end if it is none.

        Keeps of work[search:] what the next piece needs to go on.
        """
        patterns = self._compiled.by_ids if by_ids else self._compiled.by_text
        end = self._end
        partial = patterns.partial(work, search)
        hold = end - partial
        if patterns.long:
            hold = min(hold, end - max(self._long))
        tail = len(work) - partial
        if patterns.newline_beginnings and (partial or not work or work.endswith("\n")):
            run = self._newlines_before(work, tail, search, patterns)
            for marker, beginnings in patterns.newline_beginnings:
                length = longest(work, search, len(work), beginnings) if partial else 0
                before = run if length == partial else self._newlines_before(work, len(work) - length, search, patterns)
                if before[0] < end - length:
                    hold = min(hold, before[0] + (marker in before[1]))
            self._run = run
        else:
            self._run = (end - partial, ())
        self._tail = work[tail:] if partial else ""
        self._base = end - partial
        return hold

    def _release_whole(self, position: int, out: list[Output]) -> None:
        """Put out the held pieces that end at or before `position`, and the marker output before them.

        Empty ones at the start of the output are put out with what follows only.
        """
        if self._held and self._held[0].end > position:
            return
        out += self._outputs
        self._outputs = []
        count = 0
        for piece in self._held:
            if piece.end > position or position == 0:
                break
            self._put(piece.text, piece.source, out)
            count += 1
        del self._held[:count]

    def _release(self, position: int, out: list[Output]) -> None:
        """Put out what is held before `position`, where a marker begins; the rest is the marker's."""
        out += self._outputs
        self._outputs = []
        self._release_whole(position, out)
        if self._held and self._held[0].start < position:
            piece = self._held[0]
            self._put(piece.text[: position - piece.start], piece.source, out)
        self._held.clear()

    def _put(self, text: str, source: Any, out: list[Output]) -> None:
        """Put out text that is no marker."""
        other = self._other
        if other is Other.CONTENT:
            out.append((Kind.CONTENT, text, source))
        elif other is Other.REASONING:
            out.append((Kind.REASONING, text, source))
        elif other is Other.ARGUMENT:
            out.append((Kind.ARGUMENTS, encode_basestring(text)[1:-1] if self._is_string else text, None))
        elif other is Other.SPACE:
            out.append((Kind.CONTENT, " ", source))
        elif other is Other.HOLD:
            self._name.append(text)

    def _act(self, marker: Marker, source: Any, out: list[Output]) -> None:
        """Put out what a marker itself does."""
        effect = marker.effect
        if effect is Effect.NONE:
            return
        if effect is Effect.STOP:
            self.finished = True
            out.append((Kind.STOP, marker.pattern, None))
        elif effect is Effect.KEEP:
            out.append((Kind.CONTENT, marker.pattern, source))
        elif effect is Effect.CALL:
            self._has_parameters = False
            out.append((Kind.CALL, self._take_name(), None))
        elif effect is Effect.PARAMETER:
            self._argument(", " if self._has_parameters else "{", out)
            self._has_parameters = True
            self._is_string = False
        elif effect is Effect.NAME:
            self._argument(encode_basestring(self._take_name().removeprefix('"')), out)
            self._argument(": ", out)
        elif effect is Effect.COLON:
            self._argument(": ", out)
        elif effect is Effect.STRING:
            self._argument('"', out)
            self._is_string = True
        elif effect is Effect.END_VALUE:
            if self._is_string:
                self._argument('"', out)
        elif effect is Effect.END_CALL:
            self._argument("}" if self._has_parameters else "{}", out)

    def _argument(self, text: str, out: list[Output]) -> None:
        out.append((Kind.ARGUMENTS, text, None))

    def _take_name(self) -> str:
        name = "".join(self._name)
        self._name.clear()
        return name
