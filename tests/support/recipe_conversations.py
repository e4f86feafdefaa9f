"""Random conversations as plain data, and the objects of our API or of `deepseek_recipe` made from them.

The data has the form of the recorded cases: `{"messages": [{"role": …, "content": …}, …], "tools": […], …}`. What it
asks of a codec is meant to be hostile: text that spells special tokens, halves of them in neighbouring fields, NUL,
private-use characters, ids that repeat or come in any order, arguments that are not JSON.
"""

from __future__ import annotations

import json
import random
from typing import Any

from deepinfer.recipe import conversation as ours
from deepinfer.recipe.special_tokens import SpecialToken

Spec = dict[str, Any]

SPELLINGS = [token.value for token in SpecialToken]
HALVES = [spelling[:cut] for spelling in SPELLINGS for cut in (1, len(spelling) // 2, -1)]
HALVES += [spelling[cut:] for spelling in SPELLINGS for cut in (1, len(spelling) // 2, -1)]
ODD = [
    "\0",
    "\x01",
    "\x7f",
    "\x1f",
    "\ue000",
    "\uf8ff",
    "\U000f0000",
    "\U0010ffff",
    "\ufffd",
    "\u2028",
    "\u0301",
    "\ufeff",
]
PLAIN = [
    "",
    "a",
    "b",
    " ",
    "\n",
    "\n\n",
    "\r\n",
    "x y",
    "json",
    "Hello",
    "世界",
    "😀",
    "é",
    "1234567",
    '"',
    "\\",
    "<",
    ">",
]
MARKUP = ["<tool_result>", "</tool_result>", "tool_calls>", " calls>", ' invoke name="', "## Tools", "\n\n<｜DSML｜"]
IDS = ["a", "b", "c", "z", "zz", "B", "1", "é", "", "\uffff", "😀"]
NUMBERS = ["0", "-0", "1", "-1", "1.50", "1E+2", "1e-5", "0.0000123", "1.5e-7", "1e16", "1.5e17", "5e-324", "1e400"]
NUMBERS += ["9223372036854775807", "18446744073709551615", "18446744073709551616", "-9223372036854775809", "01", "1."]


class Generator:
    """Makes conversations from a seed; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def text(self, most: int = 5) -> str:
        """A few pieces of any kind in a row."""
        kinds = (PLAIN, PLAIN, PLAIN, SPELLINGS, HALVES, ODD, MARKUP)
        count = self.random.randint(0, most)
        return "".join(self.random.choice(self.random.choice(kinds)) for _ in range(count))

    def number(self) -> str:
        if self.chance(0.6):
            return self.random.choice(NUMBERS)
        if self.chance(0.5):
            return repr(self.random.uniform(-10, 10) * 10.0 ** self.random.randint(-320, 300))
        digits = "".join(self.random.choice("0123456789") for _ in range(self.random.randint(1, 40)))
        return f"{self.random.choice('123456789')}.{digits}e{self.random.randint(-330, 290)}"

    def json_text(self, depth: int = 3) -> str:
        """JSON as a model or a client may write it: any spacing, numbers in any form, keys that repeat."""
        kind = self.random.randrange(10 if depth else 6)
        if kind == 0:
            return self.random.choice(["true", "false", "null"])
        if kind <= 2:
            return self.number()
        if kind <= 5:
            text = json.dumps(self.text(), ensure_ascii=self.chance(0.4))
            return text.replace("/", "\\/") if self.chance(0.1) else text
        space = self.random.choice(["", " ", "\n", "\t "])
        items = [self.json_text(depth - 1) for _ in range(self.random.randint(0, 3))]
        if kind == 6:
            return f"[{space}{f'{space},{space}'.join(items)}{space}]"
        return self.json_object(items, space)

    def json_object(self, values: list[str], space: str = " ") -> str:
        keys = [json.dumps(self.random.choice(["a", "b", "c", self.text(2)])) for _ in values]
        pairs = f",{space}".join(f"{key}:{space}{value}" for key, value in zip(keys, values))
        return f"{{{space}{pairs}{space}}}"

    def json_value(self) -> Any:
        """A value that both Python and JSON have."""
        while True:
            try:
                value = json.loads(self.json_text())
                json.dumps(value, allow_nan=False)
            except ValueError:
                continue
            if all(-(1 << 63) <= number < 1 << 64 for number in _integers(value)):
                return value

    def arguments(self) -> str:
        if self.chance(0.15):
            return self.random.choice(["", "{", "null", "[]", "3", '"x"', "{}", "{} x", '{"a":1,}', '{"a":"\\ud800"}'])
        if self.chance(0.05):
            depth = self.random.choice([125, 126, 127, 128, 2000])
            return '{"a":' + "[" * depth + "]" * depth + "}"
        if self.chance(0.1):
            return self.text()
        return self.json_object([self.json_text() for _ in range(self.random.randint(0, 3))])

    def tool(self) -> Spec:
        spec: Spec = {"name": self.random.choice(["f", "g", "h", self.text(2)])}
        if self.chance(0.5):
            spec["description"] = self.text()
        if self.chance(0.7):
            spec["parameters"] = self.json_value()
        if self.chance(0.2):
            spec["strict"] = self.chance(0.5)
        if self.chance(0.2):
            spec["defer_loading"] = True
        return spec

    def tools(self) -> list[Spec]:
        return [self.tool() for _ in range(self.random.randint(0, 3))]

    def images(self, spec: Spec) -> Spec:
        """Adds image sources, and the image token amid the text as often or not."""
        if self.chance(0.2):
            count = self.random.randint(1, 3)
            spec["image_sources"] = [
                {"kind": "url", "url": f"http://h/{self.random.randrange(99)}"} for _ in range(count)
            ]
            for _ in range(self.random.randint(0, 4)):
                cut = self.random.randint(0, len(spec["content"]))
                spec["content"] = spec["content"][:cut] + "<｜image｜>" + spec["content"][cut:]
        return spec

    def message(self) -> Spec:
        role = self.random.choices(["system", "user", "assistant", "tool", "latest_reminder"], [2, 5, 5, 4, 1])[0]
        spec: Spec = {"role": role, "content": self.text()}
        if role == "system" and self.chance(0.2):
            spec["tools"] = self.tools()
        if role == "tool" and self.chance(0.8):
            spec["tool_call_id"] = self.random.choice(IDS)
        if role == "assistant":
            if self.chance(0.5):
                spec["reasoning_content"] = self.text()
            if self.chance(0.5):
                spec["tool_calls"] = [
                    {"id": self.random.choice(IDS), "name": self.text(2), "arguments": self.arguments()}
                    for _ in range(self.random.randint(0, 3))
                ]
            if self.chance(0.15):
                spec["prefix"] = True
            return spec
        return spec if role == "latest_reminder" else self.images(spec)

    def conversation(self) -> Spec:
        spec: Spec = {"messages": [self.message() for _ in range(self.random.randint(0, 7))]}
        spec["thinking_mode"] = self.chance(0.6)
        if self.chance(0.5):
            spec["tools"] = self.tools()
            spec["tool_choice"] = self.random.choice(["auto", "none", "required"])
        if self.chance(0.5):
            spec["reasoning_effort"] = self.random.choice([None, "low", "high", "xhigh", "max"])
        if self.chance(0.3):
            name, value = self.random.choice(
                [("response_format", "json_object"), ("response_schema", self.json_value()), ("response_regex", "a+")]
            )
            spec[name] = value
        return spec

    def special_tokens(self) -> dict[str, str]:
        """Other spellings of some tokens, as keyword arguments. None is empty: some codecs fail on that."""
        names = [token.name.lower() for token in SpecialToken]
        return {name: f"<{self.text(2)}>" for name in self.random.sample(names, self.random.randint(1, 4))}


def _integers(value: Any) -> list[int]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for item in value for number in _integers(item)]
    return [value] if isinstance(value, int) else []


# --- objects from data -------------------------------------------------------------------------------------------

MESSAGES = {
    "system": "SystemMessage",
    "user": "UserMessage",
    "assistant": "AssistantMessage",
    "tool": "ToolMessage",
    "latest_reminder": "LatestReminder",
}


def build(spec: Spec, module: Any = ours) -> Any:
    """The conversation of this data, of our API or of a module with the API of `deepseek_recipe`."""
    spec = {**spec, "messages": [_message(message, module) for message in spec["messages"]]}
    if "tools" in spec:
        spec["tools"] = [module.ToolDefinition(**tool) for tool in spec["tools"]]
    return module.Conversation(**spec)


def _message(spec: Spec, module: Any) -> Any:
    spec = dict(spec)
    name = MESSAGES[spec.pop("role")]
    if name == "LatestReminder" and module is not ours:
        name = "LatestReminderMessage"
    if "image_sources" in spec:
        spec["image_sources"] = [image_source(source, module) for source in spec["image_sources"]]
    if spec.get("tools") is not None:
        spec["tools"] = [module.ToolDefinition(**tool) for tool in spec["tools"]]
    if spec.get("tool_calls") is not None:
        spec["tool_calls"] = [module.ToolCall(**call) for call in spec["tool_calls"]]
    return getattr(module, name)(**spec)


def image_source(spec: Spec, module: Any = ours) -> Any:
    spec = dict(spec)
    kind = spec.pop("kind")
    if "data_hex" in spec:
        spec["data"] = bytes.fromhex(spec.pop("data_hex"))
    if module is ours:
        return getattr(ours.ImageSource, f"from_{kind}")(**spec)
    names = {"url": "UrlImageSource", "data_url": "DataUrlImageSource", "bytes": "BytesImageSource"}
    return getattr(module, names[kind])(**spec)
