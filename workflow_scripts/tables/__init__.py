"""The tables of the pipeline: what they hold, and how they are written and read."""

from workflow_scripts.tables.files import (
    TableError,
    file_sha256,
    input_digest,
    inputs_digest,
    parts,
    provenance,
    read,
    text_digest,
    write,
)
from workflow_scripts.tables.schemas import *  # a new table needs no line here
