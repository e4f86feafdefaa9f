from deepinfer.model.detokenizer import Detokenizer


class Bytes:
    """A tokenizer whose ids are bytes; 256 is a special token."""

    def token_bytes(self, token: int) -> bytes:
        return b"<end>" if token == 256 else bytes([token])

    def is_special(self, token: int) -> bool:
        return token == 256


def test_character_appears_with_its_last_byte() -> None:
    stream = Detokenizer(Bytes())
    assert [stream.push(byte) for byte in "aé🎉".encode()] == ["a", "", "é", "", "", "", "🎉"]
    assert stream.pending == b"" and stream.finish() == ""


def test_cut_character_is_held_then_replaced_at_the_end() -> None:
    stream = Detokenizer(Bytes())
    assert stream.extend("🎉".encode()[:3]) == ""
    assert stream.pending == "🎉".encode()[:3]
    assert stream.finish() == "\ufffd"
    assert stream.push(0x61) == "a"  # afresh


def test_bytes_that_cannot_be_text_are_replaced_as_soon_as_that_is_certain() -> None:
    stream = Detokenizer(Bytes())
    assert [stream.push(byte) for byte in (0xFF, 0xE3, 0x41)] == ["\ufffd", "", "\ufffdA"]


def test_special_tokens() -> None:
    ids = [0xC3, 256, 0xA9]
    assert Detokenizer(Bytes()).extend(ids) == "é"
    stream = Detokenizer(Bytes(), skip_special=False)
    assert stream.extend(ids) + stream.finish() == "\ufffd<end>\ufffd"
