"""Documents of desired state: YAML and JSON in several forms, read into one set of assets.

A text becomes containers with line numbers (api/documents.py, api/locations.py), with references to the
environment replaced; loader.py finds the form of a document; asset_documents.py and bucket_fields.py make wire
configurations of it, and rules.py checks them as servers do. Every mistake is collected (collector.py) and reported
with its location.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence

from natsctl.desired.assets import DocumentError, DocumentSet, Fault


def load_documents(
    paths: Sequence[str],
    environ: Mapping[str, str],
    *,
    owner: str = "",
    variables: Mapping[str, str] | None = None,
    outside: bool = False,
) -> DocumentSet:
    """Return the documents in files, folders, globs and stdin (`-`); `variables` come before `environ` in `${NAME}`.

    With `outside`, includes and links may lead to files outside the folder of the path that names them.

    Raises DocumentError with all mistakes in all of them, UsageError for a path that does not exist.
    """
    documents, faults = read_documents(paths, environ, owner=owner, variables=variables, outside=outside)
    if faults:
        raise DocumentError(faults)
    return documents


def read_documents(
    paths: Sequence[str],
    environ: Mapping[str, str],
    *,
    owner: str = "",
    variables: Mapping[str, str] | None = None,
    outside: bool = False,
) -> tuple[DocumentSet, list[Fault]]:
    """Return the readable documents and all faults. Raises UsageError as `load_documents` does."""
    from natsctl.desired.documents.loader import Loader

    loader = Loader(ChainMap(dict(variables or {}), dict(environ)), outside=outside)
    loader.read(paths)
    return loader.found.finished(owner)


def read_text_documents(text: str, name: str, environ: Mapping[str, str]) -> tuple[DocumentSet, list[Fault]]:
    """Return the same for a text that is called `name`: JSON or YAML, by its first characters."""
    from natsctl.desired.documents.loader import Loader

    loader = Loader(environ)
    loader.read_text(text, name)
    return loader.found.finished("")
