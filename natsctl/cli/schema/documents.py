"""The kind of document that desired state is written in: no type describes it, but a schema of its own."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from natsctl.cli.schema.shapes import Verdict

ID: Final = "io.natsctl.plan.v1.documents"


class Documents:
    """A document of streams, consumers and buckets as they shall be: what validate, plan and apply read."""

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return its JSON schema."""
        from natsctl.desired.documents.json_schema import document_schema

        return document_schema(ID)

    @staticmethod
    def judge(document: Any) -> Verdict:
        """Return the verdict about a parsed JSON document, by the rules of servers too."""
        from natsctl.desired.documents import read_text_documents

        _, faults = read_text_documents(json.dumps(document), "the document", os.environ)
        if not faults:
            return Verdict(id=ID, valid=True, path="", reason="", unknown=[])
        return Verdict(id=ID, valid=False, path=faults[0].place.path, reason=faults[0].reason, unknown=[])
