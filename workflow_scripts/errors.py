"""Errors that a user can act on, and what the errors of other libraries say."""

import errno
from typing import TypeGuard


class UserError(Exception):
    """A fault that the user can act on; its text is the one line that they see."""


# How those say it that lose the error's number on the way: safetensors and tokenizers, and torch.save.
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "inline_container.cc")


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or else its name."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def refused(error: BaseException) -> TypeGuard[OSError]:
    """Whether the file system does not let this user write, or does not answer."""
    return isinstance(error, OSError) and error.errno in (
        errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE,
    )  # fmt: skip


def out_of_space(error: BaseException) -> bool:
    """Whether an error, or what led to it, comes from a full disk or quota."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or any(t in str(error) for t in _NO_SPACE)
    cause = error.__cause__ or error.__context__
    return full or (cause is not None and out_of_space(cause))
