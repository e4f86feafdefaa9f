"""Where the codec can repeat a mistake of the codec that it stands in for.

The plain API does what is right. A program that must get the same bytes as `deepseek-recipe` 0.2.0 turns these on;
`recipe.compat` does. A rule is here only when its right behaviour differs: at most five in the whole codec.
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """One switch for each rule.

    Args:
        positional_bodies: an array in a request body may stand for an object, its items in an order that no protocol
            documents, `{"word": null}` for the word of an enumeration, and a number for the type of a tool that a
            search found, of a member of a namespace, or of an image's source. Right: both are errors of shape.
        parameter_name_ends_at_space: the name of a call's parameter ends at its first space, so that a name with one
            gives arguments that are no JSON. Right: it ends at the attribute that follows, and is escaped.
        depends_on_chunks: the same output gives another result by how it is cut and whether it comes as text or ids.
            Text of ids whose last character is not complete is lost, complete characters and all, when the output
            ends, and comes after a text chunk that follows it. Of the newlines before a tag in text, one that broke
            off the beginning of such a tag stays (`</` newline `</think>`), though not in ids. A mark
            that text leaves half done is ended by one that comes as an id. A call that was held until the end does not
            count for the finish reason. Right: only bytes that make no character are dropped,
            newlines before a tag go, and every call counts.
        logprobs_repeated: every event that a piece of output leads to has the log probabilities of the whole piece.
            Right: the first has them, and an accumulated response each of them once.
        refused_found_tools: a tool of unknown type in the output of a tool search fails the request, in words about the
            original's innards. Right: it is left out, as it is everywhere else.
    """

    positional_bodies: bool = False
    refused_found_tools: bool = False
    parameter_name_ends_at_space: bool = False
    depends_on_chunks: bool = False
    logprobs_repeated: bool = False

    @classmethod
    def all_on(cls) -> Quirks:
        return cls(**{field.name: True for field in fields(cls)})


NO_QUIRKS = Quirks()
