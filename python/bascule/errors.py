"""What Bascule raises."""

from __future__ import annotations


class BasculeError(RuntimeError):
    """An error with a code apart from its text: "INVALID_ARGUMENT", "FAILED_PRECONDITION", "DEADLINE_EXCEEDED", …

    The names are those of absl::StatusCode, in which the C++ headers of Bascule tell what each call may return.
    """

    def __init__(self, text: str, code: str = "INTERNAL"):
        super().__init__(text)
        self.code = code

    def __reduce__(self):
        return type(self), (str(self), self.code)


class BasculeTimeoutError(BasculeError, TimeoutError):
    """DEADLINE_EXCEEDED: what was waited for did not come in time."""


def error_of(code: str, text: str) -> BasculeError:
    return (BasculeTimeoutError if code == "DEADLINE_EXCEEDED" else BasculeError)(text, code)


_LONGEST_TEXT = 4000  # characters: it travels in one message


def text_of(error: BaseException) -> str:
    """What the other end is told of an error, whatever is in it: in UTF-8, and not too long."""
    try:
        text = str(error) if isinstance(error, BasculeError) else f"{type(error).__name__}: {error}"
    except Exception:  # of its __str__
        text = type(error).__name__
    if len(text) > _LONGEST_TEXT:
        text = text[:_LONGEST_TEXT] + "…"
    return text.encode(errors="backslashreplace").decode()


def code_of(error: BaseException) -> str:
    """The name of an absl::StatusCode, where the error has one; else anything."""
    try:
        return ascii(error.code)[1:-1] if isinstance(error.code, str) else ""  # type: ignore[attr-defined]
    except Exception:  # it has none, or its own code fails
        return ""
