"""The exceptions that Bascule raises."""

from __future__ import annotations


class BasculeError(RuntimeError):
    """An error with a text and a `code`: "INVALID_ARGUMENT", "FAILED_PRECONDITION", "DEADLINE_EXCEEDED", …

    The codes have the names of absl::StatusCode. Bascule's C++ headers say which codes each call may return.
    """

    def __init__(self, text: str, code: str = "INTERNAL"):
        super().__init__(text)
        self.code = code

    def __reduce__(self):
        return type(self), (str(self), self.code)


class BasculeTimeoutError(BasculeError, TimeoutError):
    """A wait took too long. The code is DEADLINE_EXCEEDED; the text says what it waited for."""


def error_of(code: str, text: str) -> BasculeError:
    """The exception for a status of the C++ library."""
    return (BasculeTimeoutError if code == "DEADLINE_EXCEEDED" else BasculeError)(text, code)


_LONGEST_TEXT = 4000  # characters: it travels in one message


def text_of(error: BaseException) -> str:
    """An error's text for the other end: always valid UTF-8, and never too long for a message."""
    try:
        text = str(error) if isinstance(error, BasculeError) else f"{type(error).__name__}: {error}"
    except Exception:  # its __str__ fails
        text = type(error).__name__
    if len(text) > _LONGEST_TEXT:
        text = text[:_LONGEST_TEXT] + "…"
    return text.encode(errors="backslashreplace").decode()


def code_of(error: BaseException) -> str:
    """The error's `code`: usually the name of an absl::StatusCode, but it may be any text. Empty if it has none."""
    try:
        return ascii(error.code)[1:-1] if isinstance(error.code, str) else ""  # type: ignore[attr-defined]
    except Exception:  # it has none, or its `code` property fails
        return ""
