"""Files that are not what their name says: a pointer to a file elsewhere, a saved error page, a packed file."""

import re
from pathlib import Path

START = 1 << 12  # bytes that tell what a file is
PARQUET = b"PAR1"
_SPACE = rb"(?:\xef\xbb\xbf)?\s*"
_AGAIN = "perhaps the error page of a failed download; download the file again"
_TABLE = "save it as csv or parquet"
# What a file starts with, what it is, and what to do with one that should hold a table.
_KINDS = tuple(
    (re.compile(start, re.IGNORECASE | re.DOTALL), what, remedy)
    for start, what, remedy in (
        (
            _SPACE + rb"version https://(git-lfs|hawser)\.github\.com/spec",
            "a Git LFS pointer, not the file itself",
            "fetch the file with `git lfs pull`",
        ),
        (
            _SPACE + rb"(\.\./)*(\.git)?/?annex/objects/\S",
            "a git-annex pointer, not the file itself",
            "fetch the file with `git annex get`",
        ),
        (_SPACE + rb"(<!--.*?-->\s*)*<(!doctype html|html|head|body|title|meta)\b", f"an HTML page, {_AGAIN}", ""),
        (_SPACE + rb"<(\?xml|Error>)", f"an XML document, {_AGAIN}", ""),
        (rb"\x1f\x8b", "a gzip archive", "unpack it first (gunzip)"),
        (rb"BZh[1-9]1AY&SY", "a bzip2 archive", "unpack it first (bunzip2)"),
        (rb"\xfd7zXZ\0", "an xz archive", "unpack it first (unxz)"),
        (rb"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it first (unzstd)"),
        (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it first"),
        (rb".{257}ustar", "a tar archive", "unpack it first"),
        (rb"PK\x03\x04", "a zip archive or an Excel workbook", "unpack it, or save the sheet as csv"),
        (rb"\xd0\xcf\x11\xe0", "an old Excel workbook", "save the sheet as csv"),
        (rb"\xff\xfe[\t\n\r -~]\0|\xfe\xff\0[\t\n\r -~]", "UTF-16 text", "save it as UTF-8"),
        (rb"ARROW1\0|\xff\xff\xff\xff", "an Arrow file", _TABLE),
        (rb"SQLite format 3\0", "an SQLite database", _TABLE),
        (rb"\x89HDF", "an HDF5 file", _TABLE),
        (rb"\x93NUMPY", "a NumPy array", _TABLE),
        (rb"\x80[\x02-\x05]", "a Python pickle", _TABLE),
        (rb"%PDF-", "a PDF document", _TABLE),
    )
)


def lost_link(path: Path) -> str | None:
    """What is wrong with a link whose target is missing, as git-annex leaves them; None for anything else."""
    if not path.is_symlink() or path.exists():
        return None
    if "annex/objects/" in str(path.readlink()):
        return "this is a git-annex link whose content is not on this machine; fetch it with `git annex get`"
    return f"this is a link to {path.readlink()}, which does not exist"


def foreign(path: Path) -> str | None:
    """What the file is and what to do, where it starts like something that is neither text with data nor parquet; None
    if its content may well be data. OSError if it cannot be read."""
    with path.open("rb") as file:
        start = file.read(START)
    found = next(((what, remedy) for pattern, what, remedy in _KINDS if pattern.match(start)), None)
    return found and f"this is {'; '.join(filter(None, found))}"


def name_of(start: bytes) -> str | None:
    """What a file with this beginning is, such as "a gzip archive"; None if it may well be data."""
    return next((what for pattern, what, _ in _KINDS if pattern.match(start)), None)
