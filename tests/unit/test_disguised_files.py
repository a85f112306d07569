"""Files that are not what they seem, given to `armslength compare` and as problem sets: one line says what they are."""

import bz2
import gzip
import lzma
import zipfile
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from compare_calls import EXAMPLE, one_line, said

from workflow_scripts.benchmarks import files

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32\nsize 12345\n"
ROW = b'{"q": "x", "a": "1"}\n'


def packed(path: Path) -> bytes:
    """A zip archive of one row."""
    with zipfile.ZipFile(path / "z", "w") as archive:
        archive.writestr("x", ROW)
    return (path / "z").read_bytes()


DISGUISES = {
    "git-lfs": (LFS, "this is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull`"),
    "git-lfs with BOM": (b"\xef\xbb\xbf" + LFS.replace(b"\n", b"\r\n"), "this is a Git LFS pointer"),
    "git-annex": (b"/annex/objects/SHA256E-s5--abc.csv\n", "this is a git-annex pointer, not the file itself; fetch"),
    "git-annex, unlocked link": (b"../.git/annex/objects/ab/cd/SHA256E-s5--abc\n", "this is a git-annex pointer"),
    "html": (b"\n<!DOCTYPE html>\n<html><body>404</body></html>", "this is an HTML page, perhaps the error page of"),
    "html without doctype": (b"<HTML><HEAD><TITLE>502 Bad Gateway", "this is an HTML page"),
    "xml": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "this is an XML document"),
    "gzip": (gzip.compress(EXAMPLE.encode()), "this is a gzip archive; unpack it first (gunzip)"),
    "bzip2": (bz2.compress(ROW), "this is a bzip2 archive"),
    "xz": (lzma.compress(ROW), "this is an xz archive"),
    "zstd": (pa.compress(ROW, codec="zstd", asbytes=True), "this is a zstd archive"),
    "zip": (packed, "this is a zip archive or an Excel workbook"),
    "utf-16": (EXAMPLE.encode("utf-16"), "this is UTF-16 text; save it as UTF-8"),
    "pickle": (b"\x80\x04\x95\x1f", "this is a Python pickle"),
    "arrow": (b"ARROW1\0\0", "this is an Arrow file"),
    "empty": (b"", "the file is empty"),
    "blank": (b" \n\n", "the file is empty"),
}


@pytest.mark.parametrize("name", DISGUISES)
def test_a_file_that_is_not_what_it_seems_is_named(tmp_path: Path, name: str) -> None:
    made, expected = DISGUISES[name]
    content = made(tmp_path) if callable(made) else made
    for file in ("x.csv", "x.jsonl", "x.parquet", "x"):
        path = tmp_path / file
        path.write_bytes(content)
        for argument in (path, f"a:0={path}"):
            code, out, err = said(argument)
            assert (code, out) == (1, "")
            assert f"{path}: {expected}" in one_line(err)
    for file in ("x.jsonl", "x.json", "x.parquet"):
        (tmp_path / file).write_bytes(content)
        if name in ("empty", "blank") and file != "x.parquet":
            assert list(files.rows(tmp_path / file)) == []  # which sources say of a set without rows
            continue
        with pytest.raises(files.SourceError) as fault:
            list(files.rows(tmp_path / file))
        assert str(fault.value).startswith(f"{tmp_path / file}: {expected}") and "\n" not in str(fault.value)


def test_links_without_their_target_and_folders(tmp_path: Path) -> None:
    (tmp_path / "lost.csv").symlink_to(".git/annex/objects/Xy/Z1/SHA256E-s1--a.csv/SHA256E-s1--a.csv")
    (tmp_path / "gone.csv").symlink_to("nowhere.csv")
    (tmp_path / "empty").mkdir()
    for name, expected in (
        ("lost.csv", "a git-annex link whose content is not on this machine; fetch it with `git annex get`"),
        ("gone.csv", "this is a link to nowhere.csv, which does not exist"),
        ("empty", "a folder without samples_*.jsonl or details_*.parquet"),
    ):
        assert f"{tmp_path / name}: " in one_line(said(tmp_path / name)[2])
        assert expected in one_line(said(f"a:0={tmp_path / name}")[2])


def test_a_parquet_file_by_another_name(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"arm": list("aabb"), "seed": [0, 1] * 2, "problem": ["p"] * 4, "n": [8] * 4, "c": [1, 2, 6, 7]}
    )
    frame.to_parquet(tmp_path / "x.csv")
    assert said(tmp_path / "x.csv")[0] == 0  # read for what it is
    for name in ("x.jsonl", "x.json"):
        frame.to_parquet(tmp_path / name)
        with pytest.raises(files.SourceError, match=r"this is a parquet file; rename it so that its name ends in"):
            list(files.rows(tmp_path / name))
