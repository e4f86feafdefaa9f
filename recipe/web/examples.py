"""What the page begins with: a request of each protocol, and an output that answers all of them."""

from __future__ import annotations

import json
from typing import Any

_DESCRIPTION = "The weather of a place."
_PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["place"],
}
_SYSTEM, _QUESTION = "Answer briefly.", "Will it rain in Oslo tomorrow?"
_BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "DeepSeek-V4.1-Flash",
        "messages": [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _QUESTION}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "weather", "description": _DESCRIPTION, "parameters": _PARAMETERS},
            }
        ],
        "stream": True,
    },
    "messages": {
        "model": "DeepSeek-V4.1-Flash",
        "max_tokens": 1024,
        "system": _SYSTEM,
        "messages": [{"role": "user", "content": _QUESTION}],
        "tools": [{"name": "weather", "description": _DESCRIPTION, "input_schema": _PARAMETERS}],
        "stream": True,
    },
    "responses": {
        "model": "DeepSeek-V4.1-Flash",
        "instructions": _SYSTEM,
        "input": _QUESTION,
        "tools": [{"type": "function", "name": "weather", "description": _DESCRIPTION, "parameters": _PARAMETERS}],
        "stream": True,
    },
}

REQUESTS = {name: json.dumps(body, indent=2) for name, body in _BODIES.items()}

_MARK = "\uff5cDSML\uff5c"
_CALL = (
    f'<{_MARK} invoke name="weather">\n'
    f'<{_MARK} parameter name="place" string="true">Oslo</{_MARK} parameter>\n'
    f'<{_MARK} parameter name="days" string="false">2</{_MARK} parameter>\n'
    f"</{_MARK} invoke>\n"
)
OUTPUTS = {
    "a call": f"The forecast will tell.</think>I will look it up.\n\n<{_MARK} calls>\n{_CALL}</{_MARK} calls>",
    "an answer": "They ask about tomorrow; I have no forecast.</think>I cannot see forecasts, but **Oslo** is often "
    "wet in November. \U0001f327",
}
