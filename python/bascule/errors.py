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


def text_of(error: BaseException) -> str:
    if isinstance(error, BasculeError):
        return str(error)
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # of its __str__
        return type(error).__name__
