"""Random cases through the codec and through `deepseek_recipe`, whose results have to be equal.

    python tests/support/recipe_fuzz.py --conversations 100000 --requests 20000 --streams 50000 --report TABLE.md

Every case has a number; the same number is the same case. A case that differs is made smaller and printed. At the end
stands how often each rule and each error text was met. Exit status 1: a case differed, or an error text is not listed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # as tests have it
    sys.path[:0] = [str(Path(__file__).parent)]

import recipe_conversations
import recipe_requests
import recipe_requests_rare
import recipe_rules_prompts
import recipe_rules_requests
import recipe_rules_streams
import recipe_streams
from recipe_rules import Tally
from recipe_shrink import shrink
from recipe_stream_runner import tokenizer
from recipe_subject import Case, Subject, bodies, comparable

LEAST = 20
PROTOCOLS = ("chat", "responses", "messages")
KINDS = ("conversations", "requests", "streams")
_ODD = ("nan", "inf", "-inf", "set", "bytes", "huge", "low", "key", "surrogate", "cycle", "deep", "tuple")


def subjects() -> tuple[Subject, Subject]:
    """Ours, and the original."""
    import deepseek_recipe

    import deepinfer.recipe.compat as compat

    return Subject(compat), Subject(deepseek_recipe)


# Cases by number


def conversation_case(number: int) -> Case:
    generator = recipe_conversations.Generator(number)
    rng = generator.random
    spec = generator.conversation()
    if rng.random() < 0.02:
        _break_conversation(rng, spec)
    case: Case = {"kind": "prompts", "conversation": spec}
    if rng.random() < 0.1:
        case["dump"] = True
    if rng.random() < 0.05:
        case["special_tokens"] = generator.special_tokens()
    elif rng.random() < 0.25:
        v41 = "v4" if rng.random() < 0.05 else "v4.1"
        case["tokenizers"] = {"v4": "v4", "v4.1": v41} if rng.random() < 0.97 else {}
    return case


def _break_conversation(rng: random.Random, spec: Case) -> None:
    """A word or combination that the constructors refuse."""
    kind = rng.randrange(7)
    if kind == 0:
        spec |= {"response_schema": {}, "response_regex": "a", "response_format": "text"}
    elif kind == 1:
        spec.pop("response_regex", None)
        spec |= {"response_schema": {}, "response_format": "json_object"}
    elif kind == 2:
        spec["reasoning_effort"] = "zz"
    elif kind == 3:
        spec["tool_choice"] = "zz"
    elif kind == 4:
        spec["response_format"] = "zz"
    elif kind == 5:
        spec["messages"].append({"role": "user", "content": "a", "image_token": ""})
    else:
        source = {"kind": "url", "url": "http://h", "detail": "zz"}
        spec["messages"].append({"role": "user", "content": "a", "image_sources": [source]})


def request_case(number: int, protocol: str) -> Case:
    rng = random.Random(f"{number} {protocol} request")
    sample = recipe_requests.sample(protocol, rng)
    if rng.random() < 0.15:
        sample.body, sample.rules = recipe_requests_rare.rare_request(protocol, rng), ["rare"]
    case: Case = {"kind": "convert", "protocol": protocol, "model_version": "v4", "request": sample.body}
    case |= {"options": sample.options, "rules": sample.rules, "form": rng.choice(("python", "text"))}
    if rng.random() < 0.3:
        limit = rng.choice((10, 4096, 163840, 1 << 20))
        case["extra"] = [[rng.choice((0, 1, limit // 2, limit, limit + 1)), limit] for _ in range(3)]
    if rng.random() < 0.04:
        name = rng.choice(("my-model", "DeepSeek-V4-Pro"))
        sample.options["model_aliases"] = {name: rng.choice(("DeepseekV4Pro", "DeepseekV41Flash"))}
        if isinstance(sample.body, dict):
            sample.body["model"] = name
    if rng.random() < 0.03:
        sample.options["special_tokens"] = {"user": "<U>", "image": "<image>", "dsml": "@@"}
    if rng.random() < 0.05:
        case["form"] = "odd"
        word = rng.choice(_ODD)
        odd = {"$python": word} | ({"depth": rng.choice((126, 127, 200))} if word == "deep" else {})
        case["request_python"] = {**sample.body, rng.choice(("extra", "messages", "input", "temperature")): odd}
    elif rng.random() < 0.04:
        case["form"] = "broken"
        case["request_text"] = _broken_text(rng, json.dumps(sample.body, ensure_ascii=rng.random() < 0.5))
    return case


def _broken_text(rng: random.Random, text: str) -> str:
    """JSON text with something lost or added."""
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(len(text) + 1)
        added = rng.choice(("", "", ",", "}", "]", '"', "\\", "\\ud800", "1e400", "\0", "[" * 130, " ", "-", "0"))
        text = text[:place] + added + text[place + rng.choice((0, 1, 1, 5)) :]
    return text


def stream_case(number: int) -> Case:
    protocol = PROTOCOLS[number % 3]
    case = recipe_streams.case(number, protocol, tokenizer("v4").encode)
    rng = random.Random(f"{number} more")
    if rng.random() < 0.15:
        case["each"] = True
    if protocol == "chat" and rng.random() < 0.1:
        reasoning = rng.choice(("r", "", None))
        prefix = {"role": "assistant", "content": rng.choice(("", "x")), "reasoning_content": reasoning, "prefix": True}
        case["request"] = {**case["request"], "messages": [*case["request"]["messages"], prefix]}
    if rng.random() < 0.03:
        case["answers"] = rng.choice(PROTOCOLS)
        case.pop("options", None)
    if rng.random() < 0.02:
        case.pop("tokenizer", None)
    if rng.random() < 0.02 and case["chunks"]:
        place = rng.randrange(len(case["chunks"]) + 1)
        case["chunks"].insert(place, ["tokens", [1, 2], [[-0.5, []]]])
    return case


# Comparing


def body_of(case: Case) -> Any:
    """The request in the form that the case names."""
    if case.get("form") == "text":
        return json.dumps(case["request"], ensure_ascii=False)
    if case.get("form") == "odd":
        return bodies({"request_python": case["request_python"]})[0]
    if case.get("form") == "broken":
        return case["request_text"]
    if case["kind"] == "stream":
        return bodies(case)[0]
    return case.get("request")


def outcome(subject: Subject, case: Case) -> Any:
    return comparable(subject.run(case, body_of(case)))


def as_text(value: Any) -> str:
    """Values as text, in which 1 is not 1.0, and the order of keys counts."""
    return json.dumps(value, ensure_ascii=False)


def same(ours: Any, theirs: Any) -> bool:
    """Whether two results are equal, types of numbers and order of keys included."""
    if ours != theirs:
        return False
    return "steps" in ours or as_text(ours) == as_text(theirs)  # a stream's result is text


def differ(pair: tuple[Subject, Subject], case: Case) -> bool:
    return not same(*(outcome(subject, case) for subject in pair))


class Fuzz:
    """One kind of case: compares them by number, counts what they met."""

    def __init__(self, kind: str, make: Callable[[int], Case]) -> None:
        modules = {
            "conversations": recipe_rules_prompts,
            "requests": recipe_rules_requests,
            "streams": recipe_rules_streams,
        }
        self.kind = kind
        self.make = make
        self.rules: Any = modules[kind]
        self.tally = Tally(self.rules.RULES, self.rules.ERRORS)
        self.generated: dict[str, int] = {}
        self.done = 0
        self.seeds: list[int] = []
        self.failures: list[tuple[int, Case]] = []

    def state(self) -> dict[str, Any]:
        """The counts, as plain data."""
        return {
            "kind": self.kind,
            "done": self.done,
            "seeds": self.seeds,
            "failures": self.failures,
            "counts": dict(self.tally.counts),
            "generated": self.generated,
            "unlisted": dict(self.tally.unlisted),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Add the counts of `state`."""
        self.done += state["done"]
        self.seeds += state["seeds"]
        self.failures += state["failures"]
        self.tally.counts.update(state["counts"])
        self.tally.unlisted.update(state["unlisted"])
        for name, count in state["generated"].items():
            self.generated[name] = self.generated.get(name, 0) + count

    def run(self, numbers: Iterable[int], pair: tuple[Subject, Subject]) -> None:
        recording: Any = recipe_rules_streams.recording() if self.kind == "streams" else nullcontext()
        with recording:
            for number in numbers:
                self._one(number, pair)

    def _one(self, number: int, pair: tuple[Subject, Subject]) -> None:
        case = self.make(number)
        raw = pair[0].run(case, body_of(case))
        acted = recipe_rules_streams.take_acted()
        self.done += 1
        if not same(comparable(raw), outcome(pair[1], case)):
            self.failures.append((number, case))
        for rule in case.get("rules", ()):
            name = f"{case['protocol']}.{rule}"
            self.generated[name] = self.generated.get(name, 0) + 1
        self.tally.add(self.rules.View(case, raw, acted) if self.kind == "streams" else self.rules.View(case, raw))
        for message in _messages(raw):
            self.tally.add_error(message)


def _messages(result: Any) -> Iterator[str]:
    """The error texts in a result that are part of the rules: all but those of Python, parsers and readers."""
    if isinstance(result, dict):
        if "prompt" in result and "ids" not in result and "extra" not in result:
            return
        error = result.get("error")
        if isinstance(error, dict) and "exception" in error:
            told = error["exception"] in ("ConversionError", "RuntimeError", "ValueError")
            words = ("invalid JSON request", "invalid request body", "protocol request", "not a finite", "circular")
            if told and not any(word in error["message"] for word in words) and "surrogate" not in error["message"]:
                yield error["message"]
        for key, item in result.items():
            if key not in ("conversation", "events", "image_sources", "special_ranges"):
                yield from _messages(item)
    elif isinstance(result, list):
        for item in result:
            yield from _messages(item)


# Reporting


def report(kinds: list[Fuzz]) -> str:
    """A page on what was compared."""
    lines = [
        "# What the fuzzer compared",
        "",
        "Random cases through the codec (`deepinfer.recipe.compat`) and through `deepseek-recipe` 0.2.0, by "
        "`tests/support/recipe_fuzz.py`, which writes this page. Requests are of the three protocols in turn.",
        "",
        "| Cases | Number | Seeds | Different |",
        "|---|---:|---|---:|",
        *(
            f"| {kind.kind} | {kind.done:,} | {', '.join(map(str, kind.seeds))} | {len(kind.failures)} |"
            for kind in kinds
        ),
    ]
    for kind in kinds:
        lines += [
            "",
            f"## Rules: {kind.kind}",
            "",
            "| Rule | What it says, or the pattern of the error text | Met |",
            "|---|---|---:|",
        ]
        lines += [f"| {id} | {_cell(text)} | {count:,} |" for id, text, count in kind.tally.rows()]
        if kind.generated:
            lines += ["", "How requests were made or broken:", "", "| Change | Cases |", "|---|---:|"]
            lines += [f"| {name} | {count:,} |" for name, count in sorted(kind.generated.items())]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """A rule's words; a pattern as code, numbers as N, anything as …, and nothing in it that reads like a link."""
    if "\\" not in text and ".*" not in text:
        return text.replace("|", "\\|")
    shown = text.replace("\\d+", "N").replace(".*", "…").replace("\\", "").replace("](", "] (")
    return "`" + shown.replace("|", "\\|") + "`"


def rare(kinds: list[Fuzz], least: int) -> list[str]:
    """What was met less than `least` times."""
    rows = [row for kind in kinds for row in kind.tally.rows()]
    changes = [(name, "", count) for kind in kinds for name, count in kind.generated.items()]
    return [f"{id}: {count}" for id, _, count in [*rows, *changes] if count < least]


def kinds_of(conversations: int, requests: int, streams: int) -> list[tuple[Fuzz, int]]:
    kinds = [(Fuzz("conversations", conversation_case), conversations)]
    kinds.append((Fuzz("requests", lambda number: request_case(number // 3, PROTOCOLS[number % 3])), 3 * requests))
    kinds.append((Fuzz("streams", stream_case), streams))
    return [(kind, count) for kind, count in kinds if count]


def main() -> int:
    from tqdm import tqdm

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--conversations", type=int, default=1000, help="number of conversations, by both versions each"
    )
    parser.add_argument("--requests", type=int, default=500, help="number of requests of each protocol")
    parser.add_argument("--streams", type=int, default=1000, help="number of streams")
    parser.add_argument("--seed", type=int, default=0, help="which cases: they are numbered from seed * 10,000,000 on")
    parser.add_argument("--number", type=int, help="only this case, of every kind that is asked for")
    parser.add_argument("--report", type=Path, help="file to write the table of rules to")
    parser.add_argument("--save", type=Path, help="file to write the counts to")
    parser.add_argument("--load", type=Path, nargs="*", default=[], help="files with counts, to report on as well")
    parser.add_argument("--least", type=int, default=LEAST, help="name rules that were met less often")
    parser.add_argument("--stop-after", type=int, default=10, help="stop a kind after so many differences")
    args = parser.parse_args()
    pair = subjects()
    first = args.seed * 10_000_000
    kinds = kinds_of(args.conversations, args.requests, args.streams)
    for kind, count in kinds:
        numbers = range(first, first + count) if args.number is None else [args.number]
        kind.seeds = [args.seed]
        bar = tqdm(numbers, desc=kind.kind, unit="case", mininterval=2)
        for number in bar:
            kind.run([number], pair)
            if len(kind.failures) >= args.stop_after:
                break
        for number, case in kind.failures[:5]:
            explain(pair, kind.kind, number, case)
    done = [kind for kind, _ in kinds]
    if args.save:
        args.save.write_text(json.dumps([kind.state() for kind in done]), encoding="utf-8")
    for state in (state for path in args.load for state in json.loads(path.read_text(encoding="utf-8"))):
        if all(kind.kind != state["kind"] for kind in done):
            done += [kind for kind, _ in kinds_of(*(int(name == state["kind"]) for name in KINDS))]
        next(kind for kind in done if kind.kind == state["kind"]).restore(state)
    done.sort(key=lambda kind: KINDS.index(kind.kind))
    if args.report:
        args.report.write_text(report(done), encoding="utf-8")
    unlisted = {message: count for kind in done for message, count in kind.tally.unlisted.items()}
    for message, count in unlisted.items():
        print(f"error text that is not listed ({count}): {message}")
    for line in rare(done, args.least):
        print(f"met less than {args.least} times: {line}")
    for kind in done:
        print(f"{kind.kind}: {kind.done} cases, {len(kind.failures)} different")
    return 1 if unlisted or any(kind.failures for kind in done) else 0


def explain(pair: tuple[Subject, Subject], kind: str, number: int, case: Case) -> None:
    """Print a case that differs, made small, with both results."""
    small = shrink(case, lambda candidate: differ(pair, candidate))
    print(f"\n{kind} {number} differs; made small: {as_text(small)}")
    results = [as_text(outcome(subject, small)) for subject in pair]
    apart = len(os.path.commonprefix(results))
    for name, text in zip(("ours", "original"), results):
        print(f"  {name:8} at {apart}: …{text[max(0, apart - 200) : apart + 200]}…")


if __name__ == "__main__":
    sys.exit(main())
