"""Coverage-guided fuzzing of what reads other people's bytes: JSON, request bodies, and the model's output.

    pip install atheris
    python tests/support/recipe_atheris.py -max_total_time=3600 -rss_limit_mb=1024 CORPUS_FOLDER

Options are libFuzzer's. The first byte of an input picks the target, the rest is what it reads. Any exception that is
not of `deepinfer.recipe.errors` ends the run, and so does a result that is not what another way of reading gives.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris  # type: ignore[import-not-found]

sys.path[:0] = [str(Path(__file__).parent)]

with atheris.instrument_imports(include=["deepinfer.recipe"]):
    from deepinfer.recipe.encoding import Encoding
    from deepinfer.recipe.errors import RecipeError
    from deepinfer.recipe.events.side import event_sides
    from deepinfer.recipe.json_text import parse_json, print_json
    from deepinfer.recipe.options import ParsingOptions, ThinkingInitialStage
    from deepinfer.recipe.protocols import protocols
    from deepinfer.recipe.stream.chunks import FinishChunk, FinishReason, TextChunk
    from deepinfer.recipe.stream.parser import StreamProcessor
    from deepinfer.recipe.stream.usage import NO_PROMPT_USAGE
    from deepinfer.recipe.versions import model_versions

    # What is found by listing a package has to be imported here, or it would not be followed.
    FOUND = (protocols(), event_sides(), model_versions())

BODY = {
    "chat": '{"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"q"}]}',
    "responses": '{"model":"DeepSeek-V4.1-Flash","input":"q"}',
    "messages": '{"model":"DeepSeek-V4.1-Flash","messages":[{"role":"user","content":"q"}]}',
}


def read_json(data: bytes) -> None:
    try:
        value = parse_json(data)
    except RecipeError:
        return
    text = print_json(value)
    assert print_json(parse_json(text)) == text
    assert print_json(parse_json(print_json(value, compact=True))) == text


def read_request(name: str, data: bytes) -> None:
    try:
        request = protocols()[name].convert(data)
        for version in model_versions():
            prompt = Encoding(version).render(request.conversation)
            assert all(start < stop <= len(prompt.text) for start, stop in prompt.special_ranges)
    except RecipeError:
        pass


def options_of(seed: int) -> ParsingOptions:
    stages = (None, *ThinkingInitialStage)
    return ParsingOptions(
        thinking_initial_stage=stages[seed % 4],
        parse_tool_calls=bool(seed & 4),
        starts_in_tool_calls=seed & 24 == 24,
        parse_json_output=seed & 96 == 96,
        stop_sequences=("STOP", "\n\n") if seed & 128 else (),
    )


def final(name: str, options: ParsingOptions, pieces: list[str]) -> str:
    side = event_sides()[name]
    generator = side.generator(protocols()[name].convert(BODY[name]), "id", "m")
    generator.created = 0
    processor = StreamProcessor(generator, options)
    response = side.response("id", "m", 0, NO_PROMPT_USAGE)
    for chunk in [*map(TextChunk, pieces), FinishChunk(FinishReason.STOP)]:
        if not processor.finished:
            for event in processor.push(chunk):
                event.to_json()
                response.accumulate(event)
    return response.to_json()


def read_output(name: str, data: bytes) -> None:
    if len(data) < 3:
        return
    options, width = options_of(data[0]), 1 + data[1] % 16
    text = data[2:].decode("utf-8", "replace")
    pieces = [text[start : start + width] for start in range(0, len(text), width)]
    cut, whole = final(name, options, pieces), final(name, options, [text])
    if name == "chat" and not options.parse_json_output and '"call_' not in cut:  # call ids differ
        assert cut == whole, (cut, whole)


def run(data: bytes) -> None:
    if not data:
        return
    names = tuple(BODY)
    target, rest = data[0] % 7, data[1:]
    if target == 0:
        read_json(rest)
    elif target < 4:
        read_request(names[target - 1], rest)
    else:
        read_output(names[target - 4], rest)


def seeds(folder: Path) -> None:
    """The recorded cases as first inputs."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    for path in (Path(__file__).parents[1] / "recipe" / "cases").glob("*.json"):
        for index, case in enumerate(json.loads(path.read_text("utf-8"))):
            name = case.get("protocol") or "chat"
            place = tuple(BODY).index(name)
            body = {"model": "DeepSeek-V4.1-Flash", **case.get("request", {})}
            if "request" in case and isinstance(case["request"], dict):
                text = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
                (folder / f"{path.stem}-{index}").write_bytes(bytes([place + 1]) + text)
            output = "".join(chunk for chunk in case.get("chunks", ()) if isinstance(chunk, str))
            if output:
                (folder / f"{path.stem}-{index}-output").write_bytes(bytes([place + 4, 5, 3]) + output.encode())


if __name__ == "__main__":
    folders = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    if folders and not (folders[0].is_dir() and any(folders[0].iterdir())):
        seeds(folders[0])
    atheris.Setup(sys.argv, run)
    atheris.Fuzz()
